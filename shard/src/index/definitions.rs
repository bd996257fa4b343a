//! The resources that a logical cluster serves: built-in ones, kcp's own, bound ones, and its CRDs.

use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use fairlead_apiserver::hub::{Hub, InvalidatedWatches, ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::{
    Catalog, CatalogKey, ObjectStore, Registry, ServedResource, StoredObject,
};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{RequestedResource, Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status};
use fairlead_schema::FieldError;
use fairlead_schema::crd::has_condition;
use fairlead_schema::names::NameRule;
use fairlead_store::{Expect, Mutation, Revision};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::cluster_cache::ClusterCache;
use super::compiled::{CompiledDefinition, CompiledDefinitions};
use super::contents::{ContentIndex, StoredResource};
use super::defined_resources::DefinedResources;
use super::resources::{LocalDefinition, own_resource};
use crate::names::{API_BINDINGS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, SYSTEM_CRDS};

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
    contents: Arc<ContentIndex>,
    defined: Arc<DefinedResources>,
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
        let definitions = Arc::new(Self {
            objects,
            registry,
            built_in,
            system,
            contents,
            exported: ArcSwapOption::empty(),
            catalogs: ClusterCache::new(CACHED_CLUSTERS),
            compiled: CompiledDefinitions::default(),
            defined,
            shared: parking_lot::Mutex::default(),
        });
        for resource in [&*API_BINDINGS, &*CUSTOM_RESOURCE_DEFINITIONS] {
            let follower = definitions.clone();
            hub.observe(
                resource.clone(),
                Box::new(move |event: &ObjectEvent| follower.catalogs.invalidate(&event.scope)),
            );
        }
        hub.end_watches_on(CUSTOM_RESOURCE_DEFINITIONS.clone(), Box::new(changed_definition));
        Ok(definitions)
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
                if wanted.identity.is_some() {
                    return Ok(found);
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

    /// An expectation for a create of a custom resource: its CRD is the one by which the object was validated. Without it, an
    /// object could survive the deletion of its CRD and appear in a new one of the same name. Costs a map look-up, and no read
    /// of the CRD.
    ///
    /// # Errors
    /// 404 if the CRD is gone, 405 if it is being deleted, 503 if it has changed since the request was resolved.
    pub(crate) fn creation_fence(
        &self,
        scope: &Scope,
        resource: &ServedResource,
    ) -> Result<Option<Mutation>, Status> {
        if resource.origin != CUSTOM || self.common_resource(&resource.name).is_some() {
            return Ok(None);
        }
        let definitions = self.cluster_definitions(scope)?;
        let Some((local, served)) = definitions.local_of(&resource.name) else {
            return Err(Status::unknown_resource());
        };
        let group_resource = GroupResource::new(&resource.name.group, &resource.name.resource);
        if !served.verbs.contains(Verb::Create) {
            return Err(Status::method_not_allowed(group_resource, Verb::Create.as_str()));
        }
        if served.key != resource.key {
            let message = format!("the definition of {group_resource} has changed, please try again");
            return Err(Status::service_unavailable(message, 1));
        }
        let name = definition_name(&resource.name);
        let key = self.objects.key(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, scope.as_str(), None, &name);
        Ok(Some(Mutation::fence(key, Expect::At(local.revision))))
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
        let exported = self.exported.load();
        for binding in self.objects.list(&API_BINDINGS, &CUSTOM, &one, None)? {
            let Ok(bound) = serde_json::from_slice::<WireBinding>(binding.object.as_object().json()) else {
                continue;
            };
            let is_deleted = bound.metadata.deletion_timestamp.is_some();
            for bound in bound.status.bound_resources {
                let found = exported.as_ref().and_then(|exported| {
                    exported.iter().find(|resource| {
                        *resource.name.group == *bound.group
                            && *resource.name.resource == *bound.resource
                            && resource.origin == Origin::Identity(bound.schema.identity_hash.as_str().into())
                    })
                });
                let Some(found) = found else { continue };
                if resources.iter().any(|resource| resource.name == found.name) {
                    continue;
                }
                // A binding that is being deleted permits no creates.
                resources.push(if is_deleted {
                    Arc::new(found.without(Verb::Create))
                } else {
                    found.clone()
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
        Ok(ClusterDefinitions { catalog: self.share(Catalog::new(resources)), locals })
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
            let local = LocalDefinition {
                cluster: stored.scope.as_str(),
                spec: &definition["spec"],
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
fn changed_definition(event: &ObjectEvent) -> Option<InvalidatedWatches> {
    let ObjectChange::Updated { object, previous } = &event.change else { return None };
    let [new, old] = [object, previous]
        .map(|object| serde_json::from_slice::<Value>(object.as_object().json()).unwrap_or_default());
    if new["spec"] == old["spec"] && new["status"]["acceptedNames"] == old["status"]["acceptedNames"] {
        return None;
    }
    let spec = &old["spec"];
    let resource = ResourceName::new(spec["group"].as_str()?, spec["names"]["plural"].as_str()?);
    Some(InvalidatedWatches { scope: Scope::new(&event.scope), resource, origin: Origin::Custom })
}

#[derive(Deserialize)]
struct WireBinding {
    metadata: WireMetadata,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    bound_resources: Vec<WireBound>,
}

#[derive(Deserialize)]
struct WireBound {
    #[serde(default)]
    group: String,
    resource: String,
    schema: WireSchema,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSchema {
    identity_hash: String,
}
