//! Root's exports: their identities and schemas, from which bindings are derived.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_api::{Condition, condition_type, finalizer};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::index::Identities;
use crate::resource_locks::{ResourceLock, ResourceLocks};

/// Root's exports by name, the same on all shards. Root's shard creates them. Other shards read and store them, so
/// that they start without root.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct RootExports(BTreeMap<String, Export>);

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Export {
    identity: String,
    schemas: Vec<ExportedSchema>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct ExportedSchema {
    group: String,
    resource: String,
    name: String,
    uid: String,
    storage_version: String,
}

impl RootExports {
    /// Parses the APIExports and APIResourceSchemas of root.
    pub(crate) fn read(exports: &[Value], schemas: &[Value]) -> Self {
        let known = exports.iter().filter_map(|export| {
            let identity = export["status"]["identityHash"].as_str().filter(|hash| !hash.is_empty())?;
            let resources = export["spec"]["resources"].as_array().into_iter().flatten();
            let schemas = resources.filter_map(|resource| {
                let name = resource["schema"].as_str()?;
                let schema = schemas.iter().find(|schema| schema["metadata"]["name"] == name)?;
                let versions = schema["spec"]["versions"].as_array()?;
                let storage = versions.iter().find(|version| version["storage"] == true)?;
                Some(ExportedSchema {
                    group: resource["group"].as_str().unwrap_or_default().to_owned(),
                    resource: resource["name"].as_str()?.to_owned(),
                    name: name.to_owned(),
                    uid: schema["metadata"]["uid"].as_str()?.to_owned(),
                    storage_version: storage["name"].as_str()?.to_owned(),
                })
            });
            let export_name = export["metadata"]["name"].as_str()?.to_owned();
            Some((export_name, Export { identity: identity.to_owned(), schemas: schemas.collect() }))
        });
        Self(known.collect())
    }

    /// Whether all of root's exports are known.
    pub(crate) fn is_complete(&self) -> bool {
        fairlead_api::root_export_names().all(|name| self.0.contains_key(name))
    }

    /// The identity hashes by export name.
    pub(crate) fn identities(&self) -> Identities {
        self.0.iter().map(|(name, export)| (name.clone(), Arc::from(&*export.identity))).collect()
    }

    /// An APIBinding with the finalizer, status and conditions of a bound one. `None` if its export is not one of
    /// root's.
    pub(crate) fn as_bound(&self, mut binding: Value, now: Timestamp) -> Option<Value> {
        let reference = &binding["spec"]["reference"]["export"];
        if reference["path"] != "root" {
            return None;
        }
        let export = self.0.get(reference["name"].as_str()?)?;
        let resources: Vec<Value> = export
            .schemas
            .iter()
            .map(|schema| {
                json!({
                    "group": schema.group,
                    "resource": schema.resource,
                    "schema": {"name": schema.name, "UID": schema.uid, "identityHash": export.identity},
                    "storageVersions": [schema.storage_version],
                })
            })
            .collect();
        if binding["metadata"]["deletionTimestamp"].is_null() {
            let finalizers = &mut binding["metadata"]["finalizers"];
            match finalizers.as_array_mut() {
                Some(all) if all.iter().any(|one| one == finalizer::API_BINDING) => {}
                Some(all) => all.push(finalizer::API_BINDING.into()),
                None => *finalizers = json!([finalizer::API_BINDING]),
            }
        }
        let mut conditions = fairlead_api::conditions_of(&binding);
        for kind in [
            condition_type::API_EXPORT_VALID,
            condition_type::BINDING_UP_TO_DATE,
            condition_type::INITIAL_BINDING_COMPLETED,
            condition_type::PERMISSION_CLAIMS_APPLIED,
            condition_type::PERMISSION_CLAIMS_VALID,
        ] {
            fairlead_api::set_condition(&mut conditions, Condition::met(kind), now);
        }
        fairlead_api::set_summary(&mut conditions, &[condition_type::INITIAL_BINDING_COMPLETED], now);
        if !binding["status"].is_object() {
            binding["status"] = json!({});
        }
        binding["status"]["apiExportClusterName"] = "root".into();
        binding["status"]["boundResources"] = resources.into();
        binding["status"]["phase"] = "Bound".into();
        fairlead_api::write_conditions(&mut binding, &conditions);
        Some(binding)
    }

    /// The locks of bindings: each owns the resources of its export.
    pub(crate) fn locks(&self, bindings: &[Value]) -> ResourceLocks {
        let mut locks = ResourceLocks::default();
        for binding in bindings {
            let name = binding["metadata"]["name"].as_str();
            let export = binding["spec"]["reference"]["export"]["name"].as_str().unwrap_or_default();
            for schema in self.0.get(export).into_iter().flat_map(|export| &export.schemas) {
                let lock = ResourceLock { binding: name.map(str::to_owned), ..ResourceLock::default() };
                locks.0.insert(format!("{}.{}", schema.resource, schema.group), lock);
            }
        }
        locks
    }

    /// The CRDs of the bound schemas, as `system:bound-crds` stores them.
    pub(crate) fn bound_definitions(schemas: &[Value]) -> Vec<Value> {
        schemas
            .iter()
            .filter_map(|schema| {
                fairlead_api::bound_crd(schema, "root")
                    .inspect_err(|error| tracing::warn!(%error, "a schema of root cannot be bound"))
                    .ok()
            })
            .collect()
    }
}
