//! The schemas that logical clusters of a shard have bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::StoredObject;
use fairlead_process::Status;

/// The schemas of all shards, and the bindings of one.
pub trait BoundSchemas: Send + Sync + 'static {
    /// The schemas of the exports that a logical cluster has bound: their logical clusters by name.
    ///
    /// # Errors
    /// 500 if they cannot be read.
    fn bound(&self, consumer: &Scope) -> Result<BTreeMap<Arc<str>, Scope>, Status>;

    /// An APIResourceSchema, whose scope is its logical cluster.
    ///
    /// # Errors
    /// 500 if it cannot be read.
    fn schema(&self, cluster: &Scope, name: &str) -> Result<Option<StoredObject>, Status>;
}
