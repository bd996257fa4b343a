//! Root's exports: they exist before a shard serves, because all logical clusters bind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_process::Status;
use serde_json::Value;

use super::PublishedExport;
use crate::index::Identities;

/// Root's exports by name, the same on all shards. Root's shard creates them. Other shards read and store them, so
/// that they start without root.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RootExports(BTreeMap<Box<str>, Arc<PublishedExport>>);

impl RootExports {
    /// Parses the APIExports and APIResourceSchemas of root. Exports without an identity are left out.
    pub(crate) fn read(exports: &[Value], schemas: &[Value]) -> Self {
        let schemas: BTreeMap<&str, Arc<Value>> = schemas
            .iter()
            .filter_map(|schema| Some((schema["metadata"]["name"].as_str()?, Arc::new(schema.clone()))))
            .collect();
        let known = exports.iter().filter_map(|export| {
            let find = |name: &str| Ok::<_, Status>(schemas.get(name).cloned());
            let export = PublishedExport::read("root", Arc::new(export.clone()), find).ok()?;
            let is_complete = export.identity.is_some() && export.missing_schema.is_none();
            is_complete.then(|| (export.name.clone(), Arc::new(export)))
        });
        Self(known.collect())
    }

    /// Whether all of root's exports are known.
    pub(crate) fn is_complete(&self) -> bool {
        fairlead_api::root_export_names().all(|name| self.0.contains_key(name))
    }

    /// The identity hashes by export name.
    pub(crate) fn identities(&self) -> Identities {
        let known = self.0.iter();
        known.filter_map(|(name, export)| Some((name.to_string(), export.identity.clone()?))).collect()
    }

    /// The export of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<PublishedExport>> {
        self.0.get(name)
    }

    /// The APIExports, in the form that [`read`](Self::read) takes.
    pub(crate) fn objects(&self) -> Vec<&Value> {
        self.0.values().map(|export| &*export.object).collect()
    }

    /// The CRDs of the schemas, as `system:bound-crds` stores them.
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
