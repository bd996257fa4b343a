//! A store under test, and helpers that read and write it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_store::{Batch, Event, Expect, Follower, Mutation, Page, Range, Revision, Store};

/// A store without keys. Tests count its commits from 1, also if it starts at a later revision.
#[derive(Clone)]
pub(crate) struct Subject {
    store: Arc<dyn Store>,
    start: Revision,
}

impl Subject {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let start = store.revision();
        Self { store, start }
    }

    /// The same store after it has been opened again.
    pub(crate) async fn reopened(self, reopen: impl AsyncFn(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        Self { store: reopen(self.store).await, start: self.start }
    }

    /// The revision of the `nth` commit.
    pub(crate) fn at(&self, nth: u64) -> Revision {
        Revision(self.start.0 + nth)
    }

    /// The number of the commit with a revision.
    pub(crate) fn nth(&self, revision: Revision) -> u64 {
        revision.0 - self.start.0
    }

    /// All records after the `nth` commit (`None`: the last), as of [`show`].
    pub(crate) fn listed(&self, nth: Option<u64>) -> Vec<String> {
        let page = self.list(&Range::all(), None, nth.map(|nth| self.at(nth))).unwrap();
        show(&page, self.start)
    }
}

impl Deref for Subject {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

pub(crate) async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    store.commit(vec![Mutation::put(key.to_owned(), value.to_owned())]).await.unwrap()
}

pub(crate) async fn delete(store: &dyn Store, key: &str) -> Revision {
    store.commit(vec![Mutation::delete(key.to_owned(), Expect::Present)]).await.unwrap()
}

/// A page as `key=value@created/modified`, with revisions counted from `start`.
pub(crate) fn show(page: &Page, start: Revision) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let show = |record: &fairlead_store::Record| {
        let (created, modified) = (record.created.0 - start.0, record.modified.0 - start.0);
        format!("{}={}@{created}/{modified}", text(&record.key), text(&record.value))
    };
    page.records.iter().map(show).collect()
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
