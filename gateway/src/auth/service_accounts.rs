//! Looks up at the owning shard whether a service account, and the objects that its token is bound to, still exist.

use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_authn::{FoundObject, LookupError, ObjectReference, ServiceAccountLookup};
use fairlead_client::Client;
use rustc_hash::FxHashMap;

use crate::request::Reference;
use crate::routing::index::ShardClients;
use crate::routing::resolver::{CallerKind, Route, WorkspaceResolver};

/// Finds objects on the shard of their logical cluster.
pub(crate) struct ShardLookup {
    resolver: Arc<WorkspaceResolver>,
    clients: ShardClients,
    /// Clients by base URL, kept because they have open connections.
    by_url: ArcSwap<FxHashMap<Arc<str>, Client>>,
}

impl ShardLookup {
    /// A lookup with the credentials of the index.
    pub(crate) fn new(resolver: Arc<WorkspaceResolver>, clients: ShardClients) -> Self {
        Self { resolver, clients, by_url: ArcSwap::default() }
    }

    async fn find_object(&self, object: &ObjectReference) -> Result<Option<FoundObject>, LookupError> {
        let reference = object.cluster.as_deref().and_then(|cluster| Reference::parse(cluster).ok());
        let Some(reference) = reference else {
            return Ok(None);
        };
        let failed = |reason: &dyn std::fmt::Display| LookupError::new(object, reason);
        let (name, url, cluster) = match self.resolver.route(&reference, CallerKind::Gateway).await {
            Route::Shard { name, url, cluster, .. } => (name, url, cluster),
            Route::NotSynced | Route::TooManyWaiters => {
                return Err(failed(&"its workspace is not in the index yet"));
            }
            Route::Mount(_) | Route::Unavailable | Route::NotFound => return Ok(None),
        };
        let client = self.client(&name, &url).map_err(|error| failed(&error))?;
        let path = format!("/clusters/{cluster}{}", object.path());
        match client.get(&path).await {
            Ok(response) => FoundObject::from_json(&response.body).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    fn client(&self, name: &str, url: &Arc<str>) -> Result<Client, fairlead_client::EndpointError> {
        if let Some(client) = self.by_url.load().get(url) {
            return Ok(client.clone());
        }
        let client = self.clients.of(name, url)?;
        self.by_url.rcu(|clients| {
            let mut clients = FxHashMap::clone(clients);
            clients.insert(Arc::clone(url), client.clone());
            clients
        });
        Ok(client)
    }
}

impl ServiceAccountLookup for ShardLookup {
    fn find<'a>(
        &'a self,
        object: &'a ObjectReference,
    ) -> Pin<Box<dyn Future<Output = Result<Option<FoundObject>, LookupError>> + Send + 'a>> {
        Box::pin(self.find_object(object))
    }
}
