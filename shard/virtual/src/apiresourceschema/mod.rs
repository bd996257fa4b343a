//! The virtual workspace of bound schemas: `apiresourceschema`. A user who may read the APIBindings of a logical cluster reads the
//! APIResourceSchemas of the exports that it has bound, without access to the logical clusters of the exports.
//!
//! A domain is one logical cluster, the consumer. `/clusters/<cluster>` may follow, as clients add it; it must be `*` or the consumer.

mod authorization;
mod registry;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::borrow::Cow;
use std::sync::Arc;

use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ClusterName;
use fairlead_process::Status;

use self::view::{SchemaCatalog, SchemaView};
use crate::shard::Shard;
use crate::workspace::{Service, VirtualRequest, VirtualWorkspace};

pub use source::BoundSchemas;

const APIS_GROUP: &str = "apis.kcp.io";
const API_RESOURCE_SCHEMAS: &str = "apiresourceschemas";

/// The virtual workspaces of all consumers.
pub struct SchemaWorkspaces {
    shard: Arc<dyn Shard>,
    schemas: Arc<dyn BoundSchemas>,
    catalog: Arc<SchemaCatalog>,
}

impl SchemaWorkspaces {
    /// The virtual workspaces of a shard.
    pub fn new(shard: Arc<dyn Shard>, schemas: Arc<dyn BoundSchemas>) -> Self {
        let catalog = Arc::new(SchemaCatalog::new(Arc::clone(&shard), Arc::clone(&schemas)));
        Self { shard, schemas, catalog }
    }
}

impl VirtualWorkspace for SchemaWorkspaces {
    fn name(&self) -> &str {
        "apiresourceschema"
    }

    fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status> {
        let Some((consumer, length)) = consumer(request.segments()) else { return Ok(None) };
        let view = SchemaView {
            consumer: consumer.clone(),
            shard: Arc::clone(&self.shard),
            schemas: Arc::clone(&self.schemas),
            catalog: Arc::clone(&self.catalog),
        };
        Ok(Some(Service::View { view: Arc::new(view), scopes: ScopeSelector::One(consumer), length }))
    }
}

/// The consumer of a path, and the number of segments before the path within its view.
fn consumer(segments: &[Cow<'_, str>]) -> Option<(Scope, usize)> {
    let (first, rest) = segments.split_first()?;
    if first.contains(':') {
        return None;
    }
    let consumer = ClusterName::parse(first).ok()?;
    let length = match rest {
        [clusters, cluster, ..] if clusters == "clusters" => {
            if cluster != "*" && **cluster != *consumer.as_str() {
                return None;
            }
            3
        }
        _ => 1,
    };
    Some((Scope::new(consumer.as_str()), length))
}
