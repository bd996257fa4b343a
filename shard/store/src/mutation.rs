//! The parts of a commit: mutations with expectations.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;

use crate::error::CommitError;
use crate::record::Revision;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 4 * 1024;

/// The largest commit: its keys and values together, in bytes.
pub const MAX_COMMIT_BYTES: usize = 16 * 1024 * 1024;

/// The state of a key that a commit requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key may exist or not.
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The key exists and was last modified by this commit.
    At(Revision),
}

impl Expect {
    /// Whether a key whose last modification was `modified` (`None`: absent) is as expected.
    pub fn admits(self, modified: Option<Revision>) -> bool {
        match self {
            Expect::Any => true,
            Expect::Absent => modified.is_none(),
            Expect::Present => modified.is_some(),
            Expect::At(revision) => modified == Some(revision),
        }
    }
}

/// The change of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets this value.
    Put(Bytes),
    /// Removes the key. Removing an absent key changes nothing and makes no event.
    Delete,
    /// Changes nothing: only the expectation counts (a fence, such as a leader's lease).
    Keep,
}

impl fmt::Debug for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Put(value) => write!(formatter, "Put({} bytes)", value.len()),
            Change::Delete => formatter.write_str("Delete"),
            Change::Keep => formatter.write_str("Keep"),
        }
    }
}

/// The part of a commit for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The key; at most [`MAX_KEY_BYTES`].
    pub key: Bytes,
    /// The state that the commit requires.
    pub expect: Expect,
    /// The change.
    pub change: Change,
}

impl Mutation {
    /// Writes a key that must not exist.
    pub fn create(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), expect: Expect::Absent, change: Change::Put(value.into()) }
    }

    /// Writes a key in any state.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), expect: Expect::Any, change: Change::Put(value.into()) }
    }

    /// Replaces the value that was written at `at`.
    pub fn update(key: impl Into<Bytes>, at: Revision, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), expect: Expect::At(at), change: Change::Put(value.into()) }
    }

    /// Removes a key.
    pub fn delete(key: impl Into<Bytes>, expect: Expect) -> Self {
        Self { key: key.into(), expect, change: Change::Delete }
    }

    /// Changes nothing, but fails the commit if the key is not as expected.
    pub fn fence(key: impl Into<Bytes>, expect: Expect) -> Self {
        Self { key: key.into(), expect, change: Change::Keep }
    }

    /// Key and value together, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len()
            + match &self.change {
                Change::Put(value) => value.len(),
                Change::Delete | Change::Keep => 0,
            }
    }
}

/// Rejects mutations that are invalid in every state of the store. Returns the size of the commit in bytes.
pub(crate) fn check_shape(mutations: &[Mutation]) -> Result<usize, CommitError> {
    if mutations.is_empty() {
        return Err(CommitError::Empty);
    }
    if let Some(long) = mutations.iter().find(|mutation| mutation.key.len() > MAX_KEY_BYTES) {
        return Err(CommitError::TooLarge { bytes: long.key.len(), limit: MAX_KEY_BYTES });
    }
    let bytes = mutations.iter().map(Mutation::bytes).fold(0, usize::saturating_add);
    if bytes > MAX_COMMIT_BYTES {
        return Err(CommitError::TooLarge { bytes, limit: MAX_COMMIT_BYTES });
    }
    if mutations.len() > 1 {
        let mut seen = HashSet::with_capacity(mutations.len());
        if let Some(index) = mutations.iter().position(|mutation| !seen.insert(&mutation.key)) {
            return Err(CommitError::DuplicateKey { index });
        }
    }
    Ok(bytes)
}
