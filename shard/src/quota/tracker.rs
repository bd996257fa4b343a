//! The usage of all logical clusters that have a limit.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use fairlead_api::Phase;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{AdmissionRequest, ScopeSelector};
use fairlead_process::{GroupResource, Status};
use fairlead_store::{Range, ReadError, Revision};
use parking_lot::RwLock;
use prometheus::IntCounterVec;
use rustc_hash::FxHashMap;

use super::limits::Quota;
use super::usage::{ClusterUsage, Counts, Exceeded, ObjectName, QuotaName, is_event};
use crate::controller_runtime::Queue;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{BUILT_IN, CLUSTER_ROLE_BINDINGS, LOGICAL_CLUSTERS, RESOURCE_QUOTAS};

/// Keys that are counted before other tasks run.
const PAGE: usize = 4096;

/// Logical cluster, namespace and name of a ResourceQuota.
pub(crate) type QuotaKey = (Box<str>, Box<str>, Box<str>);

/// Tracks how many objects the logical clusters have that have a ResourceQuota or a limit of all objects.
///
/// The others cost one look-up per create and per event.
pub(crate) struct UsageTracker {
    objects: ObjectStore,
    hub: Hub,
    index: Arc<ClusterIndex>,
    /// The limit of logical clusters without one of their own.
    default_limit: Option<u64>,
    clusters: RwLock<FxHashMap<Box<str>, Arc<ClusterUsage>>>,
    definitions: OnceLock<Arc<Definitions>>,
    /// Quotas whose status may be outdated.
    queue: Arc<Queue<QuotaKey>>,
    refusals: IntCounterVec,
}

impl UsageTracker {
    /// Reads all ResourceQuotas and follows the hub. To be called before the hub runs.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn follow(
        objects: ObjectStore,
        hub: &Hub,
        index: Arc<ClusterIndex>,
        default_limit: Option<u64>,
        refusals: IntCounterVec,
    ) -> Result<Arc<Self>, Status> {
        let tracker = Arc::new(Self {
            objects,
            hub: hub.clone(),
            index,
            default_limit,
            clusters: RwLock::default(),
            definitions: OnceLock::new(),
            queue: Arc::new(Queue::new()),
            refusals,
        });
        let (quotas, all) = (tracker.clone(), tracker.clone());
        // Writers of quotas wait for this observer, so that a new limit applies to the next request.
        hub.observe(RESOURCE_QUOTAS.clone(), Box::new(move |event| quotas.apply_quota(event)));
        hub.observe_all(Box::new(move |event| all.apply(event)));
        tracker.objects.for_each(&RESOURCE_QUOTAS, &BUILT_IN, &ScopeSelector::all(), &mut |listed| {
            let Ok(meta) = ObjectMetaRef::parse(listed.object) else { return };
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            tracker.set_quota(
                listed.scope,
                (namespace.into(), meta.name.as_ref().into()),
                listed.object.json(),
            );
        })?;
        Ok(tracker)
    }

    /// Sets the definitions. They depend on the registry, the registry on admission, and admission on this.
    pub(crate) fn set_definitions(&self, definitions: Arc<Definitions>) {
        // The definitions are set once, at start.
        let _ = self.definitions.set(definitions);
    }

    /// Quotas whose status may be outdated.
    pub(crate) fn queue(&self) -> &Arc<Queue<QuotaKey>> {
        &self.queue
    }

    /// Reserves the share of a create in all limits that apply to it.
    ///
    /// # Errors
    /// 403 if a limit is exceeded, 500 if the store cannot be read.
    pub(crate) async fn reserve(&self, write: &AdmissionRequest<'_>) -> Result<(), Status> {
        let Some(reservations) = write.reservations else { return Ok(()) };
        if write.subresource.is_some() || is_exempt(write) {
            return Ok(());
        }
        let cluster = write.scope.as_str();
        let limit = self.limit_of(cluster);
        let tracked = self.clusters.read().get(cluster).cloned();
        let usage = match (tracked, limit) {
            (Some(usage), _) => usage,
            (None, Some(_)) => self.clusters.write().entry(cluster.into()).or_default().clone(),
            (None, None) => return Ok(()),
        };
        self.count(cluster, &usage).await?;
        let object = ObjectName {
            resource: write.resource.name.clone(),
            namespace: write.namespace.map(Into::into),
            name: write.name.into(),
        };
        let reserved = match usage.reserve(cluster, object.clone(), limit) {
            Ok(reservation) => Ok(reservation),
            Err(_) => {
                // Deletes that were acknowledged before this request have freed their share. A closed hub means that the process
                // terminates.
                let _ = self.hub.wait(self.objects.store().revision()).await;
                usage.reserve(cluster, object, limit)
            }
        };
        match reserved {
            Ok(reservation) => {
                reservations.hold(reservation);
                Ok(())
            }
            Err(exceeded) => {
                let label = match exceeded {
                    Exceeded::Total { .. } => "logical-cluster",
                    Exceeded::Quota { .. } => "resource-quota",
                };
                self.refusals.with_label_values(&[label]).inc();
                let name = &write.resource.name;
                Err(Status::forbidden(GroupResource::new(&name.group, &name.resource), write.name, exceeded))
            }
        }
    }

    /// The use of the counted limits of a quota; `None` while the quota is not tracked, and when its logical cluster is being deleted.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) async fn used(
        &self,
        (cluster, namespace, name): &QuotaKey,
        quota: &Quota,
    ) -> Result<Option<Vec<(Box<str>, u64)>>, Status> {
        // The deletion of a logical cluster removes its quotas. Their status would only conflict with that.
        if self.index.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(None);
        }
        let Some(usage) = self.clusters.read().get(cluster).cloned() else { return Ok(None) };
        self.count(cluster, &usage).await?;
        Ok(Some(usage.used(&(namespace.clone(), name.clone()), quota)))
    }
}

impl UsageTracker {
    /// The limit of all objects of a logical cluster. The default does not apply to root and system clusters, which the
    /// shard fills itself.
    fn limit_of(&self, cluster: &str) -> Option<u64> {
        let state = self.index.get(cluster)?;
        if state.phase != Some(Phase::Ready) {
            return None;
        }
        match state.max_total_objects {
            Some(own) => u64::try_from(own).ok().filter(|limit| *limit > 0),
            None if cluster == "root" || cluster.starts_with("system:") => None,
            None => self.default_limit,
        }
    }

    /// Counts the objects of a logical cluster, once. Costs a visit of its keys.
    async fn count(&self, cluster: &str, usage: &ClusterUsage) -> Result<(), Status> {
        if usage.is_counted() {
            return Ok(());
        }
        let Some(definitions) = self.definitions.get() else {
            return Err(Status::service_unavailable("not yet ready to handle request", 1));
        };
        let _counting = usage.counting.lock().await;
        while !usage.is_counted() {
            // Events of a batch that is being distributed may not have reached `usage`. Those of later batches do.
            let _ = self.hub.wait(self.objects.store().revision()).await;
            let at = usage.begin_count(self.hub.revision());
            let resources = definitions.stored_resources(&self.hub, cluster).await;
            let mut counts = Counts::default();
            let mut is_complete = true;
            for (resource, origin) in resources {
                let range = Range::prefix(self.objects.codec().range(&resource, &origin, cluster, None));
                match self.count_range(range, at, &mut counts).await {
                    Ok(()) => {}
                    // The revision was compacted meanwhile.
                    Err(ReadError::Compacted { .. }) => {
                        is_complete = false;
                        break;
                    }
                    Err(error) => return Err(Status::internal(error)),
                }
            }
            if is_complete {
                usage.finish_count(counts);
            }
        }
        Ok(())
    }

    async fn count_range(
        &self,
        mut range: Range,
        at: Revision,
        counts: &mut Counts,
    ) -> Result<(), ReadError> {
        let codec = *self.objects.codec();
        loop {
            let (mut visited, mut last) = (0, None);
            self.objects.store().scan(&range, Some(at), &mut |record| {
                visited += 1;
                if let Ok(key) = codec.decode(record.key) {
                    let resource = fairlead_names::ResourceName::new(key.group, key.resource);
                    counts.add(&resource, key.namespace);
                }
                if visited == PAGE {
                    last = Some(record.key.to_vec());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            let Some(last) = last else { return Ok(()) };
            range = range.after(&last);
            tokio::task::yield_now().await;
        }
    }

    fn set_quota(&self, cluster: &str, name: QuotaName, json: &[u8]) {
        let Some(quota) = Quota::decode(json) else {
            tracing::error!(cluster, namespace = %name.0, name = %name.1, "a stored ResourceQuota cannot be read");
            return;
        };
        self.queue.add((cluster.into(), name.0.clone(), name.1.clone()));
        let usage = self.clusters.write().entry(cluster.into()).or_default().clone();
        usage.set_quota(name, quota);
    }

    fn apply_quota(&self, event: &ObjectEvent) {
        let name = (event.namespace.clone().unwrap_or_default(), event.name.clone());
        if !event.is_deletion() {
            self.set_quota(&event.scope, name, event.object().json());
            return;
        }
        let mut clusters = self.clusters.write();
        if let Some(usage) = clusters.get(&*event.scope)
            && !usage.remove_quota(&name)
            && self.limit_of(&event.scope).is_none()
        {
            clusters.remove(&*event.scope);
        }
    }

    fn apply(&self, event: &ObjectEvent) {
        let usage = {
            let clusters = self.clusters.read();
            if clusters.is_empty() {
                return;
            }
            let Some(usage) = clusters.get(&*event.scope) else { return };
            usage.clone()
        };
        usage.apply(event, |(namespace, name)| {
            self.queue.add(((*event.scope).into(), namespace.clone(), name.clone()));
        });
        if event.is_deletion() && event.resource == *LOGICAL_CLUSTERS {
            self.clusters.write().remove(&*event.scope);
        }
    }
}

/// Whether no limit applies to a create: events, and objects without which a workspace does not work.
fn is_exempt(write: &AdmissionRequest<'_>) -> bool {
    let resource = &write.resource.name;
    is_event(resource)
        || *resource == *LOGICAL_CLUSTERS
        || (*resource == *CLUSTER_ROLE_BINDINGS && write.name == "workspace-admin")
}
