//! Finds the subscriptions for an event: by resource, then by scope or label.

use std::sync::Arc;

use fairlead_names::ResourceName;
use rustc_hash::FxHashMap;

use super::event::ObjectEvent;
use super::queue::Queue;
use crate::object::ObjectMetaRef;
use crate::scope::ScopeSelector;

/// The registered subscriptions. An event costs one look-up for its resource, one for its scope, and, if a subscription selects by a
/// label of this resource, one metadata parse and a look-up per label.
#[derive(Default)]
pub(super) struct SubscriptionIndex {
    resources: FxHashMap<ResourceName, ResourceIndex>,
    count: usize,
}

type ByValue = FxHashMap<Arc<str>, Vec<Arc<Queue>>>;

#[derive(Default)]
struct ResourceIndex {
    by_scope: FxHashMap<Box<str>, Vec<Arc<Queue>>>,
    /// By key, then by value, so that a look-up does not allocate.
    by_label: FxHashMap<Arc<str>, ByValue>,
    /// Subscriptions to several scopes without a label.
    unindexed: Vec<Arc<Queue>>,
}

impl SubscriptionIndex {
    pub(super) fn insert(&mut self, queue: Arc<Queue>) {
        let index = self.resources.entry(queue.interest.resource.clone()).or_default();
        index.bucket(&queue).push(queue);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, queue: &Arc<Queue>) {
        let Some(index) = self.resources.get_mut(&queue.interest.resource) else {
            return;
        };
        let bucket = index.bucket(queue);
        let before = bucket.len();
        bucket.retain(|other| other.id != queue.id);
        self.count -= before - bucket.len();
        if bucket.is_empty() {
            index.drop_bucket(queue);
        }
        if index.is_empty() {
            self.resources.remove(&queue.interest.resource);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.resources.values().flat_map(|index| {
            let labelled = index.by_label.values().flat_map(ByValue::values);
            index.by_scope.values().chain(labelled).flatten().chain(&index.unindexed)
        })
    }

    /// Visits the subscriptions that are interested in an event.
    pub(super) fn visit_interested(&self, event: &ObjectEvent, mut visit: impl FnMut(&Arc<Queue>)) {
        let Some(index) = self.resources.get(&event.resource) else {
            return;
        };
        for queue in index.by_scope.get(&*event.scope).into_iter().flatten().chain(&index.unindexed) {
            if queue.interest.wants(event) {
                visit(queue);
            }
        }
        if index.by_label.is_empty() {
            return;
        }
        let mut seen = Vec::new();
        for state in [Some(event.object()), event.change.previous().map(|object| object.as_object())] {
            let Some(Ok(meta)) = state.map(ObjectMetaRef::parse) else {
                continue;
            };
            for (key, value) in &meta.labels {
                let values = index.by_label.get(&**key);
                for queue in values.and_then(|values| values.get(&**value)).into_iter().flatten() {
                    if !seen.contains(&queue.id) && queue.interest.wants(event) {
                        seen.push(queue.id);
                        visit(queue);
                    }
                }
            }
        }
    }
}

impl ResourceIndex {
    fn bucket(&mut self, queue: &Queue) -> &mut Vec<Arc<Queue>> {
        match (&queue.interest.scopes, &queue.interest.label) {
            (ScopeSelector::One(scope), _) => self.by_scope.entry(scope.as_str().into()).or_default(),
            (ScopeSelector::Every { .. }, Some((key, value))) => {
                self.by_label.entry(key.clone()).or_default().entry(value.clone()).or_default()
            }
            (ScopeSelector::Every { .. }, None) => &mut self.unindexed,
        }
    }

    fn drop_bucket(&mut self, queue: &Queue) {
        match (&queue.interest.scopes, &queue.interest.label) {
            (ScopeSelector::One(scope), _) => {
                self.by_scope.remove(scope.as_str());
            }
            (ScopeSelector::Every { .. }, Some((key, value))) => {
                if let Some(values) = self.by_label.get_mut(key) {
                    values.remove(value);
                    if values.is_empty() {
                        self.by_label.remove(key);
                    }
                }
            }
            (ScopeSelector::Every { .. }, None) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.by_scope.is_empty() && self.by_label.is_empty() && self.unindexed.is_empty()
    }
}
