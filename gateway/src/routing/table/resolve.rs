//! Resolution of a workspace reference to the shard that serves it.

use std::fmt;
use std::sync::Arc;

use crate::request::Reference;
use crate::routing::table::bucket::{Entry, Flags, SEPARATOR};
use crate::routing::table::{ShardEntry, ShardIndex, TableKey, TableView, cluster, types, workspace};

/// The result of a look-up, borrowed from one view.
#[derive(Debug)]
pub(crate) enum Resolution<'t> {
    /// A logical cluster on a shard.
    Found(FoundCluster<'t>),
    /// The reference leads to a mounted workspace.
    Mount(Mount<'t>),
    /// The workspace exists but is unavailable through this path.
    Unavailable,
    /// Not found, but not all shards have been read yet.
    NotSynced,
    /// Not found.
    NotFound(Missing),
}

/// A logical cluster and its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundCluster<'t> {
    /// The shard that owns the logical cluster.
    pub(crate) shard: &'t ShardEntry,
    /// The id of the logical cluster.
    pub(crate) cluster: &'t str,
    /// The workspace's type, `path:name`.
    pub(crate) workspace_type: Option<&'t Arc<str>>,
    /// Whether another shard owned it recently: a watch must not resume from a revision of that shard.
    pub(crate) recently_relocated: bool,
}

/// A workspace that another server serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount<'t> {
    /// The URL that serves it.
    pub(crate) url: &'t str,
    /// Whether the mount or a workspace above it is unavailable: 503.
    pub(crate) unavailable: bool,
    /// The first label behind the mount, for callers that treat it as a miss. kcp ignores these labels.
    pub(crate) missing_behind: Option<Missing>,
}

/// A record that was not found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Missing {
    /// The key of the record that a later batch would have to add.
    pub(crate) key: TableKey,
    /// True if its parent is in the table, so that the record may be about to appear.
    pub(crate) is_parent_known: bool,
    /// The shard that would have to report it; `None` for any shard.
    pub(crate) shard: Option<ShardIndex>,
}

/// One step of a resolution, for the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResolutionStep<'t> {
    /// A shard owns a logical cluster.
    Cluster { id: &'t str, shard: &'t str, workspace_type: Option<&'t Arc<str>> },
    /// A workspace exists.
    Workspace { key: &'t [u8], leads_to: &'t str, is_mount: bool, unavailable: bool },
}

impl fmt::Display for ResolutionStep<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { id, shard, workspace_type } => {
                write!(formatter, "logical cluster {id} is on shard {shard}")?;
                workspace_type.map_or(Ok(()), |name| write!(formatter, ", of type {name}"))
            }
            Self::Workspace { key, leads_to, is_mount, unavailable } => {
                let name = String::from_utf8_lossy(key);
                let name = name.rsplit_once(char::from(SEPARATOR)).map_or(&*name, |(_, name)| name);
                let unavailable = if *unavailable { ", and is Unavailable" } else { "" };
                if *is_mount {
                    return write!(formatter, "workspace {name} is mounted{unavailable}");
                }
                write!(formatter, "workspace {name} leads to logical cluster {leads_to}{unavailable}")
            }
        }
    }
}

impl TableView {
    /// Resolves a reference on this view. Each label costs two look-ups in buckets, of a few adjacent cache lines each. The two
    /// memory accesses of one label overlap. No lock, no allocation.
    ///
    /// The algorithm is kcp's: the first label is the id of a logical cluster, each further label is a workspace in
    /// the cluster reached so far. An unavailable workspace makes everything below it unavailable, but only
    /// if the whole path exists. A mount is a leaf.
    pub(crate) fn resolve<'t>(&'t self, reference: &'t Reference<'_>) -> Resolution<'t> {
        self.resolve_with_trace(reference, &mut |_| {})
    }

    /// As [`TableView::resolve`], with a callback for each step.
    pub(crate) fn resolve_with_trace<'t>(
        &'t self,
        reference: &'t Reference<'_>,
        on_step: &mut impl FnMut(ResolutionStep<'t>),
    ) -> Resolution<'t> {
        let (mut id, mut names) = reference.labels();
        let mut unavailable = false;
        let mut is_parent_known = false;
        loop {
            // The key uses the id from the path or from the record above, so the prefetch does not wait for the memory of the
            // cluster's own record.
            let below = names.next().map(|name| workspace(self.workspace_key(id, name), id, name));
            if let Some(below) = below {
                self.bucket(below.number).prefetch(below);
            }
            let Some(current) = self.owner(id) else {
                return self.missing_cluster(id, is_parent_known);
            };
            on_step(ResolutionStep::Cluster {
                id,
                shard: &current.shard.spec.name,
                workspace_type: current.workspace_type,
            });
            let Some(below) = below else {
                return if unavailable { Resolution::Unavailable } else { Resolution::Found(current) };
            };
            let found =
                self.bucket(below.number).find(below).find(|entry| entry.shard == current.shard.index.0);
            let Some(found) = found else {
                return self.missing_workspace(below.number, current);
            };
            let Entry { flags, value, .. } = found;
            unavailable |= flags.has(Flags::UNAVAILABLE);
            let Ok(value) = std::str::from_utf8(value) else {
                return self.missing_workspace(below.number, current);
            };
            let (is_mount, is_unavailable) = (flags.has(Flags::MOUNT), flags.has(Flags::UNAVAILABLE));
            on_step(ResolutionStep::Workspace {
                key: found.key,
                leads_to: value,
                is_mount,
                unavailable: is_unavailable,
            });
            if flags.has(Flags::MOUNT) {
                let missing_behind = names.next().map(|_| Missing {
                    key: TableKey(below.number),
                    is_parent_known: false,
                    shard: Some(current.shard.index),
                });
                return Resolution::Mount(Mount { url: value, unavailable, missing_behind });
            }
            (id, is_parent_known) = (value, true);
        }
    }

    /// The shard that owns a logical cluster.
    pub(crate) fn owner_of<'t>(&'t self, id: &'t str) -> Option<&'t ShardEntry> {
        self.owner(id).map(|found| found.shard)
    }

    fn owner<'t>(&'t self, id: &'t str) -> Option<FoundCluster<'t>> {
        let key = self.cluster_key(id);
        let entry = self.bucket(key).find(cluster(key, id)).find(|entry| entry.flags.has(Flags::OWNER))?;
        let shard = self.shards.get(ShardIndex(entry.shard))?;
        let number = entry.value.try_into().map_or(types::NO_TYPE, u32::from_le_bytes);
        Some(FoundCluster {
            shard,
            cluster: id,
            workspace_type: types::name_of(&self.types, number),
            // Empty except for 90 seconds after a relocation.
            recently_relocated: !self.relocations.is_empty() && self.relocations.contains_key(&key),
        })
    }

    /// No shard has this logical cluster; final only if every shard has been read.
    fn missing_cluster(&self, id: &str, is_parent_known: bool) -> Resolution<'_> {
        if self.is_synced() {
            Resolution::NotFound(Missing {
                key: TableKey(self.cluster_key(id)),
                is_parent_known,
                shard: None,
            })
        } else {
            Resolution::NotSynced
        }
    }

    /// The parent has no such workspace; final only if the workspaces of its shard have been read.
    fn missing_workspace(&self, key: u64, parent: FoundCluster<'_>) -> Resolution<'_> {
        if parent.shard.workspaces_synced {
            Resolution::NotFound(Missing {
                key: TableKey(key),
                is_parent_known: true,
                shard: Some(parent.shard.index),
            })
        } else {
            Resolution::NotSynced
        }
    }
}
