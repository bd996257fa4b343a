//! SIGKILL of shards and of the cache server amid bindings, unbindings, changed claims and deleted exports. When everything is back
//! and every request has been repeated until it had a response, all servers must agree with what was requested.

mod convergence;
mod operations;
mod site;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::operations::{Desired, Worker};
use self::site::Site;
use crate::{number, seed, site::TIMEOUT};

/// Clients at a time.
const WORKERS: usize = 16;

/// The killed servers, round by round.
const VICTIMS: [&[&str]; 4] = [&["shard-1"], &["cache"], &["root"], &["cache", "shard-1"]];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_exports_and_claims_converge_after_kills() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    let mut site = Site::start(directory.path(), number("FAULT_BINDINGS", 40) as usize).await;
    let mut desired = Desired::new(&site);
    for round in 0..number("FAULT_SHARING_ROUNDS", 4) {
        let victims = VICTIMS[round as usize % VICTIMS.len()];
        let operations = desired.plan(&site, &mut random);
        let count = operations.len();
        let acknowledged = Arc::new(watch::Sender::new(0));
        let queue = Arc::new(std::sync::Mutex::new(operations));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let client = site.admin("");
                let worker = Worker { client, queue: queue.clone(), acknowledged: acknowledged.clone() };
                tokio::spawn(worker.work())
            })
            .collect();
        let enough = random.usize(1..=count);
        let mut acknowledgements = acknowledged.subscribe();
        tokio::time::timeout(TIMEOUT, acknowledgements.wait_for(|done| *done >= enough))
            .await
            .expect("the clients work")
            .unwrap();
        interrupt(&mut site, victims, &mut random).await;
        let mut unclear = Vec::new();
        for worker in workers {
            unclear.extend(tokio::time::timeout(TIMEOUT, worker).await.expect("every request ends").unwrap());
        }
        desired.settle(&site, unclear).await;
        convergence::wait(&site, &desired, round).await;
        println!("round {round}: {count} operations, {victims:?} killed after {enough}");
    }
}

/// Kills servers, which stay away for a random time, and starts them again; sometimes they are killed while they start.
async fn interrupt(site: &mut Site, victims: &[&str], random: &mut fastrand::Rng) {
    let is_killed_while_starting = random.u8(..4) == 0;
    for victim in victims {
        site.installation.kill(victim).await.unwrap();
    }
    // Random times, because nothing announces what the others do meanwhile, or the steps of a start.
    tokio::time::sleep(Duration::from_millis(random.u64(..500))).await;
    for victim in victims {
        site.installation.restart(victim).await.unwrap();
    }
    if is_killed_while_starting {
        tokio::time::sleep(Duration::from_millis(random.u64(..250))).await;
        for victim in victims {
            site.installation.kill(victim).await.unwrap();
            site.installation.restart(victim).await.unwrap();
        }
    }
    site.installation.until_ready().await.unwrap();
}
