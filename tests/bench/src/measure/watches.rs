//! Idle watches: what each holds, how long they take to open, and how long one event takes to all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlead_tests::load::raise_file_limit;

use crate::contestants::{Contestant, Field, Ground, Kind, watch};
use crate::error::BenchError;
use crate::load::{WatchLoad, Watches};
use crate::report::{Goal, Row};
use crate::wire::{Ask, Connection, Protocol, Seen};

/// How long a process may settle before its memory is read.
const SETTLE: Duration = Duration::from_millis(700);
/// Files that a process has open besides its watches.
const OTHER_FILES: u64 = 500;

/// What one contestant has shown.
struct Shown {
    kibibytes: f64,
    opened: Duration,
    event: Duration,
}

/// Watches on every contestant in turn; nginx holds back what it has not filled a buffer with, and is left out.
pub(crate) async fn idle_watches(
    ground: &Ground,
    field: &Field,
    count: usize,
    per_connection: usize,
) -> Result<(Vec<Row>, Vec<String>), BenchError> {
    let room = raise_file_limit().saturating_sub(OTHER_FILES) as usize;
    let connections = count.div_ceil(per_connection).min(room);
    let (wanted, count) = (count, count.min(connections * per_connection));
    let mut notes = Vec::new();
    if count < wanted {
        notes.push(format!("{count} watches instead of {wanted}: the limit of open files is low."));
    }
    let mut shown = BTreeMap::new();
    for contestant in &field.contestants {
        let name = contestant.kind.name();
        if contestant.kind == Kind::Nginx {
            continue;
        }
        match of_one(ground, field, contestant, count, per_connection).await {
            Ok(result) => {
                eprintln!(
                    "{count} watches, {per_connection} per connection, {name}: {:.1} KiB each, open in {:?}, event in {:?}",
                    result.kibibytes, result.opened, result.event
                );
                shown.insert(contestant.kind, result);
            }
            Err(error) if matches!(contestant.kind, Kind::Gateway | Kind::Observed) => return Err(error),
            Err(error) => notes.push(format!("{count} watches through {name}: {error}.")),
        }
    }
    let most = if per_connection == 1 { 40.0 } else { 8.0 };
    let which = format!("{count} watches, {per_connection} per connection");
    let row = |what: &str, unit, digits, goal, value: fn(&Shown) -> f64| {
        let mut row = Row::new(format!("{which}: {what}"), unit, digits).goal(goal);
        row.values = shown.iter().map(|(kind, shown)| (*kind, value(shown))).collect();
        row
    };
    let rows = vec![
        row("memory each", "KiB", 1, Goal::Most(most), |shown| shown.kibibytes),
        row("opened in", "s", 2, Goal::Most(5.0), |shown| shown.opened.as_secs_f64()),
        row("one event to all in", "s", 2, Goal::Most(1.0), |shown| shown.event.as_secs_f64()),
    ];
    Ok((rows, notes))
}

async fn of_one(
    ground: &Ground,
    field: &Field,
    contestant: &Contestant,
    count: usize,
    per_connection: usize,
) -> Result<Shown, BenchError> {
    let tls = ground.user_tls(Protocol::Http2)?;
    let mut watches =
        Watches::new(WatchLoad { address: contestant.address, tls, ask: watch(), per_connection });
    // The first pay for what all share; memory is the slope from there on.
    let first = (count / 10).next_multiple_of(per_connection).min(count);
    let mut opened = watches.open(first).await?;
    tokio::time::sleep(SETTLE).await;
    let before = contestant.tree.memory()?;
    opened += watches.open(count - first).await?;
    tokio::time::sleep(SETTLE).await;
    let grown = contestant.tree.memory()? as f64 - before as f64;
    let event = watches.event(send_event(ground, field)).await?;
    Ok(Shown { kibibytes: grown / 1024.0 / (count - first) as f64, opened, event })
}

/// Asks the backend itself for an event.
async fn send_event(ground: &Ground, field: &Field) -> Result<(), BenchError> {
    let ask = Ask { path: crate::backend::EVENT_PATH.to_owned(), token: None };
    let tls = ground.user_tls(Protocol::Http1)?;
    let mut connection = Connection::open(field.backend, &tls, Protocol::Http1, &ask).await?;
    connection.send();
    connection.flush().await?;
    let mut seen = Vec::new();
    while !seen.iter().any(|event| matches!(event, Seen::End { .. })) {
        connection.receive(&mut seen).await?;
    }
    Ok(())
}
