//! Look-up of WorkspaceTypes by path or logical cluster, on this shard and among the replicas of others.

use std::sync::Arc;

use fairlead_api::{LocatedType, TypeReference, WorkspaceTypeSpec, annotation};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{ClusterReference, Origin, WorkspacePath};
use fairlead_process::Status;
use parking_lot::RwLock;
use serde::Deserialize as _;
use serde_json::Value;

use crate::global::GlobalView;
use crate::index::{ClusterIndex, PathIndex, Resolution};
use crate::names::WORKSPACE_TYPES;

/// Finds WorkspaceTypes.
pub(crate) struct TypeLookup {
    objects: ObjectStore,
    clusters: Arc<ClusterIndex>,
    paths: Arc<PathIndex>,
    global: Arc<GlobalView>,
    origin: RwLock<Option<Origin>>,
}

impl TypeLookup {
    pub(crate) fn new(
        objects: ObjectStore,
        clusters: Arc<ClusterIndex>,
        paths: Arc<PathIndex>,
        global: Arc<GlobalView>,
    ) -> Self {
        Self { objects, clusters, paths, global, origin: RwLock::default() }
    }

    /// Sets the origin under which WorkspaceTypes are stored.
    pub(crate) fn set_origin(&self, origin: Origin) {
        *self.origin.write() = Some(origin);
    }

    /// The type at a path or in a logical cluster: of this shard, otherwise from the replicas.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn find(&self, reference: &TypeReference) -> Result<Option<LocatedType>, Status> {
        if let Some(found) = self.local(&reference.path, &reference.name)? {
            return Ok(Some(found));
        }
        let replicas = self.global.list(&WORKSPACE_TYPES, None);
        let found = replicas.iter().find(|replica| {
            let metadata = &replica["metadata"];
            metadata["name"] == reference.name.as_str()
                && (metadata["annotations"][annotation::PATH] == reference.path.as_str()
                    || metadata["annotations"][annotation::CLUSTER] == reference.path.as_str())
        });
        Ok(found.and_then(|replica| {
            let cluster = replica["metadata"]["annotations"][annotation::CLUSTER].as_str()?;
            located(cluster, replica)
        }))
    }

    /// Searches a type by name in a workspace and its parents, as kcp does for references without a path.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn search(&self, workspace: &str, name: &str) -> Result<Option<LocatedType>, Status> {
        for path in fairlead_api::search_paths(workspace) {
            let reference = TypeReference { name: name.to_owned(), path };
            if let Some(found) = self.find(&reference)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A type and all types that it extends; the type itself is last.
    ///
    /// # Errors
    /// 500 if the store cannot be read. The inner error is returned if the aliases cannot be determined.
    pub(crate) fn aliases(
        &self,
        own: LocatedType,
    ) -> Result<Result<Vec<LocatedType>, fairlead_api::TypeError>, Status> {
        let mut failed = None;
        let aliases = fairlead_api::aliases(own, |reference| {
            self.find(reference).unwrap_or_else(|status| {
                failed = Some(status);
                None
            })
        });
        match failed {
            Some(status) => Err(status),
            None => Ok(aliases),
        }
    }

    fn local(&self, path: &str, name: &str) -> Result<Option<LocatedType>, Status> {
        let Some(origin) = self.origin.read().clone() else { return Ok(None) };
        let cluster = match ClusterReference::parse(path) {
            Ok(ClusterReference::Name(cluster)) => cluster,
            Ok(ClusterReference::Path(path)) => match self.resolve(&path) {
                Some(cluster) => cluster,
                None => return Ok(None),
            },
            Ok(ClusterReference::Wildcard) | Err(_) => return Ok(None),
        };
        let scope = Scope::new(cluster.as_str());
        let stored = self.objects.get(&WORKSPACE_TYPES, &origin, &scope, None, name)?;
        let Some(stored) = stored else { return Ok(None) };
        Ok(located(cluster.as_str(), &self.objects.tree(&stored)?))
    }

    fn resolve(&self, path: &WorkspacePath) -> Option<fairlead_names::ClusterName> {
        match self.paths.resolve(path, &self.clusters) {
            Resolution::Local(cluster) => Some(cluster),
            Resolution::OtherShard | Resolution::Unavailable | Resolution::NotFound => None,
        }
    }

    /// All types of this shard, for the controller of their status.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn all_local(&self) -> Result<Vec<fairlead_apiserver::registry::StoredObject>, Status> {
        let Some(origin) = self.origin.read().clone() else { return Ok(Vec::new()) };
        self.objects.list(&WORKSPACE_TYPES, &origin, &ScopeSelector::all(), None)
    }
}

/// Parses a type's reference: `root:org:team` is type `team` at `root:org`.
pub(crate) fn type_reference(text: &str) -> TypeReference {
    let (path, name) = text.rsplit_once(':').unwrap_or(("root", text));
    TypeReference { name: name.to_owned(), path: path.to_owned() }
}

fn located(cluster: &str, object: &Value) -> Option<LocatedType> {
    // A type may have no spec: it is a type without further settings.
    let spec = Option::<WorkspaceTypeSpec>::deserialize(&object["spec"])
        .map(Option::unwrap_or_default)
        .inspect_err(|error| tracing::warn!(cluster, %error, "a WorkspaceType cannot be read"))
        .ok()?;
    let name = object["metadata"]["name"].as_str()?.to_owned();
    let path = object["metadata"]["annotations"][annotation::PATH].as_str().unwrap_or(cluster).to_owned();
    Some(LocatedType { cluster: cluster.to_owned(), path, name, spec })
}
