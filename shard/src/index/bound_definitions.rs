//! The resources of bound schemas. All logical clusters that bind a schema with the same identity share one resource.

use std::sync::{Arc, Weak};

use fairlead_api::annotation;
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{ObjectStore, Registry, ServedResource, StoredObject};
use fairlead_names::Origin;
use fairlead_process::Status;
use fairlead_schema::crd::{CrdNames, has_condition};
use fairlead_schema::names::NameRule;
use fairlead_store::{Expect, Mutation};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::compiled::{CompiledDefinition, CompiledDefinitions};
use super::resources::Definition;
use crate::bound_conversion::compile_rules;
use crate::names::{BOUND_CRDS, BUILT_IN, CUSTOM_RESOURCE_DEFINITIONS};

/// A resource of a bound schema, with the compiled definition that equal specs share.
pub(super) type BoundDefinition = (Arc<ServedResource>, Arc<CompiledDefinition>);

/// The resources of bound schemas in use.
pub(super) struct BoundDefinitions {
    objects: ObjectStore,
    registry: Arc<dyn Registry>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_schema: FxHashMap<Box<str>, FxHashMap<Arc<str>, Weak<BoundDefinition>>>,
    names: FxHashMap<Box<str>, Arc<CrdNames>>,
    /// Increases with every removal, so that a definition that was read before it is not kept.
    generation: u64,
}

impl BoundDefinitions {
    pub(super) fn new(objects: ObjectStore, registry: Arc<dyn Registry>) -> Self {
        Self { objects, registry, known: Mutex::default() }
    }

    /// The resource of a schema, by its UID, for objects of an identity. Costs two map look-ups if a logical cluster serves it
    /// already, and otherwise a read of its CRD. `None` if there is no established CRD of the schema.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) fn get(
        &self,
        schema: &str,
        identity: &Arc<str>,
        compiled: &CompiledDefinitions,
    ) -> Result<Option<Arc<BoundDefinition>>, Status> {
        let generation = {
            let known = self.known.lock();
            let found = known.by_schema.get(schema).and_then(|all| all.get(identity)).and_then(Weak::upgrade);
            if found.is_some() {
                return Ok(found);
            }
            known.generation
        };
        let Some(stored) = self.stored(schema)? else { return Ok(None) };
        let definition = self.objects.tree(&stored)?;
        if !has_condition(&definition, "Established") {
            return Ok(None);
        }
        let resource = self.compile(&definition, identity, compiled).map(Arc::new);
        if let Some(resource) = &resource {
            let mut known = self.known.lock();
            if known.generation == generation {
                let identities = known.by_schema.entry(schema.into()).or_default();
                identities.retain(|_, resource| resource.strong_count() > 0);
                identities.insert(Arc::clone(identity), Arc::downgrade(resource));
            }
        }
        Ok(resource)
    }

    /// The resource of a CRD of a schema, for objects of an identity. `None` if the CRD is invalid, which is logged.
    pub(super) fn compile(
        &self,
        definition: &Value,
        identity: &Arc<str>,
        compiled: &CompiledDefinitions,
    ) -> Option<BoundDefinition> {
        let names_are_path_segments =
            definition["metadata"]["annotations"][annotation::VALIDATE_NAME] == "path-segment";
        let bound = Definition {
            cluster: "",
            origin: Origin::Identity(Arc::clone(identity)),
            spec: &definition["spec"],
            rules: compile_rules(definition),
            name_rule: if names_are_path_segments {
                NameRule::PathSegment
            } else {
                NameRule::Dns1123Subdomain
            },
            is_terminating: false,
        };
        let (resource, compiled) = bound.resource(compiled, Arc::clone(&self.registry))?;
        Some((Arc::new(resource), compiled))
    }

    /// The names of a schema, by its UID. `None` if it is not bound on this shard. Costs a map look-up, and a read of its CRD the first
    /// time. The names of a schema never change; those of one that was removed may still be returned until the hub has delivered it.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) fn names(&self, schema: &str) -> Result<Option<Arc<CrdNames>>, Status> {
        let generation = {
            let known = self.known.lock();
            if let Some(names) = known.names.get(schema) {
                return Ok(Some(Arc::clone(names)));
            }
            known.generation
        };
        let Some(stored) = self.stored(schema)? else { return Ok(None) };
        let definition = serde_json::from_slice::<WireDefinition>(stored.object.as_object().json());
        let names = Arc::new(CrdNames::read(&definition.map_err(Status::internal)?.spec.names));
        let mut known = self.known.lock();
        if known.generation == generation {
            known.names.insert(schema.into(), Arc::clone(&names));
        }
        Ok(Some(names))
    }

    /// An expectation for the commit of a binding to a schema: its CRD is not removed meanwhile. `None` if there is none.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) fn fence(&self, schema: &str) -> Result<Option<Mutation>, Status> {
        let Some(stored) = self.stored(schema)? else { return Ok(None) };
        let key = self.objects.key(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, BOUND_CRDS, None, schema);
        Ok(Some(Mutation::fence(key, Expect::At(stored.revision))))
    }

    /// Drops the resources of a schema whose CRD changed.
    pub(super) fn remove(&self, schema: &str) {
        let mut known = self.known.lock();
        known.generation += 1;
        known.by_schema.remove(schema);
        known.names.remove(schema);
        known.by_schema.retain(|_, all| all.values().any(|resource| resource.strong_count() > 0));
    }

    fn stored(&self, schema: &str) -> Result<Option<StoredObject>, Status> {
        self.objects.get(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &Scope::new(BOUND_CRDS), None, schema)
    }
}

#[derive(Deserialize)]
struct WireDefinition {
    spec: WireSpec,
}

#[derive(Deserialize)]
struct WireSpec {
    names: Value,
}
