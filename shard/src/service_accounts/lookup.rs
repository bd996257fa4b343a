//! Looks up the accounts and secrets of tokens: in the store of this shard, or at the shard of their logical cluster.

use std::pin::Pin;
use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_authn::{FoundObject, LookupError, ObjectReference, ReferencedKind, ServiceAccountLookup};

use crate::external_clusters::ExternalClusters;
use crate::index::ClusterIndex;
use crate::names::{BUILT_IN, SECRETS, SERVICE_ACCOUNTS};

/// Accounts of all logical clusters. The authenticator caches what is found for ten seconds.
pub(crate) struct AccountLookup {
    pub(crate) objects: ObjectStore,
    pub(crate) clusters: Arc<ClusterIndex>,
    /// Reaches other shards. Without it, tokens of their logical clusters are not verified here: the gateway verifies
    /// them before it forwards the request.
    pub(crate) external: Option<Arc<ExternalClusters>>,
}

impl AccountLookup {
    fn is_local(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some() || cluster.starts_with("system:")
    }

    fn read(&self, cluster: &str, object: &ObjectReference) -> Result<Option<FoundObject>, String> {
        let resource = match object.kind {
            ReferencedKind::ServiceAccount => &SERVICE_ACCOUNTS,
            ReferencedKind::Secret => &SECRETS,
            // There are no pods and nodes.
            ReferencedKind::Pod | ReferencedKind::Node => return Ok(None),
        };
        let scope = Scope::new(cluster);
        let stored = self.objects.get(resource, &BUILT_IN, &scope, Some(&object.namespace), &object.name);
        let Some(stored) = stored.map_err(|status| status.message)? else { return Ok(None) };
        FoundObject::from_json(stored.object.as_object().json()).map(Some).map_err(|error| error.to_string())
    }

    async fn fetch(&self, cluster: &str, object: &ObjectReference) -> Result<Option<FoundObject>, String> {
        let Some(external) = &self.external else {
            return Err(format!("the logical cluster {cluster:?} is not on this shard"));
        };
        // The name becomes a part of a path.
        if fairlead_names::ClusterName::parse(cluster).is_err() {
            return Ok(None);
        }
        match external.get(cluster, &object.path()).await.map_err(|error| error.to_string())? {
            Some(body) => FoundObject::from_json(&body).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        }
    }
}

impl ServiceAccountLookup for AccountLookup {
    fn find<'a>(
        &'a self,
        object: &'a ObjectReference,
    ) -> Pin<Box<dyn Future<Output = Result<Option<FoundObject>, LookupError>> + Send + 'a>> {
        let cluster = object.cluster.as_deref().unwrap_or_default();
        let failed = move |reason| LookupError { object: object.path(), reason };
        if self.is_local(cluster) {
            let found = self.read(cluster, object).map_err(failed);
            return Box::pin(core::future::ready(found));
        }
        Box::pin(async move { self.fetch(cluster, object).await.map_err(failed) })
    }
}
