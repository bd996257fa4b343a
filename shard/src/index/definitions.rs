//! The resources that a logical cluster serves: built-in ones, kcp's own, bound ones, and its CRDs.

mod cluster;

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use fairlead_apiserver::hub::{Hub, InvalidatedWatches, ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::{Catalog, CatalogKey, ObjectStore, Registry, ServedResource};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{RequestedResource, Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status};
use fairlead_schema::FieldError;
use fairlead_schema::crd::CrdNames;
use fairlead_store::{Expect, Mutation};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::bindings::BindingIndex;
use super::bound_definitions::BoundDefinitions;
use super::cluster_cache::ClusterCache;
use super::compiled::CompiledDefinitions;
use super::contents::{ContentIndex, StoredResource};
use super::defined_resources::DefinedResources;
use super::resources::own_resource;
use super::virtual_storage::virtual_resource;
use crate::bound_conversion::changes_rules;
use crate::names::{API_BINDINGS, BOUND_CRDS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS};
use crate::permission_claims::PermissionClaims;
use cluster::{BoundExport, ClusterDefinitions};

/// Number of logical clusters whose catalogs are cached.
const CACHED_CLUSTERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// The identity hashes of root's exports, by export name.
pub(crate) type Identities = FxHashMap<String, Arc<str>>;

/// Resolves the resource of a request in kcp's order: built-in, system, bound, local.
pub(crate) struct Definitions {
    objects: ObjectStore,
    registry: Arc<dyn Registry>,
    built_in: Vec<Arc<ServedResource>>,
    system: Vec<Arc<ServedResource>>,
    /// Root's exported resources; `None` until their identities are known.
    exported: ArcSwapOption<Vec<Arc<ServedResource>>>,
    catalogs: ClusterCache<ClusterDefinitions>,
    compiled: CompiledDefinitions,
    bound: BoundDefinitions,
    bindings: Arc<BindingIndex>,
    contents: Arc<ContentIndex>,
    defined: Arc<DefinedResources>,
    /// The permission claims, by which objects are labelled.
    claims: Arc<PermissionClaims>,
    /// The registry of bound resources whose objects are not on this shard. Without it they are not served.
    virtual_storage: OnceLock<Arc<dyn Registry>>,
    shared: parking_lot::Mutex<FxHashMap<CatalogKey, Weak<Catalog>>>,
}

impl Definitions {
    /// Creates definitions that follow the hub. Bound resources are known after
    /// [`set_identities`](Self::set_identities).
    ///
    /// # Errors
    /// When a compiled-in schema does not compile, which a test excludes, or the store cannot be read.
    pub(crate) fn follow(
        objects: ObjectStore,
        hub: &Hub,
        registry: Arc<dyn Registry>,
        built_in: Vec<Arc<ServedResource>>,
    ) -> Result<Arc<Self>, DefinitionsError> {
        let system: Vec<_> = fairlead_api::system_resources()
            .map(|definition| own_resource(definition, Origin::Custom, registry.clone()).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let common = built_in.iter().chain(&system);
        let common = common.map(|resource| (resource.name.clone(), resource.origin.clone())).collect();
        let contents = ContentIndex::follow(&objects, hub, common)?;
        let defined = DefinedResources::follow(&objects, hub)?;
        let bindings = BindingIndex::follow(&objects, hub)?;
        let claims = PermissionClaims::follow(&objects, hub)?;
        let definitions = Arc::new(Self {
            bound: BoundDefinitions::new(objects.clone(), registry.clone()),
            bindings,
            objects,
            registry,
            built_in,
            system,
            contents,
            exported: ArcSwapOption::empty(),
            catalogs: ClusterCache::new(CACHED_CLUSTERS),
            compiled: CompiledDefinitions::default(),
            defined,
            claims,
            virtual_storage: OnceLock::new(),
            shared: parking_lot::Mutex::default(),
        });
        let follower = definitions.clone();
        hub.observe(
            API_BINDINGS.clone(),
            Box::new(move |event: &ObjectEvent| follower.catalogs.invalidate(&event.scope)),
        );
        let follower = definitions.clone();
        hub.observe(
            CUSTOM_RESOURCE_DEFINITIONS.clone(),
            Box::new(move |event: &ObjectEvent| follower.definition_changed(event)),
        );
        hub.end_watches_on(CUSTOM_RESOURCE_DEFINITIONS.clone(), Box::new(changed_definition));
        let bindings = Arc::clone(&definitions.bindings);
        hub.end_watches_on(
            CUSTOM_RESOURCE_DEFINITIONS.clone(),
            Box::new(
                move |event: &ObjectEvent| {
                    if changes_rules(event) { bindings.watches_of_schema(&event.name) } else { Vec::new() }
                },
            ),
        );
        let bindings = Arc::clone(&definitions.bindings);
        hub.end_watches_on(
            API_BINDINGS.clone(),
            Box::new(move |event: &ObjectEvent| bindings.take_redefined(&event.scope)),
        );
        Ok(definitions)
    }

    /// Sets the registry of bound resources whose objects are not on this shard. To be called once, before the first request.
    pub(crate) fn set_virtual_storage(&self, storage: Arc<dyn Registry>) {
        let _ = self.virtual_storage.set(storage);
    }

    /// A resource with virtual storage as its consumers see it.
    pub(crate) fn with_virtual_storage(&self, resource: &ServedResource) -> Option<Arc<ServedResource>> {
        Some(virtual_resource(resource, Arc::clone(self.virtual_storage.get()?)))
    }

    /// The permission claims of all logical clusters.
    pub(crate) fn claims(&self) -> &Arc<PermissionClaims> {
        &self.claims
    }

    /// Sets the identities of root's exports, which determine where the objects of exported resources are stored.
    ///
    /// # Errors
    /// When a compiled-in schema does not compile, which a test excludes.
    pub(crate) fn set_identities(&self, identities: &Identities) -> Result<(), Vec<FieldError>> {
        let mut exported = Vec::new();
        for definition in fairlead_api::resources() {
            let Some(export) = fairlead_api::root_export_of(definition.group, definition.plural) else {
                continue;
            };
            let Some(identity) = identities.get(export) else { continue };
            let origin = Origin::Identity(identity.clone());
            exported.push(Arc::new(own_resource(definition, origin, self.registry.clone())?));
        }
        self.exported.store(Some(Arc::new(exported)));
        self.catalogs.invalidate_all();
        Ok(())
    }

    /// The APIBindings of this shard.
    pub(crate) fn bindings(&self) -> &Arc<BindingIndex> {
        &self.bindings
    }

    /// The names of a bound schema, by its UID. `None` if it is not bound on this shard.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn bound_names(&self, schema: &str) -> Result<Option<Arc<CrdNames>>, Status> {
        self.bound.names(schema)
    }

    /// An expectation for the commit of a binding to a schema, by its UID: its CRD is not removed meanwhile. `None` if this shard has
    /// none.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn bound_fence(&self, schema: &str) -> Result<Option<Mutation>, Status> {
        self.bound.fence(schema)
    }

    /// A resource that an export publishes, whether or not a logical cluster of this shard binds it. `schema` is its
    /// APIResourceSchema, of this logical cluster. `None` if the schema is invalid.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn published(
        &self,
        cluster: &str,
        schema: &Value,
        identity: &Arc<str>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uid = text(&schema["metadata"]["uid"]);
        let name =
            ResourceName::new(&text(&schema["spec"]["group"]), &text(&schema["spec"]["names"]["plural"]));
        if let Some(bound) = self.bound_resource(&name, &uid, identity)? {
            return Ok(Some(bound.served));
        }
        let Ok(definition) = fairlead_api::bound_crd(schema, cluster) else { return Ok(None) };
        Ok(self.bound.compile(&definition, identity, &self.compiled).map(|(served, _)| served))
    }

    /// The export of a bound resource of a logical cluster, as logical cluster and name.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn export_of(
        &self,
        scope: &Scope,
        resource: &ResourceName,
    ) -> Result<Option<Arc<BoundExport>>, Status> {
        let definitions = self.cluster_definitions(scope)?;
        let found = definitions.bound.iter().find(|bound| bound.served.name == *resource);
        Ok(found.map(|bound| Arc::clone(&bound.binding.export)))
    }

    /// A resource that root exports, independent of a logical cluster.
    pub(crate) fn exported(&self, name: &ResourceName) -> Option<Arc<ServedResource>> {
        self.exported.load().as_ref()?.iter().find(|resource| resource.name == *name).cloned()
    }

    /// A resource that every logical cluster serves: built-in or of a system CRD.
    pub(crate) fn common_resource(&self, name: &ResourceName) -> Option<Arc<ServedResource>> {
        self.built_in.iter().chain(&self.system).find(|resource| resource.name == *name).cloned()
    }

    /// A built-in, system or exported resource, by the kind of its objects.
    pub(crate) fn resource_of_kind(&self, group: &str, kind: &str) -> Option<Arc<ServedResource>> {
        let matches =
            |resource: &&Arc<ServedResource>| *resource.name.group == *group && *resource.kind == *kind;
        let common = self.built_in.iter().chain(&self.system).find(matches).cloned();
        common.or_else(|| self.exported.load().as_ref()?.iter().find(matches).cloned())
    }

    /// The resource of a request.
    ///
    /// # Errors
    /// 503 while the store cannot be read or the identities are not known.
    pub(crate) fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        let matches = |resource: &Arc<ServedResource>| {
            resource.name == *wanted.name
                && match (&resource.origin, wanted.identity) {
                    (_, None) => true,
                    (Origin::Identity(own), Some(identity)) => **own == *identity,
                    (Origin::BuiltIn | Origin::Custom, Some(_)) => false,
                }
        };
        // A resource that every logical cluster serves takes precedence, with or without an identity.
        if let Some(resource) = self.common_resource(wanted.name) {
            return Ok(Some(resource));
        }
        match scopes {
            ScopeSelector::One(scope) => {
                Ok(self.catalog(scope)?.resources.iter().find(|resource| matches(resource)).cloned())
            }
            ScopeSelector::Every { .. } => {
                let Some(exported) = self.exported.load_full() else {
                    return Err(unavailable(wanted.name));
                };
                let found = exported.iter().find(|resource| matches(resource)).cloned();
                if let Some(identity) = wanted.identity {
                    return if found.is_some() {
                        Ok(found)
                    } else {
                        self.bound_anywhere(identity, wanted.name)
                    };
                }
                if !wanted.is_metadata_only || found.is_some() {
                    return Ok(found.filter(|_| wanted.is_metadata_only));
                }
                let defined = self.defined.resource(wanted.name, wanted.version, self.registry.clone());
                Ok(defined.map(Arc::new))
            }
        }
    }

    /// The resources that may have objects in a logical cluster, whether they are served or not. Includes all that was written before
    /// the call.
    pub(crate) async fn stored_resources(&self, hub: &Hub, cluster: &str) -> Vec<StoredResource> {
        // A closed hub means that the process terminates.
        let _ = hub.wait(self.objects.store().revision()).await;
        self.contents.resources(cluster)
    }

    /// All resources that a logical cluster serves.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
        Ok(self.cluster_definitions(scope)?.catalog.clone())
    }

    /// An expectation for a create of a custom or bound resource: its CRD or APIBinding is the one by which the object was validated.
    /// Without it, an object could survive the deletion of its definition and appear in a new one of the same name. Costs a map look-up,
    /// and no read of the definition.
    ///
    /// # Errors
    /// 404 if the definition is gone, 403 if it is being deleted, 503 if it has changed since the request was resolved.
    pub(crate) fn creation_fence(
        &self,
        scope: &Scope,
        resource: &ServedResource,
        name: &str,
    ) -> Result<Option<Mutation>, Status> {
        if self.common_resource(&resource.name).is_some() {
            return Ok(None);
        }
        let definitions = self.cluster_definitions(scope)?;
        let bound = definitions.bound.iter().find(|bound| bound.served.name == resource.name);
        let (served, key, revision) = match (bound, definitions.local_of(&resource.name)) {
            (Some(bound), _) => {
                let key = self.objects.key(&API_BINDINGS, &CUSTOM, scope.as_str(), None, &bound.binding.name);
                (&*bound.served, key, bound.binding.revision)
            }
            (None, Some((local, served))) => {
                let definition = definition_name(&resource.name);
                let definitions = &CUSTOM_RESOURCE_DEFINITIONS;
                let key = self.objects.key(definitions, &BUILT_IN, scope.as_str(), None, &definition);
                (served, key, local.revision)
            }
            (None, None) => return Err(Status::unknown_resource()),
        };
        let group_resource = GroupResource::new(&resource.name.group, &resource.name.resource);
        if !served.verbs.contains(Verb::Create) {
            let message = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(group_resource, name, message));
        }
        if served.key != resource.key {
            let message = format!("the definition of {group_resource} has changed, please try again");
            return Err(Status::service_unavailable(message, 1));
        }
        Ok(Some(Mutation::fence(key, Expect::At(revision))))
    }

    /// The bound resource of an identity in all logical clusters. `None` if no binding binds it.
    fn bound_anywhere(
        &self,
        identity: &str,
        name: &ResourceName,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        let Some(schema) = self.bindings.newest_schema(identity, name) else { return Ok(None) };
        let bound = self.bound.get(&schema, &identity.into(), &self.compiled)?;
        let served = bound.map(|bound| Arc::clone(&bound.0)).ok_or_else(|| unavailable(name))?;
        Ok(match self.bindings.is_virtual(identity, name) {
            true => self.with_virtual_storage(&served),
            false => Some(served),
        })
    }

    /// Drops what was derived from a CRD that changed. That of a bound schema changes only if its conversion does.
    fn definition_changed(&self, event: &ObjectEvent) {
        self.catalogs.invalidate(&event.scope);
        if &*event.scope == BOUND_CRDS && !matches!(event.change, ObjectChange::Created(_)) {
            self.bound.remove(&event.name);
            self.catalogs.invalidate_all();
        }
    }
}

/// The name of the CRD that defines a resource, `<plural>.<group>`, with `core` for the core group.
fn definition_name(resource: &ResourceName) -> String {
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    format!("{}.{group}", resource.resource)
}

/// The reason why the definitions cannot be served; an error of this server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefinitionsError {
    /// A compiled-in schema does not compile.
    #[error("a compiled-in schema is invalid")]
    Schema(Vec<FieldError>),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] Status),
}

impl From<Vec<FieldError>> for DefinitionsError {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::Schema(errors)
    }
}

fn unavailable(name: &ResourceName) -> Status {
    let resource = GroupResource::new(&name.group, &name.resource);
    Status::service_unavailable(format!("{resource} is currently unavailable"), 1)
}

/// The watches that a change of a CRD ends: those of its resource, if it has another definition now. As in Kubernetes, watches
/// stay open while a CRD is terminating, so that they deliver the deletions of its objects.
fn changed_definition(event: &ObjectEvent) -> Vec<InvalidatedWatches> {
    let ObjectChange::Updated { object, previous } = &event.change else { return Vec::new() };
    let [new, old] = [object, previous]
        .map(|object| serde_json::from_slice::<Value>(object.as_object().json()).unwrap_or_default());
    if new["spec"] == old["spec"] && new["status"]["acceptedNames"] == old["status"]["acceptedNames"] {
        return Vec::new();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = ResourceName::new(&text(&old["spec"]["group"]), &text(&old["spec"]["names"]["plural"]));
    vec![InvalidatedWatches { scope: Some(Scope::new(&event.scope)), resource, origin: Origin::Custom }]
}
