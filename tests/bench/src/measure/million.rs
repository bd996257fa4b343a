//! A million workspaces in the gateway's routing table. Tests of the gateway measure them; this module makes rows of their
//! figures.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::contestants::Kind;
use crate::error::BenchError;
use crate::report::{Goal, Row};

/// Runs these tests, and builds them if necessary.
const COMMAND: [&str; 10] = [
    "test",
    "--release",
    "-p",
    "fairlead-gateway",
    "--lib",
    "--",
    "--ignored",
    "--nocapture",
    "--test-threads=1",
    "figures_of",
];

/// The rows, and a note if a figure is missing.
pub(crate) async fn a_million_workspaces() -> Result<(Vec<Row>, Option<String>), BenchError> {
    let output = Command::new("cargo")
        .args(COMMAND)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(BenchError::system("running cargo"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().for_each(|line| eprintln!("{line}"));
    let figures = [
        ("1 M workspaces: memory each", "B", 0, 200.0, bytes_each(&text)),
        ("1 M workspaces: snapshot read in", "s", 2, 2.0, snapshot(&text).map(|time| time.as_secs_f64())),
        (
            "1 M workspaces: look-up of 1000 in use during 10,000 updates/s",
            "µs",
            2,
            1.0,
            look_up(&text, IN_USE),
        ),
        ("1 M workspaces: look-up of all in turn during 10,000 updates/s", "µs", 2, 1.0, look_up(&text, ALL)),
    ];
    let is_missing = figures.iter().any(|(.., value)| value.is_none());
    let rows = figures.map(|(what, unit, digits, most, value)| {
        let mut row = Row::new(what, unit, digits).goal(Goal::Most(most));
        row.values.extend(value.map(|value| (Kind::Gateway, value)));
        row
    });
    let note = || format!("A figure of a million workspaces is missing; see `cargo {}`.", COMMAND.join(" "));
    Ok((rows.into(), is_missing.then(note)))
}

/// Parses `173 bytes per workspace`.
fn bytes_each(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.ends_with(" bytes per workspace"))?;
    line.split(' ').next()?.parse().ok()
}

/// Parses `read in 1.2s`.
fn snapshot(text: &str) -> Option<Duration> {
    text.lines().find_map(|line| duration(line.strip_prefix("read in ")?))
}

/// The kind of look-ups: of a few workspaces, found in the processor's caches, or of all, found in memory.
const IN_USE: &str = " among 1000 in use";
const ALL: &str = " from all over";

/// Parses microseconds from `with 10000 updates/s: 417ns from all over, 91ns among 1000 in use`.
fn look_up(text: &str, which: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains(" updates/s: "))?;
    let figure = line.split_once(which)?.0.rsplit(' ').next()?;
    duration(figure).map(|time| time.as_secs_f64() * 1e6)
}

/// Parses a duration as formatted by `Debug`.
fn duration(text: &str) -> Option<Duration> {
    let units = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, seconds) =
        units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
    number.parse::<f64>().ok().map(|number| Duration::from_secs_f64(number * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_from_the_output_of_the_tests() {
        let text = "running 2 tests\n173 bytes per workspace\nread in 1.25s\n\
            with 9998 updates/s: 417ns from all over, 91ns among 1000 in use\n";
        assert_eq!(bytes_each(text), Some(173.0));
        assert_eq!(snapshot(text), Some(Duration::from_millis(1250)));
        assert_eq!(look_up(text, ALL), Some(0.417));
        assert_eq!(look_up(text, IN_USE), Some(0.091));
        assert_eq!((bytes_each(""), snapshot("read in a while"), look_up("", ALL)), (None, None, None));
    }
}
