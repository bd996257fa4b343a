//! The cost of a new connection.

use super::{Effort, Rounds, order};
use crate::contestants::{Contestants, Environment, Kind};
use crate::error::BenchError;
use crate::load::Handshakes;
use crate::measure::gets::UserCredential;
use crate::report::{Goal, Row};
use crate::wire::Protocol;

/// Full handshakes per second of the proxy's CPU time.
pub(crate) async fn handshakes_per_core(
    environment: &Environment,
    contestants: &Contestants,
    effort: Effort,
    credential: UserCredential,
) -> Result<Row, BenchError> {
    let (name, tls) = match credential {
        UserCredential::Certificate => {
            ("TLS handshakes/s per core, client certificate", environment.user_tls(Protocol::Http1)?)
        }
        UserCredential::Token => ("TLS handshakes/s per core", environment.anonymous_tls(Protocol::Http1)?),
    };
    let mut rounds = Rounds::default();
    for round in 0..effort.rounds {
        for contestant in order(contestants, round) {
            let running = Handshakes::start(contestant.address, &tls);
            tokio::time::sleep(effort.warm_up).await;
            let (cpu, completed) = (contestant.tree.cpu()?, running.completed());
            tokio::time::sleep(effort.duration).await;
            let (cpu, count) = (contestant.tree.cpu()? - cpu, running.completed() - completed);
            running.stop().await?;
            let rate = count as f64 / cpu.as_secs_f64();
            eprintln!("{name}, round {round}, {}: {rate:.0}, {count} made", contestant.kind.name());
            rounds.add(contestant.kind, rate);
        }
    }
    let mut row = Row::new(name, "1/s", 0).goal(Goal::LeastTimes(1.5, Kind::Haproxy));
    rounds.fill(&mut row);
    Ok(row)
}
