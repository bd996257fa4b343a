//! Keys of served resources and catalogs: equal keys mean that clients see the same.
//!
//! Scopes of different tenants share what has equal keys, and tenants choose names and schemas, so the keys are cryptographic hashes
//! (SHA-256) over the whole definition.

use sha2::{Digest as _, Sha256};

use crate::resource::Verb;

/// The hash of everything that clients see of a [`ServedResource`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ServedKey([u8; 32]);

impl ServedKey {
    /// The key of a definition that consists of these parts. Their order counts, and so does where one ends and the next begins.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The key of the resource without a verb.
    pub(crate) fn without(self, verb: Verb) -> Self {
        Self::of(&[b"without", &self.0, verb.as_str().as_bytes()])
    }

    /// The key of the resource in a view that shows it with other verbs.
    pub(crate) fn view(self, shown: &str) -> Self {
        Self::of(&[b"view", &self.0, shown.as_bytes()])
    }
}

/// The hash of everything that clients see of a [`Catalog`](super::Catalog).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CatalogKey([u8; 32]);

impl CatalogKey {
    /// The key of a catalog whose resources have these keys, in their order.
    pub(super) fn of(resources: impl Iterator<Item = ServedKey>) -> Self {
        let mut hash = Sha256::new();
        resources.for_each(|key| hash.update(key.0));
        Self(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_apart() {
        let keys = [
            ServedKey::of(&[b"ab", b"c"]),
            ServedKey::of(&[b"a", b"bc"]),
            ServedKey::of(&[b"abc"]),
            ServedKey::of(&[b"abc", b""]),
            ServedKey::of(&[b"abc"]).without(Verb::Create),
        ];
        for (position, key) in keys.iter().enumerate() {
            assert!(!keys[..position].contains(key), "{position}");
        }
        assert_eq!(keys[0], ServedKey::of(&[b"ab", b"c"]));
    }
}
