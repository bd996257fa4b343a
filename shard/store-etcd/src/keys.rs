//! The layout of keys in etcd: that of kcp for the keys below the root, a folder of our own for all others.
//!
//! | key of the store | key in etcd |
//! |---|---|
//! | `<root>/x`, where `x` does not begin with `.fairlead/` | `<prefix>/x` |
//! | any other key `k` | `<prefix>/.fairlead/keys` and `k` |
//! | | `<prefix>/.fairlead/owner`: the owner of the prefix ([`owner`](crate::owner)) |
//! | | `<prefix>/.fairlead/installation`: the marks of the installation ([`installation`](crate::installation)) |
//! | [`LEADER_KEY`] | `<prefix>/.fairlead/leader`, which is not part of the store's view ([`election`](crate::election)) |
//! | | `<prefix>/.fairlead/barrier`: written after each connection and from time to time ([`feed`](crate::feed)) |
//!
//! With prefix and root `/registry`, an object has the same key as in kcp's etcd. No resource of Kubernetes belongs to a
//! group `.fairlead`, so tools that read objects by their prefix do not meet our keys.

use bytes::Bytes;
use fairlead_store::LEADER_KEY;

const OWN: &[u8] = b".fairlead/";
const KEYS: &[u8] = b".fairlead/keys";

/// Translates keys of the store into keys in etcd and back. Both directions cost one allocation.
#[derive(Clone, Debug)]
pub(crate) struct KeyLayout {
    /// With a slash at its end, as the root.
    prefix: Vec<u8>,
    root: Vec<u8>,
}

impl KeyLayout {
    pub(crate) fn new(prefix: &str, root: &str) -> Self {
        let with_slash = |text: &str| format!("{text}/").into_bytes();
        Self { prefix: with_slash(prefix), root: with_slash(root) }
    }

    /// The prefix of all keys in etcd, with a slash at its end.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The prefix for people.
    pub(crate) fn prefix_name(&self) -> String {
        String::from_utf8_lossy(&self.prefix).trim_end_matches('/').to_owned()
    }

    pub(crate) fn owner(&self) -> Vec<u8> {
        self.joined(b".fairlead/owner", b"")
    }

    /// The keys of the owner's records of all prefixes above this one.
    pub(crate) fn outer_owners(&self) -> Vec<Vec<u8>> {
        let inner = 1..self.prefix.len().saturating_sub(1);
        let slashes = inner.filter(|&at| self.prefix[at] == b'/');
        slashes.map(|at| [&self.prefix[..=at], &b".fairlead/owner"[..]].concat()).collect()
    }

    pub(crate) fn barrier(&self) -> Vec<u8> {
        self.joined(b".fairlead/barrier", b"")
    }

    pub(crate) fn installation(&self) -> Vec<u8> {
        self.joined(b".fairlead/installation", b"")
    }

    pub(crate) fn leader(&self) -> Vec<u8> {
        self.joined(LEADER_KEY, b"")
    }

    /// The beginnings and ends of the ranges that have our own keys, without those of the store.
    pub(crate) fn own_ranges(&self) -> [(Vec<u8>, Vec<u8>); 2] {
        let end_of = |prefix: &[u8]| {
            let mut end = self.joined(prefix, b"");
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            end
        };
        [(self.joined(OWN, b""), self.joined(KEYS, b"")), (end_of(KEYS), end_of(OWN))]
    }

    /// The key in etcd of a key of the store.
    pub(crate) fn encode(&self, key: &[u8]) -> Vec<u8> {
        if key == LEADER_KEY {
            return self.leader();
        }
        match key.strip_prefix(&self.root[..]) {
            Some(rest) if !rest.starts_with(OWN) => self.joined(rest, b""),
            _ => self.joined(KEYS, key),
        }
    }

    /// The key of the store for a key in etcd; `None` for our own keys and for those of others.
    pub(crate) fn decode(&self, key: &[u8]) -> Option<Bytes> {
        let rest = key.strip_prefix(&self.prefix[..])?;
        if let Some(key) = rest.strip_prefix(KEYS) {
            return Some(Bytes::copy_from_slice(key));
        }
        (!rest.starts_with(OWN)).then(|| [&self.root, rest].concat().into())
    }

    fn joined(&self, first: &[u8], second: &[u8]) -> Vec<u8> {
        [&self.prefix, first, second].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_objects_are_those_of_kcp_and_every_key_comes_back() {
        let kcp = KeyLayout::new("/registry", "/registry");
        let shared = KeyLayout::new("/shards/one", "/registry");
        let cases: [(&[u8], &str, &str); 9] = [
            (
                b"/registry/core/configmaps/root/default/a",
                "/registry/core/configmaps/root/default/a",
                "/shards/one/core/configmaps/root/default/a",
            ),
            (b"/registry/", "/registry/", "/shards/one/"),
            (b"/registry", "/registry/.fairlead/keys/registry", "/shards/one/.fairlead/keys/registry"),
            (b"/cache/a/b", "/registry/.fairlead/keys/cache/a/b", "/shards/one/.fairlead/keys/cache/a/b"),
            (b"", "/registry/.fairlead/keys", "/shards/one/.fairlead/keys"),
            (b"a\0", "/registry/.fairlead/keysa\0", "/shards/one/.fairlead/keysa\0"),
            (
                b"/registry/.fairlead/owner",
                "/registry/.fairlead/keys/registry/.fairlead/owner",
                "/shards/one/.fairlead/keys/registry/.fairlead/owner",
            ),
            (
                b"/registry/.fairlead/keys",
                "/registry/.fairlead/keys/registry/.fairlead/keys",
                "/shards/one/.fairlead/keys/registry/.fairlead/keys",
            ),
            (
                b"/shards/one/x",
                "/registry/.fairlead/keys/shards/one/x",
                "/shards/one/.fairlead/keys/shards/one/x",
            ),
        ];
        for (key, in_kcp, in_shared) in cases {
            for (layout, expected) in [(&kcp, in_kcp), (&shared, in_shared)] {
                let encoded = layout.encode(key);
                assert_eq!(encoded, expected.as_bytes(), "{}", key.escape_ascii());
                assert_eq!(layout.decode(&encoded).as_deref(), Some(key), "{}", key.escape_ascii());
            }
        }
    }

    #[test]
    fn own_keys_are_in_ranges_that_have_no_key_of_the_store() {
        let layout = KeyLayout::new("/registry", "/registry");
        let is_own =
            |key: &[u8]| layout.own_ranges().iter().any(|(start, end)| &start[..] <= key && key < &end[..]);
        for name in ["owner", "barrier", "leader", "", "z"] {
            assert!(is_own(format!("/registry/.fairlead/{name}").as_bytes()), "{name}");
        }
        for key in [
            &b""[..],
            b"a",
            b"/cache/x",
            b"\xff",
            b"/registry/a",
            b"/registry/.fairlead/owner",
            b"/registry/z",
        ] {
            assert!(!is_own(&layout.encode(key)), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn keys_of_others_are_not_part_of_the_store() {
        let layout = KeyLayout::new("/registry", "/registry");
        assert_eq!(layout.encode(LEADER_KEY), b"/registry/.fairlead/leader");
        let own = [layout.owner(), layout.barrier(), layout.leader()];
        for key in own.into_iter().chain([b"/registry".to_vec(), b"compact_rev_key".to_vec()]) {
            assert_eq!(layout.decode(&key), None, "{}", key.escape_ascii());
        }
    }
}
