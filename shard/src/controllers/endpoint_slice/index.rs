//! The endpoint slices that this shard maintains or contributes to, by the exports that they refer to.
//!
//! A slice costs some 300 bytes.

use std::collections::{BTreeMap, BTreeSet};

use fairlead_process::Status;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::export_directory::ExportDirectory;

/// Logical cluster and name of an endpoint slice.
pub(crate) type SliceKey = (Box<str>, Box<str>);

/// An export by path or logical cluster, and name.
pub(super) type ExportReference = (Box<str>, Box<str>);

/// Known endpoint slices.
#[derive(Default)]
pub(super) struct SliceIndex(Mutex<State>);

#[derive(Default)]
struct State {
    slices: BTreeMap<SliceKey, IndexedSlice>,
    by_reference: FxHashMap<ExportReference, BTreeSet<SliceKey>>,
    /// By the hash of the export.
    by_export: FxHashMap<Box<str>, BTreeSet<SliceKey>>,
    by_export_cluster: FxHashMap<Box<str>, BTreeSet<SliceKey>>,
}

struct IndexedSlice {
    reference: ExportReference,
    /// The logical cluster of the export; `None` if it was not found.
    export_cluster: Option<Box<str>>,
    /// Whether the export had consumers when the endpoint was planned; `None` while it is being planned.
    has_consumers: Option<bool>,
}

impl SliceIndex {
    /// Finds the export of a slice. The reference is known to the index before the look-up, so no later event of the
    /// export is missed.
    ///
    /// # Errors
    /// Those of the directory.
    pub(super) fn resolve(
        &self,
        key: &SliceKey,
        reference: &ExportReference,
        exports: &dyn ExportDirectory,
    ) -> Result<Option<Box<str>>, Status> {
        self.0.lock().refer(key, reference);
        let mut found = exports.cluster_of(&reference.0, &reference.1)?;
        while self.0.lock().set_export_cluster(key, found.clone()) {
            // The export may have changed before the index had its logical cluster.
            let again = exports.cluster_of(&reference.0, &reference.1)?;
            if again == found {
                break;
            }
            found = again;
        }
        Ok(found)
    }

    /// Whether the export of a slice has consumers. A change during the call is not missed.
    pub(super) fn has_consumers(&self, key: &SliceKey, cluster: &str, exports: &dyn ExportDirectory) -> bool {
        let Some(export) = self.0.lock().begin_plan(key) else { return false };
        let has_consumers = exports.has_bindings(cluster, &export);
        if let Some(slice) = self.0.lock().slices.get_mut(key) {
            slice.has_consumers = Some(has_consumers);
        }
        has_consumers
    }

    /// Forgets a slice that does not exist any more.
    pub(super) fn remove(&self, key: &SliceKey) {
        self.0.lock().remove(key);
    }

    /// All slices.
    pub(super) fn keys(&self) -> Vec<SliceKey> {
        self.0.lock().slices.keys().cloned().collect()
    }

    /// The slices that refer to an export of a logical cluster.
    pub(super) fn of_exports_in(&self, cluster: &str) -> BTreeSet<SliceKey> {
        self.0.lock().by_export_cluster.get(cluster).cloned().unwrap_or_default()
    }

    /// The slices in a logical cluster.
    pub(super) fn in_cluster(&self, cluster: &str) -> Vec<SliceKey> {
        let first: SliceKey = (cluster.into(), Box::default());
        let state = self.0.lock();
        state.slices.range(first..).map(|(key, _)| key.clone()).take_while(|key| *key.0 == *cluster).collect()
    }

    /// The slices of an export that was created or deleted.
    pub(super) fn of_export(&self, cluster: &str, path: Option<&str>, name: &str) -> BTreeSet<SliceKey> {
        let state = self.0.lock();
        let mut keys = state.of_hash(&fairlead_names::export_hash(cluster, name));
        for reference in [Some(cluster), path].into_iter().flatten() {
            let reference = (reference.into(), name.into());
            keys.extend(state.by_reference.get(&reference).into_iter().flatten().cloned());
        }
        keys
    }

    /// The slices that depend on a change of the replicated exports of a logical cluster: those whose export appeared or
    /// disappeared. `exports` are the path and name of the exports that it has now.
    pub(super) fn of_replicas(
        &self,
        cluster: &str,
        exports: &[(Option<Box<str>>, Box<str>)],
    ) -> BTreeSet<SliceKey> {
        let state = self.0.lock();
        let names: BTreeSet<&str> = exports.iter().map(|(_, name)| &**name).collect();
        let resolved = state.by_export_cluster.get(cluster).into_iter().flatten();
        let is_gone = |key: &&SliceKey| {
            state.slices.get(*key).is_some_and(|slice| !names.contains(&*slice.reference.1))
        };
        let mut keys: BTreeSet<SliceKey> = resolved.filter(is_gone).cloned().collect();
        for (path, name) in exports {
            for reference in [Some(cluster), path.as_deref()].into_iter().flatten() {
                let reference = (reference.into(), name.clone());
                let referring = state.by_reference.get(&reference).into_iter().flatten();
                let is_waiting = |key: &&SliceKey| {
                    state
                        .slices
                        .get(*key)
                        .is_some_and(|slice| slice.export_cluster.as_deref() != Some(cluster))
                };
                keys.extend(referring.filter(is_waiting).cloned());
            }
        }
        keys
    }

    /// The slices whose endpoint may change after a binding of an export was created or deleted. Most changes of bindings
    /// change none: only the first and the last binding count.
    pub(super) fn of_binding(&self, export_hash: &str, exports: &dyn ExportDirectory) -> Vec<SliceKey> {
        let state = self.0.lock();
        let mut keys = Vec::new();
        for key in state.by_export.get(export_hash).into_iter().flatten() {
            let Some(slice) = state.slices.get(key) else { continue };
            let Some(cluster) = &slice.export_cluster else { continue };
            if slice.has_consumers != Some(exports.has_bindings(cluster, &slice.reference.1)) {
                keys.push(key.clone());
            }
        }
        keys
    }
}

impl State {
    fn refer(&mut self, key: &SliceKey, reference: &ExportReference) {
        if self.slices.get(key).is_some_and(|slice| slice.reference == *reference) {
            return;
        }
        self.remove(key);
        self.by_reference.entry(reference.clone()).or_default().insert(key.clone());
        let slice = IndexedSlice { reference: reference.clone(), export_cluster: None, has_consumers: None };
        self.slices.insert(key.clone(), slice);
    }

    /// Sets the logical cluster of the export, and returns whether it was another one.
    fn set_export_cluster(&mut self, key: &SliceKey, cluster: Option<Box<str>>) -> bool {
        let Some(slice) = self.slices.get_mut(key).filter(|slice| slice.export_cluster != cluster) else {
            return false;
        };
        slice.has_consumers = None;
        let name = slice.reference.1.clone();
        let before = core::mem::replace(&mut slice.export_cluster, cluster.clone());
        if let Some(before) = before {
            self.forget_export(key, &before, &name);
        }
        if let Some(cluster) = cluster {
            let hash = fairlead_names::export_hash(&cluster, &name).into();
            self.by_export.entry(hash).or_default().insert(key.clone());
            self.by_export_cluster.entry(cluster).or_default().insert(key.clone());
        }
        true
    }

    /// Marks the endpoint of a slice as being planned, and returns the name of its export.
    fn begin_plan(&mut self, key: &SliceKey) -> Option<Box<str>> {
        let slice = self.slices.get_mut(key)?;
        slice.has_consumers = None;
        Some(slice.reference.1.clone())
    }

    fn of_hash(&self, export_hash: &str) -> BTreeSet<SliceKey> {
        self.by_export.get(export_hash).cloned().unwrap_or_default()
    }

    fn remove(&mut self, key: &SliceKey) {
        let Some(slice) = self.slices.remove(key) else { return };
        take(&mut self.by_reference, &slice.reference, key);
        if let Some(cluster) = slice.export_cluster {
            self.forget_export(key, &cluster, &slice.reference.1);
        }
    }

    fn forget_export(&mut self, key: &SliceKey, cluster: &str, name: &str) {
        let hash: Box<str> = fairlead_names::export_hash(cluster, name).into();
        take(&mut self.by_export, &hash, key);
        take(&mut self.by_export_cluster, &cluster.into(), key);
    }
}

fn take<K: Eq + core::hash::Hash>(map: &mut FxHashMap<K, BTreeSet<SliceKey>>, of: &K, key: &SliceKey) {
    if let Some(keys) = map.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use rustc_hash::FxHashSet;

    use super::*;

    /// Exports by path or logical cluster, and the exports with bindings.
    #[derive(Default)]
    struct Exports {
        clusters: FxHashMap<(String, String), Box<str>>,
        bound: Mutex<FxHashSet<String>>,
    }

    impl Exports {
        fn new(path: &str, cluster: &str, name: &str) -> Self {
            let entry = |reference: &str| ((reference.to_owned(), name.to_owned()), cluster.into());
            Self { clusters: [entry(path), entry(cluster)].into_iter().collect(), bound: Mutex::default() }
        }

        fn bind(&self, export: &str, is_bound: bool) {
            let mut bound = self.bound.lock();
            if is_bound {
                bound.insert(export.to_owned())
            } else {
                bound.remove(export)
            };
        }
    }

    impl ExportDirectory for Exports {
        fn cluster_of(&self, path_or_cluster: &str, export: &str) -> Result<Option<Box<str>>, Status> {
            Ok(self.clusters.get(&(path_or_cluster.to_owned(), export.to_owned())).cloned())
        }

        fn has_bindings(&self, _export_cluster: &str, export: &str) -> bool {
            self.bound.lock().contains(export)
        }
    }

    fn key(name: &str) -> SliceKey {
        ("s".into(), name.into())
    }

    fn reference(path: &str) -> ExportReference {
        (path.into(), "e".into())
    }

    #[test]
    fn only_the_first_and_the_last_binding_change_an_endpoint() {
        let (index, exports) = (SliceIndex::default(), Exports::new("root:p", "p", "e"));
        let hash = fairlead_names::export_hash("p", "e");
        assert_eq!(index.resolve(&key("a"), &reference("root:p"), &exports).unwrap().as_deref(), Some("p"));
        assert_eq!(index.of_binding(&hash, &exports), [key("a")], "not planned yet");
        for (is_bound, changed) in
            [(false, false), (true, true), (true, false), (false, true), (false, false)]
        {
            exports.bind("e", is_bound);
            let expected: Vec<SliceKey> = changed.then(|| key("a")).into_iter().collect();
            if index.0.lock().slices[&key("a")].has_consumers.is_some() {
                assert_eq!(index.of_binding(&hash, &exports), expected);
            }
            assert_eq!(index.has_consumers(&key("a"), "p", &exports), is_bound);
        }
        assert_eq!(index.of_binding("another", &exports), []);
    }

    #[test]
    fn slices_are_found_by_reference_and_by_export() {
        let (index, exports) = (SliceIndex::default(), Exports::new("root:p", "p", "e"));
        for (name, path) in [("by-path", "root:p"), ("by-cluster", "p"), ("waiting", "root:later")] {
            index.resolve(&key(name), &reference(path), &exports).unwrap();
        }
        let found =
            |keys: BTreeSet<SliceKey>| keys.into_iter().map(|key| key.1).collect::<Vec<_>>().join(" ");
        assert_eq!(found(index.of_export("p", None, "e")), "by-cluster by-path");
        assert_eq!(found(index.of_export("q", Some("root:later"), "e")), "waiting");
        assert_eq!(found(index.of_export("p", Some("root:p"), "other")), "");
        let now = |path: &str, name: &str| [(Some(path.into()), name.into())];
        assert_eq!(found(index.of_replicas("p", &now("root:p", "e"))), "", "nothing has changed");
        assert_eq!(
            found(index.of_replicas("p", &now("root:p", "f"))),
            "by-cluster by-path",
            "the export is gone"
        );
        assert_eq!(found(index.of_replicas("q", &now("root:later", "e"))), "waiting");
        index.resolve(&key("by-path"), &reference("root:later"), &exports).unwrap();
        assert_eq!(found(index.of_export("p", Some("root:p"), "e")), "by-cluster");
        assert_eq!(index.in_cluster("s").len(), 3);
        for key in index.keys() {
            index.remove(&key);
        }
        let state = index.0.lock();
        assert!(state.by_reference.is_empty() && state.by_export.is_empty());
        assert!(state.by_export_cluster.is_empty() && state.slices.is_empty());
    }
}
