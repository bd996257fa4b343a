//! Scheduling: chooses a shard for a workspace and creates its logical cluster there.

use std::time::Duration;

use fairlead_api::{
    Condition, NewLogicalCluster, Severity, annotation, condition_type, conditions_of, finalizer,
    find_condition, label, set_condition, write_conditions,
};
use fairlead_apiserver::registry::StoredObject;
use fairlead_names::ClusterName;
use fairlead_process::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{RECHECK_INTERVAL, Workspaces, recorded_placement};
use crate::controller_runtime::ReconcileOutcome;
use crate::peers::{CreateOutcome, OWNER_SHARD};
use crate::placement::{PlacementOutcome, ShardInfo};
use crate::workspace_types::type_reference;

/// Annotation of a Workspace: policy and reason of its placement. A condition cannot hold them: a condition with
/// status True has no reason and no message in kcp.
const SHARD_PICK: &str = "fairlead.dev/shard-pick";

impl Workspaces {
    /// Chooses a shard and creates the logical cluster there.
    pub(super) async fn schedule(
        &self,
        parent: &str,
        stored: &StoredObject,
        mut workspace: Value,
    ) -> Result<ReconcileOutcome, Status> {
        let Some(parent_state) = self.clusters.get(parent) else {
            return Ok(ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL));
        };
        let (info, cluster) = match recorded_placement(&workspace) {
            Some((shard, cluster)) => match self.placement.shard(&shard) {
                Some(info) => (info, cluster),
                None => {
                    let reason = format!("chosen shard {shard:?} does not exist anymore");
                    return self.unschedulable(stored, workspace, &reason).await;
                }
            },
            None => match self.placement.choose(parent, &workspace).await {
                PlacementOutcome::Shard(info, reason) => {
                    workspace["metadata"]["annotations"][SHARD_PICK] = reason.into();
                    (info, ClusterName::random().map_err(Status::internal)?.as_str().to_owned())
                }
                PlacementOutcome::NoShardFits(reason) => {
                    return self.unschedulable(stored, workspace, &reason).await;
                }
                PlacementOutcome::NoShardNow(reason) => {
                    return self.no_shard_now(stored, workspace, &reason).await;
                }
                PlacementOutcome::ShardsUnknown => {
                    return Ok(ReconcileOutcome::RequeueAfter(Duration::from_millis(100)));
                }
            },
        };
        let name = workspace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("{}:{name}", parent_state.path.as_deref().unwrap_or(parent));
        let logical_cluster = self.logical_cluster(&workspace, parent, &path, &info)?;
        if info.name == self.shard {
            record_placement(&mut workspace, &info, &cluster);
            record_scheduled(&mut workspace, &info, &cluster, &path, Timestamp::now());
            return self.commit(stored, workspace, Some((cluster, logical_cluster))).await;
        }
        if recorded_placement(&workspace).is_none() {
            record_placement(&mut workspace, &info, &cluster);
            self.commit(stored, workspace, None).await?;
            return Ok(ReconcileOutcome::RequeueAfter(Duration::ZERO));
        }
        match self.peers.create(&info, &cluster, &logical_cluster).await? {
            CreateOutcome::Created => {
                record_scheduled(&mut workspace, &info, &cluster, &path, Timestamp::now());
                self.commit(stored, workspace, None).await
            }
            CreateOutcome::NameTaken => {
                // The name is taken: the next pass generates another one.
                if let Some(annotations) = workspace["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(annotation::WORKSPACE_CLUSTER);
                }
                self.commit(stored, workspace, None).await?;
                Ok(ReconcileOutcome::RequeueAfter(Duration::ZERO))
            }
        }
    }

    fn logical_cluster(
        &self,
        workspace: &Value,
        parent: &str,
        path: &str,
        info: &ShardInfo,
    ) -> Result<Value, Status> {
        let text = format!(
            "{}:{}",
            workspace["spec"]["type"]["path"].as_str().unwrap_or("root"),
            workspace["spec"]["type"]["name"].as_str().unwrap_or_default()
        );
        let own = self.types.find(&type_reference(&text))?;
        let own = own.ok_or_else(|| {
            Status::service_unavailable(format!("workspace type {text} is not known here"), 1)
        })?;
        let aliases = self.types.aliases(own)?.map_err(Status::internal)?;
        let metadata = &workspace["metadata"];
        let annotation_text = |key: &str| metadata["annotations"][key].as_str().map(str::to_owned);
        let new = NewLogicalCluster {
            owner: Some(fairlead_api::LogicalClusterOwner {
                api_version: "tenancy.kcp.io/v1alpha1".to_owned(),
                resource: "workspaces".to_owned(),
                name: metadata["name"].as_str().unwrap_or_default().to_owned(),
                namespace: Default::default(),
                cluster: parent.to_owned(),
                uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            }),
            path: path.to_owned(),
            type_reference: type_reference(&text),
            shard: info.name.clone(),
            owner_annotation: annotation_text(annotation::OWNER),
            required_groups: annotation_text(annotation::REQUIRED_GROUPS),
            initializers: fairlead_api::initializers(&aliases),
            terminators: fairlead_api::terminators(&aliases),
        };
        let mut object = new.build();
        object["status"] = json!({"phase": "Scheduling"});
        if info.name != self.shard {
            object["metadata"]["labels"][OWNER_SHARD] = self.shard.as_str().into();
        }
        Ok(object)
    }

    async fn unschedulable(
        &self,
        stored: &StoredObject,
        mut workspace: Value,
        reason: &str,
    ) -> Result<ReconcileOutcome, Status> {
        workspace["status"]["phase"] = "Unavailable".into();
        workspace["metadata"]["labels"][label::PHASE] = "Unavailable".into();
        // A changed Shard requeues the workspace at once. The gateway, which picks the shard, may observe the change
        // later than this shard.
        self.retry_scheduling(stored, workspace, Severity::Error, reason).await
    }

    /// Reports that no suitable shard has capacity now. The workspace stays in its phase.
    async fn no_shard_now(
        &self,
        stored: &StoredObject,
        workspace: Value,
        reason: &str,
    ) -> Result<ReconcileOutcome, Status> {
        self.retry_scheduling(stored, workspace, Severity::Warning, reason).await
    }

    async fn retry_scheduling(
        &self,
        stored: &StoredObject,
        mut workspace: Value,
        severity: Severity,
        reason: &str,
    ) -> Result<ReconcileOutcome, Status> {
        let mut conditions = conditions_of(&workspace);
        let kind = condition_type::WORKSPACE_SCHEDULED;
        let unmet = Condition::unmet(kind, severity, "Unschedulable", reason);
        set_condition(&mut conditions, unmet, Timestamp::now());
        write_conditions(&mut workspace, &conditions);
        match self.commit(stored, workspace, None).await? {
            ReconcileOutcome::Done => {
                Ok(ReconcileOutcome::RequeueAfter(retry_pause(&conditions, Timestamp::now())))
            }
            next => Ok(next),
        }
    }
}

/// Records the placement in the workspace's metadata.
pub(super) fn record_placement(workspace: &mut Value, info: &ShardInfo, cluster: &str) {
    let metadata = &mut workspace["metadata"];
    metadata["annotations"][annotation::SHARD] = info.name.as_str().into();
    metadata["annotations"][annotation::SHARD_HASH] = fairlead_names::shard_hash(&info.name).into();
    metadata["annotations"][annotation::WORKSPACE_CLUSTER] = cluster.into();
    match info.labels.get(label::REGION) {
        Some(region) => metadata["labels"][label::REGION] = region.as_str().into(),
        None => {
            if let Some(labels) = metadata["labels"].as_object_mut() {
                labels.remove(label::REGION);
            }
        }
    }
    let finalizers = &mut metadata["finalizers"];
    match finalizers.as_array_mut() {
        Some(all) if all.iter().any(|one| one == finalizer::WORKSPACE) => {}
        Some(all) => all.push(finalizer::WORKSPACE.into()),
        None => *finalizers = json!([finalizer::WORKSPACE]),
    }
}

/// Records that the logical cluster exists. The workspace remains Scheduling until its logical cluster is Initializing:
/// before, a client that waits for the phase would be refused there.
fn record_scheduled(workspace: &mut Value, info: &ShardInfo, cluster: &str, path: &str, now: Timestamp) {
    workspace["spec"]["cluster"] = cluster.into();
    workspace["spec"]["URL"] = fairlead_api::workspace_url(&info.external_url, path).into();
    let generation = workspace["metadata"]["generation"].as_i64().unwrap_or(1);
    workspace["metadata"]["generation"] = (generation + 1).into();
    workspace["status"]["phase"] = "Scheduling".into();
    workspace["metadata"]["labels"][label::PHASE] = "Scheduling".into();
    let mut conditions = conditions_of(workspace);
    set_condition(&mut conditions, Condition::met(condition_type::WORKSPACE_SCHEDULED), now);
    write_conditions(workspace, &conditions);
}

/// Pause before the next attempt to schedule a workspace: half of its waiting time. So thousands of unscheduled
/// workspaces cost little, and a new one is scheduled soon.
pub(super) fn retry_pause(conditions: &[Condition], now: Timestamp) -> Duration {
    let since = find_condition(conditions, condition_type::WORKSPACE_SCHEDULED)
        .and_then(|condition| condition.last_transition_time.parse::<Timestamp>().ok());
    let waited = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
    (waited.unwrap_or_default() / 2).clamp(Duration::from_millis(500), Duration::from_secs(30))
}
