//! A pass over content that is deleted: objects that are removed, marked for deletion, or awaited.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use fairlead_api::finalizer;
use fairlead_apiserver::Scope;
use fairlead_apiserver::object::{EncodedObject, ObjectMetaRef};
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_store::{Change, Expect, Limits, Mutation};
use jiff::Timestamp;
use serde_json::Value;

use super::content::FoundObject;
use crate::names::CLEANUP_FINALIZER;

/// Maximum number of objects that are committed together, if the store's limits permit it.
const BATCH: usize = 256;
/// Approximate maximum of the bytes of the marked ones, likewise.
const BATCH_BYTES: usize = 4 << 20;
/// Mutations of a commit that its caller adds: the object that is deleted, locks and fences.
const RESERVED: usize = 16;
/// The finalizer in a namespace's spec that keeps it until its content is deleted.
pub(in crate::controllers) const NAMESPACE_FINALIZER: &str = "kubernetes";

/// The shortest and the longest pause before waiting content is checked again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The mutations of a pass, and the objects that remain after it.
#[derive(Debug, Default)]
pub(in crate::controllers) struct Sweep {
    limits: Limits,
    mutations: Vec<Mutation>,
    bytes: usize,
    is_truncated: bool,
    /// Number of objects that remain, by `<resource>.<group>`.
    remaining: BTreeMap<String, u64>,
    /// Number of objects that each finalizer keeps.
    finalizers: BTreeMap<String, u64>,
}

impl Sweep {
    /// An empty sweep whose commit is accepted by the store.
    pub(in crate::controllers) fn within(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds an object: it is removed, or marked for deletion while finalizers keep it. Breaks if the commit is full.
    pub(in crate::controllers) fn add(
        &mut self,
        objects: &ObjectStore,
        found: &FoundObject<'_>,
    ) -> ControlFlow<()> {
        let meta = found.object.and_then(|object| ObjectMetaRef::parse(object).ok());
        // An object that cannot be parsed has no known finalizers.
        let Some(meta) = meta else { return self.remove(found) };
        let finalizers = remaining_finalizers(found, &meta);
        if finalizers.is_empty() {
            return self.remove(found);
        }
        if meta.deletion_timestamp.is_none() {
            let Some(mark) = deletion_mark(objects, found) else { return self.remove(found) };
            self.push(found, mark)?;
        }
        self.count_with(found, finalizers);
        ControlFlow::Continue(())
    }

    /// Adds an object that is not removed by this pass.
    pub(in crate::controllers) fn add_remaining(&mut self, found: &FoundObject<'_>) {
        let meta = found.object.and_then(|object| ObjectMetaRef::parse(object).ok());
        let finalizers = meta.map(|meta| remaining_finalizers(found, &meta)).unwrap_or_default();
        self.count_with(found, finalizers);
    }

    /// Marks an object that remains until the objects in it are removed.
    pub(in crate::controllers) fn mark_holder(&mut self, objects: &ObjectStore, found: &FoundObject<'_>) {
        let meta = found.object.and_then(|object| ObjectMetaRef::parse(object).ok());
        if meta.is_some_and(|meta| meta.deletion_timestamp.is_none())
            && let Some(mark) = deletion_mark(objects, found)
        {
            // Objects that do not fit are marked by a later pass.
            let _ = self.push(found, mark);
        }
        self.count(found);
    }

    /// Removes an object regardless of its finalizers.
    pub(in crate::controllers) fn remove(&mut self, found: &FoundObject<'_>) -> ControlFlow<()> {
        self.push(found, Change::Delete)
    }

    /// Appends the result of another pass, as far as it fits into the commit.
    pub(in crate::controllers) fn append(&mut self, other: Self) {
        for (all, more) in [(&mut self.remaining, other.remaining), (&mut self.finalizers, other.finalizers)]
        {
            for (name, count) in more {
                *all.entry(name).or_default() += count;
            }
        }
        let fits = self.max_mutations().saturating_sub(self.mutations.len());
        // As for one object, so that a commit of a large one happens at all.
        let has_room = self.mutations.is_empty() || self.bytes + other.bytes <= self.max_bytes();
        let fits = if has_room { fits } else { 0 };
        self.is_truncated |= other.is_truncated || other.mutations.len() > fits;
        self.bytes += if has_room { other.bytes } else { 0 };
        self.mutations.extend(other.mutations.into_iter().take(fits));
    }

    /// Whether no object remains after the mutations are committed.
    pub(in crate::controllers) fn leaves_nothing(&self) -> bool {
        !self.is_truncated && self.remaining.is_empty()
    }

    /// Whether some mutations did not fit into the commit.
    pub(in crate::controllers) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Whether there is nothing to commit.
    pub(in crate::controllers) fn has_no_mutations(&self) -> bool {
        self.mutations.is_empty()
    }

    /// The mutations to commit.
    pub(in crate::controllers) fn into_mutations(self) -> Vec<Mutation> {
        self.mutations
    }

    /// `configmaps. has 2 resource instances, …`, as in Kubernetes and kcp; `None` if no object remains.
    pub(in crate::controllers) fn remaining(&self) -> Option<String> {
        joined(&self.remaining, |name, count| format!("{name} has {count} resource instances"))
    }

    /// `example.com/f in 2 resource instances, …`; `None` when no finalizer keeps anything.
    pub(in crate::controllers) fn finalizers(&self) -> Option<String> {
        joined(&self.finalizers, |name, count| format!("{name} in {count} resource instances"))
    }

    fn count_with(&mut self, found: &FoundObject<'_>, finalizers: Vec<String>) {
        for finalizer in finalizers {
            *self.finalizers.entry(finalizer).or_default() += 1;
        }
        self.count(found);
    }

    fn count(&mut self, found: &FoundObject<'_>) {
        *self.remaining.entry(format!("{}.{}", found.parts.resource, found.parts.group)).or_default() += 1;
    }

    fn push(&mut self, found: &FoundObject<'_>, change: Change) -> ControlFlow<()> {
        let mutation =
            Mutation { key: found.key.to_vec().into(), expect: Expect::At(found.revision), change };
        let bytes = self.bytes + mutation.bytes();
        // One object of any size fits.
        if self.mutations.len() >= self.max_mutations()
            || !self.mutations.is_empty() && bytes > self.max_bytes()
        {
            self.is_truncated = true;
            return ControlFlow::Break(());
        }
        self.bytes = bytes;
        self.mutations.push(mutation);
        ControlFlow::Continue(())
    }

    fn max_mutations(&self) -> usize {
        BATCH.min(self.limits.mutations.saturating_sub(RESERVED)).max(1)
    }

    /// Half of the store's limit: the rest is for what the caller adds.
    fn max_bytes(&self) -> usize {
        BATCH_BYTES.min(self.limits.bytes / 2)
    }
}

/// Pause before an object that is being deleted is checked again: a quarter of the time since its deletion began.
pub(in crate::controllers) fn pause(object: &Value, now: Timestamp) -> Duration {
    let since =
        object["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let age = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
    (age.unwrap_or_default() / 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Marks an object for deletion, as a DELETE request does.
pub(in crate::controllers) fn mark_for_deletion(object: &mut Value) {
    let metadata = &mut object["metadata"];
    metadata["deletionTimestamp"] = crate::writes::now().into();
    metadata["deletionGracePeriodSeconds"] = 0.into();
    if let Some(generation) = metadata["generation"].as_i64() {
        metadata["generation"] = (generation + 1).into();
    }
}

/// The finalizers that keep an object, without those that this deletion handles.
fn remaining_finalizers(found: &FoundObject<'_>, meta: &ObjectMetaRef<'_>) -> Vec<String> {
    let (own, others) = match (found.parts.group, found.parts.resource) {
        ("", "namespaces") => (NAMESPACE_FINALIZER, namespace_finalizers(found)),
        ("apiextensions.k8s.io", "customresourcedefinitions") => (CLEANUP_FINALIZER, Vec::new()),
        ("apis.kcp.io", "apibindings") => (finalizer::API_BINDING, Vec::new()),
        _ => ("", Vec::new()),
    };
    let mut remaining_finalizers: Vec<String> =
        meta.finalizers.iter().map(|one| (**one).to_owned()).chain(others).collect();
    remaining_finalizers.retain(|one| one != own);
    remaining_finalizers
}

/// The finalizers in a namespace's spec.
fn namespace_finalizers(found: &FoundObject<'_>) -> Vec<String> {
    let object = found.object.and_then(|object| serde_json::from_slice::<Value>(object.json()).ok());
    let object = object.unwrap_or_default();
    let all = object["spec"]["finalizers"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn deletion_mark(objects: &ObjectStore, found: &FoundObject<'_>) -> Option<Change> {
    let object = found.object?;
    let stored = StoredObject {
        object: EncodedObject::copied(object),
        revision: found.revision,
        scope: Scope::new(found.parts.scope),
    };
    let mut tree = objects.tree(&stored).ok()?;
    mark_for_deletion(&mut tree);
    if (found.parts.group, found.parts.resource) == ("", "namespaces") {
        tree["status"]["phase"] = "Terminating".into();
    }
    let encoded = objects.encode_managed(tree, object.schema_hash(), object.managed_fields()).ok()?;
    Some(Change::Put(encoded.stored().clone()))
}

fn joined(counts: &BTreeMap<String, u64>, describe: impl Fn(&str, u64) -> String) -> Option<String> {
    let all: Vec<String> = counts.iter().map(|(name, count)| describe(name, *count)).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pause_grows_with_the_waiting_time() {
        let object = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
        for (seconds, expected) in [(0, 100), (1, 250), (8, 2000), (1000, 10_000)] {
            let now = Timestamp::from_second(seconds).unwrap();
            assert_eq!(pause(&object, now).as_millis(), expected, "after {seconds} s");
        }
        assert_eq!(pause(&json!({}), Timestamp::UNIX_EPOCH), SHORTEST_PAUSE);
    }

    #[test]
    fn a_commit_is_bounded_and_excess_mutations_are_reported() {
        let many = |count: usize| Sweep {
            mutations: (0..count).map(|nth| Mutation::delete(nth.to_string(), Expect::Any)).collect(),
            ..Sweep::default()
        };
        let mut sweep = many(BATCH - 1);
        sweep.append(many(1));
        assert!(sweep.leaves_nothing());
        sweep.append(many(1));
        assert!(sweep.is_truncated() && !sweep.leaves_nothing());
        assert_eq!(sweep.into_mutations().len(), BATCH);

        let mut small = Sweep::within(Limits { mutations: 127, bytes: 1 << 20 });
        small.append(many(200));
        assert!(small.is_truncated());
        assert_eq!(small.into_mutations().len(), 127 - RESERVED);

        let large = || Sweep { bytes: 1 << 20, ..many(1) };
        let mut small = Sweep::within(Limits { mutations: 127, bytes: 1 << 20 });
        small.append(large());
        assert!(!small.is_truncated(), "one object of any size fits");
        small.append(large());
        assert!(small.is_truncated());
        assert_eq!(small.into_mutations().len(), 1);
    }

    #[test]
    fn remaining_objects_are_reported_as_in_kubernetes() {
        let mut sweep = Sweep::default();
        sweep.append(Sweep {
            remaining: [("configmaps.".to_owned(), 2), ("cowboys.wild.west".to_owned(), 1)].into(),
            finalizers: [("a.b/c".to_owned(), 3)].into(),
            ..Sweep::default()
        });
        assert_eq!(
            sweep.remaining().unwrap(),
            "configmaps. has 2 resource instances, cowboys.wild.west has 1 resource instances"
        );
        assert_eq!(sweep.finalizers().unwrap(), "a.b/c in 3 resource instances");
        assert_eq!((Sweep::default().remaining(), Sweep::default().finalizers()), (None, None));
    }
}
