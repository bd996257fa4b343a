//! Replicates the objects that other shards need to the cache server.
//!
//! Replication is level-based: for each object, origin and replica are compared ([`plan`]), and one write updates the
//! replica. At start and after an outage of the cache server all objects on both sides are compared, so no change is
//! missed. Equal replicas are not written.

mod marks;
mod pending;
mod plan;
mod publishers;
mod reasons;
mod replicas;
mod sources;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_apiserver::registry::{ListedObject, ObjectStore};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_client::{Client, ClientError};
use fairlead_names::ResourceName;
use fairlead_process::{Metrics, MetricsError, Shutdown, Status};
use futures_util::future::{join, join_all, join4};
use prometheus::IntCounterVec;
use serde_json::Value;

use self::marks::Marks;
use self::pending::PendingGauge;
use self::publishers::{PUBLISHED, publishers, publishes};
use self::sources::{Source, sources};
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive, feed};
use crate::global::{Mirror, MirrorEvent};
use crate::index::Identities;
use crate::names::CUSTOM;

pub(crate) use self::plan::{Plan, plan};
pub(crate) use self::replicas::{ObjectLocation, Replicas};
pub(crate) use self::write::ReplicaTarget;

/// Replicates a shard's objects, and marks the objects that other shards need.
pub(crate) struct Replication {
    replicator: Arc<Replicator>,
    marks: Arc<Marks>,
}

struct Replicator {
    shard: String,
    objects: ObjectStore,
    hub: Hub,
    client: Client,
    resources: Vec<ReplicatedResource>,
    queue: Arc<Queue<Key>>,
    metrics: ReplicationMetrics,
}

struct ReplicatedResource {
    source: Source,
    replicas: Replicas,
}

/// Key of an object: the index of its resource, and its location.
type Key = (usize, ObjectLocation);

/// The metrics of replication, of all terms in which this process leads.
#[derive(Clone)]
pub(crate) struct ReplicationMetrics {
    writes: IntCounterVec,
    failures: IntCounterVec,
    pending: PendingGauge,
}

impl ReplicationMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            writes: metrics.counters(
                "fairlead_replication_writes_total",
                "Writes to the cache server that it accepted.",
                &["resource", "verb"],
            )?,
            failures: metrics.counters(
                "fairlead_replication_failures_total",
                "Writes to the cache server that failed and are retried.",
                &["resource"],
            )?,
            pending: PendingGauge::new(metrics)?,
        })
    }
}

impl Replication {
    /// Creates the replication of shard `shard`. `identities` determine where the resources of root's exports are
    /// stored; `client` is a client of the cache server.
    pub(crate) fn new(
        shard: &str,
        objects: ObjectStore,
        hub: Hub,
        identities: &Identities,
        client: Client,
        metrics: &ReplicationMetrics,
    ) -> Self {
        let replicated = |source| ReplicatedResource { source, replicas: Replicas::default() };
        let marks = Arc::new(Marks::new(objects.clone(), hub.clone(), identities));
        let resources: Vec<_> = sources(identities).into_iter().map(replicated).collect();
        // Prometheus detects an increase only from an existing value.
        for replicated in &resources {
            metrics.failures.with_label_values(&[&*replicated.source.resource.name.to_string()]);
        }
        let queue = Arc::new(Queue::new());
        metrics.pending.follow(&queue);
        let replicator = Arc::new(Replicator {
            shard: shard.to_owned(),
            objects,
            hub,
            client,
            resources,
            queue,
            metrics: metrics.clone(),
        });
        Self { replicator, marks }
    }

    /// Replicates until the process drains.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let Self { replicator, marks } = self;
        let queue = Arc::clone(&replicator.queue);
        let followed = join_all((0..replicator.resources.len()).map(|index| {
            join(
                replicator.follow_origins(index, shutdown.clone()),
                replicator.follow_replicas(index, &shutdown),
            )
        }));
        let published = join_all(
            PUBLISHED.iter().map(|resource| replicator.follow_publishers(resource, shutdown.clone())),
        );
        let written = drive(Arc::clone(&replicator), queue, shutdown.clone());
        join4(written, followed, published, marks.run(shutdown.clone())).await;
    }
}

impl Replicator {
    /// Adds changed origins to the queue.
    async fn follow_origins(&self, index: usize, shutdown: Shutdown) {
        let ReplicatedResource { source, replicas } = &self.resources[index];
        let name = source.resource.name.clone();
        feed(
            self.hub.clone(),
            name,
            Some(source.origin.clone()),
            shutdown,
            || self.add_origins(index),
            |event| {
                let location: ObjectLocation = (event.scope.clone(), (*event.name).into());
                if self.is_relevant(source, event) || replicas.contains(&location) {
                    self.queue.add((index, location));
                }
            },
        )
        .await;
    }

    /// Adds the objects that are replicated because their logical cluster publishes an API, when it may begin or cease to.
    async fn follow_publishers(&self, published: &ResourceName, shutdown: Shutdown) {
        let changed = |event: &ObjectEvent| {
            if matches!(event.change, ObjectChange::Created(_) | ObjectChange::Deleted(_)) {
                let of_publishers =
                    self.resources.iter().enumerate().filter(|(_, one)| one.source.is_of_publishers());
                of_publishers.for_each(|(index, _)| self.add_origins_of(index, &event.scope));
            }
        };
        // After a lag, the objects of all publishers are added.
        let resync = || {
            for (index, one) in self.resources.iter().enumerate() {
                if one.source.is_of_publishers() {
                    self.add_origins(index);
                }
            }
        };
        feed(self.hub.clone(), published.clone(), Some(CUSTOM), shutdown, resync, changed).await;
    }

    /// Adds the objects of a resource in one logical cluster.
    fn add_origins_of(&self, index: usize, cluster: &str) {
        let source = &self.resources[index].source;
        let one = ScopeSelector::One(Scope::new(cluster));
        let mut visit = |listed: ListedObject<'_>| self.add_origin(index, &listed);
        if let Err(status) = self.objects.for_each(&source.resource.name, &source.origin, &one, &mut visit) {
            tracing::error!(resource = %source.resource.name, cluster, %status, "objects to replicate cannot be listed");
        }
    }

    fn add_origin(&self, index: usize, listed: &ListedObject<'_>) {
        if let Ok(meta) = ObjectMetaRef::parse(listed.object) {
            self.queue.add((index, (listed.scope.into(), (*meta.name).into())));
        }
    }

    fn is_relevant(&self, source: &Source, event: &ObjectEvent) -> bool {
        Source::covers(&event.scope)
            && (source.selects(event.object())
                || event.change.previous().is_some_and(|previous| source.selects(previous.as_object())))
    }

    /// Adds changed replicas to the queue: changes by other clients, and changes that were missed.
    async fn follow_replicas(&self, index: usize, shutdown: &Shutdown) {
        let ReplicatedResource { source, replicas } = &self.resources[index];
        let collection = source.resource.collection(&self.shard, "*");
        let following = async {
            let mut mirror = Mirror::<Value>::open(self.client.clone(), collection).await;
            loop {
                let locations = match mirror.next().await {
                    MirrorEvent::Replaced { items, .. } => {
                        let locations = replicas.replace(&items);
                        self.add_origins(index);
                        locations
                    }
                    MirrorEvent::Applied(object) => replicas.applied(&object).into_iter().collect(),
                    MirrorEvent::Deleted(object) => replicas.deleted(&object).into_iter().collect(),
                    MirrorEvent::Reopened => {
                        self.add_origins(index);
                        Vec::new()
                    }
                };
                locations.into_iter().for_each(|location| self.queue.add((index, location)));
            }
        };
        tokio::select! {
            () = shutdown.draining() => {}
            never = following => never,
        }
    }

    /// Adds all objects of a resource that are replicated.
    fn add_origins(&self, index: usize) {
        let source = &self.resources[index].source;
        let publishers = match source.is_of_publishers().then(|| publishers(&self.objects)).transpose() {
            Ok(publishers) => publishers,
            Err(status) => {
                tracing::error!(resource = %source.resource.name, %status, "objects to replicate cannot be listed");
                return;
            }
        };
        let mut visit = |listed: ListedObject<'_>| {
            if Source::covers(listed.scope)
                && publishers.as_ref().is_none_or(|publishers| publishers.contains(listed.scope))
                && source.selects(listed.object)
            {
                self.add_origin(index, &listed);
            }
        };
        let all = ScopeSelector::all();
        if let Err(status) = self.objects.for_each(&source.resource.name, &source.origin, &all, &mut visit) {
            tracing::error!(resource = %source.resource.name, %status, "objects to replicate cannot be listed");
        }
    }

    /// The current object, if it is replicated.
    fn origin(&self, source: &Source, (cluster, name): &ObjectLocation) -> Result<Option<Value>, Status> {
        if !Source::covers(cluster) {
            return Ok(None);
        }
        let scope = Scope::new(cluster);
        if source.is_of_publishers() && !publishes(&self.objects, &scope)? {
            return Ok(None);
        }
        let stored = self.objects.get(&source.resource.name, &source.origin, &scope, None, name)?;
        let selection = stored.filter(|stored| source.selects(stored.object.as_object()));
        selection.map(|stored| self.objects.tree_with_managed_fields(&stored)).transpose()
    }

    /// Executes a plan.
    async fn act(&self, key: &Key, lists: u64, plan: Plan) -> Result<(), ClientError> {
        let (index, location) = key;
        let ReplicatedResource { source, replicas } = &self.resources[*index];
        let resource = &source.resource;
        let target = ReplicaTarget { client: &self.client, shard: &self.shard, resource, replicas };
        let Some(write) = target.execute(location, lists, plan).await? else { return Ok(()) };
        if let Some(verb) = write.verb() {
            self.metrics.writes.with_label_values(&[&*resource.name.to_string(), verb]).inc();
        }
        if write.is_removal() {
            self.queue.add(key.clone());
        }
        Ok(())
    }
}

#[async_trait]
impl Controller for Replicator {
    type Key = Key;

    const NAME: &'static str = "replication";
    const WORKERS: usize = 16;

    async fn reconcile(&self, key: &Key) -> Result<ReconcileOutcome, Status> {
        let (index, location) = key;
        let replicated = &self.resources[*index];
        // Nothing can be compared before the first list, which adds all keys again.
        let Some(known) = replicated.replicas.get(location) else { return Ok(ReconcileOutcome::Done) };
        let origin = self.origin(&replicated.source, location)?;
        let plan = plan(&self.shard, origin, known.replica.as_ref());
        match self.act(key, known.lists, plan).await {
            Ok(()) => Ok(ReconcileOutcome::Done),
            Err(error) => {
                let resource = replicated.source.resource.name.to_string();
                self.metrics.failures.with_label_values(&[&*resource]).inc();
                // After a conflict, the watch will report a newer version. An outage of the cache server is reported
                // by the mirror and the metrics.
                if error.is_retryable() || error.is_conflict() || error.is_already_exists() {
                    tracing::debug!(resource, ?location, %error, "a replica cannot be written now");
                } else {
                    tracing::warn!(resource, ?location, %error, "a replica cannot be written");
                }
                Ok(ReconcileOutcome::Retry)
            }
        }
    }
}
