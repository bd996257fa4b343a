//! Deletion: deletes the logical cluster of a workspace, then the workspace.

use fairlead_api::{
    LOGICAL_CLUSTER_NAME, condition_type, conditions_of, finalizer, label, set_condition, write_conditions,
};
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::StoredObject;
use fairlead_process::Status;
use fairlead_store::CommitError;
use jiff::Timestamp;
use serde_json::Value;

use super::phase::mirror_list;
use super::{RECHECK_INTERVAL, Workspaces, outcome_of, recorded_placement};
use crate::controller_runtime::ReconcileOutcome;
use crate::names::{CUSTOM, LOGICAL_CLUSTERS, WORKSPACES};
use crate::workspace_owner::WorkspaceOwner;
use crate::writes::Writes;

impl Workspaces {
    /// Deletes the logical cluster, then the workspace.
    pub(super) async fn delete(
        &self,
        parent: &str,
        stored: &StoredObject,
        mut workspace: Value,
    ) -> Result<ReconcileOutcome, Status> {
        let finalizers = workspace["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|one| one == finalizer::WORKSPACE) || finalizers.len() > 1 {
            return Ok(ReconcileOutcome::Done);
        }
        let Some((shard, cluster)) = recorded_placement(&workspace) else {
            return self.remove_workspace(stored, workspace).await;
        };
        let owner = WorkspaceOwner::of(parent, &workspace);
        if shard == self.shard {
            let scope = Scope::new(&cluster);
            let found = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
            let Some(found) = found else { return self.remove_workspace(stored, workspace).await };
            let mut object = self.objects.tree(&found)?;
            if !owner.owns(&object) {
                tracing::warn!(%cluster, workspace = %owner.name, "a workspace names a logical cluster of another owner");
                return self.remove_workspace(stored, workspace).await;
            }
            mirror_deletion(&mut workspace, &object, Timestamp::now());
            if object["metadata"]["deletionTimestamp"].is_null() {
                let mut writes = Writes::new(&self.objects, &self.definitions);
                object["metadata"]["deletionTimestamp"] = crate::writes::now().into();
                object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                object["status"]["phase"] = "Deleting".into();
                let resource = writes.resource_of(&object)?;
                writes.replace(&resource, &found, object)?;
                match writes.commit().await {
                    Ok(_) | Err(CommitError::Conflict { .. }) => {}
                    Err(error) => return Err(Status::internal(error)),
                }
            }
            return self.commit(stored, workspace, None).await;
        }
        let Some(info) = self.placement.shard(&shard) else {
            return Ok(ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL));
        };
        let Some(object) = self.peers.delete(&info, &cluster, &owner).await? else {
            return self.remove_workspace(stored, workspace).await;
        };
        mirror_deletion(&mut workspace, &object, Timestamp::now());
        self.commit(stored, workspace, None).await?;
        Ok(ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL))
    }

    async fn remove_workspace(
        &self,
        stored: &StoredObject,
        workspace: Value,
    ) -> Result<ReconcileOutcome, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACES) else {
            return Ok(ReconcileOutcome::Retry);
        };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.remove(&resource, stored, &workspace);
        outcome_of(writes.commit().await)
    }
}

/// Shows the progress of the deletion of a logical cluster in its workspace.
pub(super) fn mirror_deletion(workspace: &mut Value, logical_cluster: &Value, now: Timestamp) {
    let terminators = &logical_cluster["status"]["terminators"];
    let terminators: Vec<&str> =
        terminators.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let phase = if terminators.is_empty() { "Deleting" } else { "Terminating" };
    mirror_list(workspace, "terminators", &terminators);
    workspace["status"]["phase"] = phase.into();
    workspace["metadata"]["labels"][label::PHASE] = phase.into();
    let kind = condition_type::WORKSPACE_CONTENT_DELETED;
    if let Some(condition) = fairlead_api::find_condition(&conditions_of(logical_cluster), kind) {
        let mut conditions = conditions_of(workspace);
        set_condition(&mut conditions, condition.clone(), now);
        write_conditions(workspace, &conditions);
    }
}
