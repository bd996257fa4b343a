//! The backends under test.

use std::future::Future;
use std::sync::Arc;

use fairlead_store::{MemoryStore, Range, RedbOptions, RedbStore, Revision, Store};
use tempfile::TempDir;

use crate::contract::subject::{Subject, show};

/// A store and its temporary directory.
struct Fixture {
    store: Arc<dyn Store>,
    _directory: Option<TempDir>,
}

/// Minimal limits: followers read the log, groups are split, pages are evicted.
pub(crate) fn small_limits() -> RedbOptions {
    let mut options = RedbOptions::default();
    (options.cache_bytes, options.ring_bytes, options.ring_batches) = (64 << 10, 4 << 10, 2);
    (options.group_commits, options.group_bytes) = (3, 1 << 10);
    options
}

fn fixtures() -> Vec<(&'static str, Fixture)> {
    let redb = |options| {
        let directory = tempfile::tempdir().unwrap();
        let store = RedbStore::open(directory.path().join("store.redb"), options).unwrap();
        Fixture { store: Arc::new(store), _directory: Some(directory) }
    };
    let memory = |store| Fixture { store: Arc::new(store), _directory: None };
    vec![
        ("memory", memory(MemoryStore::with_seed(7))),
        ("memory, later", memory(MemoryStore::starting_at(Revision(1000)))),
        ("redb", redb(RedbOptions::default())),
        ("redb, small_limits", redb(small_limits())),
    ]
}

/// Runs one behaviour on a fresh store of every backend.
pub(crate) fn on_every_backend<F, Done>(behaviour: F)
where
    F: Fn(Subject) -> Done,
    Done: Future<Output = ()>,
{
    for (name, fixture) in fixtures() {
        eprintln!("backend: {name}");
        runtime().block_on(behaviour(Subject::new(Arc::clone(&fixture.store))));
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn list_all(store: &dyn Store, at: Option<Revision>) -> Vec<String> {
    show(&store.list(&Range::all(), None, at).unwrap(), Revision(0))
}
