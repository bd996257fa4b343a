//! Looks up the accounts and secrets of tokens in the store of this shard.

use std::pin::Pin;

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_authn::{FoundObject, LookupError, ObjectReference, ReferencedKind, ServiceAccountLookup};

use crate::index::ClusterIndex;
use crate::names::{BUILT_IN, SECRETS, SERVICE_ACCOUNTS};

/// Accounts of the logical clusters of this shard. A token of another shard's logical cluster is not verified here: the gateway
/// verifies it before it forwards the request.
pub(crate) struct LocalAccounts {
    pub(crate) objects: ObjectStore,
    pub(crate) clusters: std::sync::Arc<ClusterIndex>,
}

impl LocalAccounts {
    fn read(&self, object: &ObjectReference) -> Result<Option<FoundObject>, String> {
        let cluster = object.cluster.as_deref().unwrap_or_default();
        if self.clusters.get(cluster).is_none() && !cluster.starts_with("system:") {
            return Err(format!("the logical cluster {cluster:?} is not on this shard"));
        }
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
}

impl ServiceAccountLookup for LocalAccounts {
    fn find<'a>(
        &'a self,
        object: &'a ObjectReference,
    ) -> Pin<Box<dyn Future<Output = Result<Option<FoundObject>, LookupError>> + Send + 'a>> {
        let found = self.read(object).map_err(|reason| LookupError { object: object.path(), reason });
        Box::pin(core::future::ready(found))
    }
}
