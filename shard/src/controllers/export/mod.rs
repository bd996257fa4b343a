//! Gives APIExports their identity and their default endpoint slice.
//!
//! The identity is the hash of a key in a Secret. Whoever has the key can publish resources with the same identity, so the hash of an
//! export never changes, even if its Secret does.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_api::{
    Condition, IDENTITY_NAMESPACE, ObjectMeta, condition_type, conditions_of, set_condition, write_conditions,
};
use fairlead_apiserver::hub::ObjectEvent;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::deletion::commit;
use super::identity::{self, IdentityKey};
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::{ClusterIndex, Definitions};
use crate::names::{API_EXPORT_ENDPOINT_SLICES, API_EXPORTS, BUILT_IN, CUSTOM, NAMESPACES, SECRETS};
use crate::writes::Writes;

/// Logical cluster and name of an APIExport.
pub(crate) type ExportKey = (Box<str>, Box<str>);

/// Controller of APIExports.
pub(crate) struct Exports {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
}

impl Exports {
    /// The exports to reconcile after an event: of an APIExport itself, of a Secret that may be an identity, and of a default endpoint
    /// slice that was deleted.
    pub(crate) fn keys_of(&self, event: &ObjectEvent) -> Vec<ExportKey> {
        let own = || vec![((*event.scope).into(), event.name.clone())];
        match () {
            () if event.resource == *API_EXPORTS => own(),
            () if event.resource == *API_EXPORT_ENDPOINT_SLICES && event.is_deletion() => own(),
            () if event.resource == *SECRETS => self.of_secret(event),
            () => Vec::new(),
        }
    }

    /// The exports of a logical cluster whose identity is this Secret.
    fn of_secret(&self, event: &ObjectEvent) -> Vec<ExportKey> {
        let one = ScopeSelector::One(Scope::new(&event.scope));
        let mut keys = Vec::new();
        let listed = self.objects.for_each(&API_EXPORTS, &CUSTOM, &one, &mut |listed| {
            let Ok(export) = serde_json::from_slice::<Value>(listed.object.json()) else { return };
            let reference = &export["spec"]["identity"]["secretRef"];
            let is_referenced = reference.is_null() || reference["name"] == *event.name;
            if let Some(name) = export["metadata"]["name"].as_str().filter(|_| is_referenced) {
                keys.push(((*event.scope).into(), name.into()));
            }
        });
        if let Err(status) = listed {
            tracing::error!(cluster = %event.scope, %status, "exports cannot be read");
        }
        keys
    }
}

#[async_trait]
impl Controller for Exports {
    type Key = ExportKey;

    const NAME: &'static str = "apiexport";
    const WORKERS: usize = 4;

    async fn reconcile(&self, (cluster, name): &ExportKey) -> Result<ReconcileOutcome, Status> {
        if self.clusters.get(cluster).is_none_or(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(&API_EXPORTS, &CUSTOM, &scope, None, name)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let export = self.objects.tree(&stored)?;
        if export["metadata"]["deletionTimestamp"].is_string() {
            return Ok(ReconcileOutcome::Done);
        }
        let (namespace, secret) = match identity::secret_reference(&export) {
            Some(reference) => reference,
            None => (IDENTITY_NAMESPACE.to_owned(), name.to_string()),
        };
        let observed = Observed {
            key: IdentityKey::read(&self.objects, &scope, &namespace, &secret)?,
            has_namespace: self
                .objects
                .get(&NAMESPACES, &BUILT_IN, &scope, None, IDENTITY_NAMESPACE)?
                .is_some(),
            has_slice: self.objects.get(&API_EXPORT_ENDPOINT_SLICES, &CUSTOM, &scope, None, name)?.is_some(),
        };
        let new_key = match observed.key {
            IdentityKey::Missing if identity::secret_reference(&export).is_none() => {
                Some(identity::random_key()?)
            }
            _ => None,
        };
        let plan = plan(&export, cluster, &observed, new_key.as_deref(), Timestamp::now());
        let mut writes = Writes::new(&self.objects, &self.definitions);
        for object in plan.created {
            writes.create(cluster, object)?;
        }
        let resource = writes.resource_of(&export)?;
        writes.replace(&resource, &stored, plan.export)?;
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

/// The state that the plan depends on, besides the export.
struct Observed {
    key: IdentityKey,
    has_namespace: bool,
    has_slice: bool,
}

#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired export.
    export: Value,
    /// Objects to create.
    created: Vec<Value>,
}

/// Plans the identity of an export. `new_key` is the key of an export that refers to no Secret and has none.
fn plan(old: &Value, cluster: &str, observed: &Observed, new_key: Option<&[u8]>, now: Timestamp) -> Plan {
    let mut export = old.clone();
    let mut created = Vec::new();
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    if identity::secret_reference(old).is_none() {
        export["spec"]["identity"] = json!({"secretRef": {"namespace": IDENTITY_NAMESPACE, "name": name}});
    }
    if let Some(key) = new_key {
        if !observed.has_namespace {
            created.push(fairlead_api::identity_namespace());
        }
        created.push(fairlead_api::identity_secret(name, &STANDARD.encode(key)));
    }
    let mut conditions = conditions_of(old);
    let condition = match identity::verify(old, &observed.key, new_key) {
        Ok(hash) => {
            if !export["status"].is_object() {
                export["status"] = json!({});
            }
            export["status"]["identityHash"] = hash.into();
            Condition::met(condition_type::IDENTITY_VALID)
        }
        Err(message) => identity::unverified(message),
    };
    set_condition(&mut conditions, condition, now);
    write_conditions(&mut export, &conditions);
    if !observed.has_slice
        && let Ok(metadata) = ObjectMeta::deserialize(&old["metadata"])
    {
        created.extend(fairlead_api::default_endpoint_slice(&metadata, cluster));
    }
    Plan { export, created }
}

#[cfg(test)]
mod tests;
