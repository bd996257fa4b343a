//! The request rate on one core.

use std::process::Command;

use super::gets::{UserCredential, load, saturate};
use super::{Effort, Rounds, order};
use crate::contestants::{Contestants, Cores, Environment, Kind};
use crate::error::BenchError;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// If a proxy used less than this share of its core, it did not limit the rate.
const BUSY: f64 = 0.9;

/// The proxies on the first core, everything else on the others. `None` on a machine with one core.
pub(crate) fn split() -> Option<Cores> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    (count > 1).then(|| Cores { proxy: Some("0".to_owned()), backend: Some(format!("1-{}", count - 1)) })
}

/// Moves this process to these cores.
pub(crate) fn move_to(cores: &str) -> Result<(), BenchError> {
    let own = std::process::id().to_string();
    let output = Command::new("taskset").args(["-a", "-c", "-p", cores, &own]).output();
    let output = output.map_err(BenchError::system("running taskset"))?;
    if output.status.success() { Ok(()) } else { Err(BenchError::unexpected("taskset failed")) }
}

/// Requests per second at saturation, and a note if the proxy was not saturated.
pub(crate) async fn rate_on_one_core(
    environment: &Environment,
    contestants: &Contestants,
    effort: Effort,
    protocol: Protocol,
) -> Result<(Row, Option<String>), BenchError> {
    let (name, goal) = match protocol {
        Protocol::Http1 => ("requests/s on one core, h1→h2", Goal::LeastTimes(0.9, Kind::Haproxy)),
        Protocol::Http2 => ("requests/s on one core, h2→h2", Goal::LeastTimes(1.0, Kind::Hyper)),
    };
    let (mut rates, mut busy) = (Rounds::default(), Rounds::default());
    for round in 0..effort.rounds {
        for contestant in order(contestants, round) {
            let load = load(environment, contestant, protocol, UserCredential::Certificate)?;
            let run = saturate(&load, contestant, effort).await?;
            eprintln!("{name}, round {round}, {}: {run}", contestant.kind.name());
            // The backend shares its cores with the load.
            if contestant.kind != Kind::Direct {
                rates.add(contestant.kind, run.rate);
                busy.add(contestant.kind, run.cores());
            }
        }
    }
    let idle = busy.medians().into_iter().filter(|(_, cores)| *cores < BUSY);
    let idle: Vec<String> =
        idle.map(|(kind, cores)| format!("{} used {cores:.2} of it", kind.name())).collect();
    let note = (!idle.is_empty()).then(|| {
        format!("{name}: not limited by the proxy where it did not use its core: {}.", idle.join(", "))
    });
    let mut row = Row::new(name, "1/s", 0).goal(Goal::LeastTimes(10.0, Kind::Kcp)).goal(goal);
    rates.fill(&mut row);
    Ok((row, note))
}
