//! Creates and deletes the Partitions of PartitionSets: one per group of shards with equal labels.

mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::LOGICAL_CLUSTER_NAME;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::{ObjectStore, ServedResource, StoredObject, generated_name};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::{Shutdown, Status, Tasks};
use fairlead_store::{Expect, Mutation};
use jiff::Timestamp;
use serde_json::Value;

use self::plan::plan;
use super::content_controllers::for_each_key;
use super::deletion::{commit, mark_for_deletion};
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive, feed};
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{CUSTOM, LOGICAL_CLUSTERS, PARTITION_SETS, PARTITIONS, SHARDS};
use crate::placement::Placement;
use crate::writes::Writes;

/// Logical cluster and name of a PartitionSet.
type SetKey = (Box<str>, Box<str>);

/// Dependencies of the controller of PartitionSets.
pub(crate) struct PartitionSetController {
    pub(crate) objects: ObjectStore,
    pub(crate) hub: Hub,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) global: Arc<GlobalView>,
    pub(crate) placement: Arc<Placement>,
}

impl PartitionSetController {
    /// Starts the controller and its event feeds. They run until the process drains.
    pub(crate) fn start(&self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::with_groups(|(cluster, _): &SetKey| cluster));
        let sets = Arc::new(PartitionSets {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            placement: self.placement.clone(),
        });
        tasks.spawn("partition sets", drive(sets, queue.clone(), shutdown.clone()));
        let (objects, definitions, all_queue) =
            (self.objects.clone(), self.definitions.clone(), queue.clone());
        let add_all: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let Some(resource) = definitions.exported(&PARTITION_SETS) else { return };
            for_each_key(&objects, &PARTITION_SETS, &resource.origin, |cluster, name| {
                all_queue.add((cluster, name));
            });
        });
        for (name, resource) in [("partition set events", &PARTITION_SETS), ("partition events", &PARTITIONS)]
        {
            let (resync, queue) = (add_all.clone(), queue.clone());
            let keys = move |event: &ObjectEvent| keys_of(event).into_iter().for_each(|key| queue.add(key));
            let following =
                feed(self.hub.clone(), (**resource).clone(), None, shutdown.clone(), move || resync(), keys);
            tasks.spawn(name, following);
        }
        let remote = add_all.clone();
        self.global.on_change(SHARDS.clone(), Box::new(move |_| remote()));
        let resource = SHARDS.clone();
        let following = feed(self.hub.clone(), resource, None, shutdown.clone(), || {}, move |_| add_all());
        tasks.spawn("shard events for partition sets", following);
    }
}

/// The PartitionSets to reconcile after an event of a PartitionSet or a Partition: the set itself, or the owners of the
/// Partition before and after the change.
fn keys_of(event: &ObjectEvent) -> Vec<SetKey> {
    if event.resource == *PARTITION_SETS {
        return vec![((*event.scope).into(), event.name.clone())];
    }
    let states = [Some(event.change.object()), event.change.previous()];
    let mut keys = Vec::new();
    for state in states.into_iter().flatten() {
        let partition: Value = serde_json::from_slice(state.as_object().json()).unwrap_or_default();
        for owner in partition["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            if owner["kind"] == "PartitionSet"
                && let Some(name) = owner["name"].as_str()
            {
                keys.push(((*event.scope).into(), name.into()));
            }
        }
    }
    keys
}

/// Controller of PartitionSets.
struct PartitionSets {
    objects: ObjectStore,
    definitions: Arc<Definitions>,
    clusters: Arc<ClusterIndex>,
    placement: Arc<Placement>,
}

#[async_trait]
impl Controller for PartitionSets {
    type Key = SetKey;

    const NAME: &'static str = "partitionset";
    const WORKERS: usize = 4;

    async fn reconcile(&self, (cluster, name): &SetKey) -> Result<ReconcileOutcome, Status> {
        let (Some(sets), Some(partitions)) =
            (self.definitions.exported(&PARTITION_SETS), self.definitions.exported(&PARTITIONS))
        else {
            return Ok(ReconcileOutcome::Retry);
        };
        // The `deletion` controller removes the content of a deleted logical cluster.
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(&sets.name, &sets.origin, &scope, None, name)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let set = self.objects.tree(&stored)?;
        // An installation has at least one shard, so an empty list means that the shards are not known yet.
        let shards = self.placement.shards();
        if set["metadata"]["deletionTimestamp"].is_string() || shards.is_empty() {
            return Ok(ReconcileOutcome::Done);
        }
        let owned = self.owned_partitions(&partitions, &scope, &set)?;
        let trees: Vec<Value> = owned.iter().map(|(_, tree)| tree.clone()).collect();
        let plan = plan(&set, &shards, &trees, Timestamp::now(), generated_name)?;
        let mut writes = Writes::new(&self.objects, &self.definitions);
        for index in plan.obsolete {
            if let Some((stored, tree)) = owned.get(index) {
                remove(&mut writes, &partitions, stored, tree)?;
            }
        }
        if !plan.missing.is_empty() {
            let Some(fence) = self.cluster_fence(&scope)? else { return Ok(ReconcileOutcome::Done) };
            writes.extend([fence]);
        }
        for partition in plan.missing {
            writes.create(cluster, partition)?;
        }
        match writes.is_empty() {
            true => writes.replace(&sets, &stored, plan.set)?,
            // Partitions are created only for a set that still exists.
            false => writes.replace_or_fence(&sets, &stored, plan.set)?,
        }
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

impl PartitionSets {
    fn owned_partitions(
        &self,
        partitions: &ServedResource,
        scope: &Scope,
        set: &Value,
    ) -> Result<Vec<(StoredObject, Value)>, Status> {
        let one = ScopeSelector::One(scope.clone());
        let mut owned = Vec::new();
        for stored in self.objects.list(&partitions.name, &partitions.origin, &one, None)? {
            let tree = self.objects.tree(&stored)?;
            if is_owned(&tree, set) {
                owned.push((stored, tree));
            }
        }
        Ok(owned)
    }

    /// Requires that the LogicalCluster does not change until the commit, so that nothing is created in a sealed one.
    /// `None` if it does not exist.
    fn cluster_fence(&self, scope: &Scope) -> Result<Option<Mutation>, Status> {
        let key = self.objects.key(&LOGICAL_CLUSTERS, &CUSTOM, scope.as_str(), None, LOGICAL_CLUSTER_NAME);
        let stored = self.objects.get_by_key(&key, scope)?;
        Ok(stored.map(|stored| Mutation::fence(key, Expect::At(stored.revision))))
    }
}

fn is_owned(partition: &Value, set: &Value) -> bool {
    let owners = partition["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        let api_version = owner["apiVersion"].as_str().unwrap_or_default();
        owner["uid"] == set["metadata"]["uid"]
            && owner["kind"] == "PartitionSet"
            && api_version.split_once('/').is_some_and(|(group, _)| group == "topology.kcp.io")
    })
}

/// Deletes a Partition, or marks it for deletion while finalizers keep it.
fn remove(
    writes: &mut Writes<'_>,
    resource: &ServedResource,
    stored: &StoredObject,
    partition: &Value,
) -> Result<(), Status> {
    let metadata = &partition["metadata"];
    if metadata["finalizers"].as_array().is_none_or(Vec::is_empty) {
        writes.remove(resource, stored, partition);
    } else if metadata["deletionTimestamp"].is_null() {
        let mut marked = partition.clone();
        mark_for_deletion(&mut marked);
        writes.replace(resource, stored, marked)?;
    }
    Ok(())
}
