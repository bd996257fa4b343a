//! Workspace path to shard: the routing table, the index that fills it, path mappings, mounts, and the placement of new workspaces.
//!
//! May use `policy`, `upstream` (mapped backends, load of shards), `telemetry` and `request`. Must not know identities or how
//! requests are forwarded.

pub(crate) mod index;
pub(crate) mod mapping;
pub(crate) mod mount;
pub(crate) mod placement;
pub(crate) mod resolver;
pub(crate) mod shard_credentials;
pub(crate) mod table;

use std::sync::Arc;

use arc_swap::ArcSwap;

use mapping::LivePathMappings;
use mount::MountRules;
use resolver::WorkspaceResolver;
use table::RoutingTable;

/// State that determines the target of a request.
pub(crate) struct Routing {
    /// Logical clusters and their shards.
    pub(crate) table: Arc<RoutingTable>,
    /// Resolves workspace references.
    pub(crate) resolver: Arc<WorkspaceResolver>,
    /// Path prefixes and their targets.
    pub(crate) paths: Arc<LivePathMappings>,
    /// Hosts that mount URLs may name.
    pub(crate) mounts: ArcSwap<MountRules>,
}
