//! The replicas of this shard, as the cache server last showed them or we last wrote them.

use std::sync::Arc;

use fairlead_api::annotation;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::plan::{Content, Replica};

/// Logical cluster and name.
pub(super) type Place = (Arc<str>, Arc<str>);

/// The replicas of one resource.
#[derive(Default)]
pub(super) struct Replicas(Mutex<State>);

#[derive(Default)]
struct State {
    /// Counts complete lists; 0 before the first. What was written before one may be out of date after it.
    lists: u64,
    known: FxHashMap<Place, Replica>,
}

/// The known state of one replica.
pub(super) struct Known {
    /// Nothing is known before the first list: `None` is no proof that there is none.
    pub(super) since: u64,
    pub(super) replica: Option<Replica>,
}

impl Replicas {
    /// The known state of a replica; `None` before the first list.
    pub(super) fn get(&self, place: &Place) -> Option<Known> {
        let state = self.0.lock();
        (state.lists > 0).then(|| Known { since: state.lists, replica: state.known.get(place).cloned() })
    }

    /// Takes a complete list and returns the places that were or are known.
    pub(super) fn replace(&self, objects: &[Value]) -> Vec<Place> {
        let known: FxHashMap<Place, Replica> =
            objects.iter().filter_map(|object| Some((place_of(object)?, Replica::of(object)?))).collect();
        let mut state = self.0.lock();
        state.lists += 1;
        let mut places: Vec<Place> = known.keys().cloned().collect();
        let before = core::mem::replace(&mut state.known, known);
        places.extend(before.into_keys());
        places
    }

    /// Takes what the watch shows. What is older than our last write is known better.
    pub(super) fn applied(&self, object: &Value) -> Option<Place> {
        let place = place_of(object)?;
        let shown = Replica::of(object)?;
        let mut state = self.0.lock();
        match state.known.get(&place) {
            Some(known) if known.resource_version >= shown.resource_version => None,
            _ => {
                state.known.insert(place.clone(), shown);
                Some(place)
            }
        }
    }

    /// Takes a deletion that the watch shows.
    pub(super) fn deleted(&self, object: &Value) -> Option<Place> {
        let place = place_of(object)?;
        let shown = Replica::of(object)?;
        let mut state = self.0.lock();
        if state.known.get(&place).is_some_and(|known| known.resource_version > shown.resource_version) {
            return None;
        }
        state.known.remove(&place);
        Some(place)
    }

    /// Notes a successful write: what was sent counts as its content, even if the server keeps it in another form.
    pub(super) fn written(&self, since: u64, place: Place, sent: Content, answer: &Value) {
        let Some(mut replica) = Replica::of(answer) else { return };
        replica.content = sent;
        let mut state = self.0.lock();
        let is_newer =
            state.known.get(&place).is_none_or(|known| known.resource_version <= replica.resource_version);
        if state.lists == since && is_newer {
            state.known.insert(place, replica);
        }
    }

    /// Notes that there is no replica with this UID any more.
    pub(super) fn removed(&self, place: &Place, uid: &str) {
        let mut state = self.0.lock();
        if state.known.get(place).is_some_and(|known| *known.uid == *uid) {
            state.known.remove(place);
        }
    }

    /// Whether there is a replica.
    pub(super) fn contains(&self, place: &Place) -> bool {
        self.0.lock().known.contains_key(place)
    }
}

fn place_of(object: &Value) -> Option<Place> {
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

    fn place() -> Place {
        ("root".into(), "a".into())
    }

    fn known(replicas: &Replicas) -> Option<u64> {
        replicas.get(&place()).unwrap().replica.map(|replica| replica.resource_version)
    }

    #[test]
    fn nothing_is_known_before_the_first_list() {
        let replicas = Replicas::default();
        assert!(replicas.get(&place()).is_none());
        assert!(replicas.replace(&[]).is_empty());
        assert_eq!(known(&replicas), None);
    }

    #[test]
    fn our_own_writes_are_known_before_the_watch_shows_them() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 5, 1)]);
        let sent = Content::of(&json!("what was sent"));
        replicas.written(1, place(), sent, &object("u", 9, 3));
        assert_eq!(replicas.applied(&object("u", 7, 2)), None, "older than what we wrote");
        assert_eq!(replicas.applied(&object("u", 9, 3)), None, "what we wrote");
        assert_eq!(replicas.get(&place()).unwrap().replica.unwrap().content, sent);
        assert_eq!(replicas.applied(&object("u", 10, 4)), Some(place()), "somebody else's");
        assert_eq!(known(&replicas), Some(10));
    }

    #[test]
    fn a_list_wins_over_writes_that_began_before_it() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 500, 1)]);
        replicas.replace(&[object("u", 3, 1)]);
        replicas.written(1, place(), Content::of(&json!(0)), &object("u", 501, 2));
        assert_eq!(known(&replicas), Some(3), "another store counts anew");
    }

    #[test]
    fn a_deletion_that_was_overtaken_is_ignored() {
        let replicas = Replicas::default();
        replicas.replace(&[object("u", 5, 1)]);
        replicas.removed(&place(), "other");
        assert_eq!(known(&replicas), Some(5));
        replicas.removed(&place(), "u");
        replicas.written(1, place(), Content::of(&json!(0)), &object("v", 9, 1));
        assert_eq!(replicas.deleted(&object("u", 8, 1)), None);
        assert_eq!(known(&replicas), Some(9));
        assert_eq!(replicas.deleted(&object("v", 11, 1)), Some(place()));
        assert_eq!(known(&replicas), None);
    }
}
