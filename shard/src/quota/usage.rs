//! The objects of one logical cluster, counted by resource and namespace, with the shares of creates that are under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_apiserver::hub::{ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::Reservation;
use fairlead_names::ResourceName;
use fairlead_store::Revision;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::limits::{Limit, Quota};

/// Namespace and name of a ResourceQuota.
pub(super) type QuotaName = (Box<str>, Box<str>);

/// The usage of a logical cluster. Costs some 100 bytes per resource and namespace that has objects.
#[derive(Default)]
pub(super) struct ClusterUsage {
    state: Mutex<State>,
    /// Held by the caller that counts.
    pub(super) counting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    quotas: BTreeMap<QuotaName, Arc<Quota>>,
    /// Whether `counts` contains all objects.
    is_counted: bool,
    /// Events up to this revision are not counted one by one: the count of the store contains them.
    since: Revision,
    /// The revision of the last event.
    last: Revision,
    /// Objects, and creates under way.
    counts: Counts,
    /// Creates under way. Their events do not count again.
    reserved: FxHashMap<ObjectName, u32>,
}

/// Numbers of objects. Negative ones are those of deleted objects that are not counted yet.
#[derive(Default)]
pub(super) struct Counts {
    /// All objects but events, which the limit of the logical cluster does not include.
    total: i64,
    resources: FxHashMap<ResourceName, ResourceCount>,
}

#[derive(Default)]
struct ResourceCount {
    total: i64,
    namespaces: FxHashMap<Box<str>, i64>,
}

/// An object that is created.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct ObjectName {
    pub(super) resource: ResourceName,
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
}

/// A limit that a create would exceed.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Exceeded {
    /// The limit of all objects.
    #[error(
        "logical cluster {cluster:?} has reached its total object count limit ({count}/{limit} objects); delete objects to \
         free up capacity"
    )]
    Total { cluster: Box<str>, count: u64, limit: u64 },
    /// A ResourceQuota.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Quota { quota: Box<str>, requested: String, used: String, limited: String },
}

impl Counts {
    pub(super) fn add(&mut self, resource: &ResourceName, namespace: Option<&str>) {
        self.change(resource, namespace, 1);
    }

    fn remove(&mut self, resource: &ResourceName, namespace: Option<&str>) {
        self.change(resource, namespace, -1);
    }

    fn change(&mut self, resource: &ResourceName, namespace: Option<&str>, by: i64) {
        if !is_event(resource) {
            self.total += by;
        }
        // Most changes find their entries, without an allocation.
        let count = match self.resources.get_mut(resource) {
            Some(count) => count,
            None => self.resources.entry(resource.clone()).or_default(),
        };
        count.total += by;
        let Some(namespace) = namespace else { return };
        match count.namespaces.get_mut(namespace) {
            Some(count) => *count += by,
            None => drop(count.namespaces.insert(namespace.into(), by)),
        }
        if count.namespaces.get(namespace) == Some(&0) {
            count.namespaces.remove(namespace);
        }
    }

    fn total(&self) -> u64 {
        u64::try_from(self.total).unwrap_or(0)
    }

    /// The objects of a resource in one namespace, or in the whole logical cluster.
    fn of(&self, resource: &ResourceName, namespace: Option<&str>) -> u64 {
        let Some(count) = self.resources.get(resource) else { return 0 };
        let count =
            namespace.map_or(count.total, |namespace| count.namespaces.get(namespace).copied().unwrap_or(0));
        u64::try_from(count).unwrap_or(0)
    }

    /// The objects that count for a quota in a namespace.
    fn for_quota(&self, (namespace, _): &QuotaName, quota: &Quota, resource: &ResourceName) -> u64 {
        self.of(resource, (!quota.spans_cluster).then_some(namespace))
    }
}

impl ClusterUsage {
    pub(super) fn set_quota(&self, name: QuotaName, quota: Quota) {
        self.state.lock().quotas.insert(name, Arc::new(quota));
    }

    /// Removes a quota. Returns whether there are others.
    pub(super) fn remove_quota(&self, name: &QuotaName) -> bool {
        let mut state = self.state.lock();
        state.quotas.remove(name);
        !state.quotas.is_empty()
    }

    /// Counts an event. Calls `changed` with each quota whose usage changes.
    pub(super) fn apply(&self, event: &ObjectEvent, mut changed: impl FnMut(&QuotaName)) {
        let mut state = self.state.lock();
        state.last = event.revision;
        let namespace = event.namespace.as_deref();
        let resource = &event.resource;
        let is_counted_one_by_one = event.revision > state.since;
        match event.change {
            ObjectChange::Updated { .. } => return,
            _ if !is_counted_one_by_one => {}
            ObjectChange::Created(_) => {
                let object = ObjectName {
                    resource: resource.clone(),
                    namespace: event.namespace.clone(),
                    name: event.name.clone(),
                };
                if !state.take_reservation(&object) {
                    state.counts.add(resource, namespace);
                }
            }
            ObjectChange::Deleted(_) => state.counts.remove(resource, namespace),
        }
        for (name, quota) in &state.quotas {
            if quota.covers(&name.0, namespace) && quota.limits_of(resource).next().is_some() {
                changed(name);
            }
        }
    }

    /// Whether all objects are counted.
    pub(super) fn is_counted(&self) -> bool {
        self.state.lock().is_counted
    }

    /// Begins a count of the store. Returns the revision that is to be counted, at or after `revision`; later events are counted one
    /// by one.
    pub(super) fn begin_count(&self, revision: Revision) -> Revision {
        let mut state = self.state.lock();
        // Events of `last` may have been seen in part. The count of the store contains all of them.
        state.since = revision.max(state.last);
        state.counts = Counts::default();
        state.since
    }

    /// Adds the objects that existed at the revision of [`begin_count`](Self::begin_count).
    pub(super) fn finish_count(&self, counted: Counts) {
        let mut state = self.state.lock();
        let later = std::mem::replace(&mut state.counts, counted);
        state.counts.total += later.total;
        for (resource, later) in later.resources {
            let count = state.counts.resources.entry(resource).or_default();
            count.total += later.total;
            for (namespace, more) in later.namespaces {
                *count.namespaces.entry(namespace).or_default() += more;
            }
        }
        state.is_counted = true;
    }

    /// Reserves the share of a create, or says which limit it exceeds.
    pub(super) fn reserve(
        self: &Arc<Self>,
        cluster: &str,
        object: ObjectName,
        limit: Option<u64>,
    ) -> Result<Box<dyn Reservation>, Exceeded> {
        let mut state = self.state.lock();
        if let Some(limit) = limit
            && state.counts.total() >= limit
        {
            return Err(Exceeded::Total { cluster: cluster.into(), count: state.counts.total(), limit });
        }
        if let Some(exceeded) = state.exceeded_quota(&object) {
            return Err(exceeded);
        }
        state.counts.add(&object.resource, object.namespace.as_deref());
        *state.reserved.entry(object.clone()).or_default() += 1;
        drop(state);
        Ok(Box::new(CreateReservation { usage: self.clone(), object, is_kept: false }))
    }

    /// The use of each counted limit of a quota, without creates under way.
    pub(super) fn used(&self, name: &QuotaName, quota: &Quota) -> Vec<(Box<str>, u64)> {
        let state = self.state.lock();
        let counted = quota.limits.iter().filter_map(|limit| Some((limit, limit.resource.as_ref()?)));
        let used = counted.map(|(limit, resource)| {
            let reserved = state.reserved.iter().filter(|(object, _)| {
                object.resource == *resource && quota.covers(&name.0, object.namespace.as_deref())
            });
            let reserved: u64 = reserved.map(|(_, count)| u64::from(*count)).sum();
            let count = state.counts.for_quota(name, quota, resource);
            (limit.name.clone(), count.saturating_sub(reserved))
        });
        used.collect()
    }
}

impl State {
    /// The first quota without room for one more object: those of its namespace first, then those of the logical cluster.
    fn exceeded_quota(&self, object: &ObjectName) -> Option<Exceeded> {
        let namespace = object.namespace.as_deref();
        let covering = |spans_cluster: bool| {
            self.quotas.iter().filter(move |(name, quota)| {
                quota.spans_cluster == spans_cluster && quota.covers(&name.0, namespace)
            })
        };
        covering(false).chain(covering(true)).find_map(|(name, quota)| {
            let used = self.counts.for_quota(name, quota, &object.resource);
            let exceeded: Vec<&Limit> =
                quota.limits_of(&object.resource).filter(|limit| !limit.allows(used + 1)).collect();
            if exceeded.is_empty() {
                return None;
            }
            let listed = |amount: &dyn Fn(&Limit) -> String| {
                let all: Vec<String> =
                    exceeded.iter().map(|limit| format!("{}={}", limit.name, amount(limit))).collect();
                all.join(",")
            };
            Some(Exceeded::Quota {
                quota: name.1.clone(),
                requested: listed(&|_| "1".to_owned()),
                used: listed(&|_| used.to_string()),
                limited: listed(&|limit| limit.amount.to_string()),
            })
        })
    }

    fn take_reservation(&mut self, object: &ObjectName) -> bool {
        let Some(count) = self.reserved.get_mut(object) else { return false };
        *count -= 1;
        if *count == 0 {
            self.reserved.remove(object);
        }
        true
    }
}

/// The share of a create under way.
struct CreateReservation {
    usage: Arc<ClusterUsage>,
    object: ObjectName,
    is_kept: bool,
}

impl Reservation for CreateReservation {
    fn keep(mut self: Box<Self>) {
        // The event of the create takes the share.
        self.is_kept = true;
    }
}

impl Drop for CreateReservation {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut state = self.usage.state.lock();
        if state.take_reservation(&self.object) {
            state.counts.remove(&self.object.resource, self.object.namespace.as_deref());
        }
    }
}

/// Whether objects of a resource are events, which no limit includes.
pub(super) fn is_event(resource: &ResourceName) -> bool {
    *resource.resource == *"events" && matches!(&*resource.group, "" | "events.k8s.io")
}

#[cfg(test)]
mod tests {
    use fairlead_apiserver::object::encode;
    use fairlead_apiserver::registry::is_built_in;
    use fairlead_names::{KeyCodec, Origin};
    use fairlead_store::{Event, Record};
    use serde_json::{Value, json};

    use super::*;

    fn usage(quotas: &[(&str, &str, Value)]) -> Arc<ClusterUsage> {
        let usage = Arc::new(ClusterUsage::default());
        for (namespace, name, object) in quotas {
            let quota = Quota::decode(object.to_string().as_bytes()).unwrap();
            usage.set_quota(((*namespace).into(), (*name).into()), quota);
        }
        usage.finish_count(Counts::default());
        usage
    }

    fn object(name: &str) -> ObjectName {
        ObjectName {
            resource: ResourceName::new("", "configmaps"),
            namespace: Some("n".into()),
            name: name.into(),
        }
    }

    fn hard(limits: Value) -> Value {
        json!({"spec": {"hard": limits}})
    }

    fn event(revision: u64, name: &str, is_created: bool) -> ObjectEvent {
        let codec = KeyCodec::new("/registry", 1, is_built_in);
        let resource = ResourceName::new("", "configmaps");
        let key = codec.object(&resource, &Origin::BuiltIn, "c", Some("n"), name);
        let object = encode(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}}),
            0,
        )
        .unwrap()
        .stored()
        .clone();
        let previous = Record {
            key: key.clone().into(),
            value: object.clone(),
            created: Revision(1),
            modified: Revision(1),
        };
        let event = Event {
            key: key.into(),
            value: is_created.then_some(object),
            previous: (!is_created).then_some(previous),
        };
        ObjectEvent::decode(Revision(revision), &event, &codec).unwrap()
    }

    #[test]
    fn events_during_a_count_are_counted_once() {
        let quota = || Quota::decode(hard(json!({"count/configmaps": "9"})).to_string().as_bytes()).unwrap();
        let name = || -> QuotaName { ("n".into(), "q".into()) };
        let usage = ClusterUsage::default();
        usage.set_quota(name(), quota());
        let mut changes = 0;
        let mut apply = |event| usage.apply(&event, |_| changes += 1);
        apply(event(3, "a", true));
        assert_eq!(usage.begin_count(Revision(2)), Revision(3), "a batch is counted whole");
        apply(event(3, "b", true));
        apply(event(4, "a", false));
        apply(event(5, "c", true));
        let mut counted = Counts::default();
        for _ in ["a", "b"] {
            counted.add(&ResourceName::new("", "configmaps"), Some("n"));
        }
        usage.finish_count(counted);
        assert_eq!(usage.used(&name(), &quota()), [("count/configmaps".into(), 2)]);
        assert_eq!(changes, 4, "each change is reported");
    }

    #[test]
    fn a_reservation_counts_until_its_create_fails() {
        let usage = usage(&[("n", "q", hard(json!({"count/configmaps": "1"})))]);
        let held = usage.reserve("c", object("a"), None).ok().unwrap();
        assert!(usage.reserve("c", object("b"), None).is_err());
        drop(held);
        let held = usage.reserve("c", object("b"), None).ok().unwrap();
        held.keep();
        assert!(usage.reserve("c", object("c"), None).is_err(), "a kept share stays in use");
        let quota = Quota::decode(hard(json!({"count/configmaps": "1"})).to_string().as_bytes()).unwrap();
        let used = usage.used(&("n".into(), "q".into()), &quota);
        assert_eq!(used, [("count/configmaps".into(), 0)], "a create under way is not shown as used");
    }

    #[test]
    fn the_first_exceeded_quota_is_named_with_its_limits() {
        let whole = json!({
            "metadata": {"annotations": {"experimental.quota.kcp.io/cluster-scoped": "true"}},
            "spec": {"hard": {"count/configmaps": "0"}},
        });
        for (quotas, expected) in [
            (
                vec![("n", "q", hard(json!({"count/configmaps": "0", "configmaps": "0", "secrets": "0"})))],
                Some(
                    "exceeded quota: q, requested: configmaps=1,count/configmaps=1, used: configmaps=0,\
                     count/configmaps=0, limited: configmaps=0,count/configmaps=0",
                ),
            ),
            (vec![("other", "q", hard(json!({"count/configmaps": "0"})))], None),
            (
                vec![("admin", "a", whole), ("n", "b", hard(json!({"count/configmaps": "5"})))],
                Some(
                    "exceeded quota: a, requested: count/configmaps=1, used: count/configmaps=0, limited: \
                     count/configmaps=0",
                ),
            ),
        ] {
            let refused = usage(&quotas).reserve("c", object("a"), None).err();
            assert_eq!(refused.map(|exceeded| exceeded.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn the_limit_of_a_logical_cluster_counts_all_resources() {
        let usage = usage(&[]);
        let held = usage.reserve("c", object("a"), Some(1)).ok().unwrap();
        let refused = usage.reserve("c", object("b"), Some(1)).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "logical cluster \"c\" has reached its total object count limit (1/1 objects); delete objects to free up \
             capacity"
        );
        drop(held);
        assert!(usage.reserve("c", object("b"), Some(1)).is_ok());
    }
}
