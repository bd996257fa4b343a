//! The records of a run: operations of clients and logs of watchers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::{Violation, linearizability, replicas, watches};

/// A resourceVersion.
pub type Revision = u64;

/// The content of a write. No two writes of a history have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Content(pub u64);

/// An object: its collection, which is a path with the logical cluster, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The collection.
    pub collection: Arc<str>,
    /// The name in the collection.
    pub name: Arc<str>,
}

/// An object as a response or an event shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Its resourceVersion.
    pub revision: Revision,
    /// Its content.
    pub content: Content,
}

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Register {
    /// The content; `None` if the object does not exist.
    pub content: Option<Content>,
    /// Every later write has a higher revision.
    pub revision: Revision,
}

/// The request of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A POST of the whole object.
    Create(Content),
    /// PUT, with or without a resourceVersion.
    Update {
        /// The new content.
        content: Content,
        /// The resourceVersion that the object must have.
        expected: Option<Revision>,
    },
    /// PATCH of the content, without a resourceVersion.
    Patch(Content),
    /// DELETE, with or without a precondition.
    Delete {
        /// The resourceVersion that the object must have.
        expected: Option<Revision>,
    },
    /// GET, or one object of a list.
    Read,
    /// The same with a resourceVersion: the response must show every write up to it, on whatever replica.
    ReadSince(Revision),
}

/// The response to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The write happened and has this revision.
    Written(Revision),
    /// The object was deleted.
    Deleted,
    /// The object was read.
    Found(Version),
    /// The object does not exist (404).
    NotFound,
    /// The object exists (409 with the reason `AlreadyExists`).
    AlreadyExists,
    /// The object does not have the expected revision (409).
    Conflict,
    /// No response, or one that does not say whether the write happened.
    Unknown,
}

/// A request and its response. Times are of one monotonic clock, in any unit.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The object.
    pub key: Key,
    /// The replica that was asked, with its number. It has the same number after a restart.
    pub replica: usize,
    /// The request.
    pub action: Action,
    /// The response.
    pub outcome: Outcome,
    /// Time before the request was sent.
    pub start: u64,
    /// Time after the response was received. For [`Outcome::Unknown`]: the time after which the write cannot happen any more,
    /// or [`u64::MAX`].
    pub end: u64,
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// The object exists now (ADDED).
    Added,
    /// The object has another content (MODIFIED).
    Modified,
    /// The object is gone (DELETED). The revision is that of the deletion, the content the last one.
    Deleted,
}

/// One thing that a watcher received.
#[derive(Debug, Clone)]
pub enum WatchEntry {
    /// A list of all objects; the watcher goes on from its revision.
    Listed {
        /// The revision of the list.
        revision: Revision,
        /// The objects.
        objects: BTreeMap<Key, Version>,
    },
    /// An event.
    Event {
        /// Its type.
        change: Change,
        /// The object.
        key: Key,
        /// Its revision and content.
        version: Version,
    },
    /// A bookmark.
    Bookmark(Revision),
}

/// Everything that one watcher received, in order, over all its connections. It begins with a list.
#[derive(Debug, Clone)]
pub struct WatchLog {
    /// The name in violations.
    pub watcher: String,
    /// The watched collections.
    pub collections: Vec<Arc<str>>,
    /// What it received.
    pub entries: Vec<WatchEntry>,
}

/// A run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// States at the begin. Objects that are not in it do not exist.
    pub initial: HashMap<Key, Register>,
    /// The operations, in any order.
    pub operations: Vec<Operation>,
    /// The watchers.
    pub watches: Vec<WatchLog>,
}

impl History {
    /// Returns what cannot have happened on a correct server; empty if the history is correct.
    pub fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let revisions = self.revisions(&mut violations);
        let mut by_key: BTreeMap<&Key, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            by_key.entry(&operation.key).or_default().push(operation);
        }
        for (key, operations) in by_key {
            let initial = self.initial.get(key).copied().unwrap_or_default();
            for (replica, view) in replicas::views(&operations) {
                let view: Vec<_> = view.iter().map(AsRef::as_ref).collect();
                if let Err(stuck) = linearizability::check(&view, initial, &revisions) {
                    let (key, stuck) = (key.clone(), Box::new(stuck));
                    violations.push(Violation::NotLinearizable { key, replica, stuck });
                }
            }
        }
        violations.extend(watches::check(self));
        violations
    }

    /// The revision of each content, from every response and event that shows it.
    fn revisions(&self, violations: &mut Vec<Violation>) -> HashMap<Content, Revision> {
        let mut written: HashMap<Content, &Key> = HashMap::new();
        let mut revisions = HashMap::new();
        for (key, register) in &self.initial {
            if let Some(content) = register.content {
                written.insert(content, key);
                revisions.insert(content, register.revision);
            }
        }
        for operation in &self.operations {
            if let Some(content) = operation.action.content() {
                written.insert(content, &operation.key);
            }
        }
        let mut note = |key: &Key, version: Version| {
            if written.get(&version.content) != Some(&key) {
                violations.push(Violation::NeverWritten { key: key.clone(), version });
            }
            let known = *revisions.entry(version.content).or_insert(version.revision);
            if known != version.revision {
                let revisions = [known, version.revision];
                violations.push(Violation::TwoRevisions {
                    key: key.clone(),
                    content: version.content,
                    revisions,
                });
            }
        };
        for operation in &self.operations {
            if let Some(version) = operation.shown() {
                note(&operation.key, version);
            }
        }
        for entry in self.watches.iter().flat_map(|log| &log.entries) {
            match entry {
                WatchEntry::Listed { objects, .. } => {
                    objects.iter().for_each(|(key, version)| note(key, *version));
                }
                WatchEntry::Event { change: Change::Added | Change::Modified, key, version } => {
                    note(key, *version);
                }
                WatchEntry::Event { .. } | WatchEntry::Bookmark(_) => {}
            }
        }
        revisions
    }
}

impl Operation {
    /// The version that the response shows.
    pub(super) fn shown(&self) -> Option<Version> {
        match (self.outcome, self.action.content()) {
            (Outcome::Found(version), _) => Some(version),
            (Outcome::Written(revision), Some(content)) => Some(Version { revision, content }),
            _ => None,
        }
    }
}

impl Action {
    pub(super) fn is_write(&self) -> bool {
        !matches!(self, Self::Read | Self::ReadSince(_))
    }

    pub(super) fn content(&self) -> Option<Content> {
        match self {
            Self::Create(content) | Self::Update { content, .. } | Self::Patch(content) => Some(*content),
            Self::Delete { .. } | Self::Read | Self::ReadSince(_) => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collection, self.name)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "content {} at revision {}", self.content.0, self.revision)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replica, action, outcome, start, end, .. } = self;
        write!(f, "{start}..{end} at replica {replica}: {action:?} -> {outcome:?}")
    }
}
