//! Gives CRDs that wait for names the names that become free.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::hub::{ObjectChange, ObjectEvent};
use fairlead_apiserver::object::EncodedObject;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use fairlead_schema::crd::CrdSpec;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::DefinitionKey;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::controllers::deletion::commit;
use crate::definition_names::{NamedDefinition, decide_names, has_accepted_names, write_names};
use crate::index::{ClusterIndex, Definitions};
use crate::names::{API_BINDINGS, BUILT_IN, CUSTOM_RESOURCE_DEFINITIONS};
use crate::writes::Writes;

/// Controller of CRDs whose names another CRD or a binding has.
pub(crate) struct DefinitionNaming {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
}

impl DefinitionNaming {
    /// The CRDs that may get names after an event: all that wait in the logical cluster, if a binding or a CRD was removed or a
    /// CRD was renamed.
    pub(crate) fn keys_of(&self, event: &ObjectEvent) -> Vec<DefinitionKey> {
        let frees_names = match &event.change {
            ObjectChange::Created(_) => false,
            ObjectChange::Updated { object, previous } => {
                event.resource == *CUSTOM_RESOURCE_DEFINITIONS
                    && accepted_names(object) != accepted_names(previous)
            }
            ObjectChange::Deleted(_) => {
                event.resource == *CUSTOM_RESOURCE_DEFINITIONS || event.resource == *API_BINDINGS
            }
        };
        if !frees_names {
            return Vec::new();
        }
        self.waiting(&ScopeSelector::One(Scope::new(&event.scope)))
    }

    /// The CRDs of the selected logical clusters that wait for names.
    pub(crate) fn waiting(&self, scopes: &ScopeSelector) -> Vec<DefinitionKey> {
        let mut keys = Vec::new();
        let resource = &CUSTOM_RESOURCE_DEFINITIONS;
        let read = self.objects.for_each(resource, &BUILT_IN, scopes, &mut |listed| {
            // A search in the bytes finds the few that wait, without parsing the others.
            if memchr::memmem::find(listed.object.json(), b"Conflict\"").is_none() {
                return;
            }
            if let Ok(definition) = serde_json::from_slice::<Value>(listed.object.json())
                && !has_accepted_names(&definition)
                && let Some(name) = definition["metadata"]["name"].as_str()
            {
                keys.push((listed.scope.into(), name.into()));
            }
        });
        if let Err(error) = read {
            tracing::error!(%error, "waiting CRDs cannot be read");
        }
        keys
    }
}

#[async_trait]
impl Controller for DefinitionNaming {
    type Key = DefinitionKey;

    const NAME: &'static str = "crd-naming";
    const WORKERS: usize = 4;

    async fn reconcile(&self, (cluster, name): &DefinitionKey) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let stored = self.objects.get(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &scope, None, name)?;
        let Some(stored) = stored else { return Ok(ReconcileOutcome::Done) };
        let old = self.objects.tree(&stored)?;
        let is_deleted = old["metadata"]["deletionTimestamp"].is_string()
            || self.clusters.get(cluster).is_some_and(|state| state.is_deleted);
        if is_deleted || has_accepted_names(&old) {
            return Ok(ReconcileOutcome::Done);
        }
        // A stored definition that does not parse is not served.
        let Ok(spec) = CrdSpec::parse(&old) else { return Ok(ReconcileOutcome::Done) };
        let definition = NamedDefinition {
            scope: &scope,
            name,
            group: &spec.group,
            requested: &spec.names,
            old: Some(&old),
        };
        let decision = decide_names(&self.objects, &self.definitions, &definition)?;
        let mut new = old.clone();
        write_names(&mut new["status"], &decision.names, Timestamp::now());
        if new == old {
            return Ok(ReconcileOutcome::Done);
        }
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&new)?;
        writes.replace(&resource, &stored, new)?;
        writes.extend(decision.mutations);
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

/// `status.acceptedNames` of a stored CRD.
fn accepted_names(definition: &EncodedObject) -> Option<Value> {
    #[derive(Deserialize)]
    struct Wire {
        status: WireStatus,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireStatus {
        accepted_names: Value,
    }
    let wire: Wire = serde_json::from_slice(definition.as_object().json()).ok()?;
    Some(wire.status.accepted_names)
}
