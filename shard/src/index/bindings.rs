//! The APIBindings of this shard: by logical cluster, by export, and the resources that they bind by identity.
//!
//! Bindings of one export mostly bind the same resources, so these are shared. A binding costs its name, its logical cluster and some
//! references.

use std::sync::Arc;

use fairlead_api::PartialBinding;
use fairlead_apiserver::hub::{Hub, InvalidatedWatches, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::names::{API_BINDINGS, CUSTOM};

/// The parts of an APIBinding that others ask for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BindingFacts {
    pub(crate) name: Box<str>,
    /// The logical cluster of the export; `None` until the export was found.
    pub(crate) export_cluster: Option<Arc<str>>,
    /// `spec.reference.export.path`; empty for the logical cluster of the binding.
    pub(crate) export_path: Arc<str>,
    pub(crate) export_name: Arc<str>,
    /// The hash of the export's logical cluster and name, from the binding's label.
    pub(crate) export_hash: Arc<str>,
    pub(crate) is_deleted: bool,
    /// The bound resources.
    pub(crate) resources: Arc<[BoundResource]>,
}

/// A resource that a binding binds.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct BoundResource {
    pub(crate) name: ResourceName,
    /// The UID of the schema, which is the name of the bound CRD.
    pub(crate) schema: Box<str>,
    pub(crate) identity: Arc<str>,
    /// Whether its objects are read from another endpoint.
    pub(crate) is_virtual: bool,
}

/// A change of a binding.
pub(crate) struct BindingChange<'c> {
    /// The logical cluster of the binding.
    pub(crate) cluster: &'c str,
    pub(crate) before: Option<&'c BindingFacts>,
    pub(crate) after: Option<&'c BindingFacts>,
}

/// Called after the index shows a change. It must return quickly and must not write.
pub(crate) type BindingObserver = Box<dyn Fn(&BindingChange<'_>) + Send + Sync>;

/// Logical cluster and name of a binding.
type BindingKey = (Box<str>, Box<str>);

/// The bindings of this shard.
#[derive(Default)]
pub(crate) struct BindingIndex {
    state: RwLock<State>,
    observers: RwLock<Vec<BindingObserver>>,
}

#[derive(Default)]
struct State {
    clusters: FxHashMap<Box<str>, Vec<Arc<BindingFacts>>>,
    by_export: FxHashMap<Arc<str>, FxHashSet<BindingKey>>,
    bound: FxHashMap<Arc<str>, FxHashMap<ResourceName, Vec<BoundSchema>>>,
    texts: Interned<str>,
    resources: Interned<[BoundResource]>,
    /// Increases with each schema that is bound for the first time.
    order: u64,
    /// The resources of the last event that are served by another schema now, in its logical cluster and in all of them.
    redefined: Vec<BoundResource>,
    redefined_everywhere: Vec<(ResourceName, Arc<str>)>,
}

/// Values of which equal ones are kept once.
struct Interned<T: ?Sized> {
    values: FxHashSet<Arc<T>>,
    /// The number of values at which those without another owner are removed.
    limit: usize,
}

impl<T: ?Sized + Eq + core::hash::Hash> Interned<T> {
    fn share(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.limit {
            self.values.retain(|known| Arc::strong_count(known) > 1);
            self.limit = 64 + 2 * self.values.len();
        }
        self.values.insert(Arc::clone(&value));
        value
    }
}

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self { values: FxHashSet::default(), limit: 64 }
    }
}

/// A schema that serves a resource of an identity, with the number of bindings that use it.
struct BoundSchema {
    uid: Box<str>,
    is_virtual: bool,
    count: usize,
    order: u64,
}

impl BoundSchema {
    fn is_of(&self, resource: &BoundResource) -> bool {
        self.uid == resource.schema && self.is_virtual == resource.is_virtual
    }
}

impl BindingIndex {
    /// Reads all bindings and follows the hub.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn follow(objects: &ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let index = Arc::new(Self::default());
        objects.for_each(&API_BINDINGS, &CUSTOM, &ScopeSelector::all(), &mut |listed| {
            index.load(listed.scope, listed.object.json());
        })?;
        index.take_redefined("");
        let follower = Arc::clone(&index);
        hub.observe(
            API_BINDINGS.clone(),
            Box::new(move |event: &ObjectEvent| {
                if event.is_deletion() {
                    follower.put(&event.scope, &event.name, None);
                } else {
                    follower.load(&event.scope, event.object().json());
                }
            }),
        );
        Ok(index)
    }

    /// Registers an observer of changes.
    pub(crate) fn on_change(&self, observer: BindingObserver) {
        self.observers.write().push(observer);
    }

    /// The number of observers.
    pub(crate) fn observers(&self) -> usize {
        self.observers.read().len()
    }

    /// Removes the observers that were registered after they were counted.
    pub(crate) fn remove_observers_after(&self, count: usize) {
        self.observers.write().truncate(count);
    }

    /// The bindings in a logical cluster.
    pub(crate) fn of_cluster(&self, cluster: &str) -> Vec<Arc<BindingFacts>> {
        self.state.read().clusters.get(cluster).cloned().unwrap_or_default()
    }

    /// The bindings to any export of a logical cluster, those whose export was not found yet, and those that refer to one of `paths`:
    /// the logical cluster may have taken the place of another one.
    pub(crate) fn of_exports_in(&self, cluster: &str, paths: &[Box<str>]) -> Vec<BindingKey> {
        let state = self.state.read();
        // All bindings to an export have the same hash, so one of them decides.
        let refers = |keys: &&FxHashSet<BindingKey>| {
            let first = keys.iter().next();
            first.and_then(|key| state.get(key)).is_some_and(|binding| {
                binding.export_cluster.as_deref().is_none_or(|exporter| exporter == cluster)
                    || paths.iter().any(|path| **path == *binding.export_path)
            })
        };
        state.by_export.values().filter(refers).flatten().cloned().collect()
    }

    /// Whether any logical cluster of this shard has a binding to an export.
    pub(crate) fn has_bindings(&self, cluster: &str, export: &str) -> bool {
        self.state.read().by_export.contains_key(&*fairlead_names::export_hash(cluster, export))
    }

    /// The schema by which a resource of an identity is read in all logical clusters: the one that was bound last, so that no earlier
    /// one removes fields. `None` if no binding binds the resource.
    pub(crate) fn newest_schema(&self, identity: &str, name: &ResourceName) -> Option<Box<str>> {
        let state = self.state.read();
        let schemas = state.bound.get(identity)?.get(name)?;
        schemas.iter().max_by_key(|schema| schema.order).map(|schema| schema.uid.clone())
    }

    /// Whether the objects of a resource of an identity are read from another endpoint, by the binding that was made last.
    pub(crate) fn is_virtual(&self, identity: &str, name: &ResourceName) -> bool {
        let state = self.state.read();
        let schemas = state.bound.get(identity).and_then(|names| names.get(name)).into_iter().flatten();
        schemas.max_by_key(|schema| schema.order).is_some_and(|schema| schema.is_virtual)
    }

    /// The watches that the last event of a binding ends, because their resource has another schema now. To be called once for each
    /// event, after the index has seen it.
    pub(crate) fn take_redefined(&self, cluster: &str) -> Vec<InvalidatedWatches> {
        let (local, everywhere) = {
            let mut state = self.state.write();
            (core::mem::take(&mut state.redefined), core::mem::take(&mut state.redefined_everywhere))
        };
        let local = local.into_iter().map(|bound| (Some(Scope::new(cluster)), bound.name, bound.identity));
        let everywhere = everywhere.into_iter().map(|(name, identity)| (None, name, identity));
        let watches = local.chain(everywhere);
        watches
            .map(|(scope, resource, identity)| InvalidatedWatches {
                scope,
                resource,
                origin: Origin::Identity(identity),
            })
            .collect()
    }

    /// The watches of the resource of a schema, in the logical clusters that bind it and over all of them. Visits all bindings.
    pub(crate) fn watches_of_schema(&self, uid: &str) -> Vec<InvalidatedWatches> {
        let state = self.state.read();
        let mut watches = Vec::new();
        for (cluster, bindings) in &state.clusters {
            let resources = bindings.iter().flat_map(|binding| binding.resources.iter());
            for bound in resources.filter(|bound| *bound.schema == *uid) {
                let origin = || Origin::Identity(Arc::clone(&bound.identity));
                let watch =
                    |scope| InvalidatedWatches { scope, resource: bound.name.clone(), origin: origin() };
                watches.push(watch(Some(Scope::new(cluster))));
                if !watches.contains(&watch(None)) {
                    watches.push(watch(None));
                }
            }
        }
        watches
    }

    /// Whether a binding uses a schema.
    pub(crate) fn uses_schema(&self, uid: &str) -> bool {
        let state = self.state.read();
        let mut all = state.bound.values().flat_map(FxHashMap::values).flatten();
        all.any(|schema| *schema.uid == *uid)
    }

    fn load(&self, cluster: &str, json: &[u8]) {
        match PartialBinding::decode(json) {
            Ok(binding) => self.put(cluster, &binding.name.clone(), Some(binding)),
            Err(error) => tracing::error!(cluster, %error, "a stored APIBinding cannot be read"),
        }
    }

    fn put(&self, cluster: &str, name: &str, binding: Option<PartialBinding<'_>>) {
        let (before, after) = {
            let mut state = self.state.write();
            let after = binding.map(|binding| Arc::new(state.facts(cluster, binding)));
            let before = state.replace(cluster, name, after.clone());
            (before, after)
        };
        if before == after {
            return;
        }
        let change = BindingChange { cluster, before: before.as_deref(), after: after.as_deref() };
        self.observers.read().iter().for_each(|observer| observer(&change));
    }
}

impl State {
    fn facts(&mut self, cluster: &str, binding: PartialBinding<'_>) -> BindingFacts {
        let path = &*binding.export_path;
        let hash = match binding.export_hash {
            Some(hash) => hash.into_owned(),
            None => fairlead_names::export_hash(
                if path.is_empty() { cluster } else { path },
                &binding.export_name,
            ),
        };
        let resources = binding.resources.iter().map(|bound| BoundResource {
            name: ResourceName::new(&bound.group, &bound.resource),
            schema: (*bound.schema).into(),
            identity: self.texts.share((*bound.identity).into()),
            is_virtual: bound.is_virtual,
        });
        let resources: Arc<[BoundResource]> = resources.collect();
        let export_cluster = Some(&*binding.export_cluster).filter(|name| !name.is_empty());
        BindingFacts {
            name: (*binding.name).into(),
            export_cluster: export_cluster.map(|name| self.texts.share(name.into())),
            export_path: self.texts.share(path.into()),
            export_name: self.texts.share((*binding.export_name).into()),
            export_hash: self.texts.share(hash.into()),
            is_deleted: binding.is_deleted,
            resources: self.resources.share(resources),
        }
    }

    fn get(&self, (cluster, name): &BindingKey) -> Option<&BindingFacts> {
        let binding = self.clusters.get(cluster)?.iter().find(|binding| binding.name == *name)?;
        Some(binding)
    }

    fn replace(
        &mut self,
        cluster: &str,
        name: &str,
        after: Option<Arc<BindingFacts>>,
    ) -> Option<Arc<BindingFacts>> {
        let bindings = self.clusters.entry(cluster.into()).or_default();
        let at = bindings.iter().position(|binding| *binding.name == *name);
        let before = match (at, &after) {
            (Some(at), Some(after)) => Some(core::mem::replace(&mut bindings[at], Arc::clone(after))),
            (Some(at), None) => Some(bindings.swap_remove(at)),
            (None, Some(after)) => {
                bindings.push(Arc::clone(after));
                None
            }
            (None, None) => None,
        };
        if bindings.is_empty() {
            self.clusters.remove(cluster);
        }
        let hash =
            |binding: &Option<Arc<BindingFacts>>| binding.as_ref().map(|one| Arc::clone(&one.export_hash));
        if hash(&before) != hash(&after) {
            let key: BindingKey = (cluster.into(), name.into());
            if let Some(hash) = hash(&before)
                && let Some(keys) = self.by_export.get_mut(&hash)
            {
                keys.remove(&key);
                if keys.is_empty() {
                    self.by_export.remove(&hash);
                }
            }
            if let Some(hash) = hash(&after) {
                self.by_export.entry(hash).or_default().insert(key);
            }
        }
        let resources =
            |binding: &Option<Arc<BindingFacts>>| binding.as_ref().map(|one| Arc::clone(&one.resources));
        let (old, new) = (resources(&before), resources(&after));
        let is_same = matches!((&old, &new), (Some(old), Some(new)) if Arc::ptr_eq(old, new));
        if !is_same {
            self.redefined =
                redefined(old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
            new.iter().flat_map(|all| all.iter()).for_each(|resource| self.bind(resource));
            old.iter().flat_map(|all| all.iter()).for_each(|resource| self.unbind(resource));
        }
        before
    }

    fn bind(&mut self, resource: &BoundResource) {
        let schemas = self
            .bound
            .entry(Arc::clone(&resource.identity))
            .or_default()
            .entry(resource.name.clone())
            .or_default();
        match schemas.iter_mut().find(|schema| schema.is_of(resource)) {
            Some(schema) => schema.count += 1,
            None => {
                self.order += 1;
                if !schemas.is_empty() {
                    self.redefined_everywhere.push((resource.name.clone(), Arc::clone(&resource.identity)));
                }
                schemas.push(BoundSchema {
                    uid: resource.schema.clone(),
                    is_virtual: resource.is_virtual,
                    count: 1,
                    order: self.order,
                });
            }
        }
    }

    fn unbind(&mut self, resource: &BoundResource) {
        let Some(names) = self.bound.get_mut(&resource.identity) else { return };
        let Some(schemas) = names.get_mut(&resource.name) else { return };
        if let Some(at) = schemas.iter().position(|schema| schema.is_of(resource)) {
            schemas[at].count -= 1;
            if schemas[at].count == 0 {
                schemas.remove(at);
            }
        }
        if schemas.is_empty() {
            names.remove(&resource.name);
        }
        if names.is_empty() {
            self.bound.remove(&resource.identity);
        }
    }
}

/// The resources that have another schema of the same identity afterwards.
fn redefined(before: &[BoundResource], after: &[BoundResource]) -> Vec<BoundResource> {
    let has_changed = |new: &&BoundResource| {
        before
            .iter()
            .any(|old| old.name == new.name && old.identity == new.identity && old.schema != new.schema)
    };
    after.iter().filter(has_changed).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use fairlead_api::label;
    use serde_json::{Value, json};

    use super::*;

    fn binding(name: &str, export: &str, schema: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {label::EXPORT: fairlead_names::export_hash("p", export)}},
            "spec": {"reference": {"export": {"path": "root:p", "name": export}}},
            "status": {
                "apiExportClusterName": "p",
                "boundResources": [
                    {"group": "g", "resource": "rs", "schema": {"name": "n", "UID": schema, "identityHash": "id"}},
                ],
            },
        })
    }

    fn load(index: &BindingIndex, cluster: &str, binding: &Value) {
        index.load(cluster, binding.to_string().as_bytes());
    }

    #[test]
    fn bindings_are_found_by_export_and_logical_cluster() {
        let index = BindingIndex::default();
        load(&index, "c1", &binding("b", "e", "u1"));
        load(&index, "c2", &binding("b", "e", "u1"));
        load(&index, "c2", &binding("other", "f", "u1"));
        let mut of_export = index.of_exports_in("p", &[]);
        of_export.retain(|(_, binding)| **binding == *"b");
        of_export.sort();
        assert_eq!(of_export, [("c1".into(), "b".into()), ("c2".into(), "b".into())]);
        assert!(index.of_exports_in("successor", &["root:other".into()]).is_empty());
        assert_eq!(
            index.of_exports_in("successor", &["root:p".into()]).len(),
            3,
            "the workspace was made again"
        );
        assert_eq!(index.of_cluster("c2").len(), 2);
        assert!(Arc::ptr_eq(&index.of_cluster("c1")[0].resources, &index.of_cluster("c2")[1].resources));
        index.put("c1", "b", None);
        index.put("c2", "b", None);
        assert!(!index.has_bindings("p", "e") && index.has_bindings("p", "f"));
        assert!(index.of_cluster("c1").is_empty());
    }

    #[test]
    fn the_schema_that_was_bound_last_serves_an_identity() {
        let index = BindingIndex::default();
        let name = ResourceName::new("g", "rs");
        let newest = || index.newest_schema("id", &name);
        load(&index, "c1", &binding("b", "e", "u1"));
        load(&index, "c2", &binding("b", "e", "u1"));
        load(&index, "c1", &binding("b", "e", "u2"));
        assert_eq!(newest().as_deref(), Some("u2"));
        load(&index, "c3", &binding("b", "e", "u1"));
        assert_eq!(newest().as_deref(), Some("u2"), "an earlier schema in another logical cluster");
        assert!(index.uses_schema("u1"));
        index.put("c1", "b", None);
        assert_eq!(newest().as_deref(), Some("u1"));
        index.put("c2", "b", None);
        index.put("c3", "b", None);
        assert_eq!(newest(), None);
        assert!(!index.uses_schema("u1"));
        assert!(index.state.read().bound.is_empty());
    }

    #[test]
    fn observers_see_each_change_once() {
        let index = BindingIndex::default();
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        index.on_change(Box::new(move |change| {
            sink.lock().push((change.before.is_some(), change.after.is_some(), change.cluster.to_owned()));
        }));
        load(&index, "c", &binding("b", "e", "u1"));
        load(&index, "c", &binding("b", "e", "u1"));
        load(&index, "c", &binding("b", "e", "u2"));
        index.put("c", "b", None);
        index.put("c", "b", None);
        let c = || "c".to_owned();
        assert_eq!(*seen.lock(), [(false, true, c()), (true, true, c()), (true, false, c())]);
    }
}
