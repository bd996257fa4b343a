//! From a reference to the shard that serves it.

use super::bucket::{Entry, Flags};
use super::{Root, ShardEntry, ShardIndex, TableKey, cluster, workspace};
use crate::request::Reference;

/// What the table says about a reference, borrowed from one view.
#[derive(Debug)]
pub(crate) enum Resolution<'t> {
    /// A logical cluster on a shard.
    Found(Found<'t>),
    /// A mounted workspace: this URL serves it.
    Mount(&'t str),
    /// The workspace exists but is not to be entered through this path.
    Unavailable,
    /// Not found, but not everything has been read yet.
    NotSynced,
    /// Not found.
    Unknown(Missing),
}

/// Where a logical cluster lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'t> {
    /// The shard that answers for it.
    pub(crate) shard: &'t ShardEntry,
    /// The id of the logical cluster.
    pub(crate) cluster: &'t str,
    /// The workspace's type, `path:name`.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the workspaces' own authenticators, which come later")
    )]
    pub(crate) workspace_type: Option<&'t str>,
}

/// What was not there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Missing {
    /// What a later batch would have to bring.
    pub(crate) key: TableKey,
    /// Everything above it is known, so that it may well be about to appear.
    pub(crate) below_known: bool,
    /// The shard that would have to bring it; `None` if that may be any.
    pub(crate) shard: Option<ShardIndex>,
}

impl Root {
    /// Resolves a reference on this view. Per label two hashes and two binary searches; no allocation.
    ///
    /// The walk is kcp's: the first label is the id of a logical cluster, each further label a workspace in
    /// the cluster reached so far. An unavailable workspace makes everything below it unavailable, but only
    /// if the whole path exists.
    pub(crate) fn resolve<'t>(&'t self, reference: &'t Reference<'_>) -> Resolution<'t> {
        let (top, names) = reference.labels();
        let mut unavailable = false;
        let Some(mut current) = self.owner(top) else {
            return self.missing_cluster(top, false);
        };
        let mut names = names.peekable();
        while let Some(name) = names.next() {
            let key = self.workspace_key(current.cluster, name);
            let shard = current.shard.index.0;
            let below = self
                .bucket(key)
                .find(workspace(key, current.cluster, name))
                .find(|entry| entry.shard == shard);
            let Some(Entry { flags, value, .. }) = below else {
                return self.missing_workspace(key, current);
            };
            unavailable |= flags.has(Flags::UNAVAILABLE);
            let Ok(value) = std::str::from_utf8(value) else {
                return self.missing_workspace(key, current);
            };
            if flags.has(Flags::MOUNT) {
                // A mount is a leaf: what lies below it is not ours to resolve.
                return match (names.peek(), unavailable) {
                    (Some(_), _) => Resolution::Unknown(Missing {
                        key: TableKey(key),
                        below_known: false,
                        shard: Some(current.shard.index),
                    }),
                    (None, true) => Resolution::Unavailable,
                    (None, false) => Resolution::Mount(value),
                };
            }
            let Some(below) = self.owner(value) else {
                return self.missing_cluster(value, true);
            };
            current = below;
        }
        if unavailable { Resolution::Unavailable } else { Resolution::Found(current) }
    }

    fn owner<'t>(&'t self, id: &'t str) -> Option<Found<'t>> {
        let key = self.cluster_key(id);
        let entry = self.bucket(key).find(cluster(key, id)).find(|entry| entry.flags.has(Flags::OWNER))?;
        let shard = self.shards.get(ShardIndex(entry.shard))?;
        let workspace_type = entry
            .value
            .try_into()
            .ok()
            .and_then(|number| self.types.get(u32::from_le_bytes(number) as usize))
            .map(|text| &**text);
        Some(Found { shard, cluster: std::str::from_utf8(entry.key).ok()?, workspace_type })
    }

    /// Nobody claims this logical cluster; final only if every shard has been heard.
    fn missing_cluster(&self, id: &str, below_known: bool) -> Resolution<'_> {
        if self.is_synced() {
            Resolution::Unknown(Missing { key: TableKey(self.cluster_key(id)), below_known, shard: None })
        } else {
            Resolution::NotSynced
        }
    }

    /// The parent has no such workspace; final only if its shard's workspaces have been read.
    fn missing_workspace(&self, key: u64, parent: Found<'_>) -> Resolution<'_> {
        if parent.shard.workspaces_synced {
            Resolution::Unknown(Missing {
                key: TableKey(key),
                below_known: true,
                shard: Some(parent.shard.index),
            })
        } else {
            Resolution::NotSynced
        }
    }
}
