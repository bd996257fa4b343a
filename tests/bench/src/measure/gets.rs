//! The cost of a proxied GET.

use std::fmt;
use std::time::Instant;

use super::{Effort, Rounds, order};
use crate::contestants::{Contestant, Contestants, Environment, Kind, object};
use crate::error::BenchError;
use crate::load::ClosedLoad;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// The credential of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserCredential {
    /// A client certificate, which the proxy authenticates.
    Certificate,
    /// A bearer token, which the proxy forwards.
    Token,
}

/// User and system time of the proxy's processes per request, at saturation.
pub(crate) async fn cpu_per_get(
    environment: &Environment,
    contestants: &Contestants,
    effort: Effort,
    protocol: Protocol,
    credential: UserCredential,
) -> Result<Row, BenchError> {
    let (name, goals) = match (protocol, credential) {
        (Protocol::Http1, UserCredential::Certificate) => {
            ("CPU per GET, h1→h2, certificate", vec![Goal::MostTimes(1.0, Kind::Haproxy)])
        }
        (Protocol::Http2, UserCredential::Certificate) => (
            "CPU per GET, h2→h2, certificate",
            vec![Goal::MostTimes(1.0, Kind::Hyper), Goal::MostTimes(1.1, Kind::Haproxy)],
        ),
        (Protocol::Http1, UserCredential::Token) => ("CPU per GET, h1→h2, token", vec![]),
        (Protocol::Http2, UserCredential::Token) => ("CPU per GET, h2→h2, token", vec![]),
    };
    let mut rounds = Rounds::default();
    for round in 0..effort.rounds {
        // Only front proxies treat tokens and certificates differently.
        let differs = |kind| {
            credential == UserCredential::Certificate
                || matches!(kind, Kind::Gateway | Kind::Observed | Kind::Haproxy | Kind::Kcp)
        };
        for contestant in order(contestants, round).filter(|contestant| differs(contestant.kind)) {
            let load = load(environment, contestant, protocol, credential)?;
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

/// The result of one run.
pub(super) struct Run {
    pub(super) cpu_micros: f64,
    pub(super) rate: f64,
}

impl Run {
    /// Number of cores that the proxy used.
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
    environment: &Environment,
    contestant: &Contestant,
    protocol: Protocol,
    credential: UserCredential,
) -> Result<ClosedLoad, BenchError> {
    let (connections, streams) = match protocol {
        Protocol::Http1 => (32, 1),
        Protocol::Http2 => (16, 8),
    };
    let mut request = object();
    let tls = match credential {
        UserCredential::Certificate => environment.user_tls(protocol)?,
        UserCredential::Token => {
            request.token = Some("c2VjcmV0LXRva2VuLW9mLXVzZXItMQ".to_owned());
            environment.anonymous_tls(protocol)?
        }
    };
    Ok(ClosedLoad { address: contestant.address, tls, protocol, connections, streams, request })
}

pub(super) async fn saturate(
    load: &ClosedLoad,
    contestant: &Contestant,
    effort: Effort,
) -> Result<Run, BenchError> {
    let running = load.start().await?;
    tokio::time::sleep(effort.warm_up).await;
    let (cpu, completed, start) = (contestant.tree.cpu()?, running.completed(), Instant::now());
    tokio::time::sleep(effort.duration).await;
    let (elapsed, requests) = (start.elapsed(), running.completed() - completed);
    let cpu = contestant.tree.cpu()? - cpu;
    running.stop().await?;
    if requests == 0 {
        return Err(BenchError::unexpected(format!("{} did not respond", contestant.kind.name())));
    }
    let requests = requests as f64;
    Ok(Run { cpu_micros: cpu.as_secs_f64() * 1e6 / requests, rate: requests / elapsed.as_secs_f64() })
}
