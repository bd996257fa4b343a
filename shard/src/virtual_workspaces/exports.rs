//! API exports and bindings for the virtual workspace `apiexport`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{APIBindingSpec, PermissionClaim};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Action, Scope};
use fairlead_authn::UserInfo;
use fairlead_process::Status;
use fairlead_virtual::{Binding, Export, Exports};
use lru::LruCache;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::exports::{ExportLookup, PublishedExport};
use crate::host::{Authorizer, policy_user};
use crate::names::{API_BINDINGS, CUSTOM};

/// The number of exports that are kept in the form of the virtual workspace.
const CACHED_EXPORTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// The exports of all shards, and the bindings of this one.
pub(super) struct ExportAccess {
    objects: ObjectStore,
    lookup: Arc<ExportLookup>,
    authorizer: Arc<Authorizer>,
    /// By the published export from which each was made.
    known: Mutex<LruCache<ExportKey, KnownExport>>,
}

/// Logical cluster and name of an export.
type ExportKey = (Box<str>, Box<str>);

struct KnownExport {
    published: Arc<PublishedExport>,
    export: Arc<Export>,
}

/// The spec of a stored APIBinding.
#[derive(Deserialize)]
struct WireBinding {
    #[serde(default)]
    spec: APIBindingSpec,
}

impl ExportAccess {
    pub(super) fn new(objects: ObjectStore, lookup: Arc<ExportLookup>, authorizer: Arc<Authorizer>) -> Self {
        Self { objects, lookup, authorizer, known: Mutex::new(LruCache::new(CACHED_EXPORTS)) }
    }

    fn shown(&self, published: Arc<PublishedExport>) -> Result<Arc<Export>, Status> {
        let key = (published.cluster.clone(), published.name.clone());
        if let Some(known) = self.known.lock().get(&key)
            && (Arc::ptr_eq(&known.published, &published) || *known.published == *published)
        {
            return Ok(Arc::clone(&known.export));
        }
        let export = Arc::new(self.read(&published)?);
        self.known.lock().put(key, KnownExport { published, export: Arc::clone(&export) });
        Ok(export)
    }

    fn read(&self, published: &PublishedExport) -> Result<Export, Status> {
        let mut resources = Vec::new();
        if let Some(identity) = &published.identity {
            let definitions = self.authorizer.definitions();
            for schema in &published.schemas {
                let Some(object) = self.lookup.schema(&published.cluster, &schema.name)? else { continue };
                let resource = definitions.published(&published.cluster, &object, identity)?;
                resources.extend(match schema.is_stored {
                    true => resource,
                    false => resource.and_then(|resource| definitions.with_virtual_storage(&resource)),
                });
            }
        }
        let claim = |claim: &serde_json::Value| PermissionClaim::deserialize(claim).ok();
        Ok(Export {
            cluster: Scope::new(&published.cluster),
            name: published.name.clone(),
            identity: published.identity.clone(),
            claims: published.claims().iter().filter_map(claim).collect(),
            has_maximal_policy: published.has_maximal_policy(),
            resources,
        })
    }
}

#[async_trait]
impl Exports for ExportAccess {
    fn export(&self, cluster: &Scope, name: &str) -> Result<Option<Arc<Export>>, Status> {
        let found = self.lookup.in_cluster(cluster.as_str(), name)?;
        found.map(|published| self.shown(published)).transpose()
    }

    fn by_identity(&self, identity: &str) -> Result<Vec<Arc<Export>>, Status> {
        self.lookup.by_identity(identity)?.into_iter().map(|published| self.shown(published)).collect()
    }

    /// The binding index knows which one it is; the decisions about claims are only in the object.
    fn binding(&self, cluster: &Scope, export: &Export) -> Result<Option<Arc<Binding>>, Status> {
        let bindings = self.authorizer.definitions().bindings().of_cluster(cluster.as_str());
        let is_to_export = |cluster: Option<&str>, path: &str| match cluster {
            Some(cluster) => cluster == export.cluster.as_str(),
            // Its status has no logical cluster yet.
            None => path == export.cluster.as_str(),
        };
        let found = bindings.iter().find(|binding| {
            *binding.export_name == *export.name
                && is_to_export(binding.export_cluster.as_deref(), &binding.export_path)
        });
        let Some(found) = found else { return Ok(None) };
        let stored = self.objects.get(&API_BINDINGS, &CUSTOM, cluster, None, &found.name)?;
        let Some(stored) = stored else { return Ok(None) };
        let wire: WireBinding =
            serde_json::from_slice(stored.object.as_object().json()).map_err(Status::internal)?;
        let bound = found.resources.iter().map(|resource| resource.name.clone()).collect();
        Ok(Some(Arc::new(Binding { bound, claims: wire.spec.permission_claims })))
    }

    async fn permits_content(&self, user: &UserInfo, cluster: &Scope, action: &Action<'_>) -> bool {
        self.authorizer.permits(user, cluster, action).await
    }

    async fn is_within_policy(&self, user: &UserInfo, export: &Export, action: &Action<'_>) -> bool {
        self.authorizer.permits_deep(&policy_user(user), export.cluster.as_str(), action).await
    }
}
