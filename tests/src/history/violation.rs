//! What a correct server does not do.

use super::{Change, Content, Key, Operation, Revision, Version};

/// A contradiction in a history.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Violation {
    /// No order of the operations explains all responses: a write was lost, came back, or a read was stale.
    #[error(
        "{key}: no order explains the {}; {stuck}",
        replica.map_or("writes of all replicas".to_owned(), |number| format!("responses of replica {number}"))
    )]
    NotLinearizable {
        /// The object.
        key: Key,
        /// The replica whose responses cannot be explained; `None`: the successful writes of all replicas.
        replica: Option<usize>,
        /// Where the search ended.
        stuck: Box<Stuck>,
    },
    /// One write has two revisions: it happened twice.
    #[error("{key}: content {} has the revisions {revisions:?}", content.0)]
    TwoRevisions {
        /// The object.
        key: Key,
        /// The content.
        content: Content,
        /// Both revisions.
        revisions: [Revision; 2],
    },
    /// A content that no client wrote to this object.
    #[error("{key}: {version} was never written")]
    NeverWritten {
        /// The object.
        key: Key,
        /// The version.
        version: Version,
    },
    /// A watcher received something that is not newer than what it had received before.
    #[error("{watcher}: {key} {version} after revision {position}")]
    NotInOrder {
        /// The watcher.
        watcher: String,
        /// The object.
        key: Key,
        /// The version.
        version: Version,
        /// The revision that the watcher had reached.
        position: Revision,
    },
    /// A list or bookmark is older than what the watcher had received before.
    #[error("{watcher}: back from revision {position} to {revision}")]
    BackInTime {
        /// The watcher.
        watcher: String,
        /// The revision that the watcher had reached.
        position: Revision,
        /// The revision of the list or bookmark.
        revision: Revision,
    },
    /// The type of an event does not fit: ADDED for an object that exists, or another one for an object that does not.
    #[error("{watcher}: {change:?} of {key} {version}, which {}", if *exists { "exists" } else { "does not exist" })]
    WrongType {
        /// The watcher.
        watcher: String,
        /// The type.
        change: Change,
        /// The object.
        key: Key,
        /// The version.
        version: Version,
        /// Whether the watcher knows the object.
        exists: bool,
    },
    /// A watcher did not receive a change that happened between two revisions that it received.
    #[error("{watcher}: {key} changed at revision {revision}, which is missing between {} and {}", window[0], window[1])]
    EventLost {
        /// The watcher.
        watcher: String,
        /// The object.
        key: Key,
        /// The revision of the change.
        revision: Revision,
        /// The watcher received everything from the first to the second revision.
        window: [Revision; 2],
    },
    /// Two clients saw different changes with one revision.
    #[error("{key}: two different changes at revision {revision}")]
    Disagreement {
        /// The object.
        key: Key,
        /// The revision.
        revision: Revision,
    },
    /// A list does not show the state at its revision.
    #[error("{watcher}: the list at revision {revision} shows {key} with {shown:?}, not {expected:?}")]
    WrongList {
        /// The watcher.
        watcher: String,
        /// The object.
        key: Key,
        /// The revision of the list.
        revision: Revision,
        /// The version in the list.
        shown: Option<Version>,
        /// The version at that revision.
        expected: Option<Version>,
    },
    /// A log does not begin with a list.
    #[error("{watcher}: received an event before a list")]
    NoList {
        /// The watcher.
        watcher: String,
    },
}

/// The longest explained beginning of an object's operations.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{explained} of {total} operations are explained, in state {state:?}; not explained:{}",
    remaining.iter().map(|operation| format!("\n    {operation}")).collect::<String>()
)]
pub struct Stuck {
    /// Number of explained operations.
    pub explained: usize,
    /// Number of all operations.
    pub total: usize,
    /// The state after them.
    pub state: super::Register,
    /// The first operations that are not explained.
    pub remaining: Vec<Operation>,
}
