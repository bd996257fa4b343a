//! The replicas of this shard, as the cache server last showed them or we last wrote them.

use std::sync::Arc;

use fairlead_api::annotation;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::plan::{ContentHash, Replica};

/// Logical cluster and name.
pub(super) type ObjectLocation = (Arc<str>, Arc<str>);

/// The replicas of one resource.
#[derive(Default)]
pub(super) struct Replicas(Mutex<State>);

#[derive(Default)]
struct State {
    /// Counts complete lists; 0 before the first. What was written before one may be out of date after it.
    lists: u64,
    known: FxHashMap<ObjectLocation, Replica>,
}

/// The known state of one replica.
pub(super) struct ReplicaState {
    /// Nothing is known before the first list: `None` is no proof that there is none.
    pub(super) lists: u64,
    pub(super) replica: Option<Replica>,
}

impl Replicas {
    /// The known state of a replica; `None` before the first list.
    pub(super) fn get(&self, location: &ObjectLocation) -> Option<ReplicaState> {
        let state = self.0.lock();
        (state.lists > 0)
            .then(|| ReplicaState { lists: state.lists, replica: state.known.get(location).cloned() })
    }

    /// Takes a complete list and returns the locations that were or are known.
    pub(super) fn replace(&self, objects: &[Value]) -> Vec<ObjectLocation> {
        let known: FxHashMap<ObjectLocation, Replica> =
            objects.iter().filter_map(|object| Some((location_of(object)?, Replica::of(object)?))).collect();
        let mut state = self.0.lock();
        state.lists += 1;
        let mut locations: Vec<ObjectLocation> = known.keys().cloned().collect();
        let before = core::mem::replace(&mut state.known, known);
        locations.extend(before.into_keys());
        locations
    }

    /// Takes what the watch shows. What is older than our last write is known better.
    pub(super) fn applied(&self, object: &Value) -> Option<ObjectLocation> {
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

    /// Takes a deletion that the watch shows.
    pub(super) fn deleted(&self, object: &Value) -> Option<ObjectLocation> {
        let location = location_of(object)?;
        let shown = Replica::of(object)?;
        let mut state = self.0.lock();
        if state.known.get(&location).is_some_and(|known| known.resource_version > shown.resource_version) {
            return None;
        }
        state.known.remove(&location);
        Some(location)
    }

    /// Notes a successful write: what was sent counts as its content, even if the server keeps it in another form.
    pub(super) fn written(&self, lists: u64, location: ObjectLocation, sent: ContentHash, response: &Value) {
        let Some(mut replica) = Replica::of(response) else { return };
        replica.content = sent;
        let mut state = self.0.lock();
        let is_newer =
            state.known.get(&location).is_none_or(|known| known.resource_version <= replica.resource_version);
        if state.lists == lists && is_newer {
            state.known.insert(location, replica);
        }
    }

    /// Notes that there is no replica with this UID any more.
    pub(super) fn removed(&self, location: &ObjectLocation, uid: &str) {
        let mut state = self.0.lock();
        if state.known.get(location).is_some_and(|known| *known.uid == *uid) {
            state.known.remove(location);
        }
    }

    /// Whether there is a replica.
    pub(super) fn contains(&self, location: &ObjectLocation) -> bool {
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
        let sent = ContentHash::of(&json!("what was sent"));
        replicas.written(1, location(), sent, &object("u", 9, 3));
        assert_eq!(replicas.applied(&object("u", 7, 2)), None, "older than what we wrote");
        assert_eq!(replicas.applied(&object("u", 9, 3)), None, "what we wrote");
        assert_eq!(replicas.get(&location()).unwrap().replica.unwrap().content, sent);
        assert_eq!(replicas.applied(&object("u", 10, 4)), Some(location()), "somebody else's");
        assert_eq!(known(&replicas), Some(10));
    }

    #[test]
    fn a_list_supersedes_writes_that_began_before_it() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 500, 1)]);
        replicas.replace(&[object("u", 3, 1)]);
        replicas.written(1, location(), ContentHash::of(&json!(0)), &object("u", 501, 2));
        assert_eq!(known(&replicas), Some(3), "another store counts anew");
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
