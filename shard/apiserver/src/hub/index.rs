//! Finds the subscriptions for an event: by resource, then by scope or label.

use std::sync::Arc;

use fairlead_names::ResourceName;
use rustc_hash::FxHashMap;

use super::event::{Labels, ObjectEvent};
use super::queue::Queue;
use crate::scope::ScopeSelector;

/// The registered subscriptions. An event costs one look-up for its resource, one for its scope, and, if a subscription to them
/// selects by a label, one metadata parse and a look-up per label.
#[derive(Default)]
pub(super) struct SubscriptionIndex {
    resources: FxHashMap<ResourceName, ResourceIndex>,
    count: usize,
}

#[derive(Default)]
struct ResourceIndex {
    by_scope: FxHashMap<Box<str>, ScopeIndex>,
    /// Subscriptions to several scopes.
    every_scope: ScopeIndex,
}

#[derive(Default)]
struct ScopeIndex {
    /// By key, then by value, so that a look-up does not allocate.
    by_label: Option<Box<FxHashMap<Arc<str>, ByValue>>>,
    /// Subscriptions without a label.
    unlabelled: Vec<Arc<Queue>>,
}

type ByValue = FxHashMap<Arc<str>, Vec<Arc<Queue>>>;

impl SubscriptionIndex {
    pub(super) fn insert(&mut self, queue: Arc<Queue>) {
        let index = self.resources.entry(queue.interest.resource.clone()).or_default();
        index.of_mut(&queue).insert(queue);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, queue: &Arc<Queue>) {
        let Some(index) = self.resources.get_mut(&queue.interest.resource) else {
            return;
        };
        let scope = index.of_mut(queue);
        self.count -= usize::from(scope.remove(queue));
        if scope.is_empty()
            && let ScopeSelector::One(name) = &queue.interest.scopes
        {
            index.by_scope.remove(name.as_str());
        }
        if index.by_scope.is_empty() && index.every_scope.is_empty() {
            self.resources.remove(&queue.interest.resource);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        let scopes = self
            .resources
            .values()
            .flat_map(|index| index.by_scope.values().chain(core::iter::once(&index.every_scope)));
        scopes.flat_map(ScopeIndex::iter)
    }

    /// Visits the subscriptions that are interested in an event.
    pub(super) fn visit_interested(&self, event: &ObjectEvent, mut visit: impl FnMut(&Arc<Queue>)) {
        let Some(index) = self.resources.get(&event.resource) else {
            return;
        };
        let own = index.by_scope.get(&*event.scope);
        for scope in own.into_iter().chain(core::iter::once(&index.every_scope)) {
            scope.visit_interested(event, &mut visit);
        }
    }
}

impl ResourceIndex {
    fn of_mut(&mut self, queue: &Queue) -> &mut ScopeIndex {
        match &queue.interest.scopes {
            ScopeSelector::One(scope) => self.by_scope.entry(scope.as_str().into()).or_default(),
            ScopeSelector::Every { .. } => &mut self.every_scope,
        }
    }
}

impl ScopeIndex {
    fn insert(&mut self, queue: Arc<Queue>) {
        let bucket = match &queue.interest.label {
            None => &mut self.unlabelled,
            Some((key, value)) => {
                let by_label = self.by_label.get_or_insert_default();
                by_label.entry(key.clone()).or_default().entry(value.clone()).or_default()
            }
        };
        bucket.push(queue);
    }

    /// Removes a subscription; false if it was not there.
    fn remove(&mut self, queue: &Queue) -> bool {
        let Some((key, value)) = &queue.interest.label else {
            return take(&mut self.unlabelled, queue);
        };
        let Some(by_label) = &mut self.by_label else { return false };
        let Some(values) = by_label.get_mut(key) else { return false };
        let Some(bucket) = values.get_mut(value) else { return false };
        let was_there = take(bucket, queue);
        if bucket.is_empty() {
            values.remove(value);
        }
        if values.is_empty() {
            by_label.remove(key);
        }
        if by_label.is_empty() {
            self.by_label = None;
        }
        was_there
    }

    fn visit_interested(&self, event: &ObjectEvent, visit: &mut impl FnMut(&Arc<Queue>)) {
        for queue in &self.unlabelled {
            if queue.interest.wants(event) {
                visit(queue);
            }
        }
        let Some(by_label) = &self.by_label else { return };
        let mut seen = Vec::new();
        let labels = event.labels();
        for (key, value) in [&labels.object, &labels.previous].into_iter().flatten().flat_map(Labels::iter) {
            let values = by_label.get(key);
            for queue in values.and_then(|values| values.get(value)).into_iter().flatten() {
                if !seen.contains(&queue.id) && queue.interest.wants(event) {
                    seen.push(queue.id);
                    visit(queue);
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        let labelled = self.by_label.iter().flat_map(|by_label| by_label.values().flat_map(ByValue::values));
        labelled.flatten().chain(&self.unlabelled)
    }

    fn is_empty(&self) -> bool {
        self.by_label.is_none() && self.unlabelled.is_empty()
    }
}

fn take(bucket: &mut Vec<Arc<Queue>>, queue: &Queue) -> bool {
    let before = bucket.len();
    bucket.retain(|other| other.id != queue.id);
    before != bucket.len()
}
