//! Which objects of a logical cluster have which owners, built when an object of the logical cluster is deleted.
//!
//! The graph may contain objects that do not exist any more, and references that were removed: its user reads each object.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::object::{ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_names::{Key, Origin, ResourceName};
use fairlead_process::Status;
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::controllers::deletion::{origin_of, visit_all};
use crate::index::Definitions;

/// Logical clusters whose graphs are kept. A graph is as large as the references in it; most are empty.
const CACHED_CLUSTERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// An object of a logical cluster.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ObjectKey {
    pub(super) resource: ResourceName,
    pub(super) origin: Origin,
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
}

impl ObjectKey {
    pub(super) fn of(event: &ObjectEvent) -> Self {
        Self {
            resource: event.resource.clone(),
            origin: event.origin.clone(),
            namespace: event.namespace.clone(),
            name: event.name.clone(),
        }
    }

    pub(super) fn of_parts(parts: &Key<'_>) -> Self {
        Self {
            resource: ResourceName::new(parts.group, parts.resource),
            origin: origin_of(parts),
            namespace: parts.namespace.map(Into::into),
            name: parts.name.into(),
        }
    }
}

/// The graphs of logical clusters.
pub(super) struct OwnerGraphs(Mutex<LruCache<Box<str>, OwnerGraph>>);

/// The dependents by the UID of their owner.
#[derive(Default)]
struct OwnerGraph {
    dependents: FxHashMap<Box<str>, FxHashSet<Arc<ObjectKey>>>,
    /// Whether the objects that existed before the graph have been read.
    is_complete: bool,
}

impl OwnerGraphs {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CACHED_CLUSTERS)))
    }

    /// Follows a change. Costs a search in the bytes of objects without owners.
    pub(super) fn apply(&self, event: &ObjectEvent) {
        let (new, old) = match &event.change {
            ObjectChange::Created(object) => (Some(object), None),
            ObjectChange::Updated { object, previous } => (Some(object), Some(previous)),
            ObjectChange::Deleted(previous) => (None, Some(previous)),
        };
        let [new, old] =
            [new, old].map(|state| state.map_or_else(Vec::new, |state| owners(state.as_object())));
        if new.is_empty() && old.is_empty() {
            return;
        }
        let mut graphs = self.0.lock();
        let Some(graph) = graphs.peek_mut(&*event.scope) else { return };
        let key = Arc::new(ObjectKey::of(event));
        let kept: FxHashSet<&str> = new.iter().map(|uid| &**uid).collect();
        for uid in old.iter().filter(|uid| !kept.contains(&***uid)) {
            if let Some(dependents) = graph.dependents.get_mut(uid) {
                dependents.remove(&key);
                if dependents.is_empty() {
                    graph.dependents.remove(uid);
                }
            }
        }
        for uid in new {
            graph.dependents.entry(uid).or_default().insert(key.clone());
        }
    }

    /// The dependents of an object. The first call for a logical cluster reads all its objects.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) async fn dependents(
        &self,
        objects: &ObjectStore,
        index: (&Definitions, &Hub),
        cluster: &str,
        uid: &str,
    ) -> Result<Vec<Arc<ObjectKey>>, Status> {
        let is_complete = {
            let mut graphs = self.0.lock();
            // From here on events reach the graph, so nothing is missed between them and the read below.
            graphs.get_or_insert_mut(cluster.into(), OwnerGraph::default).is_complete
        };
        if !is_complete {
            self.build(objects, index, cluster).await?;
        }
        let mut graphs = self.0.lock();
        let graph = graphs.get(cluster);
        Ok(graph.and_then(|graph| graph.dependents.get(uid)).into_iter().flatten().cloned().collect())
    }

    async fn build(
        &self,
        objects: &ObjectStore,
        index: (&Definitions, &Hub),
        cluster: &str,
    ) -> Result<(), Status> {
        let mut found = Vec::new();
        visit_all(objects, index, cluster, None, &mut |object| {
            let owners = object.object.map(owners).unwrap_or_default();
            if !owners.is_empty() {
                found.push((owners, Arc::new(ObjectKey::of_parts(&object.parts))));
            }
            ControlFlow::Continue(())
        })
        .await?;
        let mut graphs = self.0.lock();
        let graph = graphs.get_or_insert_mut(cluster.into(), OwnerGraph::default);
        for (owners, key) in found {
            for uid in owners {
                graph.dependents.entry(uid).or_default().insert(key.clone());
            }
        }
        graph.is_complete = true;
        Ok(())
    }
}

/// The UIDs of an object's owners.
pub(super) fn owners(object: ObjectBytes<'_>) -> Vec<Box<str>> {
    if memchr::memmem::find(object.json(), b"\"ownerReferences\"").is_none() {
        return Vec::new();
    }
    let Ok(meta) = ObjectMetaRef::parse(object) else { return Vec::new() };
    meta.owners.iter().filter(|owner| !owner.uid.is_empty()).map(|owner| (&*owner.uid).into()).collect()
}
