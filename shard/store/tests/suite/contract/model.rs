//! Random histories against a model that is too simple to be wrong: a copy of the whole map per revision.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_store::{
    Change, CommitError, Event, Expect, Mutation, Range, ReadError, Record, Revision, Store,
};
use futures_util::FutureExt;
use futures_util::future::join_all;
use proptest::prelude::*;

use super::subject::{Subject, take};

const KEYS: [&str; 6] = ["", "a", "a/b", "a/b\0", "a0", "\u{10ffff}"];

/// A step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Commits that are sent together, so that a backend may group them.
    Commits(Vec<Vec<PlannedMutation>>),
    /// Compact below this percentage of the revisions so far; more than 100 is the future.
    Compact(u64),
    /// Close and open again; a no-op for the memory backend.
    Reopen,
    /// Compare everything that can be read.
    Read { page: usize, from: usize, to: usize },
}

/// A mutation with its expectation relative to the model's state.
#[derive(Clone, Debug)]
pub(crate) struct PlannedMutation {
    key: usize,
    expect: PlannedExpect,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum PlannedExpect {
    Any,
    Absent,
    Present,
    /// The revision that modified the key, plus this (0 for an absent key).
    Modified(u64),
}

fn planned() -> impl Strategy<Value = PlannedMutation> {
    let expect = prop_oneof![
        6 => Just(PlannedExpect::Any),
        2 => Just(PlannedExpect::Absent),
        2 => Just(PlannedExpect::Present),
        2 => Just(PlannedExpect::Modified(0)),
        1 => Just(PlannedExpect::Modified(1)),
    ];
    let value = prop_oneof![9 => 0..40_usize, 1 => 3000..6000_usize];
    let change = prop_oneof![
        6 => (value, any::<u8>()).prop_map(|(bytes, fill)| Change::Put(Bytes::from(vec![fill; bytes]))),
        3 => Just(Change::Delete),
        1 => Just(Change::Keep),
    ];
    (0..KEYS.len(), expect, change).prop_map(|(key, expect, change)| PlannedMutation { key, expect, change })
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let commit = prop::collection::vec(planned(), 1..4);
    let step = prop_oneof![
        12 => prop::collection::vec(commit, 1..5).prop_map(Step::Commits),
        2 => (0..120_u64).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        2 => (1..5_usize, 0..KEYS.len(), 0..=KEYS.len()).prop_map(|(page, from, to)| Step::Read { page, from, to }),
    ];
    prop::collection::vec(step, 1..40)
}

/// The expected content of the store. Index = number of the commit.
struct Model {
    /// The revision before the first commit.
    start: Revision,
    states: Vec<BTreeMap<Bytes, Record>>,
    events: Vec<Vec<Event>>,
    compacted: usize,
}

impl Model {
    fn new(start: Revision) -> Self {
        Self { start, states: vec![BTreeMap::new()], events: vec![Vec::new()], compacted: 0 }
    }

    fn revision(&self) -> Revision {
        self.at(self.states.len() - 1)
    }

    fn at(&self, nth: usize) -> Revision {
        Revision(self.start.0 + nth as u64)
    }

    /// The outcome: the revision, or the first mutation in conflict, with the current record of its key.
    fn commit(&mut self, mutations: &[Mutation]) -> Result<Revision, (usize, Option<Record>)> {
        let now = self.states.last().unwrap();
        let revision = self.at(self.states.len());
        let (mut next, mut events) = (now.clone(), Vec::new());
        for (index, mutation) in mutations.iter().enumerate() {
            let previous = now.get(&mutation.key).cloned();
            let modified = previous.as_ref().map(|record| record.modified);
            let holds = match mutation.expect {
                Expect::Any => true,
                Expect::Absent => modified.is_none(),
                Expect::Present => modified.is_some(),
                Expect::At(at) => modified == Some(at),
            };
            if !holds {
                return Err((index, previous));
            }
            let value = match &mutation.change {
                Change::Keep => continue,
                Change::Delete => None,
                Change::Put(value) => Some(value.clone()),
            };
            if let Some(value) = &value {
                let created = previous.as_ref().map_or(revision, |record| record.created);
                let (key, value) = (mutation.key.clone(), value.clone());
                next.insert(key.clone(), Record { key, value, created, modified: revision });
            } else if next.remove(&mutation.key).is_none() {
                continue;
            }
            events.push(Event { key: mutation.key.clone(), value, previous });
        }
        if events.is_empty() {
            return Ok(self.revision());
        }
        self.states.push(next);
        self.events.push(events);
        Ok(revision)
    }

    fn plan(&self, commit: &[PlannedMutation]) -> Vec<Mutation> {
        let now = self.states.last().unwrap();
        let mut mutations: Vec<Mutation> = Vec::new();
        for planned in commit {
            let key = Bytes::from_static(KEYS[planned.key].as_bytes());
            if mutations.iter().any(|mutation| mutation.key == key) {
                continue;
            }
            let modified = now.get(&key).map_or(0, |record| record.modified.0);
            let expect = match planned.expect {
                PlannedExpect::Any => Expect::Any,
                PlannedExpect::Absent => Expect::Absent,
                PlannedExpect::Present => Expect::Present,
                PlannedExpect::Modified(plus) => Expect::At(Revision(modified + plus)),
            };
            mutations.push(Mutation { key, expect, change: planned.change.clone() });
        }
        mutations
    }

    /// Compares all readable data of the store with the model, in pages of `page` records of `range`.
    async fn compare(&self, store: &dyn Store, range: &Range, page: usize) {
        assert_eq!(store.revision(), self.revision());
        assert_eq!(store.compacted(), self.at(self.compacted));
        let now = self.states.last().unwrap();
        for key in KEYS {
            assert_eq!(store.get(key.as_bytes()).unwrap().as_ref(), now.get(key.as_bytes()));
        }
        for (at, state) in self.states.iter().enumerate() {
            let at_revision = self.at(at);
            if at < self.compacted {
                let refused = store.list(range, NonZeroUsize::new(page), Some(at_revision));
                assert!(matches!(refused, Err(ReadError::Compacted { .. })), "{refused:?}");
                continue;
            }
            let expected: Vec<_> =
                state.values().filter(|record| range.contains(&record.key)).cloned().collect();
            assert_eq!(read_in_pages(store, range, page, at_revision), expected, "at {at}");
        }
        for after in self.compacted..self.states.len() {
            let mut follower = store.follow(self.at(after)).unwrap();
            for batch in take(&mut follower, self.states.len() - 1 - after).await {
                let nth = usize::try_from(batch.revision.0 - self.start.0).unwrap();
                assert_eq!(batch.events, self.events[nth]);
            }
            assert_eq!(follower.position(), self.revision());
            assert!(follower.next().now_or_never().is_none());
            self.compare_changes(store, range, after);
        }
    }
}

impl Model {
    /// A backend that can read the events of a range finds the same ones as in the log.
    fn compare_changes(&self, store: &dyn Store, range: &Range, after: usize) {
        let Some(changes) = store.changes(range, self.at(after), usize::MAX).unwrap() else { return };
        assert_eq!(changes.up_to, self.revision());
        let order = |(revision, event): &(Revision, Event)| (*revision, event.key.clone());
        let mut found = changes.events;
        assert!(found.is_sorted_by_key(|(revision, _)| *revision));
        found.sort_by_key(order);
        let later = self.events.iter().enumerate().skip(after + 1);
        let mut expected: Vec<_> = later
            .flat_map(|(at, events)| events.iter().map(move |event| (self.at(at), event.clone())))
            .filter(|(_, event)| range.contains(&event.key))
            .collect();
        expected.sort_by_key(order);
        assert_eq!(found, expected, "after {after}");
    }
}

fn read_in_pages(store: &dyn Store, range: &Range, page: usize, at: Revision) -> Vec<Record> {
    let (mut range, mut records) = (range.clone(), Vec::new());
    loop {
        let read = store.list(&range, NonZeroUsize::new(page), Some(at)).unwrap();
        assert_eq!(read.revision, at);
        assert!(read.records.len() == page || !read.has_more);
        if let Some(last) = read.records.last() {
            range = range.after(&last.key);
        }
        records.extend(read.records);
        if !read.has_more {
            return records;
        }
    }
}

/// Runs a history on a store without keys. `reopen` closes the store and opens it again.
pub(crate) async fn check(
    steps: Vec<Step>,
    store: Arc<dyn Store>,
    reopen: impl AsyncFn(Arc<dyn Store>) -> Arc<dyn Store>,
) {
    let mut store = Subject::new(store);
    let mut model = Model::new(store.at(0));
    for step in steps {
        match step {
            Step::Commits(commits) => {
                let commits: Vec<_> = commits.iter().map(|commit| model.plan(commit)).collect();
                let outcomes = join_all(commits.iter().map(|commit| store.commit(commit.clone()))).await;
                for (commit, outcome) in commits.iter().zip(outcomes) {
                    let outcome = outcome.map_err(|error| match error {
                        CommitError::Conflict { index, current } => (index, current),
                        other => panic!("{other}"),
                    });
                    assert_eq!(outcome, model.commit(commit), "{commit:?}");
                }
            }
            Step::Compact(percent) => {
                let commits = model.states.len() as u64 - 1;
                let below = commits * percent / 100;
                store.compact(store.at(below)).await.unwrap();
                let below = usize::try_from(below.min(commits)).unwrap();
                model.compacted = model.compacted.max(below);
            }
            Step::Reopen => store = store.reopened(&reopen).await,
            Step::Read { page, from, to } => {
                let end = KEYS.get(to).map(|key| Bytes::from_static(key.as_bytes()));
                let range = Range { start: Bytes::from_static(KEYS[from].as_bytes()), end };
                model.compare(&*store, &range, page).await;
            }
        }
    }
    model.compare(&*store, &Range::all(), 3).await;
}
