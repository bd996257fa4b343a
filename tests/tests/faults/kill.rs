//! SIGKILL at a random time under 32 writers, many times in a row.

use fairlead_tests::harness::{ShardSettings, is_left_out};

use crate::run::{Run, WATCHERS};
use crate::site::Site;
use crate::{members, number, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills_and_watches_are_complete() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::start(directory.path(), &settings()).await;
    kill_again_and_again(site, number("FAULT_ROUNDS", 5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills_of_a_shard_and_its_etcd() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let site = Site::start_on_etcd(directory.path(), members(), 1, &settings()).await;
    kill_again_and_again(site, number("FAULT_ETCD_ROUNDS", 3)).await;
}

/// Compaction within the run, so that some watchers must list again.
fn settings() -> ShardSettings {
    ShardSettings { compaction_interval: "1s", verify_at_start: false, ..ShardSettings::default() }
}

async fn kill_again_and_again(site: Site, rounds: u64) {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut run = Run::start(site, random.fork(), WATCHERS).await;
    for round in 1..=rounds {
        // In some rounds, watchers come back so late that their revisions have expired.
        if round % 20 == 3 {
            run.hold_watchers();
        }
        let (acknowledgements, is_killed_while_starting) = (random.u64(1..1_500), random.u8(..4) == 0);
        // As if the machine failed that has both.
        let members = run.site.etcd.as_ref().map(|etcd| etcd.len());
        let member = members.filter(|_| round % 2 == 1).map(|members| random.usize(..members));
        run.work_and_kill(acknowledgements, member, is_killed_while_starting).await;
        run.free_watchers().await;
        run.check(round).await;
    }
    run.report();
}
