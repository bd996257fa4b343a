//! One state of all objects, merged from the watches of several endpoints. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use kube::Resource;
use kube::runtime::watcher::Event;

use crate::key::ObjectKey;

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// The object exists in this version, which differs from the one given before.
    Applied(ObjectKey, Arc<K>),
    /// The object was deleted, or no endpoint serves it any more. This is its last known version.
    Gone(ObjectKey, Arc<K>),
}

/// An endpoint while it is in the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(pub u64);

/// The objects of all endpoints.
#[derive(Debug)]
pub(crate) struct View<K> {
    objects: HashMap<ObjectKey, Versions<K>>,
    /// The number of lists that each endpoint has begun.
    lists: HashMap<EndpointId, u64>,
}

/// The versions of one object. Two endpoints serve it only while its logical cluster moves between shards.
#[derive(Debug)]
struct Versions<K> {
    /// The version that has changed last; versions of different shards have no other order.
    current: Version<K>,
    others: Vec<Version<K>>,
}

/// An object as one endpoint serves it.
#[derive(Debug)]
struct Version<K> {
    endpoint: EndpointId,
    /// The endpoint's last list that the object is in, or that a watch of the object followed.
    list: u64,
    object: Arc<K>,
}

impl<K> Default for View<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), lists: HashMap::new() }
    }
}

impl<K: Resource> View<K> {
    /// An object in its current version, and the endpoint that serves it.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<(EndpointId, &Arc<K>)> {
        self.objects.get(key).map(|versions| (versions.current.endpoint, &versions.current.object))
    }

    /// All objects, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<K>)> {
        self.objects.iter().map(|(key, versions)| (key, &versions.current.object))
    }

    /// The changes by an event of an endpoint's watch. An object without a logical cluster changes nothing.
    pub(crate) fn observe(&mut self, endpoint: EndpointId, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                *self.lists.entry(endpoint).or_default() += 1;
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                self.apply(endpoint, object).into_iter().collect()
            }
            Event::InitDone => {
                let list = self.list_of(endpoint);
                self.remove_where(|version| version.endpoint == endpoint && version.list != list)
            }
            Event::Delete(object) => self.delete(endpoint, object).into_iter().collect(),
        }
    }

    /// The changes when an endpoint has left the slice.
    pub(crate) fn remove_endpoint(&mut self, endpoint: EndpointId) -> Vec<Change<K>> {
        self.lists.remove(&endpoint);
        self.remove_where(|version| version.endpoint == endpoint)
    }

    fn list_of(&self, endpoint: EndpointId) -> u64 {
        self.lists.get(&endpoint).copied().unwrap_or_default()
    }

    fn apply(&mut self, endpoint: EndpointId, object: K) -> Option<Change<K>> {
        let key = ObjectKey::of(&object)?;
        let list = self.list_of(endpoint);
        let mut entry = match self.objects.entry(key) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => {
                let key = entry.key().clone();
                let object = Arc::new(object);
                let current = Version { endpoint, list, object: Arc::clone(&object) };
                entry.insert(Versions { current, others: Vec::new() });
                return Some(Change::Applied(key, object));
            }
        };
        let versions = entry.get_mut();
        if let Some(known) = versions.of_mut(endpoint)
            && is_same_version(known.object.as_ref(), &object)
        {
            known.list = list;
            return None;
        }
        let object = Arc::new(object);
        versions.set_current(Version { endpoint, list, object: Arc::clone(&object) });
        Some(Change::Applied(entry.key().clone(), object))
    }

    fn delete(&mut self, endpoint: EndpointId, object: K) -> Option<Change<K>> {
        let Entry::Occupied(mut entry) = self.objects.entry(ObjectKey::of(&object)?) else { return None };
        match entry.get_mut().remove_where(|version| version.endpoint == endpoint) {
            Removal::Unnoticed => None,
            Removal::Replaced(object) => Some(Change::Applied(entry.key().clone(), object)),
            Removal::Complete => {
                let (key, _) = entry.remove_entry();
                Some(Change::Gone(key, Arc::new(object)))
            }
        }
    }

    fn remove_where(&mut self, is_removed: impl Fn(&Version<K>) -> bool) -> Vec<Change<K>> {
        let mut changes = Vec::new();
        self.objects.retain(|key, versions| match versions.remove_where(&is_removed) {
            Removal::Unnoticed => true,
            Removal::Replaced(object) => {
                changes.push(Change::Applied(key.clone(), object));
                true
            }
            Removal::Complete => {
                changes.push(Change::Gone(key.clone(), Arc::clone(&versions.current.object)));
                false
            }
        });
        changes
    }
}

/// The effect of the removal of versions.
enum Removal<K> {
    /// The current version stays.
    Unnoticed,
    /// This is the current version now.
    Replaced(Arc<K>),
    /// No version is left.
    Complete,
}

impl<K> Versions<K> {
    fn of_mut(&mut self, endpoint: EndpointId) -> Option<&mut Version<K>> {
        let all = std::iter::once(&mut self.current).chain(&mut self.others);
        all.into_iter().find(|version| version.endpoint == endpoint)
    }

    fn set_current(&mut self, version: Version<K>) {
        self.others.retain(|other| other.endpoint != version.endpoint);
        let earlier = std::mem::replace(&mut self.current, version);
        if earlier.endpoint != self.current.endpoint {
            self.others.push(earlier);
        }
    }

    /// Removes versions. The current version is kept if none is left.
    fn remove_where(&mut self, is_removed: impl Fn(&Version<K>) -> bool) -> Removal<K> {
        self.others.retain(|version| !is_removed(version));
        if !is_removed(&self.current) {
            return Removal::Unnoticed;
        }
        match self.others.pop() {
            Some(latest) => {
                self.current = latest;
                Removal::Replaced(Arc::clone(&self.current.object))
            }
            None => Removal::Complete,
        }
    }
}

fn is_same_version<K: Resource>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    // A deleted object may be created again under its name.
    one.uid == other.uid && one.resource_version == other.resource_version
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;

    const FIRST: EndpointId = EndpointId(1);
    const SECOND: EndpointId = EndpointId(2);

    fn object(cluster: &str, name: &str, version: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "x.io/v1", "kind": "Thing",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("{cluster}-{name}"), "resourceVersion": version,
                "annotations": { "kcp.io/cluster": cluster },
            },
        }))
        .unwrap()
    }

    /// The changes as text: `+` applied with its version, `-` gone.
    fn observed(
        view: &mut View<DynamicObject>,
        endpoint: EndpointId,
        events: Vec<Event<DynamicObject>>,
    ) -> String {
        let changes: Vec<_> = events.into_iter().flat_map(|event| view.observe(endpoint, event)).collect();
        text(&changes)
    }

    fn text(changes: &[Change<DynamicObject>]) -> String {
        let version = |object: &DynamicObject| object.metadata.resource_version.clone().unwrap();
        let mut texts: Vec<_> = changes
            .iter()
            .map(|change| match change {
                Change::Applied(key, object) => format!("+{key}@{}", version(object)),
                Change::Gone(key, _) => format!("-{key}"),
            })
            .collect();
        texts.sort();
        texts.join(" ")
    }

    fn list(objects: Vec<DynamicObject>) -> Vec<Event<DynamicObject>> {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
    }

    #[test]
    fn a_list_after_an_interruption_gives_only_what_changed() {
        let mut view = View::default();
        let first = list(vec![object("a", "x", "1"), object("a", "y", "2"), object("b", "x", "3")]);
        assert_eq!(observed(&mut view, FIRST, first), "+a|default/x@1 +a|default/y@2 +b|default/x@3");
        assert_eq!(observed(&mut view, FIRST, vec![Event::Apply(object("a", "x", "4"))]), "+a|default/x@4");
        let again = list(vec![object("a", "x", "4"), object("b", "x", "5")]);
        assert_eq!(observed(&mut view, FIRST, again), "+b|default/x@5 -a|default/y");
        assert_eq!(observed(&mut view, FIRST, vec![Event::Delete(object("a", "x", "6"))]), "-a|default/x");
        assert_eq!(observed(&mut view, FIRST, vec![Event::Delete(object("a", "x", "6"))]), "");
        assert_eq!(view.iter().count(), 1);
    }

    #[test]
    fn an_interrupted_list_removes_nothing() {
        let mut view = View::default();
        observed(&mut view, FIRST, list(vec![object("a", "x", "1"), object("a", "y", "2")]));
        let interrupted = vec![Event::Init, Event::InitApply(object("a", "z", "3"))];
        assert_eq!(observed(&mut view, FIRST, interrupted), "+a|default/z@3");
        let complete = list(vec![object("a", "x", "1"), object("a", "y", "2")]);
        assert_eq!(observed(&mut view, FIRST, complete), "-a|default/z");
    }

    #[test]
    fn objects_of_a_watch_stay_until_a_list_without_them() {
        let mut view = View::default();
        observed(&mut view, FIRST, list(vec![object("a", "x", "1")]));
        observed(&mut view, FIRST, list(vec![object("a", "x", "1")]));
        assert_eq!(observed(&mut view, FIRST, vec![Event::Apply(object("a", "y", "2"))]), "+a|default/y@2");
        assert_eq!(observed(&mut view, FIRST, list(vec![object("a", "x", "1"), object("a", "y", "2")])), "");
        assert_eq!(observed(&mut view, FIRST, list(vec![object("a", "x", "1")])), "-a|default/y");
    }

    #[test]
    fn an_object_that_was_created_again_is_another_version() {
        let mut view = View::default();
        observed(&mut view, FIRST, list(vec![object("a", "x", "1")]));
        let mut again = object("a", "x", "1");
        again.metadata.uid = Some("another".to_owned());
        assert_eq!(observed(&mut view, FIRST, list(vec![again])), "+a|default/x@1");
    }

    #[test]
    fn a_list_of_one_endpoint_leaves_the_objects_of_others() {
        let mut view = View::default();
        observed(&mut view, FIRST, list(vec![object("a", "x", "1")]));
        assert_eq!(observed(&mut view, SECOND, list(vec![object("b", "x", "1")])), "+b|default/x@1");
        assert_eq!(observed(&mut view, FIRST, list(vec![])), "-a|default/x");
        assert_eq!(text(&view.remove_endpoint(SECOND)), "-b|default/x");
        assert_eq!(view.iter().count(), 0);
    }

    #[test]
    fn objects_with_equal_names_in_different_logical_clusters_and_namespaces_are_different() {
        let mut view = View::default();
        let mut elsewhere = object("a", "x", "2");
        elsewhere.metadata.namespace = Some("other".to_owned());
        let mut without_namespace = object("a", "x", "3");
        without_namespace.metadata.namespace = None;
        let all = list(vec![object("a", "x", "1"), object("b", "x", "1"), elsewhere, without_namespace]);
        assert_eq!(observed(&mut view, FIRST, all), "+a|default/x@1 +a|other/x@2 +a|x@3 +b|default/x@1");
    }

    #[test]
    fn a_moved_logical_cluster_keeps_its_objects() {
        let mut view = View::default();
        observed(&mut view, FIRST, list(vec![object("a", "x", "7")]));
        // Versions of different shards cannot be compared.
        assert_eq!(observed(&mut view, SECOND, vec![Event::Apply(object("a", "x", "7"))]), "+a|default/x@7");
        assert_eq!(
            observed(&mut view, FIRST, list(vec![object("a", "x", "7")])),
            "",
            "the first shard has not changed it"
        );
        assert_eq!(observed(&mut view, FIRST, vec![Event::Delete(object("a", "x", "9"))]), "");
        assert_eq!(text(&view.remove_endpoint(FIRST)), "");
        let key = ObjectKey { cluster: "a".into(), namespace: Some("default".into()), name: "x".into() };
        assert_eq!(view.get(&key).unwrap().0, SECOND);
        assert_eq!(observed(&mut view, SECOND, vec![Event::Delete(object("a", "x", "8"))]), "-a|default/x");
    }

    #[test]
    fn an_object_of_two_endpoints_stays_when_the_one_that_changed_it_last_stops() {
        for stop in ["delete", "list", "leave"] {
            let mut view = View::default();
            observed(&mut view, FIRST, list(vec![object("a", "x", "1")]));
            observed(&mut view, SECOND, list(vec![object("a", "x", "20")]));
            assert_eq!(
                observed(&mut view, FIRST, vec![Event::Apply(object("a", "x", "2"))]),
                "+a|default/x@2"
            );
            let changes = match stop {
                "delete" => observed(&mut view, FIRST, vec![Event::Delete(object("a", "x", "3"))]),
                "list" => observed(&mut view, FIRST, list(vec![])),
                _ => text(&view.remove_endpoint(FIRST)),
            };
            assert_eq!(changes, "+a|default/x@20", "{stop}");
            assert_eq!(text(&view.remove_endpoint(SECOND)), "-a|default/x", "{stop}");
        }
    }

    #[test]
    fn an_object_without_a_logical_cluster_is_ignored() {
        let mut view = View::default();
        let mut unmarked = object("a", "x", "1");
        unmarked.metadata.annotations = None;
        assert_eq!(observed(&mut view, FIRST, list(vec![unmarked.clone()])), "");
        assert_eq!(observed(&mut view, FIRST, vec![Event::Delete(unmarked)]), "");
    }
}
