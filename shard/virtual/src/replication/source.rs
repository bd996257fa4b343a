//! The endpoint slices of ClusterCachedResources that a shard knows.

use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_process::Status;

/// The endpoint slices of all shards, and the bindings of one.
pub trait CachedSlices: Send + Sync + 'static {
    /// An endpoint slice. `None` if it does not exist, or if what it refers to does not fit together.
    ///
    /// # Errors
    /// 500 if it cannot be read.
    fn slice(&self, cluster: &Scope, name: &str) -> Result<Option<Arc<CachedSlice>>, Status>;

    /// Whether a logical cluster has bound the resource of a slice, by the slice's export.
    fn is_bound(&self, consumer: &Scope, slice: &CachedSlice) -> bool;
}

/// A ClusterCachedResourceEndpointSlice.
pub struct CachedSlice {
    /// The logical cluster of the export that has it as a storage.
    pub export_cluster: Scope,
    /// The name of the export.
    pub export_name: Box<str>,
    /// The resource, whose registry reads the copies of its objects for any logical cluster.
    pub resource: Arc<ServedResource>,
    pub(super) catalog: Arc<Catalog>,
}

impl CachedSlice {
    /// A slice of an export with one resource.
    pub fn new(export_cluster: Scope, export_name: Box<str>, resource: Arc<ServedResource>) -> Self {
        let catalog = Arc::new(Catalog::new(vec![Arc::clone(&resource)]));
        Self { export_cluster, export_name, resource, catalog }
    }
}
