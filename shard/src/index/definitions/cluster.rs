//! The definitions of one logical cluster, derived from its APIBindings and CRDs.

use std::sync::{Arc, Weak};

use fairlead_api::PartialBinding;
use fairlead_apiserver::registry::{Catalog, ServedResource, StoredObject};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_schema::crd::has_condition;
use fairlead_schema::names::NameRule;
use fairlead_store::Revision;

use super::Definitions;
use crate::index::bound_definitions::BoundDefinition;
use crate::index::compiled::CompiledDefinition;
use crate::index::resources::Definition;
use crate::names::{API_BINDINGS, BOUND_CRDS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, SYSTEM_CRDS};

/// The definitions of one logical cluster.
pub(super) struct ClusterDefinitions {
    pub(super) catalog: Arc<Catalog>,
    /// Its CRDs by revision, so that only a changed one is compiled again.
    locals: Vec<LocalResource>,
    pub(super) bound: Vec<BoundResource>,
}

/// A resource of an APIBinding. Holds the definition, which all logical clusters that bind the schema share.
pub(super) struct BoundResource {
    pub(super) served: Arc<ServedResource>,
    _definition: Option<Arc<BoundDefinition>>,
    pub(super) binding: Arc<BindingOfResource>,
}

/// The APIBinding of a bound resource, at one revision.
pub(super) struct BindingOfResource {
    pub(super) name: String,
    pub(super) revision: Revision,
    pub(super) export: Arc<BoundExport>,
}

pub(super) struct ResolvedBinding {
    pub(super) served: Arc<ServedResource>,
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
pub(super) struct LocalResource {
    pub(super) revision: Revision,
    served: Option<(Arc<ServedResource>, Arc<CompiledDefinition>)>,
}

impl ClusterDefinitions {
    /// The CRD of a resource, if it is established.
    pub(super) fn local_of(&self, name: &ResourceName) -> Option<(&LocalResource, &ServedResource)> {
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

impl Definitions {
    pub(super) fn cluster_definitions(&self, scope: &Scope) -> Result<Arc<ClusterDefinitions>, Status> {
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
        if scope.as_str() != SYSTEM_CRDS && scope.as_str() != BOUND_CRDS {
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
    pub(super) fn bound_resource(
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
