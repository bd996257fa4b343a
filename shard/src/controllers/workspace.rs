//! Workspaces of this shard: on which shard they live, and how far their logical clusters are.
//!
//! A workspace on this shard gets its logical cluster in the commit that schedules it. For one on
//! another shard the choice is committed first, so that a crash in between finds it again.

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

use super::{Controller, Next};
use crate::admission::type_reference;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{CUSTOM, LOGICAL_CLUSTERS, WORKSPACES};
use crate::peers::{OWNER_SHARD, Peers, RemoteState};
use crate::placement::{Chosen, Placement, ShardInfo};
use crate::types::TypeLookup;
use crate::writes::Writes;

/// How soon something of another shard is looked at again when no event may come.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a logical cluster may be missing after its workspace was scheduled.
const GRACE: Duration = Duration::from_secs(60);

/// On a Workspace: by which policy its shard was picked, and why that one. A condition that holds says nothing in kcp.
const SHARD_PICK: &str = "fairlead.dev/shard-pick";

/// Logical cluster and name of a Workspace.
pub(crate) type WorkspaceKey = (Box<str>, Box<str>);

/// The controller.
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

    async fn reconcile(&self, (parent, name): &WorkspaceKey) -> Result<Next, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACES) else {
            return Ok(Next::After(LOOK_AGAIN));
        };
        let scope = Scope::new(parent);
        let Some(stored) = self.objects.get(&WORKSPACES, &resource.origin, &scope, None, name)? else {
            return Ok(Next::Done);
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
    /// Chooses a shard and makes the logical cluster there.
    async fn schedule(
        &self,
        parent: &str,
        stored: &StoredObject,
        mut workspace: Value,
    ) -> Result<Next, Status> {
        let Some(parent_state) = self.clusters.get(parent) else { return Ok(Next::After(LOOK_AGAIN)) };
        let (info, cluster) = match chosen_before(&workspace) {
            Some((shard, cluster)) => match self.placement.shard(&shard) {
                Some(info) => (info, cluster),
                None => {
                    let why = format!("chosen shard {shard:?} does not exist anymore");
                    return self.unschedulable(stored, workspace, &why).await;
                }
            },
            None => match self.placement.choose(parent, &workspace).await {
                Chosen::Shard(info, why) => {
                    workspace["metadata"]["annotations"][SHARD_PICK] = why.into();
                    (info, ClusterName::random().map_err(Status::internal)?.as_str().to_owned())
                }
                Chosen::Nothing(why) => return self.unschedulable(stored, workspace, &why).await,
                Chosen::NotNow(why) => return self.not_now(stored, workspace, &why).await,
                Chosen::NotYet => return Ok(Next::After(Duration::from_millis(100))),
            },
        };
        let name = workspace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("{}:{name}", parent_state.path.as_deref().unwrap_or(parent));
        let logical_cluster = self.logical_cluster(&workspace, parent, &path, &info)?;
        if info.name == self.shard {
            place(&mut workspace, &info, &cluster);
            scheduled(&mut workspace, &info, &cluster, &path, Timestamp::now());
            return self.commit(stored, workspace, Some((cluster, logical_cluster))).await;
        }
        if chosen_before(&workspace).is_none() {
            place(&mut workspace, &info, &cluster);
            self.commit(stored, workspace, None).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        match self.peers.create(&info, &cluster, &logical_cluster).await? {
            crate::peers::Created::Ours => {
                scheduled(&mut workspace, &info, &cluster, &path, Timestamp::now());
                self.commit(stored, workspace, None).await
            }
            crate::peers::Created::Taken => {
                // The name is taken: generate another one.
                if let Some(annotations) = workspace["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(annotation::WORKSPACE_CLUSTER);
                }
                self.commit(stored, workspace, None).await?;
                Ok(Next::After(Duration::ZERO))
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
        let own = self.types.at(&type_reference(&text))?;
        let own = own.ok_or_else(|| {
            Status::service_unavailable(format!("workspace type {text} is not known here"), 1)
        })?;
        let aliases = self.types.aliases(own)?.map_err(Status::internal)?;
        let metadata = &workspace["metadata"];
        let annotation_text = |key: &str| metadata["annotations"][key].as_str().map(str::to_owned);
        let new = NewLogicalCluster {
            owner: fairlead_api::LogicalClusterOwner {
                api_version: "tenancy.kcp.io/v1alpha1".to_owned(),
                resource: "workspaces".to_owned(),
                name: metadata["name"].as_str().unwrap_or_default().to_owned(),
                namespace: Default::default(),
                cluster: parent.to_owned(),
                uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            },
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

    /// Follows the logical cluster's phase.
    async fn advance(&self, stored: &StoredObject, mut workspace: Value) -> Result<Next, Status> {
        let state = self.observe(&workspace)?;
        let next = follow(&mut workspace, &state, Timestamp::now());
        let committed = self.commit(stored, workspace, None).await?;
        Ok(if committed == Next::Done { next } else { committed })
    }

    /// Deletes the logical cluster, and lets the workspace go once it is gone.
    async fn delete(
        &self,
        parent: &str,
        stored: &StoredObject,
        mut workspace: Value,
    ) -> Result<Next, Status> {
        let finalizers = workspace["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|one| one == finalizer::WORKSPACE) || finalizers.len() > 1 {
            return Ok(Next::Done);
        }
        let Some((shard, cluster)) = chosen_before(&workspace) else {
            return self.let_go(stored, workspace).await;
        };
        let owner = WorkspaceOwner::of(parent, &workspace);
        if shard == self.shard {
            let scope = Scope::new(&cluster);
            let found = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
            let Some(found) = found else { return self.let_go(stored, workspace).await };
            let mut object = self.objects.tree(&found)?;
            if !owner.has(&object) {
                tracing::warn!(%cluster, workspace = %owner.name, "a workspace names a logical cluster of somebody else");
                return self.let_go(stored, workspace).await;
            }
            mirror_deletion(&mut workspace, Some(&object), Timestamp::now());
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
        let Some(info) = self.placement.shard(&shard) else { return Ok(Next::After(LOOK_AGAIN)) };
        if self.peers.delete(&info, &cluster, &owner).await? {
            return self.let_go(stored, workspace).await;
        }
        mirror_deletion(&mut workspace, None, Timestamp::now());
        self.commit(stored, workspace, None).await?;
        Ok(Next::After(LOOK_AGAIN))
    }

    async fn let_go(&self, stored: &StoredObject, workspace: Value) -> Result<Next, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACES) else { return Ok(Next::Retry) };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.remove(&resource, stored, &workspace);
        finish(writes.commit().await)
    }

    async fn unschedulable(
        &self,
        stored: &StoredObject,
        mut workspace: Value,
        why: &str,
    ) -> Result<Next, Status> {
        workspace["status"]["phase"] = "Unavailable".into();
        workspace["metadata"]["labels"][label::PHASE] = "Unavailable".into();
        // A change of a shard brings the workspace back at once, but the gateway, which picks, may learn of the shard
        // later than we do.
        self.ask_again(stored, workspace, Severity::Error, why).await
    }

    /// The shards that fit cannot take it now. It stays in the phase that it is in.
    async fn not_now(&self, stored: &StoredObject, workspace: Value, why: &str) -> Result<Next, Status> {
        self.ask_again(stored, workspace, Severity::Warning, why).await
    }

    async fn ask_again(
        &self,
        stored: &StoredObject,
        mut workspace: Value,
        severity: Severity,
        why: &str,
    ) -> Result<Next, Status> {
        let mut conditions = conditions_of(&workspace);
        let kind = condition_type::WORKSPACE_SCHEDULED;
        let unmet = Condition::unmet(kind, severity, "Unschedulable", why);
        set_condition(&mut conditions, unmet, Timestamp::now());
        write_conditions(&mut workspace, &conditions);
        match self.commit(stored, workspace, None).await? {
            Next::Done => Ok(Next::After(patience(&conditions, Timestamp::now()))),
            next => Ok(next),
        }
    }

    fn observe(&self, workspace: &Value) -> Result<ClusterPhase, Status> {
        let cluster = workspace["spec"]["cluster"].as_str().unwrap_or_default();
        if let Some(state) = self.clusters.get(cluster) {
            let scope = Scope::new(cluster);
            let found = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
            let Some(found) = found else { return Ok(ClusterPhase::Missing) };
            let object = self.objects.tree(&found)?;
            let texts = |field: &str| -> Vec<String> {
                let all = object["status"][field].as_array();
                all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            return Ok(ClusterPhase::Known {
                phase: state.phase,
                initializers: texts("initializers"),
                terminators: texts("terminators"),
            });
        }
        let shard = workspace["metadata"]["annotations"][annotation::SHARD].as_str().unwrap_or_default();
        if shard == self.shard {
            return Ok(ClusterPhase::Missing);
        }
        Ok(match self.peers.state(shard, cluster) {
            RemoteState::Known { phase, initializers, terminators } => {
                ClusterPhase::Known { phase, initializers, terminators }
            }
            RemoteState::Missing => ClusterPhase::Missing,
            RemoteState::NotSynced => ClusterPhase::NotYet,
        })
    }

    async fn commit(
        &self,
        stored: &StoredObject,
        workspace: Value,
        logical_cluster: Option<(String, Value)>,
    ) -> Result<Next, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACES) else { return Ok(Next::Retry) };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.replace(&resource, stored, workspace)?;
        if let Some((cluster, object)) = logical_cluster {
            writes.create(&cluster, object)?;
        }
        if writes.is_empty() {
            return Ok(Next::Done);
        }
        finish(writes.commit().await)
    }
}

/// How long until an unscheduled workspace is looked at again: half the time it has been waiting, so that thousands
/// of them cost little and a fresh one is scheduled soon.
fn patience(conditions: &[Condition], now: Timestamp) -> Duration {
    let since = find_condition(conditions, condition_type::WORKSPACE_SCHEDULED)
        .and_then(|condition| condition.last_transition_time.parse::<Timestamp>().ok());
    let waited = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
    (waited.unwrap_or_default() / 2).clamp(Duration::from_millis(500), Duration::from_secs(30))
}

fn finish(outcome: Result<fairlead_store::Revision, CommitError>) -> Result<Next, Status> {
    match outcome {
        Ok(_) => Ok(Next::Done),
        Err(CommitError::Conflict { .. }) => Ok(Next::Retry),
        Err(error) => Err(Status::internal(error)),
    }
}

/// The workspace that a logical cluster has to be of, to be deleted with it: what names one may be wrong.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceOwner {
    cluster: String,
    name: String,
    uid: String,
}

impl WorkspaceOwner {
    /// A workspace in a logical cluster.
    fn of(parent: &str, workspace: &Value) -> Self {
        let text = |key: &str| workspace["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self { cluster: parent.to_owned(), name: text("name"), uid: text("uid") }
    }

    /// Whether a logical cluster is of it.
    pub(crate) fn has(&self, logical_cluster: &Value) -> bool {
        let owner = &logical_cluster["spec"]["owner"];
        owner["resource"] == "workspaces"
            && owner["cluster"] == *self.cluster
            && owner["name"] == *self.name
            && owner["uid"] == *self.uid
    }
}

/// The known state of a workspace's logical cluster.
#[derive(Clone, Debug)]
enum ClusterPhase {
    Known { phase: Option<Phase>, initializers: Vec<String>, terminators: Vec<String> },
    Missing,
    NotYet,
}

/// The shard and logical cluster that were chosen in an earlier pass.
fn chosen_before(workspace: &Value) -> Option<(String, String)> {
    let annotations = &workspace["metadata"]["annotations"];
    let shard = annotations[annotation::SHARD].as_str()?;
    let cluster = ClusterName::parse(annotations[annotation::WORKSPACE_CLUSTER].as_str()?).ok()?;
    Some((shard.to_owned(), cluster.as_str().to_owned()))
}

/// Notes the choice.
fn place(workspace: &mut Value, info: &ShardInfo, cluster: &str) {
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

/// Notes that the logical cluster is there.
fn scheduled(workspace: &mut Value, info: &ShardInfo, cluster: &str, path: &str, now: Timestamp) {
    workspace["spec"]["cluster"] = cluster.into();
    workspace["spec"]["URL"] = fairlead_api::workspace_url(&info.external_url, path).into();
    let generation = workspace["metadata"]["generation"].as_i64().unwrap_or(1);
    workspace["metadata"]["generation"] = (generation + 1).into();
    workspace["status"]["phase"] = "Initializing".into();
    workspace["metadata"]["labels"][label::PHASE] = "Initializing".into();
    let mut conditions = conditions_of(workspace);
    set_condition(&mut conditions, Condition::met(condition_type::WORKSPACE_SCHEDULED), now);
    write_conditions(workspace, &conditions);
}

/// The workspace's phase by that of its logical cluster.
fn follow(workspace: &mut Value, state: &ClusterPhase, now: Timestamp) -> Next {
    let mut conditions = conditions_of(workspace);
    let kind = condition_type::WORKSPACE_INITIALIZED;
    let mut next = Next::Done;
    set_condition(&mut conditions, Condition::met(condition_type::WORKSPACE_SCHEDULED), now);
    let before = workspace["status"]["phase"].as_str().and_then(Phase::parse);
    let mut phase = before.unwrap_or(Phase::Initializing);
    match state {
        ClusterPhase::NotYet => next = Next::After(LOOK_AGAIN),
        ClusterPhase::Missing if before == Some(Phase::Initializing) && age(workspace, now) < GRACE => {
            next = Next::After(LOOK_AGAIN);
        }
        ClusterPhase::Missing => {
            let message = "LogicalCluster disappeared";
            set_condition(
                &mut conditions,
                Condition::unmet(kind, Severity::Error, "WorkspaceDisappeared", message),
                now,
            );
            phase = Phase::Unavailable;
            next = Next::After(GRACE);
        }
        ClusterPhase::Known { phase: cluster_phase, initializers, terminators } => {
            for (field, all) in [("initializers", initializers), ("terminators", terminators)] {
                if let Some(status) = workspace["status"].as_object_mut() {
                    if all.is_empty() {
                        status.remove(field);
                    } else {
                        status.insert(field.into(), json!(all));
                    }
                }
            }
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
        if let Some(shrunk) = owner.and_then(fairlead_api::shrunk_owner_annotation) {
            workspace["metadata"]["annotations"][annotation::OWNER] = shrunk.into();
        }
    }
    write_conditions(workspace, &conditions);
    next
}

fn mirror_deletion(workspace: &mut Value, logical_cluster: Option<&Value>, now: Timestamp) {
    let terminators =
        logical_cluster.map(|object| object["status"]["terminators"].clone()).unwrap_or_default();
    let waits = terminators.as_array().is_some_and(|all| !all.is_empty());
    let phase = if waits { "Terminating" } else { "Deleting" };
    workspace["status"]["phase"] = phase.into();
    workspace["metadata"]["labels"][label::PHASE] = phase.into();
    let kind = condition_type::WORKSPACE_CONTENT_DELETED;
    let theirs = logical_cluster.map(conditions_of).unwrap_or_default();
    if let Some(condition) = fairlead_api::find_condition(&theirs, kind) {
        let mut conditions = conditions_of(workspace);
        set_condition(&mut conditions, condition.clone(), now);
        write_conditions(workspace, &conditions);
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
    fn a_logical_cluster_goes_with_the_workspace_that_it_is_of() {
        let own = json!({"metadata": {"name": "w", "uid": "1"}});
        let owner = WorkspaceOwner::of("p", &own);
        let of = |cluster: &str, name: &str, uid: &str| {
            let owner = json!({"resource": "workspaces", "cluster": cluster, "name": name, "uid": uid});
            json!({"spec": {"owner": owner}})
        };
        assert!(owner.has(&of("p", "w", "1")));
        for other in [of("q", "w", "1"), of("p", "v", "1"), of("p", "w", "2"), json!({"spec": {}})] {
            assert!(!owner.has(&other), "{other}");
        }
    }

    #[test]
    fn who_has_waited_long_is_looked_at_rarely() {
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
            assert_eq!(patience(&conditions, now), Duration::from_millis(pause), "{waited}");
        }
        assert_eq!(patience(&[], now), Duration::from_millis(500));
    }

    #[test]
    fn the_phase_follows_the_logical_cluster() {
        let soon = Timestamp::from_second(10).unwrap();
        let late = Timestamp::from_second(100).unwrap();
        for (before, state, now, after) in [
            ("Initializing", known(Phase::Initializing, &["a"]), soon, "Initializing"),
            ("Initializing", known(Phase::Ready, &[]), soon, "Ready"),
            ("Initializing", ClusterPhase::Missing, soon, "Initializing"),
            ("Initializing", ClusterPhase::Missing, late, "Unavailable"),
            ("Ready", ClusterPhase::Missing, soon, "Unavailable"),
            ("Unavailable", known(Phase::Initializing, &["a"]), late, "Initializing"),
            ("Unavailable", known(Phase::Ready, &[]), late, "Ready"),
            ("Ready", ClusterPhase::NotYet, late, "Ready"),
            ("Ready", known(Phase::Inactive, &[]), late, "Inactive"),
        ] {
            let mut workspace = workspace(before);
            follow(&mut workspace, &state, now);
            assert_eq!(workspace["status"]["phase"], after, "{before} {state:?}");
            assert_eq!(workspace["metadata"]["labels"][label::PHASE], after);
        }
    }

    #[test]
    fn placing_notes_the_choice_once() {
        let info = ShardInfo { name: "shard-1".into(), ..ShardInfo::default() };
        let mut object = workspace("Scheduling");
        place(&mut object, &info, "abc");
        place(&mut object, &info, "abc");
        assert_eq!(chosen_before(&object), Some(("shard-1".into(), "abc".into())));
        assert_eq!(object["metadata"]["annotations"][annotation::SHARD_HASH], "2e1tfbst");
        assert_eq!(object["metadata"]["finalizers"], json!([finalizer::WORKSPACE]));
        assert_eq!(object["metadata"]["labels"], json!({}));
    }
}
