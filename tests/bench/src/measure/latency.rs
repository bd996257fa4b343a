//! The latency that a proxy adds far below saturation, and its CPU time there.

use std::time::Duration;

use super::gets::{UserCredential, load};
use super::{Effort, Rounds, order};
use crate::contestants::{Contestants, Environment, Kind};
use crate::error::BenchError;
use crate::load::PacedLoad;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

const RATE: u32 = 2000;
const MAX_ADDED_MILLISECONDS: [(f64, f64); 2] = [(50.0, 0.3), (99.0, 1.5)];

/// Percentiles at a fixed rate, and the CPU time per request.
pub(crate) async fn at_fixed_rate(
    environment: &Environment,
    contestants: &Contestants,
    effort: Effort,
    protocol: Protocol,
) -> Result<Vec<Row>, BenchError> {
    let way = match protocol {
        Protocol::Http1 => "h1→h2",
        Protocol::Http2 => "h2→h2",
    };
    let (mut percentiles, mut cpu) = ([Rounds::default(), Rounds::default()], Rounds::default());
    for round in 0..effort.rounds {
        for contestant in order(contestants, round) {
            let load = load(environment, contestant, protocol, UserCredential::Certificate)?;
            let paced = PacedLoad { load, rate: RATE, warm_up: effort.warm_up, duration: effort.duration };
            let before = contestant.tree.cpu()?;
            let mut latencies = paced.run().await?;
            let spent = contestant.tree.cpu()? - before;
            let requests = f64::from(RATE) * (effort.warm_up + effort.duration).as_secs_f64();
            let micros = spent.as_secs_f64() * 1e6 / requests;
            eprintln!(
                "at {RATE}/s, {way}, round {round}, {}: {}, {micros:.0} µs CPU",
                contestant.kind.name(),
                latencies.summary()
            );
            for (rounds, (percent, _)) in percentiles.iter_mut().zip(MAX_ADDED_MILLISECONDS) {
                rounds.add(contestant.kind, milliseconds(latencies.percentile(percent)));
            }
            cpu.add(contestant.kind, micros);
        }
    }
    let mut rows = Vec::new();
    for (rounds, (percent, more)) in percentiles.into_iter().zip(MAX_ADDED_MILLISECONDS) {
        let mut row = Row::new(format!("p{percent} at {RATE}/s, {way}"), "ms", 2);
        row.goals.push(Goal::MostAbove(more, Kind::Direct));
        rounds.fill(&mut row);
        rows.push(row);
    }
    let mut row = Row::new(format!("CPU per GET at {RATE}/s, {way}"), "µs", 0);
    row.goals.push(Goal::MostTimes(0.1, Kind::Kcp));
    cpu.fill(&mut row);
    rows.push(row);
    Ok(rows)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
