//! The resources that a logical cluster serves: built-in ones, kcp's own, bound ones, and its CRDs.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use fairlead_api::PartialBinding;
use fairlead_apiserver::hub::{Hub, InvalidatedWatches, ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::{
    Catalog, CatalogKey, ObjectStore, Registry, ServedResource, StoredObject,
};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{RequestedResource, Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status};
use fairlead_schema::FieldError;
use fairlead_schema::crd::{CrdNames, has_condition};
use fairlead_schema::names::NameRule;
use fairlead_store::{Expect, Mutation, Revision};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::bindings::BindingIndex;
use super::bound_definitions::{BoundDefinition, BoundDefinitions};
use super::cluster_cache::ClusterCache;
use super::compiled::{CompiledDefinition, CompiledDefinitions};
use super::contents::{ContentIndex, StoredResource};
use super::defined_resources::DefinedResources;
use super::resources::{Definition, own_resource};
use super::virtual_storage::virtual_resource;
use crate::bound_conversion::changes_rules;
use crate::names::{API_BINDINGS, BOUND_CRDS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, SYSTEM_CRDS};
use crate::permission_claims::PermissionClaims;

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

    fn cluster_definitions(&self, scope: &Scope) -> Result<Arc<ClusterDefinitions>, Status> {
        let derive = |previous: Option<&ClusterDefinitions>| self.derive(scope, previous).map(Arc::new);
        self.catalogs.get(scope.as_str(), derive)
    }

    fn derive(
        &self,
        scope: &Scope,
        previous: Option<&ClusterDefinitions>,
    ) -> Result<ClusterDefinitions, Status> {
        let mut resources: Vec<Arc<ServedResource>> =
            self.built_in.iter().chain(&self.system).cloned().collect();
        let one = ScopeSelector::One(scope.clone());
        let mut bound = Vec::new();
        for stored in self.objects.list(&API_BINDINGS, &CUSTOM, &one, None)? {
            let (binding, revision) = (stored.object, stored.revision);
            let Ok(binding) = PartialBinding::decode(binding.as_object().json()) else { continue };
            let owner = Arc::new(BindingOfResource {
                name: binding.name.into_owned(),
                revision,
                export: Arc::new(BoundExport {
                    cluster: binding.export_cluster.into_owned(),
                    name: binding.export_name.into_owned(),
                }),
            });
            for schema in binding.resources {
                let name = ResourceName::new(&schema.group, &schema.resource);
                if resources.iter().any(|resource| resource.name == name) {
                    continue;
                }
                let Some(mut resource) = self.bound_resource(&name, &schema.schema, &schema.identity)? else {
                    tracing::warn!(cluster = scope.as_str(), %name, "a bound resource has no definition on this shard");
                    continue;
                };
                if schema.is_virtual {
                    let Some(served) = self.with_virtual_storage(&resource.served) else { continue };
                    resource.served = served;
                }
                // A binding that is being deleted permits no creates.
                if binding.is_deleted {
                    resource.served = Arc::new(resource.served.without(Verb::Create));
                }
                resources.push(resource.served.clone());
                bound.push(BoundResource {
                    served: resource.served,
                    _definition: resource.definition,
                    binding: Arc::clone(&owner),
                });
            }
        }
        let mut locals = Vec::new();
        if scope.as_str() != SYSTEM_CRDS && scope.as_str() != crate::names::BOUND_CRDS {
            for stored in self.objects.list(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, None)? {
                let known = previous.and_then(|previous| previous.local_at(stored.revision));
                let local = match known {
                    Some(known) => known.clone(),
                    None => self.local(&stored)?,
                };
                if let Some((resource, _)) = &local.served
                    && !resources.iter().any(|other| other.name == resource.name)
                {
                    resources.push(resource.clone());
                }
                locals.push(local);
            }
        }
        let key =
            |resource: &Arc<ServedResource>| (resource.name.group.clone(), resource.name.resource.clone());
        resources[self.built_in.len()..].sort_by_cached_key(key);
        locals.sort_unstable_by_key(|local| local.revision);
        Ok(ClusterDefinitions { catalog: self.share(Catalog::new(resources)), locals, bound })
    }

    /// The resource of a bound schema: one that root exports, or one of a bound CRD. `None` if there is no CRD.
    fn bound_resource(
        &self,
        name: &ResourceName,
        schema: &str,
        identity: &str,
    ) -> Result<Option<ResolvedBinding>, Status> {
        let exported = self.exported.load();
        let identity: Arc<str> = identity.into();
        let origin = Origin::Identity(Arc::clone(&identity));
        let own = exported.iter().flat_map(|all| all.iter());
        if let Some(own) = own.into_iter().find(|own| own.name == *name && own.origin == origin) {
            return Ok(Some(ResolvedBinding { served: Arc::clone(own), definition: None }));
        }
        let bound = self.bound.get(schema, &identity, &self.compiled)?;
        Ok(bound.map(|bound| ResolvedBinding { served: Arc::clone(&bound.0), definition: Some(bound) }))
    }

    /// Returns the catalog with the same content if there is one: many logical clusters serve the same resources and
    /// share a catalog.
    fn share(&self, catalog: Catalog) -> Arc<Catalog> {
        let mut shared = self.shared.lock();
        if let Some(existing) = shared.get(&catalog.key()).and_then(Weak::upgrade) {
            return existing;
        }
        shared.retain(|_, catalog| catalog.strong_count() > 0);
        let catalog = Arc::new(catalog);
        shared.insert(catalog.key(), Arc::downgrade(&catalog));
        catalog
    }

    /// The resource of a stored CRD, if it is established.
    fn local(&self, stored: &StoredObject) -> Result<LocalResource, Status> {
        let definition = self.objects.tree(stored)?;
        let served = if has_condition(&definition, "Established") {
            let annotations = &definition["metadata"]["annotations"];
            let names_are_path_segments =
                annotations[fairlead_api::annotation::VALIDATE_NAME] == "path-segment";
            let local = Definition {
                cluster: stored.scope.as_str(),
                origin: Origin::Custom,
                spec: &definition["spec"],
                rules: None,
                name_rule: match names_are_path_segments {
                    true => NameRule::PathSegment,
                    false => NameRule::Dns1123Subdomain,
                },
                is_terminating: has_condition(&definition, "Terminating"),
            };
            local
                .resource(&self.compiled, self.registry.clone())
                .map(|(resource, compiled)| (Arc::new(resource), compiled))
        } else {
            None
        };
        Ok(LocalResource { revision: stored.revision, served })
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

/// The definitions of one logical cluster.
struct ClusterDefinitions {
    catalog: Arc<Catalog>,
    /// Its CRDs by revision, so that only a changed one is compiled again.
    locals: Vec<LocalResource>,
    bound: Vec<BoundResource>,
}

/// A resource of an APIBinding. Holds the definition, which all logical clusters that bind the schema share.
struct BoundResource {
    served: Arc<ServedResource>,
    _definition: Option<Arc<BoundDefinition>>,
    binding: Arc<BindingOfResource>,
}

/// The APIBinding of a bound resource, at one revision.
struct BindingOfResource {
    name: String,
    revision: Revision,
    export: Arc<BoundExport>,
}

struct ResolvedBinding {
    served: Arc<ServedResource>,
    /// `None` for a resource that root exports.
    definition: Option<Arc<BoundDefinition>>,
}

/// The export of a bound resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BoundExport {
    /// Its logical cluster.
    pub(crate) cluster: String,
    pub(crate) name: String,
}

/// A CRD at one revision, and its resource if it is established. Holds the compiled definition, which all logical clusters with the
/// same `spec` share.
#[derive(Clone)]
struct LocalResource {
    revision: Revision,
    served: Option<(Arc<ServedResource>, Arc<CompiledDefinition>)>,
}

impl ClusterDefinitions {
    /// The CRD of a resource, if it is established.
    fn local_of(&self, name: &ResourceName) -> Option<(&LocalResource, &ServedResource)> {
        self.locals.iter().find_map(|local| {
            let (served, _) = local.served.as_ref().filter(|(served, _)| served.name == *name)?;
            Some((local, &**served))
        })
    }

    /// The CRD that was written at a revision. Several CRDs of one commit have the same revision, and are compiled again.
    fn local_at(&self, revision: Revision) -> Option<&LocalResource> {
        let first = self.locals.partition_point(|local| local.revision < revision);
        match self.locals.get(first..)? {
            [local, next, ..] if local.revision == revision && next.revision != revision => Some(local),
            [local] if local.revision == revision => Some(local),
            _ => None,
        }
    }
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
