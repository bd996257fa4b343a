//! The resources that a logical cluster serves: built-in ones, kcp's own, bound ones, and its CRDs.

use std::hash::{Hash as _, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::registry::{ObjectStore, Registry};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{RequestedResource, Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status};
use fairlead_schema::FieldError;
use fairlead_schema::crd::CrdSpec;
use fairlead_schema::names::NameRule;
use rustc_hash::{FxHashMap, FxHasher};
use serde::Deserialize;
use serde_json::Value;

use super::cluster_cache::ClusterCache;
use super::resources::{local_resource, own_resource};
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
    catalogs: ClusterCache<Catalog>,
    shared: parking_lot::Mutex<FxHashMap<u64, std::sync::Weak<Catalog>>>,
}

impl Definitions {
    /// Creates definitions that follow the hub. Bound resources are known after
    /// [`set_identities`](Self::set_identities).
    ///
    /// # Errors
    /// When a compiled-in schema does not compile, which a test excludes.
    pub(crate) fn follow(
        objects: ObjectStore,
        hub: &Hub,
        registry: Arc<dyn Registry>,
        built_in: Vec<Arc<ServedResource>>,
    ) -> Result<Arc<Self>, Vec<FieldError>> {
        let system: Result<Vec<_>, _> = fairlead_api::system_resources()
            .map(|definition| own_resource(definition, Origin::Custom, registry.clone()).map(Arc::new))
            .collect();
        let definitions = Arc::new(Self {
            objects,
            registry,
            built_in,
            system: system?,
            exported: ArcSwapOption::empty(),
            catalogs: ClusterCache::new(CACHED_CLUSTERS),
            shared: parking_lot::Mutex::default(),
        });
        for resource in [&*API_BINDINGS, &*CUSTOM_RESOURCE_DEFINITIONS] {
            let follower = definitions.clone();
            hub.observe(
                resource.clone(),
                Box::new(move |event: &ObjectEvent| follower.catalogs.invalidate(&event.scope)),
            );
        }
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
                if wanted.is_metadata_only { self.any_definition(wanted.name, found) } else { Ok(None) }
            }
        }
    }

    /// All resources that a logical cluster serves.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
        self.catalogs.get(scope.as_str(), || self.derive(scope))
    }

    fn derive(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
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
                    Arc::new(ServedResource {
                        verbs: found.verbs.without(Verb::Create),
                        ..ServedResource::clone(found)
                    })
                } else {
                    found.clone()
                });
            }
        }
        let first_local = resources.len();
        if scope.as_str() != SYSTEM_CRDS && scope.as_str() != crate::names::BOUND_CRDS {
            for definition in self.objects.list(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, None)? {
                let definition = self.objects.tree(&definition)?;
                if let Some(local) = self.local(scope, &definition)
                    && !resources.iter().any(|resource| resource.name == local.name)
                {
                    resources.push(Arc::new(local));
                }
            }
        }
        let key =
            |resource: &Arc<ServedResource>| (resource.name.group.clone(), resource.name.resource.clone());
        resources[self.built_in.len()..].sort_by_cached_key(key);
        let hash = hash_of(&resources, resources.len() > first_local);
        Ok(self.share(Catalog { resources, hash }))
    }

    /// Returns the catalog with the same content if there is one: many logical clusters serve the same resources and
    /// share a catalog.
    fn share(&self, catalog: Catalog) -> Arc<Catalog> {
        let mut shared = self.shared.lock();
        if let Some(existing) = shared.get(&catalog.hash).and_then(std::sync::Weak::upgrade) {
            return existing;
        }
        shared.retain(|_, catalog| catalog.strong_count() > 0);
        let catalog = Arc::new(catalog);
        shared.insert(catalog.hash, Arc::downgrade(&catalog));
        catalog
    }

    /// The resource of a CRD, if it is established.
    fn local(&self, scope: &Scope, definition: &Value) -> Option<ServedResource> {
        let conditions = definition["status"]["conditions"].as_array()?;
        let holds = |name: &str| {
            conditions.iter().any(|condition| condition["type"] == name && condition["status"] == "True")
        };
        if !holds("Established") {
            return None;
        }
        let spec = CrdSpec::parse(definition)
            .inspect_err(|errors| tracing::warn!(cluster = %scope, ?errors, "a stored CRD is not served"))
            .ok()?;
        let path_segment =
            definition["metadata"]["annotations"][fairlead_api::annotation::VALIDATE_NAME] == "path-segment";
        let rule = if path_segment { NameRule::PathSegment } else { NameRule::Dns1123Subdomain };
        Some(local_resource(scope.as_str(), &spec, rule, holds("Terminating"), self.registry.clone()))
    }

    /// For partial metadata over all logical clusters, any definition of the resource is sufficient.
    fn any_definition(
        &self,
        name: &ResourceName,
        exported: Option<Arc<ServedResource>>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        if exported.is_some() {
            return Ok(exported);
        }
        let definition_name =
            if name.group.is_empty() { format!("{}.core", name.resource) } else { name.to_string() };
        for stored in
            self.objects.list(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &ScopeSelector::all(), None)?
        {
            let definition = self.objects.tree(&stored)?;
            if definition["metadata"]["name"] == definition_name.as_str()
                && let Some(local) = self.local(&stored.scope, &definition)
            {
                return Ok(Some(Arc::new(local)));
            }
        }
        Ok(None)
    }
}

fn unavailable(name: &ResourceName) -> Status {
    let resource = GroupResource::new(&name.group, &name.resource);
    Status::service_unavailable(format!("{resource} is currently unavailable"), 1)
}

fn hash_of(resources: &[Arc<ServedResource>], has_local: bool) -> u64 {
    let mut hasher = FxHasher::default();
    has_local.hash(&mut hasher);
    for resource in resources {
        resource.name.hash(&mut hasher);
        resource.origin.hash(&mut hasher);
        resource.schema_hash.hash(&mut hasher);
        resource.verbs.hash(&mut hasher);
        resource.storage_version_hash.hash(&mut hasher);
        (&resource.kind, &resource.singular, &resource.short_names, &resource.categories).hash(&mut hasher);
        for version in &resource.versions {
            version.name.hash(&mut hasher);
            if let fairlead_apiserver::resource::Shape::Structural(schema) = &version.shape {
                (schema.hash().as_u128() as u64).hash(&mut hasher);
            }
            for column in version.columns.definitions() {
                column.name.hash(&mut hasher);
            }
        }
    }
    hasher.finish()
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
