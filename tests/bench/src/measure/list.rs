//! What a long answer makes a proxy hold.

use std::time::Duration;

use crate::contestants::{Field, Ground, Kind, list};
use crate::error::BenchError;
use crate::load::read_slowly;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// The most that each ever held above what it held before, while a client read slowly.
pub(crate) async fn slow_list(
    ground: &Ground,
    field: &Field,
    protocol: Protocol,
    mebibytes: usize,
    slow_for: Duration,
) -> Result<(Row, Vec<String>), BenchError> {
    let way = match protocol {
        Protocol::Http1 => "h1→h2",
        Protocol::Http2 => "h2→h2",
    };
    let name = format!("{mebibytes} MiB list, slow client, {way}: memory above idle");
    let mut row = Row::new(name.clone(), "MiB", 1).goal(Goal::Most(2.0));
    let mut notes = Vec::new();
    let tls = ground.user_tls(protocol)?;
    for contestant in &field.contestants {
        let read = |bytes: usize, slow_for| {
            let ask = list(bytes);
            let (address, tls) = (contestant.address, tls.clone());
            async move { read_slowly(address, &tls, protocol, &ask, bytes, slow_for).await }
        };
        // The first answer pays for what stays.
        read(1 << 20, Duration::ZERO).await?;
        let before = contestant.tree.resident()?;
        contestant.tree.forget_peak()?;
        let outcome = read(mebibytes << 20, slow_for).await;
        let above = contestant.tree.peak()?.saturating_sub(before) as f64 / f64::from(1 << 20);
        eprintln!("{name}, {}: {above:.1} MiB", contestant.kind.name());
        match outcome {
            Ok(()) => {
                row.values.insert(contestant.kind, above);
            }
            Err(error) if matches!(contestant.kind, Kind::Gateway | Kind::Observed) => return Err(error),
            Err(error) => notes.push(format!("{name}, {}: {error}.", contestant.kind.name())),
        }
    }
    Ok((row, notes))
}
