//! The backend under test: stores on an etcd with one member.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fairlead_store::{MemoryStore, ReplicaOptions, Revision};
use fairlead_store_etcd::{EtcdOptions, EtcdStore, Timing};
use proptest::test_runner::{Config, TestRunner};

use crate::contract::model::{Step, check, steps};
use crate::contract::subject::Subject;
use crate::etcd::{Cluster, is_left_out};

/// Runs one behaviour on a store without keys: with the default limits, then with minimal ones, a local copy in a
/// file, a prefix that was filled from another store, and keys of which none is below the root.
pub(crate) fn on_every_backend<F, Done>(behaviour: F)
where
    F: Fn(Subject) -> Done,
    Done: Future<Output = ()>,
{
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let small =
            ReplicaOptions { cache_bytes: 64 << 10, ring_bytes: 4 << 10, ring_batches: 2, verify: true };
        let cases = [
            (
                "etcd",
                EtcdOptions { root: String::new(), prefix: "/registry".to_owned(), ..patient(&cluster) },
            ),
            (
                "etcd, a copy, small limits",
                EtcdOptions {
                    prefix: "/small".to_owned(),
                    view: Some(folder.path().join("view.redb")),
                    view_options: small,
                    ..patient(&cluster)
                },
            ),
        ];
        // Its revisions are far from those of etcd.
        let source = Arc::new(MemoryStore::starting_at(Revision(1_000)));
        let filled = EtcdOptions { view: None, ..cases[1].1.clone() };
        EtcdStore::copy_from(filled, source).await.unwrap();
        for (name, options) in cases {
            eprintln!("backend: {name}");
            let store = Arc::new(EtcdStore::open(options).await.unwrap());
            behaviour(Subject::new(store.clone())).await;
            store.close().await;
        }
    });
}

/// Options for stores whose revisions must be consecutive: a connection that is made again writes a key.
fn patient(cluster: &Cluster) -> EtcdOptions {
    let long = Duration::from_secs(60);
    let timing = Timing { heartbeat: long, request: long, ..cluster.options().timing };
    EtcdOptions { timing, ..cluster.options() }
}

/// The same history with one commit at a time: etcd executes commits that are sent together in any order.
fn one_at_a_time(steps: Vec<Step>) -> Vec<Step> {
    let divide = |step| match step {
        Step::Commits(commits) => commits.into_iter().map(|commit| Step::Commits(vec![commit])).collect(),
        other => vec![other],
    };
    steps.into_iter().flat_map(divide).collect()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn the_etcd_backend_is_the_model() {
    if is_left_out() {
        return;
    }
    let runtime = runtime();
    let cluster = runtime.block_on(Cluster::start(1));
    let mut runner = TestRunner::new(Config { cases: 32, failure_persistence: None, ..Config::default() });
    let cases = Cell::new(0);
    let outcome = runner.run(&steps(), |steps| {
        cases.set(cases.get() + 1);
        let prefix = format!("/case-{}", cases.get());
        runtime.block_on(async {
            let store = Arc::new(EtcdStore::open(EtcdOptions { prefix, ..patient(&cluster) }).await.unwrap());
            // Opening it again writes the barrier, so the revisions would not be consecutive.
            check(one_at_a_time(steps), store.clone(), async |store| store).await;
            store.close().await;
        });
        Ok(())
    });
    outcome.unwrap();
}
