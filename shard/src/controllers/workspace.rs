//! Schedules the Workspaces of this shard and reports the phase of their logical clusters.
//!
//! A workspace that is placed on this shard gets its logical cluster in the commit that schedules it. For another
//! shard, the placement is committed first, so that it is found again after a crash.

mod deletion;
mod phase;
mod scheduling;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::annotation;
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_names::ClusterName;
use fairlead_process::Status;
use fairlead_store::CommitError;
use serde_json::Value;

use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::{ClusterIndex, Definitions};
use crate::names::WORKSPACES;
use crate::peers::Peers;
use crate::placement::Placement;
use crate::workspace_owner::WorkspaceKey;
use crate::workspace_types::TypeLookup;
use crate::writes::Writes;

/// Recheck interval where changes may come without an event.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Controller of Workspaces.
pub(crate) struct Workspaces {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) types: Arc<TypeLookup>,
    pub(crate) placement: Arc<Placement>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) shard: String,
}

#[async_trait]
impl Controller for Workspaces {
    type Key = WorkspaceKey;

    const NAME: &'static str = "workspace";
    const WORKERS: usize = 64;

    async fn reconcile(&self, (parent, name): &WorkspaceKey) -> Result<ReconcileOutcome, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACES) else {
            return Ok(ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL));
        };
        let scope = Scope::new(parent);
        let Some(stored) = self.objects.get(&WORKSPACES, &resource.origin, &scope, None, name)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let workspace = self.objects.tree(&stored)?;
        if workspace["metadata"]["deletionTimestamp"].is_string() {
            return self.delete(parent, &stored, workspace).await;
        }
        if workspace["spec"]["cluster"].is_string() && workspace["spec"]["URL"].is_string() {
            return self.advance(&stored, workspace).await;
        }
        self.schedule(parent, &stored, workspace).await
    }
}

impl Workspaces {
    async fn commit(
        &self,
        stored: &StoredObject,
        workspace: Value,
        logical_cluster: Option<(String, Value)>,
    ) -> Result<ReconcileOutcome, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACES) else {
            return Ok(ReconcileOutcome::Retry);
        };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.replace(&resource, stored, workspace)?;
        if let Some((cluster, object)) = logical_cluster {
            writes.create(&cluster, object)?;
        }
        if writes.is_empty() {
            return Ok(ReconcileOutcome::Done);
        }
        outcome_of(writes.commit().await)
    }
}

fn outcome_of(outcome: Result<fairlead_store::Revision, CommitError>) -> Result<ReconcileOutcome, Status> {
    match outcome {
        Ok(_) => Ok(ReconcileOutcome::Done),
        Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
        Err(error) => Err(Status::internal(error)),
    }
}

/// The shard and logical cluster that an earlier pass recorded.
fn recorded_placement(workspace: &Value) -> Option<(String, String)> {
    let annotations = &workspace["metadata"]["annotations"];
    let shard = annotations[annotation::SHARD].as_str()?;
    let cluster = ClusterName::parse(annotations[annotation::WORKSPACE_CLUSTER].as_str()?).ok()?;
    Some((shard.to_owned(), cluster.as_str().to_owned()))
}
