//! The backends under test, and helpers for tests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_store::{
    Batch, Event, Expect, Follower, MemoryStore, Mutation, Page, Range, RedbOptions, RedbStore, Revision,
    Store,
};
use tempfile::TempDir;

/// A store and its temporary directory.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
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
    vec![
        ("memory", Fixture { store: Arc::new(MemoryStore::with_seed(7)), _directory: None }),
        ("redb", redb(RedbOptions::default())),
        ("redb, small_limits", redb(small_limits())),
    ]
}

/// Runs one behaviour on a fresh store of every backend.
pub(crate) fn on_every_backend<F, Done>(behaviour: F)
where
    F: Fn(Arc<dyn Store>) -> Done,
    Done: Future<Output = ()>,
{
    for (name, fixture) in fixtures() {
        eprintln!("backend: {name}");
        runtime().block_on(behaviour(Arc::clone(&fixture.store)));
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    store.commit(vec![Mutation::put(key.to_owned(), value.to_owned())]).await.unwrap()
}

pub(crate) async fn delete(store: &dyn Store, key: &str) -> Revision {
    store.commit(vec![Mutation::delete(key.to_owned(), Expect::Present)]).await.unwrap()
}

/// A page as `key=value@created/modified`.
pub(crate) fn show(page: &Page) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let show = |record: &fairlead_store::Record| {
        format!("{}={}@{}/{}", text(&record.key), text(&record.value), record.created, record.modified)
    };
    page.records.iter().map(show).collect()
}

pub(crate) fn list_all(store: &dyn Store, at: Option<Revision>) -> Vec<String> {
    show(&store.list(&Range::all(), None, at).unwrap())
}

/// The next `count` batches. Fails if the follower hangs.
pub(crate) async fn take(follower: &mut Follower, count: usize) -> Vec<Arc<Batch>> {
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        let next = tokio::time::timeout(Duration::from_secs(60), follower.next()).await;
        batches.push(next.expect("no batch for a minute").unwrap());
    }
    batches
}

/// An event as `key: before -> after`.
pub(crate) fn show_event(event: &Event) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let before = event.previous.as_ref().map_or("-".to_owned(), |record| text(&record.value));
    let after = event.value.as_ref().map_or("-".to_owned(), |value| text(value));
    format!("{}: {before} -> {after}", text(&event.key))
}
