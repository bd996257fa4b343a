//! Deletes objects whose owners are gone (`metadata.ownerReferences`), and finishes foreground and orphaning deletions.

mod decide;
mod graph;
mod misplaced;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::object::{ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::{
    FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectStore, ServedResource, Target,
};
use fairlead_apiserver::request::{DeleteOptions, Propagation, WriteOptions};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_process::Status;
use fairlead_store::Range;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use crate::controller_runtime::{Controller, Queue, ReconcileOutcome};
use crate::index::{ClusterIndex, Definitions};
use decide::{Decision, Dependent, OwnerState, decide};
use graph::{ObjectKey, OwnerGraphs};
use misplaced::MisplacedOwners;

/// The manager of the fields that the collector changes; kcp's server has this name.
const MANAGER: &str = "kcp";
/// Dependents of one owner that are processed at the same time. Their commits share durable writes.
const CONCURRENT_DEPENDENTS: usize = 32;
/// The longest pause between two groups of dependents. A pause is as long as the group before it took, so that an owner with tens of
/// thousands of dependents leaves half of the time to the requests of other logical clusters.
const MAX_GROUP_PAUSE: Duration = Duration::from_millis(20);
/// Pause before a foreground deletion looks for remaining dependents again, if no event of one comes before.
const FOREGROUND_PAUSE: Duration = Duration::from_secs(1);
/// Blocking dependents from which each event requeues their owner, which reads all of them. With more, the pause does.
const FEW_BLOCKING: usize = 16;
/// Owners whose state is read before other tasks run. An object may have tens of thousands.
const OWNERS_PER_TURN: usize = 64;
/// Stored objects that are visited before other tasks run, when the process starts.
const PAGE: usize = 1024;

/// A task of the garbage collector in a logical cluster.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct GarbageKey {
    cluster: Box<str>,
    task: GarbageTask,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum GarbageTask {
    /// Checks the owners of an object.
    Check(ObjectKey),
    /// Checks all dependents of the object that had this UID.
    OwnerDeleted(Box<str>),
    /// Advances a foreground or orphaning deletion.
    Finish(ObjectKey),
}

impl GarbageKey {
    /// The logical cluster, whose tasks take turns with those of others.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }
}

/// The garbage collector.
pub(crate) struct GarbageCollector {
    objects: ObjectStore,
    definitions: Arc<Definitions>,
    clusters: Arc<ClusterIndex>,
    hub: Hub,
    graphs: OwnerGraphs,
    misplaced: MisplacedOwners,
    /// Foreground deletions that wait for dependents, by logical cluster and UID.
    waiting: Mutex<FxHashMap<OwnerUid, WaitingOwner>>,
    identity: Arc<Identity>,
}

/// A logical cluster and a UID in it.
type OwnerUid = (Box<str>, Box<str>);

/// An object that is deleted in the foreground.
struct WaitingOwner {
    key: ObjectKey,
    /// Dependents that blocked it when it was last processed, less one for each event of a dependent since.
    blocking: usize,
}

impl GarbageCollector {
    pub(crate) fn new(
        objects: ObjectStore,
        definitions: Arc<Definitions>,
        clusters: Arc<ClusterIndex>,
        hub: Hub,
    ) -> Self {
        let user = UserInfo {
            name: "system:serviceaccount:kube-system:generic-garbage-collector".to_owned(),
            groups: vec![fairlead_api::group::MASTERS.to_owned()],
            ..UserInfo::default()
        };
        let identity = Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None));
        let (graphs, misplaced) = (OwnerGraphs::new(), MisplacedOwners::new());
        Self { objects, definitions, clusters, hub, graphs, misplaced, waiting: Mutex::default(), identity }
    }

    /// Follows all events of the store. An object without owners costs a search in its bytes.
    pub(crate) fn follow(self: &Arc<Self>, queue: &Arc<Queue<GarbageKey>>) {
        let (collector, queue) = (self.clone(), queue.clone());
        self.hub.observe_all(Box::new(move |event| {
            collector.graphs.apply(event);
            let waiting = collector.waiting_owners(event).into_iter().map(GarbageTask::Finish);
            for task in tasks_of(event).into_iter().chain(waiting) {
                queue.add(GarbageKey { cluster: (*event.scope).into(), task });
            }
        }));
    }

    /// Adds the tasks that an earlier process may have left: reads all objects once.
    pub(crate) async fn resume(&self, queue: &Queue<GarbageKey>) {
        let codec = *self.objects.codec();
        let mut rest = Range::prefix(format!("{}/", codec.prefix()));
        loop {
            let (mut visited, mut last) = (0, None);
            let read = self.objects.store().scan(&rest, None, &mut |record| {
                visited += 1;
                if let (Ok(parts), Ok(object)) = (codec.decode(record.key), ObjectBytes::parse(record.value))
                {
                    let key = || ObjectKey::of_parts(&parts);
                    let add = |task| queue.add(GarbageKey { cluster: parts.scope.into(), task });
                    if !graph::owners(object).is_empty() {
                        add(GarbageTask::Check(key()));
                    }
                    if waits_for_collector(object.json()) {
                        add(GarbageTask::Finish(key()));
                    }
                }
                if visited == PAGE {
                    last = Some(record.key.to_vec());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            if let Err(error) = read {
                tracing::error!(%error, "the garbage collector cannot read the store");
                return;
            }
            let Some(last) = last else { return };
            rest = rest.after(&last);
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Controller for GarbageCollector {
    type Key = GarbageKey;

    const NAME: &'static str = "garbage-collector";
    const WORKERS: usize = 8;

    async fn reconcile(&self, key: &GarbageKey) -> Result<ReconcileOutcome, Status> {
        let cluster = &*key.cluster;
        if let GarbageTask::OwnerDeleted(uid) = &key.task {
            self.waiting.lock().remove(&(cluster.into(), uid.clone()));
        }
        // The `deletion` controller removes the content of a deleted logical cluster. System clusters may have no LogicalCluster.
        let state = self.clusters.get(cluster);
        if state.map_or(!cluster.starts_with("system:"), |state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        match &key.task {
            GarbageTask::Check(object) => self.check(cluster, object, None).await?,
            GarbageTask::OwnerDeleted(uid) => {
                let dependents = self.dependents(cluster, uid).await?;
                self.check_all(cluster, &dependents, Some(uid)).await?;
            }
            GarbageTask::Finish(object) => return self.finish(cluster, object).await,
        }
        Ok(ReconcileOutcome::Done)
    }
}

impl GarbageCollector {
    /// The foreground deletions that wait for the object of an event, which was deleted or changed.
    fn waiting_owners(&self, event: &ObjectEvent) -> Vec<ObjectKey> {
        let previous = match &event.change {
            ObjectChange::Deleted(previous) | ObjectChange::Updated { previous, .. } => previous.as_object(),
            ObjectChange::Created(_) => return Vec::new(),
        };
        if self.waiting.lock().is_empty() {
            return Vec::new();
        }
        let owners = graph::owners(previous);
        let mut waiting = self.waiting.lock();
        let mut requeued = Vec::new();
        for uid in owners {
            let Some(owner) = waiting.get_mut(&((*event.scope).into(), uid)) else { continue };
            owner.blocking = owner.blocking.saturating_sub(1);
            if owner.blocking <= FEW_BLOCKING {
                requeued.push(owner.key.clone());
            }
        }
        requeued
    }

    async fn dependents(&self, cluster: &str, uid: &str) -> Result<Vec<Arc<ObjectKey>>, Status> {
        self.graphs.dependents(&self.objects, (&self.definitions, &self.hub), cluster, uid).await
    }

    /// Checks objects. `deleted` is the UID of an owner that is known to be gone.
    async fn check_all(
        &self,
        cluster: &str,
        dependents: &[Arc<ObjectKey>],
        deleted: Option<&str>,
    ) -> Result<(), Status> {
        for part in dependents.chunks(CONCURRENT_DEPENDENTS) {
            let began = Instant::now();
            let mut checks = FuturesUnordered::new();
            for dependent in part {
                checks.push(self.check(cluster, dependent, deleted));
            }
            while let Some(checked) = checks.next().await {
                checked?;
            }
            if part.len() == CONCURRENT_DEPENDENTS {
                tokio::time::sleep(began.elapsed().min(MAX_GROUP_PAUSE)).await;
            }
        }
        Ok(())
    }

    /// Deletes an object whose owners are all gone, or removes its references to those that are.
    async fn check(&self, cluster: &str, key: &ObjectKey, deleted: Option<&str>) -> Result<(), Status> {
        let Some((resource, object)) = self.read(cluster, key)? else { return Ok(()) };
        let metadata = &object["metadata"];
        if metadata["deletionTimestamp"].is_string() {
            return Ok(());
        }
        let references = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let mut owners: Vec<(String, OwnerState)> = Vec::with_capacity(references.len());
        for part in references.chunks(OWNERS_PER_TURN) {
            for reference in part {
                let uid = reference["uid"].as_str().unwrap_or_default().to_owned();
                // The definition of a deleted owner may be gone as well, so that nothing else would be known about it.
                let state = match deleted == Some(&*uid) {
                    true => OwnerState::Absent,
                    false => self.owner_state(cluster, key, reference)?,
                };
                owners.push((uid, state));
            }
            if part.len() == OWNERS_PER_TURN {
                tokio::task::yield_now().await;
            }
        }
        if deleted.is_none() {
            self.report_misplaced_owners(cluster, key, &object, &owners).await?;
        }
        let uid = metadata["uid"].as_str().unwrap_or_default();
        let waits = owners.iter().any(|(_, state)| *state == OwnerState::WaitsForDependents);
        let dependents = if waits { self.dependents(cluster, uid).await? } else { Vec::new() };
        let has_dependents = !dependents.is_empty();
        let finalizers = finalizers(&object);
        match decide(&Dependent { owners: &owners, finalizers: &finalizers, has_dependents }) {
            Decision::Keep => Ok(()),
            Decision::RemoveReferences(uids) => self.remove_references(cluster, key, &resource, &uids).await,
            Decision::Delete(propagation) => {
                if propagation == Propagation::Foreground {
                    self.break_circle(cluster, key, &resource, &dependents).await?;
                }
                let options = DeleteOptions {
                    uid: Some(uid.to_owned()),
                    propagation: Some(propagation),
                    ..DeleteOptions::default()
                };
                let target = self.target(cluster, key, &resource, Verb::Delete);
                absent_is_done(resource.registry.delete(&target, &key.name, &options).await.map(drop))
            }
        }
    }

    /// Stops an object from blocking its owners if one of its own dependents is deleted in the foreground: the dependent may be
    /// one of these owners, and each would wait for the other.
    async fn break_circle(
        &self,
        cluster: &str,
        key: &ObjectKey,
        resource: &Arc<ServedResource>,
        dependents: &[Arc<ObjectKey>],
    ) -> Result<(), Status> {
        for dependent in dependents {
            let Some((_, object)) = self.read(cluster, dependent)? else { continue };
            let is_marked = object["metadata"]["deletionTimestamp"].is_string();
            if is_marked && finalizers(&object).contains(&FOREGROUND_FINALIZER) {
                return self.change(cluster, key, resource, unblock_owners).await;
            }
        }
        Ok(())
    }

    /// Advances a deletion that waits for this controller's finalizers.
    async fn finish(&self, cluster: &str, key: &ObjectKey) -> Result<ReconcileOutcome, Status> {
        let Some((resource, object)) = self.read(cluster, key)? else { return Ok(ReconcileOutcome::Done) };
        let finalizers = finalizers(&object);
        let (orphans, is_foreground) =
            (finalizers.contains(&ORPHAN_FINALIZER), finalizers.contains(&FOREGROUND_FINALIZER));
        if !object["metadata"]["deletionTimestamp"].is_string() || !(orphans || is_foreground) {
            return Ok(ReconcileOutcome::Done);
        }
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let dependents = self.dependents(cluster, &uid).await?;
        if orphans {
            for dependent in &dependents {
                if let Some((resource, _)) = self.read(cluster, dependent)? {
                    self.remove_references(cluster, dependent, &resource, std::slice::from_ref(&uid)).await?;
                }
            }
            self.remove_finalizer(cluster, key, &resource, ORPHAN_FINALIZER).await?;
            return Ok(ReconcileOutcome::Done);
        }
        // Before the dependents are read: one that is deleted afterwards requeues this deletion.
        let waiting = (Box::from(cluster), Box::from(&*uid));
        self.waiting.lock().insert(waiting.clone(), WaitingOwner { key: key.clone(), blocking: 0 });
        self.check_all(cluster, &dependents, None).await?;
        let mut blocking = 0;
        for dependent in dependents.iter().filter(|dependent| ***dependent != *key) {
            let Some((_, object)) = self.read(cluster, dependent)? else { continue };
            let references = object["metadata"]["ownerReferences"].as_array();
            let blocks = references.is_some_and(|all| {
                all.iter().any(|one| one["uid"] == *uid && one["blockOwnerDeletion"] == true)
            });
            blocking += usize::from(blocks);
        }
        if blocking > 0 {
            if let Some(owner) = self.waiting.lock().get_mut(&waiting) {
                owner.blocking = blocking;
            }
            return Ok(ReconcileOutcome::RequeueAfter(FOREGROUND_PAUSE));
        }
        self.waiting.lock().remove(&waiting);
        self.remove_finalizer(cluster, key, &resource, FOREGROUND_FINALIZER).await?;
        Ok(ReconcileOutcome::Done)
    }

    fn owner_state(&self, cluster: &str, key: &ObjectKey, reference: &Value) -> Result<OwnerState, Status> {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (group, _) = text("apiVersion").split_once('/').unwrap_or(("", ""));
        let catalog = self.definitions.catalog(&Scope::new(cluster))?;
        let served = catalog
            .resources
            .iter()
            .find(|resource| *resource.name.group == *group && *resource.kind == *text("kind"));
        let Some(served) = served else { return Ok(OwnerState::Unknown) };
        if served.namespaced && key.namespace.is_none() {
            return Ok(OwnerState::Unknown);
        }
        let namespace = key.namespace.as_deref().filter(|_| served.namespaced);
        let scope = Scope::new(cluster);
        let found = self.objects.get(&served.name, &served.origin, &scope, namespace, text("name"))?;
        let Some(found) = found else { return Ok(OwnerState::Absent) };
        let meta = ObjectMetaRef::parse(found.object.as_object()).map_err(Status::internal)?;
        Ok(if *meta.uid != *text("uid") {
            OwnerState::Absent
        } else if meta.deletion_timestamp.is_some()
            && meta.finalizers.iter().any(|one| *one == *FOREGROUND_FINALIZER)
        {
            OwnerState::WaitsForDependents
        } else {
            OwnerState::Exists
        })
    }

    /// An object and its resource; `None` if it does not exist or its resource is not served: then nothing is known about it.
    fn read(&self, cluster: &str, key: &ObjectKey) -> Result<Option<(Arc<ServedResource>, Value)>, Status> {
        let scope = Scope::new(cluster);
        let catalog = self.definitions.catalog(&scope)?;
        let served = catalog
            .resources
            .iter()
            .find(|resource| resource.name == key.resource && resource.origin == key.origin);
        let Some(served) = served else { return Ok(None) };
        let namespace = key.namespace.as_deref();
        let stored = self.objects.get(&key.resource, &key.origin, &scope, namespace, &key.name)?;
        let Some(stored) = stored else { return Ok(None) };
        Ok(Some((served.clone(), self.objects.tree(&stored)?)))
    }

    async fn remove_references(
        &self,
        cluster: &str,
        key: &ObjectKey,
        resource: &Arc<ServedResource>,
        uids: &[String],
    ) -> Result<(), Status> {
        let uids: FxHashSet<&str> = uids.iter().map(String::as_str).collect();
        self.change(cluster, key, resource, |object| {
            if let Some(references) = object["metadata"]["ownerReferences"].as_array_mut() {
                references.retain(|one| one["uid"].as_str().is_none_or(|uid| !uids.contains(uid)));
            }
        })
        .await
    }

    async fn remove_finalizer(
        &self,
        cluster: &str,
        key: &ObjectKey,
        resource: &Arc<ServedResource>,
        finalizer: &str,
    ) -> Result<(), Status> {
        self.change(cluster, key, resource, |object| {
            if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|one| one != finalizer);
            }
        })
        .await
    }

    async fn change(
        &self,
        cluster: &str,
        key: &ObjectKey,
        resource: &Arc<ServedResource>,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<(), Status> {
        let changed = |old: Option<&Value>| {
            let Some(mut object) = old.cloned() else {
                return Err(Status::not_found(fairlead_process::GroupResource::default(), &key.name));
            };
            change(&mut object);
            Ok(object)
        };
        let target = self.target(cluster, key, resource, Verb::Patch);
        let options = WriteOptions { program: MANAGER.to_owned(), ..WriteOptions::default() };
        absent_is_done(resource.registry.update(&target, &key.name, &changed, &options).await.map(drop))
    }

    fn target(&self, cluster: &str, key: &ObjectKey, resource: &Arc<ServedResource>, verb: Verb) -> Target {
        Target {
            version: resource.versions.storage.name.clone(),
            resource: resource.clone(),
            scopes: ScopeSelector::One(Scope::new(cluster)),
            namespace: key.namespace.as_deref().map(Into::into),
            name: Some((*key.name).into()),
            subresource: None,
            verb,
            identity: self.identity.clone(),
            spans_origins: false,
            flags: fairlead_apiserver::request::RequestFlags::default(),
        }
    }
}

/// The tasks that follow from a change of an object.
fn tasks_of(event: &ObjectEvent) -> Vec<GarbageTask> {
    let key = || ObjectKey::of(event);
    match &event.change {
        ObjectChange::Deleted(object) => {
            let uid = ObjectMetaRef::parse(object.as_object()).ok().map(|meta| (&*meta.uid).into());
            uid.map(GarbageTask::OwnerDeleted).into_iter().collect()
        }
        ObjectChange::Created(object) => {
            let has_owners = !graph::owners(object.as_object()).is_empty();
            has_owners.then(|| GarbageTask::Check(key())).into_iter().collect()
        }
        ObjectChange::Updated { object, previous } => {
            let owners = graph::owners(object.as_object());
            let is_adopted = !owners.is_empty() && owners != graph::owners(previous.as_object());
            let check = is_adopted.then(|| GarbageTask::Check(key()));
            let finish = waits_for_collector(object.as_object().json()).then(|| GarbageTask::Finish(key()));
            check.into_iter().chain(finish).collect()
        }
    }
}

/// Whether an object may be in a foreground or orphaning deletion, by a search in its bytes.
fn waits_for_collector(json: &[u8]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(json, text).is_some();
    has(b"\"deletionTimestamp\"") && (has(b"\"foregroundDeletion\"") || has(b"\"orphan\""))
}

/// Lets the owners of an object be deleted before it.
fn unblock_owners(object: &mut Value) {
    let references = object["metadata"]["ownerReferences"].as_array_mut();
    for reference in references.into_iter().flatten() {
        if reference["blockOwnerDeletion"] == true {
            reference["blockOwnerDeletion"] = false.into();
        }
    }
}

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// An object that does not exist any more, or is another one of its name, needs nothing.
fn absent_is_done(outcome: Result<(), Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code == 404 => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
