//! Removes deleted CustomResourceDefinitions: first their objects, then the definition, then the watches. The submodule
//! gives waiting CRDs the names that become free.

mod names;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use fairlead_schema::crd::has_condition;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::deletion::{Sweep, commit, commit_sweep, pause, visit_resource};
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::definition_names::unlock;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{BUILT_IN, CLEANUP_FINALIZER, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS};
use crate::writes::Writes;

pub(crate) use names::DefinitionNaming;

/// Logical cluster and name of a CRD.
pub(crate) type DefinitionKey = (Box<str>, Box<str>);

/// Controller of CRDs that are being deleted.
pub(crate) struct DefinitionCleanup {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) hub: Hub,
}

impl DefinitionCleanup {
    /// The CRD to reconcile after an event of it: one that is being deleted or was removed.
    pub(crate) fn keys_of(event: &ObjectEvent) -> Option<DefinitionKey> {
        let is_relevant = event.resource == *CUSTOM_RESOURCE_DEFINITIONS
            && (event.is_deletion() || event.metadata().is_ok_and(|meta| meta.deletion_timestamp.is_some()));
        is_relevant.then(|| ((*event.scope).into(), event.name.clone()))
    }
}

#[async_trait]
impl Controller for DefinitionCleanup {
    type Key = DefinitionKey;

    const NAME: &'static str = "crd-cleanup";
    const WORKERS: usize = 4;

    async fn reconcile(&self, (cluster, name): &DefinitionKey) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let stored = self.objects.get(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &scope, None, name)?;
        let Some(stored) = stored else { return self.remove_leftovers(&scope, name).await };
        // The `deletion` controller removes the content of a deleted logical cluster.
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let old = self.objects.tree(&stored)?;
        if old["metadata"]["deletionTimestamp"].is_null() || !has_cleanup(&old) {
            return Ok(ReconcileOutcome::Done);
        }
        // The condition stops creates before the objects are counted.
        let writes = || Writes::new(&self.objects, &self.definitions);
        if !has_condition(&old, "Terminating") {
            let mut new = old.clone();
            set_terminating(
                &mut new,
                "True",
                "InstanceDeletionInProgress",
                "CustomResource deletion is in progress",
            );
            let marked = commit_sweep(writes(), Sweep::default(), (&stored, &old), Some(new)).await?;
            let Some(revision) = marked else { return Ok(ReconcileOutcome::Retry) };
            // A closed hub means that the process terminates.
            let _ = self.hub.wait(revision).await;
            return Ok(ReconcileOutcome::RequeueAfter(Duration::ZERO));
        }
        let sweep = self.sweep(&scope, name).await?;
        let plan = plan(&old, &sweep, Timestamp::now());
        let mut writes = writes();
        if plan.definition.is_none() {
            writes.extend(unlock(&self.objects, &scope, name)?);
        }
        let committed = commit_sweep(writes, sweep, (&stored, &old), plan.definition).await?;
        Ok(if committed.is_some() { plan.next } else { ReconcileOutcome::Retry })
    }
}

impl DefinitionCleanup {
    async fn sweep(&self, scope: &Scope, name: &str) -> Result<Sweep, Status> {
        let mut sweep = Sweep::within(self.objects.store().limits());
        let resource = resource_of(name);
        // Objects of a system resource have the same key prefix, but do not belong to this definition.
        if self.definitions.common_resource(&resource).is_none() {
            let cluster = scope.as_str();
            // A full sweep stops by itself.
            let _ = visit_resource(&self.objects, &resource, &CUSTOM, cluster, None, &mut |found| {
                sweep.add(&self.objects, found)
            })
            .await?;
        }
        Ok(sweep)
    }

    /// Removes objects that have no definition, which a data file of an earlier version may have, and ends the watches.
    async fn remove_leftovers(&self, scope: &Scope, name: &str) -> Result<ReconcileOutcome, Status> {
        let resource = resource_of(name);
        if self.definitions.common_resource(&resource).is_some() {
            return Ok(ReconcileOutcome::Done);
        }
        let sweep = self.sweep(scope, name).await?;
        let next = if sweep.leaves_nothing() {
            ReconcileOutcome::Done
        } else {
            ReconcileOutcome::RequeueAfter(Duration::ZERO)
        };
        if !sweep.has_no_mutations() {
            let mut writes = Writes::new(&self.objects, &self.definitions);
            let key = self.objects.key(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, scope.as_str(), None, name);
            writes.extend(sweep.into_mutations());
            // Skipped if the definition exists again.
            writes.extend([fairlead_store::Mutation::fence(key, fairlead_store::Expect::Absent)]);
            if commit(writes).await?.is_none() {
                return Ok(ReconcileOutcome::Retry);
            }
        }
        // Watches receive the deletions before they end.
        if self.hub.wait(self.objects.store().revision()).await.is_ok() {
            let deleted = ScopeSelector::One(scope.clone());
            self.hub.end(|interest| {
                interest.resource == resource && interest.origin == Some(CUSTOM) && interest.scopes == deleted
            });
        }
        Ok(next)
    }
}

/// The change to a terminating CRD, in the last commit of a sweep of its objects.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired definition; `None` removes it.
    definition: Option<Value>,
    next: ReconcileOutcome,
}

fn plan(old: &Value, sweep: &Sweep, now: Timestamp) -> Plan {
    let mut new = old.clone();
    if !sweep.leaves_nothing() {
        let next = if sweep.is_truncated() {
            ReconcileOutcome::RequeueAfter(Duration::ZERO)
        } else {
            ReconcileOutcome::RequeueAfter(pause(old, now))
        };
        return Plan { definition: Some(new), next };
    }
    let mut is_kept = false;
    if let Some(all) = new["metadata"]["finalizers"].as_array_mut() {
        all.retain(|one| one != CLEANUP_FINALIZER);
        is_kept = !all.is_empty();
    }
    set_terminating(&mut new, "False", "InstanceDeletionCompleted", "removed all instances");
    Plan { definition: is_kept.then_some(new), next: ReconcileOutcome::Done }
}

fn has_cleanup(definition: &Value) -> bool {
    let finalizers = definition["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == CLEANUP_FINALIZER))
}

fn set_terminating(definition: &mut Value, status: &str, reason: &str, message: &str) {
    let condition = json!({
        "type": "Terminating", "status": status, "lastTransitionTime": crate::writes::now(),
        "reason": reason, "message": message,
    });
    let conditions = &mut definition["status"]["conditions"];
    match conditions.as_array_mut() {
        Some(all) => {
            all.retain(|one| one["type"] != "Terminating");
            all.push(condition);
        }
        None => *conditions = json!([condition]),
    }
}

/// The resource that a CRD of this name defines: `<plural>.<group>`, with `core` for the core group.
fn resource_of(name: &str) -> ResourceName {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    ResourceName::new(if group == "core" { "" } else { group }, plural)
}

#[cfg(test)]
mod tests;
