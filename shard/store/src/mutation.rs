//! The parts of a commit: mutations with expectations.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;

use crate::error::CommitError;
use crate::record::Revision;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 4 * 1024;

/// The largest commit of the backends in this crate: its keys and values together, in bytes. Another backend may accept
/// less; [`Store::limits`](crate::Store::limits) says how much.
pub const MAX_COMMIT_BYTES: usize = 16 * 1024 * 1024;

/// The largest commit that a store accepts. Writers of many objects divide them into commits of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Mutations of a commit, fences included.
    pub mutations: usize,
    /// Keys and values of a commit together, in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { mutations: usize::MAX, bytes: MAX_COMMIT_BYTES }
    }
}

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
    pub fn bytes(&self) -> usize {
        self.key.len()
            + match &self.change {
                Change::Put(value) => value.len(),
                Change::Delete | Change::Keep => 0,
            }
    }
}

impl Limits {
    /// Rejects mutations that are invalid in every state of a store with these limits. Returns the size of the commit in
    /// bytes.
    ///
    /// # Errors
    /// Every [`CommitError`] that says that the caller is at fault.
    pub fn check(&self, mutations: &[Mutation]) -> Result<usize, CommitError> {
        if mutations.is_empty() {
            return Err(CommitError::Empty);
        }
        if let Some(long) = mutations.iter().find(|mutation| mutation.key.len() > MAX_KEY_BYTES) {
            return Err(CommitError::TooLarge { bytes: long.key.len(), limit: MAX_KEY_BYTES });
        }
        let bytes = mutations.iter().map(Mutation::bytes).fold(0, usize::saturating_add);
        if bytes > self.bytes {
            return Err(CommitError::TooLarge { bytes, limit: self.bytes });
        }
        if mutations.len() > self.mutations {
            return Err(CommitError::TooManyMutations { count: mutations.len(), limit: self.mutations });
        }
        if mutations.len() > 1 {
            let mut seen = HashSet::with_capacity(mutations.len());
            if let Some(index) = mutations.iter().position(|mutation| !seen.insert(&mutation.key)) {
                return Err(CommitError::DuplicateKey { index });
            }
        }
        Ok(bytes)
    }

    /// Divides mutations, in their order, into commits of at most this size. Each is atomic; all of them together are not.
    pub fn parts(&self, mutations: Vec<Mutation>) -> Vec<Vec<Mutation>> {
        let mut parts: Vec<Vec<Mutation>> = Vec::new();
        let mut bytes = 0;
        for mutation in mutations {
            let size = mutation.bytes();
            match parts.last_mut() {
                Some(part) if part.len() < self.mutations && bytes + size <= self.bytes => {
                    part.push(mutation);
                    bytes += size;
                }
                _ => {
                    parts.push(vec![mutation]);
                    bytes = size;
                }
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_order_and_are_as_large_as_permitted() {
        let limits = Limits { mutations: 3, bytes: 10 };
        let put = |bytes: usize| Mutation::put("k", vec![b'v'; bytes - 1]);
        let sizes = |sizes: &[usize]| -> Vec<Vec<usize>> {
            let parts = limits.parts(sizes.iter().map(|bytes| put(*bytes)).collect());
            parts.iter().map(|part| part.iter().map(Mutation::bytes).collect()).collect()
        };
        assert_eq!(sizes(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(sizes(&[1, 1, 1, 1]), [vec![1, 1, 1], vec![1]]);
        assert_eq!(sizes(&[6, 4, 1]), [vec![6, 4], vec![1]]);
        // Refused by the store, but not lost here.
        assert_eq!(sizes(&[2, 20, 2]), [vec![2], vec![20], vec![2]]);
        assert_eq!(Limits::default().parts(vec![put(5); 1000]).len(), 1);
    }
}
