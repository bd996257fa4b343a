//! The cost of the gateway's optional parts: access log, traces, limits, queueing before shards.
//!
//! The cost is a few microseconds of some twenty, less than the difference between two runs of the same program. So the
//! gateway with the parts and without run alternately for short times, and the median of the differences counts. Traces are
//! exported while their gateway is measured.

use std::time::Duration;

use super::gets::{load, saturate};
use super::{Effort, Rounds, UserCredential};
use crate::contestants::{Contestants, Environment, Kind};
use crate::error::BenchError;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// The contestants with optional parts.
const WITH_PARTS: [Kind; 3] = [Kind::Observed, Kind::Limited, Kind::Appliance];
/// Number of pairs per round of other measurements.
const PAIRS: usize = 10;
/// Goal for all parts together, per request.
const MAX_MICROSECONDS: f64 = 3.0;

/// Rows with user and system time per request, with parts and without.
pub(crate) async fn cost_of_parts(
    environment: &Environment,
    contestants: &Contestants,
    effort: Effort,
    protocol: Protocol,
) -> Result<Vec<Row>, BenchError> {
    let of = |kind| contestants.running.iter().find(|contestant| contestant.kind == kind);
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
                let load = load(environment, contestant, protocol, UserCredential::Certificate)?;
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
            row = row.goal(Goal::PartsMostAbove(MAX_MICROSECONDS, Kind::Appliance));
        }
        rows.push(row);
    }
    Ok(rows)
}
