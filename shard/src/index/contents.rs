//! Which resources have objects in which logical cluster, so that the deletion of a logical cluster costs what is in it
//! and not what all tenants have.
//!
//! Independent of the definitions that exist: it also knows resources whose definition or binding was removed.

use std::ops::ControlFlow;
use std::sync::Arc;

use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_names::{CUSTOM_RESOURCES, Key, Origin, ResourceName};
use fairlead_process::Status;
use fairlead_store::Range;
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::names::LOGICAL_CLUSTERS;

/// A resource and the origin of its definition: the beginning of its objects' keys.
pub(crate) type StoredResource = (ResourceName, Origin);

/// The stored resources of the logical clusters.
pub(crate) struct ContentIndex {
    /// Resources that every logical cluster serves.
    common: FxHashSet<StoredResource>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// The other resources that have, or had, objects in a logical cluster.
    clusters: FxHashMap<Box<str>, Vec<Arc<StoredResource>>>,
    interned: FxHashSet<Arc<StoredResource>>,
}

impl ContentIndex {
    /// Reads the stored resources and follows the hub. Costs two look-ups per resource and logical cluster that has objects of it,
    /// not counting `common` resources.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn follow(
        objects: &ObjectStore,
        hub: &Hub,
        common: FxHashSet<StoredResource>,
    ) -> Result<Arc<Self>, Status> {
        let index = Arc::new(Self { common, state: RwLock::default() });
        index.read(objects)?;
        let follower = index.clone();
        hub.observe_all(Box::new(move |event: &ObjectEvent| follower.apply(event)));
        Ok(index)
    }

    /// The resources that may have objects in a logical cluster. Objects of a commit count after the hub has passed it.
    pub(crate) fn resources(&self, cluster: &str) -> Vec<StoredResource> {
        let state = self.state.read();
        let own = state.clusters.get(cluster).into_iter().flatten().map(|resource| (**resource).clone());
        self.common.iter().cloned().chain(own).collect()
    }

    fn read(&self, objects: &ObjectStore) -> Result<(), Status> {
        let mut rest = Range::prefix(format!("{}/", objects.codec().prefix()));
        while let Some(key) = first_key(objects, &rest)? {
            let Ok(parts) = objects.codec().decode(&key) else {
                rest = rest.after(&key);
                continue;
            };
            let resource = resource_of(&parts);
            let is_common = self.common.contains(&resource);
            let cluster = if is_common { "" } else { parts.scope };
            if !is_common {
                self.add(parts.scope, resource.clone());
            }
            let visited = Range::prefix(objects.codec().range(&resource.0, &resource.1, cluster, None));
            let Some(next) = visited.end else { break };
            rest.start = next;
        }
        Ok(())
    }

    fn apply(&self, event: &ObjectEvent) {
        match event.change {
            ObjectChange::Created(_) => {
                let resource = (event.resource.clone(), event.origin.clone());
                if !self.common.contains(&resource) {
                    self.add(&event.scope, resource);
                }
            }
            ObjectChange::Deleted(_) if event.resource == *LOGICAL_CLUSTERS => {
                self.state.write().clusters.remove(&*event.scope);
            }
            ObjectChange::Deleted(_) | ObjectChange::Updated { .. } => {}
        }
    }

    fn add(&self, cluster: &str, resource: StoredResource) {
        let known = self
            .state
            .read()
            .clusters
            .get(cluster)
            .is_some_and(|own| own.iter().any(|one| **one == resource));
        if known {
            return;
        }
        let mut state = self.state.write();
        let interned = match state.interned.get(&resource) {
            Some(interned) => interned.clone(),
            None => {
                let interned = Arc::new(resource);
                state.interned.insert(interned.clone());
                interned
            }
        };
        state.clusters.entry(cluster.into()).or_default().push(interned);
    }
}

/// The resource of a key.
fn resource_of(parts: &Key<'_>) -> StoredResource {
    let origin = match parts.origin {
        None => Origin::BuiltIn,
        Some(CUSTOM_RESOURCES) => Origin::Custom,
        Some(identity) => Origin::Identity(identity.into()),
    };
    (ResourceName::new(parts.group, parts.resource), origin)
}

fn first_key(objects: &ObjectStore, range: &Range) -> Result<Option<Vec<u8>>, Status> {
    let mut first = None;
    let read = objects.store().scan(range, None, &mut |record| {
        first = Some(record.key.to_vec());
        ControlFlow::Break(())
    });
    read.map_err(Status::internal)?;
    Ok(first)
}
