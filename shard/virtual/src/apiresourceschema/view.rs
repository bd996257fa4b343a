//! The view of one consumer.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::resource::{Verb, Verbs};
use fairlead_apiserver::{Attributes, Authorization, Scope};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use parking_lot::Mutex;

use super::registry::SchemaRegistry;
use super::source::BoundSchemas;
use super::{API_RESOURCE_SCHEMAS, APIS_GROUP, authorization};
use crate::shard::Shard;
use crate::workspace::View;

const READS: Verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);

/// The view of one consumer.
pub(super) struct SchemaView {
    pub(super) consumer: Scope,
    pub(super) shard: Arc<dyn Shard>,
    pub(super) schemas: Arc<dyn BoundSchemas>,
    pub(super) catalog: Arc<SchemaCatalog>,
}

#[async_trait]
impl View for SchemaView {
    /// A logical cluster without bound schemas has no resource.
    fn catalog(&self) -> Result<Arc<Catalog>, Status> {
        if self.schemas.bound(&self.consumer)?.is_empty() {
            return Ok(Arc::clone(&self.catalog.empty));
        }
        self.catalog.get()
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        authorization::authorize(&*self.shard, attributes, &self.consumer).await
    }
}

/// The catalog of all views, because the registry takes the consumer from the request.
pub(super) struct SchemaCatalog {
    shard: Arc<dyn Shard>,
    schemas: Arc<dyn BoundSchemas>,
    empty: Arc<Catalog>,
    /// The resource of the shard, and the catalog that was made from it.
    known: Mutex<Option<(Arc<ServedResource>, Arc<Catalog>)>>,
}

impl SchemaCatalog {
    pub(super) fn new(shard: Arc<dyn Shard>, schemas: Arc<dyn BoundSchemas>) -> Self {
        let empty = Arc::new(Catalog::new(Vec::new()));
        Self { shard, schemas, empty, known: Mutex::new(None) }
    }

    fn get(&self) -> Result<Arc<Catalog>, Status> {
        let resource = self.shard.resource(&ResourceName::new(APIS_GROUP, API_RESOURCE_SCHEMAS));
        let resource = resource
            .ok_or_else(|| Status::service_unavailable("APIResourceSchemas are not served yet", 1))?;
        let mut known = self.known.lock();
        if let Some((from, catalog)) = &*known
            && Arc::ptr_eq(from, &resource)
        {
            return Ok(Arc::clone(catalog));
        }
        let registry = SchemaRegistry { inner: Arc::clone(&resource), schemas: Arc::clone(&self.schemas) };
        let shown = resource.view(READS, |_| None, Arc::new(registry));
        let catalog = Arc::new(Catalog::new(vec![Arc::new(shown)]));
        *known = Some((resource, Arc::clone(&catalog)));
        Ok(catalog)
    }
}
