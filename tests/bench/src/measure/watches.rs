//! Idle watches: the memory of each, the time to open them, and the time of one event to all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlead_tests::load::raise_file_limit;

use crate::contestants::{Contestant, Contestants, Environment, Kind, watch};
use crate::error::BenchError;
use crate::load::{WatchLoad, Watches};
use crate::report::{Goal, Row};
use crate::wire::{Connection, Protocol, RequestSpec, ResponseEvent};

/// Time before memory is read.
const SETTLE: Duration = Duration::from_millis(700);
/// Open files of a process besides its watches.
const OTHER_FILES: u64 = 500;

/// The results of one contestant.
struct Figures {
    kibibytes: f64,
    opened: Duration,
    event: Duration,
}

/// Measures watches through every contestant in turn. nginx is left out: it holds back data until a buffer is full.
pub(crate) async fn idle_watches(
    environment: &Environment,
    contestants: &Contestants,
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
    let mut figures = BTreeMap::new();
    for contestant in &contestants.running {
        let name = contestant.kind.name();
        if contestant.kind == Kind::Nginx {
            continue;
        }
        match of_one(environment, contestants, contestant, count, per_connection).await {
            Ok(result) => {
                eprintln!(
                    "{count} watches, {per_connection} per connection, {name}: {:.1} KiB each, open in {:?}, event in {:?}",
                    result.kibibytes, result.opened, result.event
                );
                figures.insert(contestant.kind, result);
            }
            Err(error) if matches!(contestant.kind, Kind::Gateway | Kind::Observed) => return Err(error),
            Err(error) => notes.push(format!("{count} watches through {name}: {error}.")),
        }
    }
    let most = if per_connection == 1 { 40.0 } else { 8.0 };
    let which = format!("{count} watches, {per_connection} per connection");
    let row = |what: &str, unit, digits, goal, value: fn(&Figures) -> f64| {
        let mut row = Row::new(format!("{which}: {what}"), unit, digits).goal(goal);
        row.values = figures.iter().map(|(kind, figures)| (*kind, value(figures))).collect();
        row
    };
    let rows = vec![
        row("memory each", "KiB", 1, Goal::Most(most), |figures| figures.kibibytes),
        row("opened in", "s", 2, Goal::Most(5.0), |figures| figures.opened.as_secs_f64()),
        row("one event to all in", "s", 2, Goal::Most(1.0), |figures| figures.event.as_secs_f64()),
    ];
    Ok((rows, notes))
}

async fn of_one(
    environment: &Environment,
    contestants: &Contestants,
    contestant: &Contestant,
    count: usize,
    per_connection: usize,
) -> Result<Figures, BenchError> {
    let tls = environment.user_tls(Protocol::Http2)?;
    let mut watches =
        Watches::new(WatchLoad { address: contestant.address, tls, request: watch(), per_connection });
    // The first watches also create shared state. Memory is the slope after them.
    let first = (count / 10).next_multiple_of(per_connection).min(count);
    let mut opened = watches.open(first).await?;
    tokio::time::sleep(SETTLE).await;
    let before = contestant.tree.memory()?;
    opened += watches.open(count - first).await?;
    tokio::time::sleep(SETTLE).await;
    let grown = contestant.tree.memory()? as f64 - before as f64;
    let event = watches.event(send_event(environment, contestants)).await?;
    Ok(Figures { kibibytes: grown / 1024.0 / (count - first) as f64, opened, event })
}

/// Triggers an event at the backend.
async fn send_event(environment: &Environment, contestants: &Contestants) -> Result<(), BenchError> {
    let request = RequestSpec { path: crate::backend::EVENT_PATH.to_owned(), token: None };
    let tls = environment.user_tls(Protocol::Http1)?;
    let mut connection = Connection::open(contestants.backend, &tls, Protocol::Http1, &request).await?;
    connection.send();
    connection.flush().await?;
    let mut seen = Vec::new();
    while !seen.iter().any(|event| matches!(event, ResponseEvent::End { .. })) {
        connection.receive(&mut seen).await?;
    }
    Ok(())
}
