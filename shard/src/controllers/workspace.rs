//! Schedules the Workspaces of this shard and reports the phase of their logical clusters.
//!
//! A workspace that is placed on this shard gets its logical cluster in the commit that schedules it. For another
//! shard, the placement is committed first, so that it is found again after a crash.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{
    Condition, LOGICAL_CLUSTER_NAME, NewLogicalCluster, Phase, Severity, annotation, condition_type,
    conditions_of, finalizer, find_condition, label, set_condition, write_conditions,
};
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_names::ClusterName;
use fairlead_process::Status;
use fairlead_store::CommitError;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::{ClusterIndex, Definitions};
use crate::names::{CUSTOM, LOGICAL_CLUSTERS, WORKSPACES};
use crate::peers::{CreateOutcome, OWNER_SHARD, Peers, RemoteState};
use crate::placement::{Placement, PlacementOutcome, ShardInfo};
use crate::workspace_owner::{WorkspaceKey, WorkspaceOwner};
use crate::workspace_types::{TypeLookup, type_reference};
use crate::writes::Writes;

/// Recheck interval where changes may come without an event.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a logical cluster may be missing after its workspace was scheduled.
const MISSING_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Annotation of a Workspace: policy and reason of its placement. A condition cannot hold them: a condition with
/// status True has no reason and no message in kcp.
const SHARD_PICK: &str = "fairlead.dev/shard-pick";

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
    /// Chooses a shard and creates the logical cluster there.
    async fn schedule(
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

    /// Updates the workspace from its logical cluster's phase.
    async fn advance(&self, stored: &StoredObject, mut workspace: Value) -> Result<ReconcileOutcome, Status> {
        let (state, source) = self.observe(&workspace).await?;
        let now = Timestamp::now();
        let mut next = apply_cluster_phase(&mut workspace, &state, now);
        if source == StateSource::Request && is_pending(&workspace) {
            next = ReconcileOutcome::RequeueAfter(read_pause(age(&workspace, now)));
        }
        let committed = self.commit(stored, workspace, None).await?;
        Ok(if committed == ReconcileOutcome::Done { next } else { committed })
    }

    /// Deletes the logical cluster, then the workspace.
    async fn delete(
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

/// Pause before the next attempt to schedule a workspace: half of its waiting time. So thousands of unscheduled
/// workspaces cost little, and a new one is scheduled soon.
fn retry_pause(conditions: &[Condition], now: Timestamp) -> Duration {
    let since = find_condition(conditions, condition_type::WORKSPACE_SCHEDULED)
        .and_then(|condition| condition.last_transition_time.parse::<Timestamp>().ok());
    let waited = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
    (waited.unwrap_or_default() / 2).clamp(Duration::from_millis(500), Duration::from_secs(30))
}

fn outcome_of(outcome: Result<fairlead_store::Revision, CommitError>) -> Result<ReconcileOutcome, Status> {
    match outcome {
        Ok(_) => Ok(ReconcileOutcome::Done),
        Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
        Err(error) => Err(Status::internal(error)),
    }
}

/// The known state of a workspace's logical cluster.
#[derive(Clone, Debug)]
enum ClusterPhase {
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

/// Whether the workspace waits for its logical cluster.
fn is_pending(workspace: &Value) -> bool {
    !matches!(workspace["status"]["phase"].as_str(), Some("Ready" | "Inactive"))
}

/// Pause between requests for the state of a logical cluster: a fifth of its age, as in kcp.
fn read_pause(age: Duration) -> Duration {
    (age / 5).clamp(Duration::from_millis(100), Duration::from_secs(10))
}

/// The shard and logical cluster that an earlier pass recorded.
fn recorded_placement(workspace: &Value) -> Option<(String, String)> {
    let annotations = &workspace["metadata"]["annotations"];
    let shard = annotations[annotation::SHARD].as_str()?;
    let cluster = ClusterName::parse(annotations[annotation::WORKSPACE_CLUSTER].as_str()?).ok()?;
    Some((shard.to_owned(), cluster.as_str().to_owned()))
}

/// Records the placement in the workspace's metadata.
fn record_placement(workspace: &mut Value, info: &ShardInfo, cluster: &str) {
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

/// Sets the workspace's phase and conditions from its logical cluster.
fn apply_cluster_phase(workspace: &mut Value, state: &ClusterPhase, now: Timestamp) -> ReconcileOutcome {
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

/// Shows the progress of the deletion of a logical cluster in its workspace.
fn mirror_deletion(workspace: &mut Value, logical_cluster: &Value, now: Timestamp) {
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

/// Sets a list of the workspace's status to that of its logical cluster. An empty one is absent.
fn mirror_list(workspace: &mut Value, field: &str, all: &[impl AsRef<str>]) {
    let Some(status) = workspace["status"].as_object_mut() else { return };
    if all.is_empty() {
        status.remove(field);
    } else {
        status.insert(field.into(), all.iter().map(AsRef::as_ref).collect());
    }
}

fn age(workspace: &Value, now: Timestamp) -> Duration {
    let created =
        workspace["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    created.and_then(|created| Duration::try_from(now.duration_since(created)).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(phase: &str) -> Value {
        json!({
            "metadata": {"name": "w", "creationTimestamp": "1970-01-01T00:00:00Z", "labels": {label::REGION: "old"}},
            "spec": {}, "status": {"phase": phase},
        })
    }

    fn known(phase: Phase, initializers: &[&str]) -> ClusterPhase {
        ClusterPhase::Known {
            phase: Some(phase),
            initializers: initializers.iter().map(|one| (*one).to_owned()).collect(),
            terminators: Vec::new(),
        }
    }

    #[test]
    fn the_retry_pause_grows_with_the_waiting_time() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (waited, pause) in [(0, 500), (1, 500), (8, 4_000), (100_000, 30_000)] {
            let mut conditions = Vec::new();
            let unmet = Condition::unmet(
                condition_type::WORKSPACE_SCHEDULED,
                Severity::Error,
                "Unschedulable",
                "no shard fits",
            );
            set_condition(&mut conditions, unmet, Timestamp::from_second(1_000_000 - waited).unwrap());
            assert_eq!(retry_pause(&conditions, now), Duration::from_millis(pause), "{waited}");
        }
        assert_eq!(retry_pause(&[], now), Duration::from_millis(500));
    }

    #[test]
    fn the_state_of_an_old_logical_cluster_is_read_less_often() {
        for (age, pause) in [(0, 100), (1_000, 200), (10_000, 2_000), (600_000, 10_000)] {
            assert_eq!(read_pause(Duration::from_millis(age)), Duration::from_millis(pause), "{age}");
        }
    }

    #[test]
    fn a_workspace_of_a_shard_that_is_not_watched_is_checked_rarely_when_it_is_ready() {
        let now = Timestamp::from_second(10).unwrap();
        for (phase, pause) in [
            ("Scheduling", RECHECK_INTERVAL),
            ("Initializing", RECHECK_INTERVAL),
            ("Unavailable", RECHECK_INTERVAL),
            ("Ready", MISSING_GRACE_PERIOD),
            ("Inactive", MISSING_GRACE_PERIOD),
        ] {
            let next = apply_cluster_phase(&mut workspace(phase), &ClusterPhase::NotSynced, now);
            assert_eq!(next, ReconcileOutcome::RequeueAfter(pause), "{phase}");
        }
    }

    #[test]
    fn the_phase_follows_the_logical_cluster() {
        let soon = Timestamp::from_second(10).unwrap();
        let late = Timestamp::from_second(100).unwrap();
        for (before, state, now, after) in [
            ("Scheduling", known(Phase::Scheduling, &[]), soon, "Scheduling"),
            ("Scheduling", known(Phase::Initializing, &["a"]), soon, "Initializing"),
            ("Scheduling", known(Phase::Ready, &[]), soon, "Ready"),
            ("Scheduling", ClusterPhase::NotSynced, soon, "Scheduling"),
            ("Scheduling", ClusterPhase::Missing, soon, "Scheduling"),
            ("Scheduling", ClusterPhase::Missing, late, "Unavailable"),
            ("Initializing", known(Phase::Initializing, &["a"]), soon, "Initializing"),
            ("Initializing", known(Phase::Ready, &[]), soon, "Ready"),
            ("Initializing", ClusterPhase::Missing, soon, "Initializing"),
            ("Initializing", ClusterPhase::Missing, late, "Unavailable"),
            ("Ready", ClusterPhase::Missing, soon, "Unavailable"),
            ("Unavailable", known(Phase::Initializing, &["a"]), late, "Initializing"),
            ("Unavailable", known(Phase::Ready, &[]), late, "Ready"),
            ("Ready", ClusterPhase::NotSynced, late, "Ready"),
            ("Ready", known(Phase::Inactive, &[]), late, "Inactive"),
        ] {
            let mut workspace = workspace(before);
            apply_cluster_phase(&mut workspace, &state, now);
            assert_eq!(workspace["status"]["phase"], after, "{before} {state:?}");
            assert_eq!(workspace["metadata"]["labels"][label::PHASE], after);
        }
    }

    #[test]
    fn a_deleted_workspace_shows_the_terminators_of_its_logical_cluster() {
        for (terminators, phase) in [(json!(["root:t"]), "Terminating"), (json!([]), "Deleting")] {
            let mut workspace = workspace("Ready");
            workspace["status"]["terminators"] = json!(["root:gone"]);
            let conditions = json!([{
                "type": condition_type::WORKSPACE_CONTENT_DELETED, "status": "False", "severity": "Info",
                "reason": "SomeResourcesRemain", "lastTransitionTime": "1970-01-01T00:00:00Z",
            }]);
            let logical_cluster = json!({"status": {"terminators": terminators, "conditions": conditions}});
            mirror_deletion(&mut workspace, &logical_cluster, Timestamp::UNIX_EPOCH);
            assert_eq!(workspace["status"]["phase"], phase);
            assert_eq!(workspace["metadata"]["labels"][label::PHASE], phase);
            let mirrored = workspace["status"].get("terminators").cloned().unwrap_or_else(|| json!([]));
            assert_eq!(mirrored, terminators);
            assert_eq!(workspace["status"]["conditions"][0]["reason"], "SomeResourcesRemain");
        }
    }

    #[test]
    fn recording_a_placement_twice_changes_nothing() {
        let info = ShardInfo { name: "shard-1".into(), ..ShardInfo::default() };
        let mut object = workspace("Scheduling");
        record_placement(&mut object, &info, "abc");
        record_placement(&mut object, &info, "abc");
        assert_eq!(recorded_placement(&object), Some(("shard-1".into(), "abc".into())));
        assert_eq!(object["metadata"]["annotations"][annotation::SHARD_HASH], "2e1tfbst");
        assert_eq!(object["metadata"]["finalizers"], json!([finalizer::WORKSPACE]));
        assert_eq!(object["metadata"]["labels"], json!({}));
    }
}
