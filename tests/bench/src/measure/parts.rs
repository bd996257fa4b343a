//! What the parts of the gateway cost that can be off: access log, traces, limits, turns at shards.
//!
//! A few microseconds of some twenty are less than what two runs of the same program differ by. So both run for a short
//! while, one right after the other, many times, and what counts is the median of the differences. Traces are sent while
//! their gateway has its turn.

use std::time::Duration;

use super::gets::{load, saturate};
use super::{Effort, Rounds, Who};
use crate::contestants::{Field, Ground, Kind};
use crate::error::BenchError;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// The gateway with some of its parts.
const WITH_PARTS: [Kind; 3] = [Kind::Observed, Kind::Limited, Kind::Appliance];
/// Pairs for each round of other measurements.
const PAIRS: usize = 10;
/// All parts together, per request.
const MOST_MICROS: f64 = 3.0;

/// User and system time per request with parts and without, a row for each that has any.
pub(crate) async fn cost_of_parts(
    ground: &Ground,
    field: &Field,
    effort: Effort,
    protocol: Protocol,
) -> Result<Vec<Row>, BenchError> {
    let of = |kind| field.contestants.iter().find(|contestant| contestant.kind == kind);
    let Some(plain) = of(Kind::Gateway) else { return Ok(Vec::new()) };
    let effort = Effort {
        rounds: effort.rounds * PAIRS,
        warm_up: Duration::from_millis(150),
        duration: effort.duration.mul_f64(0.25),
    };
    let mut rows = Vec::new();
    for other in WITH_PARTS.into_iter().filter_map(of) {
        let mut rounds = Rounds::default();
        for round in 0..effort.rounds {
            let pair = if round.is_multiple_of(2) { [plain, other] } else { [other, plain] };
            for contestant in pair {
                let load = load(ground, contestant, protocol, Who::Certificate)?;
                rounds.add(contestant.kind, saturate(&load, contestant, effort).await?.cpu_micros);
            }
        }
        let protocol = match protocol {
            Protocol::Http1 => "h1→h2",
            Protocol::Http2 => "h2→h2",
        };
        let what = format!("CPU per GET, {protocol}, {} pairs with {}", effort.rounds, other.kind.name());
        let mut row = Row::new(what, "µs", 1);
        rounds.fill(&mut row);
        let more = row.more.get(&other.kind).copied().unwrap_or(f64::NAN);
        eprintln!("{}: {more:+.1} µs", row.what);
        if other.kind == Kind::Appliance {
            row = row.goal(Goal::PartsMostAbove(MOST_MICROS, Kind::Appliance));
        }
        rows.push(row);
    }
    Ok(rows)
}
