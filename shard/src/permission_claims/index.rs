//! The claims in force in all logical clusters of the shard, in memory.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use fairlead_api::label;
use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::object::{ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use memchr::memmem::Finder;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::binding::{BindingClaims, LabelRule, LabelledResource};
use super::labels::{ClaimLabels, ClusterClaims};
use crate::controller_runtime::Queue;
use crate::names::{API_BINDINGS, CUSTOM, LOGICAL_CLUSTERS};

/// Follows the bindings of the shard: labels objects that are written, and finds those whose labels are outdated.
///
/// Holds logical clusters that have claims in force, or had them since the process started. The others cost one look-up per write
/// and per event.
pub(crate) struct PermissionClaims {
    clusters: RwLock<FxHashMap<Box<str>, ClusterClaims>>,
    /// The rules of all bindings, shared by bindings with the same claims of the same export.
    shared: Mutex<SharedRules>,
    outdated: Mutex<FxHashMap<Box<str>, OutdatedLabels>>,
    /// Logical clusters whose labels or claim statuses may be outdated.
    queue: Arc<Queue<Box<str>>>,
    label_prefix: Finder<'static>,
}

/// The resources of a logical cluster whose objects may have outdated labels.
#[derive(Debug, Default)]
pub(crate) struct OutdatedLabels {
    /// All resources of claims.
    pub(crate) are_all: bool,
    /// These resources.
    pub(crate) resources: BTreeSet<LabelledResource>,
}

impl PermissionClaims {
    /// Reads all APIBindings and follows the hub. To be called before the hub runs.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn follow(objects: &ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let claims = Arc::new(Self {
            clusters: RwLock::default(),
            shared: Mutex::default(),
            outdated: Mutex::default(),
            queue: Arc::new(Queue::new()),
            label_prefix: Finder::new(label::CLAIMED_PREFIX),
        });
        let (bindings, all) = (claims.clone(), claims.clone());
        hub.observe(API_BINDINGS.clone(), Box::new(move |event| bindings.apply_binding(event)));
        hub.observe_all(Box::new(move |event| all.check(event)));
        objects.for_each(&API_BINDINGS, &CUSTOM, &ScopeSelector::all(), &mut |listed| {
            let Ok(meta) = ObjectMetaRef::parse(listed.object) else { return };
            if claims.put(listed.scope, &meta.name, listed.object) {
                // Writes that were under way when the process ended may have stored outdated labels.
                claims.outdated.lock().entry(listed.scope.into()).or_default().are_all = true;
            }
        })?;
        Ok(claims)
    }

    /// Logical clusters whose labels or claim statuses may be outdated.
    pub(crate) fn queue(&self) -> &Arc<Queue<Box<str>>> {
        &self.queue
    }

    /// Sets the claim labels of an object that is written. Without claims it costs one look-up and no allocation.
    pub(crate) fn label(
        &self,
        cluster: &str,
        (resource, origin): (&ResourceName, &Origin),
        object: &mut Value,
    ) {
        let clusters = self.clusters.read();
        let labels = &object["metadata"]["labels"];
        let labels = ClaimLabels::of(clusters.get(cluster), (resource, origin), |key| labels[key].as_str());
        labels.set(object);
    }

    /// Takes what may be outdated in a logical cluster. The caller relabels it, or returns it.
    pub(crate) fn take_outdated(&self, cluster: &str) -> OutdatedLabels {
        self.outdated.lock().remove(cluster).unwrap_or_default()
    }

    /// Returns what [`take_outdated`](Self::take_outdated) has handed out and was not relabelled.
    pub(crate) fn return_outdated(&self, cluster: &str, outdated: OutdatedLabels) {
        if outdated.are_all || !outdated.resources.is_empty() {
            let mut all = self.outdated.lock();
            let entry = all.entry(cluster.into()).or_default();
            entry.are_all |= outdated.are_all;
            entry.resources.extend(outdated.resources);
        }
    }

    /// The number of logical clusters that are held, and of different rules.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.clusters.read().len(), self.shared.lock().rules.len())
    }
}

impl PermissionClaims {
    fn apply_binding(&self, event: &ObjectEvent) {
        let ObjectChange::Deleted(previous) = &event.change else {
            self.put(&event.scope, &event.name, event.object());
            return;
        };
        self.set_rules(&event.scope, &event.name, Vec::new());
        let Ok(binding) = BindingClaims::parse(previous.as_object().json()) else { return };
        let resources = binding.resources();
        if !resources.is_empty() {
            self.return_outdated(&event.scope, OutdatedLabels { are_all: false, resources });
            self.queue.add((*event.scope).into());
        }
    }

    /// Sets the claims of a binding, and returns whether it has any or had some.
    fn put(&self, cluster: &str, name: &str, binding: ObjectBytes<'_>) -> bool {
        let claims = match BindingClaims::parse(binding.json()) {
            Ok(claims) => claims,
            Err(error) => {
                tracing::warn!(cluster, name, %error, "the claims of a malformed APIBinding have no effect");
                BindingClaims::default()
            }
        };
        self.set_rules(cluster, name, claims.rules());
        let has_claims = !claims.is_without_claims();
        if has_claims {
            self.queue.add(cluster.into());
        }
        has_claims
    }

    /// Sets the rules of a binding. Objects have the labels of earlier ones, also of an export in another logical cluster.
    fn set_rules(&self, cluster: &str, name: &str, rules: Vec<LabelRule>) {
        let resources = {
            let clusters = self.clusters.read();
            let present = clusters.get(cluster).and_then(|claims| claims.rules_of(name));
            let present = present.map_or(&[][..], |rules| rules);
            if present == rules {
                return;
            }
            let only_in = |one: &[LabelRule], other: &[LabelRule]| {
                let rules = one.iter().filter(|rule| !other.contains(rule));
                rules.map(|rule| rule.resource.clone()).collect::<Vec<_>>()
            };
            only_in(present, &rules).into_iter().chain(only_in(&rules, present)).collect()
        };
        let rules = self.shared.lock().share(rules);
        self.clusters.write().entry(cluster.into()).or_default().set(name, rules);
        self.return_outdated(cluster, OutdatedLabels { are_all: false, resources });
    }

    /// Finds objects that were written with the labels of earlier claims: the claims changed between admission and commit. Costs a
    /// search in the object, and if its resource is claimed, a parse of its metadata.
    fn check(&self, event: &ObjectEvent) {
        if event.is_deletion() {
            if event.resource == *LOGICAL_CLUSTERS {
                self.clusters.write().remove(&*event.scope);
                self.outdated.lock().remove(&*event.scope);
            }
            return;
        }
        {
            let clusters = self.clusters.read();
            let Some(claims) = clusters.get(&*event.scope) else { return };
            let object = event.object();
            if !claims.cover(&event.resource, &event.origin)
                && self.label_prefix.find(object.json()).is_none()
            {
                return;
            }
            let Ok(meta) = ObjectMetaRef::parse(object) else { return };
            let expected =
                ClaimLabels::of(Some(claims), (&event.resource, &event.origin), |key| meta.label(key));
            if expected.are_set(meta.labels.iter().map(|(key, value)| (&**key, &**value))) {
                return;
            }
        }
        let resources = BTreeSet::from([(event.resource.clone(), event.origin.clone())]);
        self.return_outdated(&event.scope, OutdatedLabels { are_all: false, resources });
        self.queue.add((*event.scope).into());
    }
}

/// Rules that bindings share.
#[derive(Default)]
struct SharedRules {
    rules: HashSet<Arc<[LabelRule]>>,
    /// The number of rules at which those without a binding are removed.
    limit: usize,
}

impl SharedRules {
    fn share(&mut self, rules: Vec<LabelRule>) -> Arc<[LabelRule]> {
        if let Some(shared) = self.rules.get(&*rules) {
            return shared.clone();
        }
        if self.rules.len() >= self.limit {
            self.rules.retain(|shared| Arc::strong_count(shared) > 1);
            self.limit = (self.rules.len() * 2).max(64);
        }
        let rules: Arc<[LabelRule]> = rules.into();
        self.rules.insert(rules.clone());
        rules
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use fairlead_api::PermissionClaim;
    use fairlead_apiserver::hub::HubOptions;
    use fairlead_names::KeyCodec;
    use fairlead_store::{MemoryStore, Store};
    use serde_json::json;

    use super::*;
    use crate::names::{BUILT_IN, CONFIG_MAPS, ROLES, SECRETS};

    fn rules(names: &[&str]) -> Vec<LabelRule> {
        let exported: Vec<Value> =
            names.iter().map(|name| json!({"group": "", "resource": name, "verbs": ["*"]})).collect();
        let accepted = exported.iter().map(|claim| {
            let mut claim = claim.clone();
            claim["selector"] = json!({"matchAll": true});
            claim["state"] = "Accepted".into();
            claim
        });
        let binding = json!({
            "metadata": {"name": "a"},
            "spec": {
                "reference": {"export": {"name": "e"}}, "permissionClaims": accepted.collect::<Vec<_>>(),
            },
            "status": {"apiExportClusterName": "c", "exportPermissionClaims": exported},
        });
        BindingClaims::parse(binding.to_string().as_bytes()).unwrap().rules()
    }

    fn index() -> Arc<PermissionClaims> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let codec = KeyCodec::new("/registry", 1, fairlead_apiserver::registry::is_built_in);
        let objects = ObjectStore::new(store.clone(), codec, &["kcp.io/cluster"]);
        PermissionClaims::follow(&objects, &Hub::new(store, codec, HubOptions::default())).unwrap()
    }

    #[test]
    fn objects_are_labelled_in_the_logical_cluster_of_the_claims_only() {
        let claims = index();
        claims.set_rules("claimed", "a", rules(&["configmaps"]));
        let (key, value) = fairlead_api::claim_label(
            "c",
            "e",
            &PermissionClaim { resource: "configmaps".to_owned(), ..PermissionClaim::default() },
        );
        for (cluster, resource, is_labelled) in
            [("claimed", &CONFIG_MAPS, true), ("claimed", &SECRETS, false), ("other", &CONFIG_MAPS, false)]
        {
            for labels in [json!({}), json!({&key: &value})] {
                let mut object = json!({"metadata": {"name": "m", "labels": labels}});
                claims.label(cluster, (resource, &BUILT_IN), &mut object);
                let expected = if is_labelled { json!({&key: &value}) } else { json!({}) };
                assert_eq!(object["metadata"]["labels"], expected, "{cluster} {:?} {labels}", **resource);
            }
        }
    }

    #[test]
    fn rules_without_a_binding_are_removed() {
        let claims = index();
        for index in 0..1000 {
            claims.set_rules("a", "b", rules(&[if index % 2 == 0 { "configmaps" } else { "secrets" }]));
            claims.set_rules(&format!("c{index}"), "b", rules(&["configmaps"]));
        }
        assert!(claims.counts().1 <= 3, "{:?}", claims.counts());
    }

    /// Prints the cost of the labels of one write. `cargo test --release -p fairlead-shard --lib cost_of_labels -- --ignored
    /// --nocapture`.
    #[test]
    #[ignore = "prints figures"]
    fn cost_of_labels() {
        const ROUNDS: u32 = 200_000;
        let claims = index();
        for cluster in 0..10_000 {
            let names = ["configmaps", "secrets", "serviceaccounts", "namespaces", "events"];
            claims.set_rules(&format!("claimed-{cluster}"), "a", rules(&names));
        }
        let mut labelled = json!({"metadata": {"name": "m", "labels": {"a": "b", "c": "d"}}});
        claims.label("claimed-7", (&CONFIG_MAPS, &BUILT_IN), &mut labelled);
        let plain = json!({"metadata": {"name": "m", "labels": {"a": "b", "c": "d"}}});
        for (case, cluster, resource, object) in [
            ("no claims in the logical cluster", "other", &CONFIG_MAPS, &plain),
            ("claims on other resources", "claimed-7", &ROLES, &plain),
            ("a claimed object that has its label", "claimed-7", &CONFIG_MAPS, &labelled),
        ] {
            let mut object = object.clone();
            claims.label(cluster, (resource, &BUILT_IN), &mut object);
            let start = Instant::now();
            for _ in 0..ROUNDS {
                claims.label(black_box(cluster), (resource, &BUILT_IN), black_box(&mut object));
            }
            let spent = start.elapsed() / ROUNDS;
            println!("{case}: {spent:?} per write");
        }
    }
}
