//! The virtual workspace of published objects: `replication`. It shows a consumer the objects that a ClusterCachedResource publishes,
//! as objects of the consumer's own logical cluster.
//!
//! A domain is one ClusterCachedResourceEndpointSlice, `<logical cluster>/<name>`. It has one resource, the one whose storage the slice
//! is in its export, read-only.

mod authorization;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::Catalog;
use fairlead_names::ClusterName;
use fairlead_process::Status;

use self::view::SliceView;
use crate::apiexport::Exports;
use crate::domain::DomainPath;
use crate::workspace::{Service, VirtualRequest, VirtualWorkspace};

pub use source::{CachedSlice, CachedSlices};

/// The virtual workspaces of all endpoint slices of ClusterCachedResources.
pub struct ReplicationWorkspaces {
    exports: Arc<dyn Exports>,
    slices: Arc<dyn CachedSlices>,
    empty: Arc<Catalog>,
}

impl ReplicationWorkspaces {
    /// The virtual workspaces of a shard.
    pub fn new(exports: Arc<dyn Exports>, slices: Arc<dyn CachedSlices>) -> Self {
        Self { exports, slices, empty: Arc::new(Catalog::new(Vec::new())) }
    }
}

impl VirtualWorkspace for ReplicationWorkspaces {
    fn name(&self) -> &str {
        "replication"
    }

    fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status> {
        let Some(path) = DomainPath::parse(request.segments(), 2) else { return Ok(None) };
        let [cluster, name] = *path.domain else { return Ok(None) };
        let Ok(cluster) = ClusterName::parse(cluster) else { return Ok(None) };
        let view = SliceView {
            cluster: Scope::new(cluster.as_str()),
            name: name.into(),
            exports: Arc::clone(&self.exports),
            slices: Arc::clone(&self.slices),
            empty: Arc::clone(&self.empty),
        };
        Ok(Some(Service::View { view: Arc::new(view), scopes: path.scopes, length: path.length }))
    }
}
