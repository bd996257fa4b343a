//! The memory of a proxy during a long response.

use std::time::Duration;

use crate::contestants::{Contestants, Environment, Kind, list};
use crate::error::BenchError;
use crate::load::read_slowly;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// The peak memory of each contestant above its memory before, while a client read slowly.
pub(crate) async fn slow_list(
    environment: &Environment,
    contestants: &Contestants,
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
    let tls = environment.user_tls(protocol)?;
    for contestant in &contestants.running {
        let read = |bytes: usize, slow_for| {
            let request = list(bytes);
            let (address, tls) = (contestant.address, tls.clone());
            async move { read_slowly(address, &tls, protocol, &request, bytes, slow_for).await }
        };
        // The first response also allocates what stays.
        read(1 << 20, Duration::ZERO).await?;
        let before = contestant.tree.resident()?;
        contestant.tree.reset_peak()?;
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
