//! Faults of servers under load: SIGKILL at any time, and a full disk. Clients record what they do and see;
//! `fairlead_tests::history` judges it.
//!
//! `FAULT_ROUNDS` is the number of kills (5; `make faults`: 200), `FAULT_ETCD_ROUNDS` that of a shard on etcd (3; `make faults`:
//! 40), `FAULT_ETCD_MEMBERS` the number of members of etcd (1; `make faults`: 3), `FAULT_SEED` repeats the choices of a run.
//! `FAULT_REPLICA_SECONDS` is the time of the run with three replicas (10; `make faults`: 600), `FAULT_REPLICA_WATCHES` the number
//! of its watches (28; `make faults`: 200). For an installation
//! with shared APIs, `FAULT_SHARING_ROUNDS` (4; `make faults`: 12) is the number of kills, `FAULT_BINDINGS` (40; `make faults`: 1,000)
//! that of pairs of consumers and exports. `FAULT_LEADER_ROUNDS` (2; `make faults`: 50) is the number of leaders that are killed,
//! `ROLLING_RATE` (100; `make faults`: 500) that of requests per second during `ROLLING_ROUNDS` (1; 3) rolling upgrades.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod etcd;
mod full_copy;
mod full_disk;
mod kill;
mod leaders;
mod recorder;
mod replicas;
mod rolling;
mod run;
mod sharing;
mod site;
mod watchers;
mod writers;

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// The number of members of etcd.
fn members() -> usize {
    usize::try_from(number("FAULT_ETCD_MEMBERS", 1)).unwrap()
}

/// The seed of a run, printed for a repetition.
fn seed() -> u64 {
    let seed = number("FAULT_SEED", fastrand::u64(..));
    println!("FAULT_SEED={seed}");
    seed
}
