//! Three replicas of a shard on etcd: one of them, or a member of etcd, is killed again and again, while writers and watchers
//! go on with the others.

mod controllers;

use std::time::Duration;

use fairlead_tests::harness::{ShardSettings, is_left_out};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::run::Run;
use crate::site::Site;
use crate::{members, number, seed};

use controllers::Controllers;

const REPLICAS: usize = 3;

/// Responses that the writers must get while a process is away, and again when it is back.
const RESPONSES: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills_of_replicas_and_members_and_watches_are_complete() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    let time = Duration::from_secs(number("FAULT_REPLICA_SECONDS", 10));
    let watches = usize::try_from(number("FAULT_REPLICA_WATCHES", 28)).unwrap();
    // Long enough for a copy that was cut off, short enough that some watchers must list again in a long run.
    let settings =
        ShardSettings { compaction_interval: "20s", verify_at_start: false, ..ShardSettings::default() };
    let site = Site::start_on_etcd(directory.path(), members(), REPLICAS, &settings).await;
    let mut run = Run::start(site, random.fork(), watches).await;
    let controllers = Controllers::start(&run.site).await;
    let end = Instant::now() + time;
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        run.kill_one(&mut random, (time / 40).max(Duration::from_secs(1))).await;
        run.check(round).await;
    }
    controllers.check().await;
    run.report();
}

/// A process that is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Replica(usize),
    Member(usize),
}

impl Victim {
    /// A single member is not killed: without it, nothing can be acknowledged.
    fn choose(random: &mut fastrand::Rng, site: &Site) -> Self {
        let members = site.etcd.as_ref().map(|etcd| etcd.len()).filter(|members| *members > 1);
        if let Some(members) = members.filter(|_| random.bool()) {
            return Self::Member(random.usize(..members));
        }
        Self::Replica(random.usize(..site.replicas.len()))
    }

    async fn kill(self, site: &mut Site) {
        match self {
            Self::Replica(number) => site.replicas[number].process.kill().await.unwrap(),
            Self::Member(number) => site.etcd.as_mut().unwrap().kill(number).await.unwrap(),
        }
    }

    async fn restart(self, site: &mut Site) {
        match self {
            Self::Replica(number) => site.replicas[number].process.restart().await.unwrap(),
            Self::Member(number) => site.etcd.as_mut().unwrap().restart(number).await.unwrap(),
        }
    }
}

impl Run {
    /// Kills one process under load and starts it again, within about the given time.
    async fn kill_one(&mut self, random: &mut fastrand::Rng, time: Duration) {
        let (stop, is_stopped) = watch::channel(false);
        let tasks = self.spawn_writers_until(&is_stopped);
        let part = |random: &mut fastrand::Rng| time.mul_f64(random.f64() / 2.0);
        self.until_acknowledged(RESPONSES).await;
        sleep(part(random)).await;
        let victim = Victim::choose(random, &self.site);
        println!("kill {victim:?}");
        victim.kill(&mut self.site).await;
        sleep(part(random)).await;
        self.until_acknowledged(RESPONSES).await;
        victim.restart(&mut self.site).await;
        self.until_ready().await;
        self.until_acknowledged(RESPONSES).await;
        stop.send_replace(true);
        self.join(tasks).await;
    }
}
