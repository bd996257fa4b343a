//! The known state of this shard's replicas: from the watch of the cache server, and from this shard's own writes.

use std::sync::Arc;

use fairlead_api::annotation;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::plan::{ContentHash, Replica};

/// Logical cluster and name of an object.
pub(crate) type ObjectLocation = (Arc<str>, Arc<str>);

/// The replicas of one resource.
#[derive(Default)]
pub(crate) struct Replicas(Mutex<State>);

#[derive(Default)]
struct State {
    /// Number of complete lists; 0 before the first. Writes that began before a list may be outdated after it.
    lists: u64,
    known: FxHashMap<ObjectLocation, Replica>,
}

/// The known state of one replica.
pub(crate) struct ReplicaState {
    /// Number of complete lists when the state was read.
    pub(crate) lists: u64,
    pub(crate) replica: Option<Replica>,
}

impl Replicas {
    /// The state of a replica. `None` before the first list: then it is unknown whether the replica exists.
    pub(crate) fn get(&self, location: &ObjectLocation) -> Option<ReplicaState> {
        let state = self.0.lock();
        (state.lists > 0)
            .then(|| ReplicaState { lists: state.lists, replica: state.known.get(location).cloned() })
    }

    /// Replaces all replicas and returns the locations that were or are known.
    pub(crate) fn replace(&self, objects: &[Value]) -> Vec<ObjectLocation> {
        let known: FxHashMap<ObjectLocation, Replica> =
            objects.iter().filter_map(|object| Some((location_of(object)?, Replica::of(object)?))).collect();
        let mut state = self.0.lock();
        state.lists += 1;
        let mut locations: Vec<ObjectLocation> = known.keys().cloned().collect();
        let before = core::mem::replace(&mut state.known, known);
        locations.extend(before.into_keys());
        locations
    }

    /// Applies an event of the watch, unless an own write is newer.
    pub(crate) fn applied(&self, object: &Value) -> Option<ObjectLocation> {
        let location = location_of(object)?;
        let shown = Replica::of(object)?;
        let mut state = self.0.lock();
        match state.known.get(&location) {
            Some(known) if known.resource_version >= shown.resource_version => None,
            _ => {
                state.known.insert(location.clone(), shown);
                Some(location)
            }
        }
    }

    /// Applies a deletion that the watch reports, unless an own write is newer.
    pub(crate) fn deleted(&self, object: &Value) -> Option<ObjectLocation> {
        let location = location_of(object)?;
        let shown = Replica::of(object)?;
        let mut state = self.0.lock();
        if state.known.get(&location).is_some_and(|known| known.resource_version > shown.resource_version) {
            return None;
        }
        state.known.remove(&location);
        Some(location)
    }

    /// Records a successful write. The hash of the sent object is recorded, because the server may store it in another
    /// form.
    pub(crate) fn written(&self, lists: u64, location: ObjectLocation, sent: ContentHash, response: &Value) {
        let Some(mut replica) = Replica::of(response) else { return };
        replica.content = sent;
        let mut state = self.0.lock();
        let is_newer =
            state.known.get(&location).is_none_or(|known| known.resource_version <= replica.resource_version);
        if state.lists == lists && is_newer {
            state.known.insert(location, replica);
        }
    }

    /// Records that the replica with this UID does not exist any more.
    pub(crate) fn removed(&self, location: &ObjectLocation, uid: &str) {
        let mut state = self.0.lock();
        if state.known.get(location).is_some_and(|known| *known.uid == *uid) {
            state.known.remove(location);
        }
    }

    /// The number of replicas. `None` before the first list.
    pub(crate) fn count(&self) -> Option<usize> {
        let state = self.0.lock();
        (state.lists > 0).then(|| state.known.len())
    }

    /// Whether there is a known replica.
    pub(crate) fn contains(&self, location: &ObjectLocation) -> bool {
        self.0.lock().known.contains_key(location)
    }
}

fn location_of(object: &Value) -> Option<ObjectLocation> {
    let metadata = &object["metadata"];
    Some((metadata["annotations"][annotation::CLUSTER].as_str()?.into(), metadata["name"].as_str()?.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn object(uid: &str, version: u64, n: u64) -> Value {
        json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": version.to_string(),
            "annotations": {"kcp.io/cluster": "root"}}, "spec": n})
    }

    fn location() -> ObjectLocation {
        ("root".into(), "a".into())
    }

    fn known(replicas: &Replicas) -> Option<u64> {
        replicas.get(&location()).unwrap().replica.map(|replica| replica.resource_version)
    }

    #[test]
    fn nothing_is_known_before_the_first_list() {
        let replicas = Replicas::default();
        assert!(replicas.get(&location()).is_none());
        assert!(replicas.replace(&[]).is_empty());
        assert_eq!(known(&replicas), None);
    }

    #[test]
    fn own_writes_are_known_before_the_watch_reports_them() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 5, 1)]);
        let sent = ContentHash::of(&json!("the sent object"));
        replicas.written(1, location(), sent, &object("u", 9, 3));
        assert_eq!(replicas.applied(&object("u", 7, 2)), None, "older than the own write");
        assert_eq!(replicas.applied(&object("u", 9, 3)), None, "the own write");
        assert_eq!(replicas.get(&location()).unwrap().replica.unwrap().content, sent);
        assert_eq!(replicas.applied(&object("u", 10, 4)), Some(location()), "a write of another client");
        assert_eq!(known(&replicas), Some(10));
    }

    #[test]
    fn a_list_supersedes_writes_that_began_before_it() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 500, 1)]);
        replicas.replace(&[object("u", 3, 1)]);
        replicas.written(1, location(), ContentHash::of(&json!(0)), &object("u", 501, 2));
        assert_eq!(known(&replicas), Some(3), "the revision of another store");
    }

    #[test]
    fn a_deletion_older_than_the_last_write_is_ignored() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 5, 1)]);
        replicas.removed(&location(), "other");
        assert_eq!(known(&replicas), Some(5));
        replicas.removed(&location(), "u");
        replicas.written(1, location(), ContentHash::of(&json!(0)), &object("v", 9, 1));
        assert_eq!(replicas.deleted(&object("u", 8, 1)), None);
        assert_eq!(known(&replicas), Some(9));
        assert_eq!(replicas.deleted(&object("v", 11, 1)), Some(location()));
        assert_eq!(known(&replicas), None);
    }
}
