//! What a proxied GET costs.

use std::fmt;
use std::time::Instant;

use super::{Effort, Rounds, order};
use crate::contestants::{Contestant, Field, Ground, Kind, object};
use crate::error::BenchError;
use crate::load::ClosedLoad;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// How the user says who he is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// By a client certificate: the proxy knows him.
    Certificate,
    /// By a token that the proxy passes on.
    Token,
}

/// User and system time of the proxy's processes per request, at saturation.
pub(crate) async fn cpu_per_get(
    ground: &Ground,
    field: &Field,
    effort: Effort,
    protocol: Protocol,
    who: Who,
) -> Result<Row, BenchError> {
    let (name, goals) = match (protocol, who) {
        (Protocol::Http1, Who::Certificate) => {
            ("CPU per GET, h1→h2, certificate", vec![Goal::MostTimes(1.0, Kind::Haproxy)])
        }
        (Protocol::Http2, Who::Certificate) => (
            "CPU per GET, h2→h2, certificate",
            vec![Goal::MostTimes(1.0, Kind::Hyper), Goal::MostTimes(1.1, Kind::Haproxy)],
        ),
        (Protocol::Http1, Who::Token) => ("CPU per GET, h1→h2, token", vec![]),
        (Protocol::Http2, Who::Token) => ("CPU per GET, h2→h2, token", vec![]),
    };
    let mut rounds = Rounds::default();
    for round in 0..effort.rounds {
        // Only front proxies treat tokens and certificates differently.
        let differs = |kind| {
            who == Who::Certificate
                || matches!(kind, Kind::Gateway | Kind::Observed | Kind::Haproxy | Kind::Kcp)
        };
        for contestant in order(field, round).filter(|contestant| differs(contestant.kind)) {
            let load = load(ground, contestant, protocol, who)?;
            let run = saturate(&load, contestant, effort).await?;
            eprintln!("{name}, round {round}, {}: {run}", contestant.kind.name());
            rounds.add(contestant.kind, run.cpu_micros);
        }
    }
    let mut row = Row::new(name, "µs", 1).goal(Goal::MostTimes(0.1, Kind::Kcp));
    row.goals.extend(goals);
    rounds.fill(&mut row);
    Ok(row)
}

/// What one run has shown.
pub(super) struct Run {
    pub(super) cpu_micros: f64,
    pub(super) rate: f64,
}

impl Run {
    /// How many cores the proxy has used.
    pub(super) fn cores(&self) -> f64 {
        self.cpu_micros * self.rate / 1e6
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} µs, {:.0}/s, {:.2} cores", self.cpu_micros, self.rate, self.cores())
    }
}

pub(super) fn load(
    ground: &Ground,
    contestant: &Contestant,
    protocol: Protocol,
    who: Who,
) -> Result<ClosedLoad, BenchError> {
    let (connections, streams) = match protocol {
        Protocol::Http1 => (32, 1),
        Protocol::Http2 => (16, 8),
    };
    let mut ask = object();
    let tls = match who {
        Who::Certificate => ground.user_tls(protocol)?,
        Who::Token => {
            ask.token = Some("c2VjcmV0LXRva2VuLW9mLXVzZXItMQ".to_owned());
            ground.anonymous_tls(protocol)?
        }
    };
    Ok(ClosedLoad { address: contestant.address, tls, protocol, connections, streams, ask })
}

pub(super) async fn saturate(
    load: &ClosedLoad,
    contestant: &Contestant,
    effort: Effort,
) -> Result<Run, BenchError> {
    let running = load.start().await?;
    tokio::time::sleep(effort.warm_up).await;
    let (cpu, completed, begun) = (contestant.tree.cpu()?, running.completed(), Instant::now());
    tokio::time::sleep(effort.duration).await;
    let (elapsed, requests) = (begun.elapsed(), running.completed() - completed);
    let cpu = contestant.tree.cpu()? - cpu;
    running.stop().await?;
    if requests == 0 {
        return Err(BenchError::answer(format!("{} has answered nothing", contestant.kind.name())));
    }
    let requests = requests as f64;
    Ok(Run { cpu_micros: cpu.as_secs_f64() * 1e6 / requests, rate: requests / elapsed.as_secs_f64() })
}
