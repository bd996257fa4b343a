//! Faults of an installation under a load of 500 requests a second and 500 watches: certificates and
//! authorities are replaced, files are damaged, shards and connections die, hang and vanish.
//!
//! Each row of the tables below is a fault. It is over when every shard serves again, the index follows each of them, every request
//! has a response and every watch has the last event. Shards that are not part of the fault must not be affected: no request failed,
//! no watch ended, no event was missed or came twice. The affected shard refuses requests in a way that makes clients retry, and its
//! watches are resumed: no event is missed there either.
//!
//! `FAULT_FILTER` selects rows by a part of their names; `FAULT_SECONDS` is the length of outages that could be of any length
//! (`make faults`: a minute).
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod clients;
mod files;
mod installation;
mod lifecycle;
mod load;
mod outages;
mod party;
mod rotation;
mod tally;
mod watches;

// The world of the other tests; not all of it is needed here.
#[path = "../behaviour/pki.rs"]
#[allow(dead_code, reason = "shared")]
mod pki;
#[path = "../behaviour/program.rs"]
#[allow(dead_code, reason = "shared")]
mod program;
#[path = "../behaviour/relay.rs"]
#[allow(dead_code, reason = "shared")]
mod relay;
#[path = "../behaviour/shard/mod.rs"]
#[allow(dead_code, reason = "shared")]
mod shard;
#[path = "../behaviour/world.rs"]
#[allow(dead_code, reason = "shared")]
mod world;

use std::time::Duration;

use futures_util::future::BoxFuture;

use installation::Installation;
use tally::Harm;

/// Requests per second by default.
const SECOND: u64 = 500;
const WATCHES: usize = 500;
/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// Something that goes wrong.
struct Fault {
    name: &'static str,
    /// The shard that is part of it, and how far it may be harmed.
    suffers: Option<&'static str>,
    cause: fn(&Installation) -> BoxFuture<'_, ()>,
}

const fn harmless(name: &'static str, cause: fn(&Installation) -> BoxFuture<'_, ()>) -> Fault {
    Fault { name, suffers: None, cause }
}

const fn to(shard: &'static str, name: &'static str, cause: fn(&Installation) -> BoxFuture<'_, ()>) -> Fault {
    Fault { name, suffers: Some(shard), cause }
}

const OUR_OWN: &[Fault] = &[
    harmless("the serving certificate is replaced", rotation::of_the_serving_certificate),
    harmless("the clients' authority is replaced", rotation::of_the_clients_authority),
    harmless("certificates towards shards are replaced", rotation::towards_shards),
    harmless("every file is written again", files::written_again),
    harmless("every file is damaged and mended", files::damaged_and_mended),
    to("gamma", "a shard is killed and comes back", outages::of_a_shard),
    to("root", "the root shard is gone for a while", outages::of_the_root_shard),
    harmless("the index's connections are cut", outages::of_the_index),
    to("gamma", "connections to a shard are half open", outages::half_open),
    to("gamma", "a shard accepts and never answers", outages::in_silence),
];

const KCP_COMPATIBILITY: &[Fault] = &[
    harmless("certificates named in a mapping file are replaced", rotation::towards_shards),
    harmless("every file is written again, mapping file included", files::written_again),
    harmless("every file is damaged and mended, mapping file included", files::damaged_and_mended),
    to("gamma", "one of two addresses accepts and never answers", outages::of_one_endpoint),
    harmless("one of two addresses goes on like that", outages::that_is_known_already),
    harmless("one of two addresses answers again", outages::over_for_one_endpoint),
];

/// The two installations run one after the other, because each needs the whole machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_affect_no_other_shard() {
    let mut failures = suffer(Installation::ours().await, OUR_OWN).await;
    failures.extend(suffer(Installation::with_kcp_compatibility().await, KCP_COMPATIBILITY).await);
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

async fn suffer(mut installation: Installation, faults: &[Fault]) -> Vec<String> {
    let wanted = std::env::var("FAULT_FILTER").unwrap_or_default();
    let mut failures = Vec::new();
    for fault in faults.iter().filter(|fault| fault.name.contains(&wanted)) {
        let (pause, sent) = (installation.load.pause().await, installation.load.sent());
        installation.parties.iter().for_each(|party| party.tally.reset());
        drop(pause);
        installation.load.goes_on_for(SECOND / 4).await;
        (fault.cause)(&installation).await;
        installation.recovers().await;
        let _pause = installation.load.pause().await;
        installation.assert_alive();
        println!("{}: {} requests", fault.name, installation.load.sent() - sent);
        for party in &installation.parties {
            let harm = if fault.suffers == Some(&*party.name) { Harm::Interrupted } else { Harm::Nothing };
            let figures = party.tally.figures();
            println!("    {}: {figures:?}", party.name);
            if let Some(complaint) = figures.complaint(harm) {
                failures.push(format!("{}: {}: {complaint}", fault.name, party.name));
            }
        }
    }
    failures
}

fn outage_seconds() -> u64 {
    number("FAULT_SECONDS", 2)
}

/// A number from the environment, or the default.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}
