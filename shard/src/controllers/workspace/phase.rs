//! The phase of a workspace, from that of its logical cluster.

use std::time::Duration;

use fairlead_api::{
    Condition, LOGICAL_CLUSTER_NAME, Phase, Severity, annotation, condition_type, conditions_of, label,
    set_condition, write_conditions,
};
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::StoredObject;
use fairlead_process::Status;
use jiff::Timestamp;
use serde_json::Value;

use super::{RECHECK_INTERVAL, Workspaces};
use crate::controller_runtime::ReconcileOutcome;
use crate::names::{CUSTOM, LOGICAL_CLUSTERS};
use crate::peers::RemoteState;

/// Time for which a logical cluster may be missing after its workspace was scheduled.
pub(super) const MISSING_GRACE_PERIOD: Duration = Duration::from_secs(60);

impl Workspaces {
    /// Updates the workspace from its logical cluster's phase.
    pub(super) async fn advance(
        &self,
        stored: &StoredObject,
        mut workspace: Value,
    ) -> Result<ReconcileOutcome, Status> {
        let (state, source) = self.observe(&workspace).await?;
        let now = Timestamp::now();
        let mut next = apply_cluster_phase(&mut workspace, &state, now);
        if source == StateSource::Request && is_pending(&workspace) {
            next = ReconcileOutcome::RequeueAfter(read_pause(age(&workspace, now)));
        }
        let committed = self.commit(stored, workspace, None).await?;
        Ok(if committed == ReconcileOutcome::Done { next } else { committed })
    }

    async fn observe(&self, workspace: &Value) -> Result<(ClusterPhase, StateSource), Status> {
        let cluster = workspace["spec"]["cluster"].as_str().unwrap_or_default();
        if let Some(state) = self.clusters.get(cluster) {
            let scope = Scope::new(cluster);
            let found = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
            let Some(found) = found else { return Ok((ClusterPhase::Missing, StateSource::Watch)) };
            let object = self.objects.tree(&found)?;
            let texts = |field: &str| -> Vec<String> {
                let all = object["status"][field].as_array();
                all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let known = ClusterPhase::Known {
                phase: state.phase,
                initializers: texts("initializers"),
                terminators: texts("terminators"),
            };
            return Ok((known, StateSource::Watch));
        }
        let shard = workspace["metadata"]["annotations"][annotation::SHARD].as_str().unwrap_or_default();
        if shard == self.shard {
            return Ok((ClusterPhase::Missing, StateSource::Watch));
        }
        match self.peers.state(shard, cluster) {
            RemoteState::NotSynced if is_pending(workspace) => {
                let Some(info) = self.placement.shard(shard) else {
                    return Ok((ClusterPhase::NotSynced, StateSource::Watch));
                };
                let state = self.peers.read(&info, cluster).await?;
                Ok((state.into(), StateSource::Request))
            }
            state => Ok((state.into(), StateSource::Watch)),
        }
    }
}

/// The known state of a workspace's logical cluster.
#[derive(Clone, Debug)]
pub(super) enum ClusterPhase {
    Known { phase: Option<Phase>, initializers: Vec<String>, terminators: Vec<String> },
    Missing,
    NotSynced,
}

/// Where the state of a logical cluster comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StateSource {
    /// A later change requeues the workspace.
    Watch,
    /// A request to the other shard. Nothing tells of a later change.
    Request,
}

impl From<RemoteState> for ClusterPhase {
    fn from(state: RemoteState) -> Self {
        match state {
            RemoteState::Known { phase, initializers, terminators } => {
                Self::Known { phase, initializers, terminators }
            }
            RemoteState::Missing => Self::Missing,
            RemoteState::NotSynced => Self::NotSynced,
        }
    }
}

/// Sets the workspace's phase and conditions from its logical cluster.
pub(super) fn apply_cluster_phase(
    workspace: &mut Value,
    state: &ClusterPhase,
    now: Timestamp,
) -> ReconcileOutcome {
    let mut conditions = conditions_of(workspace);
    let kind = condition_type::WORKSPACE_INITIALIZED;
    let mut next = ReconcileOutcome::Done;
    set_condition(&mut conditions, Condition::met(condition_type::WORKSPACE_SCHEDULED), now);
    let before = workspace["status"]["phase"].as_str().and_then(Phase::parse);
    let mut phase = before.unwrap_or(Phase::Scheduling);
    match state {
        ClusterPhase::NotSynced if is_pending(workspace) => {
            next = ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL);
        }
        // Some shards refuse the watch for ever.
        ClusterPhase::NotSynced => next = ReconcileOutcome::RequeueAfter(MISSING_GRACE_PERIOD),
        ClusterPhase::Missing
            if matches!(before, Some(Phase::Scheduling | Phase::Initializing))
                && age(workspace, now) < MISSING_GRACE_PERIOD =>
        {
            next = ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL);
        }
        ClusterPhase::Missing => {
            let message = "LogicalCluster disappeared";
            set_condition(
                &mut conditions,
                Condition::unmet(kind, Severity::Error, "WorkspaceDisappeared", message),
                now,
            );
            phase = Phase::Unavailable;
            next = ReconcileOutcome::RequeueAfter(MISSING_GRACE_PERIOD);
        }
        ClusterPhase::Known { phase: cluster_phase, initializers, terminators } => {
            mirror_list(workspace, "initializers", initializers);
            mirror_list(workspace, "terminators", terminators);
            match cluster_phase {
                None | Some(Phase::Scheduling) => {
                    let message = "LogicalCluster is not initializing yet";
                    set_condition(
                        &mut conditions,
                        Condition::unmet(kind, Severity::Info, "InitializerExists", message),
                        now,
                    );
                }
                Some(Phase::Initializing) => {
                    let message = format!("Initializers still exist: [{}]", initializers.join(" "));
                    set_condition(
                        &mut conditions,
                        Condition::unmet(kind, Severity::Info, "InitializerExists", &message),
                        now,
                    );
                    phase = Phase::Initializing;
                }
                Some(known) => {
                    set_condition(&mut conditions, Condition::met(kind), now);
                    phase = if *known == Phase::Inactive { Phase::Inactive } else { Phase::Ready };
                }
            }
        }
    }
    workspace["status"]["phase"] = phase.as_str().into();
    workspace["metadata"]["labels"][label::PHASE] = phase.as_str().into();
    if phase == Phase::Ready {
        let owner = workspace["metadata"]["annotations"][annotation::OWNER].as_str();
        if let Some(shrunk) = owner.and_then(fairlead_api::username_only_owner_annotation) {
            workspace["metadata"]["annotations"][annotation::OWNER] = shrunk.into();
        }
    }
    write_conditions(workspace, &conditions);
    next
}

/// Sets a list of the workspace's status to that of its logical cluster. An empty one is absent.
pub(super) fn mirror_list(workspace: &mut Value, field: &str, all: &[impl AsRef<str>]) {
    let Some(status) = workspace["status"].as_object_mut() else { return };
    if all.is_empty() {
        status.remove(field);
    } else {
        status.insert(field.into(), all.iter().map(AsRef::as_ref).collect());
    }
}

/// Whether the workspace waits for its logical cluster.
fn is_pending(workspace: &Value) -> bool {
    !matches!(workspace["status"]["phase"].as_str(), Some("Ready" | "Inactive"))
}

/// Pause between requests for the state of a logical cluster: a fifth of its age, as in kcp.
pub(super) fn read_pause(age: Duration) -> Duration {
    (age / 5).clamp(Duration::from_millis(100), Duration::from_secs(10))
}

fn age(workspace: &Value, now: Timestamp) -> Duration {
    let created =
        workspace["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    created.and_then(|created| Duration::try_from(now.duration_since(created)).ok()).unwrap_or_default()
}
