//! Tests of the replication from a store to a cache server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_apiserver::Scope;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::registry::is_built_in;
use fairlead_client::PatchType;
use fairlead_config::DrainConfig;
use fairlead_names::{KeyCodec, Origin, ResourceName};
use fairlead_process::{Metrics, Shutdown};
use fairlead_store::{Expect, MemoryStore, Mutation, Store};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Replication, ReplicationMetrics};
use crate::global::CacheResource;
use crate::global::test_cache::TestCache;
use crate::index::Identities;

const CODEC: KeyCodec = KeyCodec::new("/registry", 1, is_built_in);

/// The parts of a shard that replication reads.
struct Shard {
    objects: ObjectStore,
    hub: Hub,
    running: Option<(Shutdown, JoinHandle<()>, Metrics)>,
}

/// A resource by its plural name.
#[derive(Clone, Copy)]
enum Kind {
    Binding,
    Cluster,
    Export,
    Policy,
    Role,
    Type,
}

impl Kind {
    fn parts(self) -> (ResourceName, Origin, &'static str, &'static str) {
        match self {
            Self::Binding => (
                ResourceName::new("rbac.authorization.k8s.io", "clusterrolebindings"),
                Origin::BuiltIn,
                "rbac.authorization.k8s.io/v1",
                "ClusterRoleBinding",
            ),
            Self::Cluster => (
                ResourceName::new("core.kcp.io", "logicalclusters"),
                Origin::Custom,
                "core.kcp.io/v1alpha1",
                "LogicalCluster",
            ),
            Self::Export => (
                ResourceName::new("apis.kcp.io", "apiexports"),
                Origin::Custom,
                "apis.kcp.io/v1alpha2",
                "APIExport",
            ),
            Self::Policy => (
                ResourceName::new("admissionregistration.k8s.io", "validatingadmissionpolicies"),
                Origin::BuiltIn,
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
            ),
            Self::Role => (
                ResourceName::new("rbac.authorization.k8s.io", "clusterroles"),
                Origin::BuiltIn,
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
            ),
            Self::Type => (
                ResourceName::new("tenancy.kcp.io", "workspacetypes"),
                Origin::Identity("hash".into()),
                "tenancy.kcp.io/v1alpha1",
                "WorkspaceType",
            ),
        }
    }
}

impl Shard {
    fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let hub = Hub::new(store.clone(), CODEC, HubOptions::default());
        let driven = hub.clone();
        tokio::spawn(async move { driven.run().await });
        Self { objects: ObjectStore::new(store, CODEC, &["kcp.io/cluster"]), hub, running: None }
    }

    /// Starts the replication as shard `s1`.
    fn replicate(&mut self, cache: &TestCache) {
        let metrics = Metrics::new("shard", "0").unwrap();
        let identities: Identities = [
            ("tenancy.kcp.io".to_owned(), Arc::from("hash")),
            ("shards.core.kcp.io".to_owned(), Arc::from("other")),
        ]
        .into_iter()
        .collect();
        let replication = Replication::new(
            "s1",
            self.objects.clone(),
            self.hub.clone(),
            &identities,
            cache.client(),
            &ReplicationMetrics::new(&metrics).unwrap(),
        );
        let shutdown =
            Shutdown::new(&DrainConfig { window: "1ms".parse().unwrap(), ..DrainConfig::default() });
        let running = tokio::spawn(replication.run(shutdown.clone()));
        self.running = Some((shutdown, running, metrics));
    }

    /// The objects that wait for replication, by its gauge.
    fn pending(&self) -> u64 {
        let (.., metrics) = self.running.as_ref().unwrap();
        let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("fairlead_replication_pending "));
        line.unwrap().parse().unwrap()
    }

    /// Stops the replication after its running writes; returns the number of writes by verb.
    async fn stop(&mut self) -> BTreeMap<String, u64> {
        let (shutdown, running, metrics) = self.running.take().unwrap();
        shutdown.begin();
        shutdown.run().await;
        running.await.unwrap();
        let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
        let mut writes = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("fairlead_replication_writes_total{")) {
            let verb = line.split("verb=\"").nth(1).unwrap().split('"').next().unwrap();
            let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            *writes.entry(verb.to_owned()).or_default() += count;
        }
        writes
    }

    async fn put(&self, kind: Kind, cluster: &str, name: &str, changes: Value) {
        let (resource, origin, api_version, kind) = kind.parts();
        let mut object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        merge(&mut object, changes);
        let key = self.objects.key(&resource, &origin, cluster, None, name);
        let owners = owners().to_string();
        let encoded = self.objects.encode_managed(object, 0, owners.as_bytes()).unwrap();
        self.objects.store().commit(vec![Mutation::put(key, encoded.stored().clone())]).await.unwrap();
    }

    async fn delete(&self, kind: Kind, cluster: &str, name: &str) {
        let (resource, origin, ..) = kind.parts();
        let key = self.objects.key(&resource, &origin, cluster, None, name);
        self.objects.store().commit(vec![Mutation::delete(key, Expect::Present)]).await.unwrap();
    }

    fn version(&self, kind: Kind, cluster: &str, name: &str) -> String {
        let (resource, origin, ..) = kind.parts();
        let stored = self.objects.get(&resource, &origin, &Scope::new(cluster), None, name).unwrap().unwrap();
        stored.revision.to_string()
    }
}

/// `metadata.managedFields` of all objects.
fn owners() -> Value {
    json!([{
        "manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
    }])
}

fn merge(object: &mut Value, changes: Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, value) => *object = value,
    }
}

/// An object with a reason that an administrator has set.
fn marked() -> Value {
    json!({"metadata": {"annotations": {"internal.kcp.io/replicate": "by.hand"}}})
}

#[tokio::test]
async fn replicas_follow_their_origins() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    shard.put(Kind::Export, "root", "before", json!({"spec": {"n": 1}})).await;
    shard.replicate(&cache);
    cache.until("the existing export", |all| all.contains_key("apiexports/s1/root/before")).await;
    let replica = &cache.contents()["apiexports/s1/root/before"];
    assert_eq!(replica["metadata"]["uid"], "uid-before");
    assert_eq!(replica["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(replica["metadata"]["managedFields"], owners());
    let annotations = &replica["metadata"]["annotations"];
    assert_eq!(annotations["cache.kcp.io/original-resource-UID"], "uid-before");
    assert_eq!(
        annotations["cache.kcp.io/original-resource-version"],
        shard.version(Kind::Export, "root", "before")
    );

    // The gauge ends at 0, which tells that everything is in the cache.
    let ended = async {
        while shard.pending() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("objects wait for ever");

    shard.put(Kind::Type, "org", "new", json!({"spec": {"n": 1}})).await;
    cache.until("a new type", |all| all.contains_key("workspacetypes/s1/org/new")).await;
    shard.put(Kind::Type, "org", "new", json!({"spec": {"n": 2}, "status": {"phase": "Ready"}})).await;
    cache
        .until("a changed type", |all| {
            let replica = &all["workspacetypes/s1/org/new"];
            replica["spec"]["n"] == 2 && replica["status"]["phase"] == "Ready"
        })
        .await;
    assert_eq!(
        cache.contents()["workspacetypes/s1/org/new"]["metadata"]["annotations"]["cache.kcp.io/original-resource-version"],
        shard.version(Kind::Type, "org", "new"),
        "unlike in kcp, which keeps the first version"
    );
    shard.delete(Kind::Type, "org", "new").await;
    cache.until("no type", |all| !all.contains_key("workspacetypes/s1/org/new")).await;
    let writes = shard.stop().await;
    assert_eq!(writes["delete"], 1);
}

#[tokio::test]
async fn only_objects_that_other_shards_need_are_replicated() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    shard.replicate(&cache);
    shard.put(Kind::Role, "root", "plain", json!({})).await;
    shard.put(Kind::Export, "system:admin", "own", json!({})).await;
    shard.put(Kind::Role, "root", "system:kcp:marked", marked()).await;
    cache.until("the marked role", |all| all.contains_key("clusterroles/s1/root/system:kcp:marked")).await;
    // A mark is added, then removed.
    shard.put(Kind::Role, "root", "plain", marked()).await;
    cache.until("a role that was marked", |all| all.contains_key("clusterroles/s1/root/plain")).await;
    shard.put(Kind::Role, "root", "plain", json!({})).await;
    cache.until("no unmarked role", |all| !all.contains_key("clusterroles/s1/root/plain")).await;
    // The event of the last change comes after all others, so everything has been replicated by now.
    assert_eq!(cache.contents().keys().collect::<Vec<_>>(), ["clusterroles/s1/root/system:kcp:marked"]);
}

#[tokio::test]
async fn configurations_are_replicated_while_their_logical_cluster_publishes_apis() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    let replica = "validatingadmissionpolicies/s1/provider/before";
    for cluster in ["provider", "other", "system:admin"] {
        shard.put(Kind::Policy, cluster, "before", json!({})).await;
    }
    shard.put(Kind::Export, "system:admin", "own", json!({})).await;
    shard.replicate(&cache);
    for _ in 0..2 {
        shard.put(Kind::Export, "provider", "things", json!({})).await;
        cache.until("the policy of a provider", |all| all.contains_key(replica)).await;
        shard.put(Kind::Policy, "provider", "after", json!({})).await;
        cache.until("a new policy", |all| all.len() == 3).await;
        shard.delete(Kind::Policy, "provider", "after").await;
        shard.delete(Kind::Export, "provider", "things").await;
        cache.until("nothing", BTreeMap::is_empty).await;
    }
    shard.stop().await;
    shard.put(Kind::Export, "provider", "things", json!({})).await;
    shard.replicate(&cache);
    cache.until("the policy of an existing provider", |all| all.contains_key(replica)).await;
    shard.stop().await;
    shard.delete(Kind::Export, "provider", "things").await;
    shard.replicate(&cache);
    cache.until("nothing", BTreeMap::is_empty).await;
}

#[tokio::test]
async fn a_second_run_writes_nothing() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    for number in 0..50 {
        let name = format!("e{number}");
        shard
            .put(Kind::Export, "root", &name, json!({"spec": {"n": number, "empty": null, "list": []}}))
            .await;
        shard.put(Kind::Role, "root", &name, marked()).await;
        shard.put(Kind::Type, "org", &name, json!({"metadata": {"finalizers": [], "labels": {}}})).await;
    }
    shard.replicate(&cache);
    cache.until("all replicas", |all| all.len() == 150).await;
    assert_eq!(shard.stop().await, [("create".to_owned(), 150)].into());
    let (contents, revision) = (cache.contents(), cache.revision());

    shard.replicate(&cache);
    // The second run processes these objects after all others.
    for kind in [Kind::Export, Kind::Role, Kind::Type] {
        shard.put(kind, "root", "last", marked()).await;
    }
    cache.until("the last objects", |all| all.len() == 153).await;
    assert_eq!(shard.stop().await, [("create".to_owned(), 3)].into());
    assert_eq!(cache.revision(), revision + 3);
    assert!(contents.iter().all(|(key, object)| cache.contents()[key] == *object));
}

#[tokio::test]
async fn changes_during_a_cache_outage_are_replicated_afterwards() {
    let mut cache = TestCache::start().await;
    let mut shard = Shard::new();
    for name in ["kept", "changed", "deleted"] {
        shard.put(Kind::Export, "root", name, json!({"spec": 1})).await;
    }
    shard.replicate(&cache);
    cache.until("all replicas", |all| all.len() == 3).await;
    cache.stop().await;
    shard.put(Kind::Export, "root", "changed", json!({"spec": 2})).await;
    shard.put(Kind::Export, "root", "created", json!({"spec": 1})).await;
    shard.delete(Kind::Export, "root", "deleted").await;
    cache.resume().await;
    cache
        .until("all replicas again", |all| {
            all.keys().map(|key| key.rsplit('/').next().unwrap()).eq(["changed", "created", "kept"])
                && all["apiexports/s1/root/changed"]["spec"] == 2
        })
        .await;
}

#[tokio::test]
async fn changes_without_replication_are_replicated_after_its_start() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    for name in ["kept", "changed", "deleted"] {
        shard.put(Kind::Export, "root", name, json!({"spec": 1})).await;
    }
    shard.replicate(&cache);
    cache.until("all replicas", |all| all.len() == 3).await;
    shard.stop().await;
    shard.put(Kind::Export, "root", "changed", json!({"spec": 2})).await;
    shard.delete(Kind::Export, "root", "deleted").await;
    // Replicas of another shard are not changed.
    let exports = CacheResource::new("apis.kcp.io", "v1alpha2", "apiexports");
    let foreign = json!({"metadata": {"name": "foreign", "uid": "f", "annotations": {"kcp.io/shard": "s2"}}});
    cache.create(&exports, "s2", "root", &foreign).await;
    shard.replicate(&cache);
    cache
        .until("all replicas again", |all| {
            all.keys().eq([
                "apiexports/s1/root/changed",
                "apiexports/s1/root/kept",
                "apiexports/s2/root/foreign",
            ]) && all["apiexports/s1/root/changed"]["spec"] == 2
        })
        .await;
    assert_eq!(shard.stop().await, [("delete".to_owned(), 1), ("update".to_owned(), 1)].into());
}

#[tokio::test]
async fn replicas_are_created_again_when_the_cache_has_a_new_store() {
    let mut cache = TestCache::start().await;
    let mut shard = Shard::new();
    for name in ["a", "b"] {
        shard.put(Kind::Export, "root", name, json!({})).await;
        shard.put(Kind::Type, "root", name, json!({})).await;
    }
    shard.replicate(&cache);
    cache.until("all replicas", |all| all.len() == 4).await;
    cache.stop().await;
    cache.lose_store().await;
    cache.resume().await;
    cache.until("all replicas again", |all| all.len() == 4).await;
}

#[tokio::test]
async fn changes_of_replicas_by_other_clients_are_reverted() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    shard.put(Kind::Export, "root", "a", json!({"spec": 1})).await;
    shard.put(Kind::Export, "root", "b", json!({"spec": 1})).await;
    shard.replicate(&cache);
    cache.until("all replicas", |all| all.len() == 2).await;
    let exports = CacheResource::new("apis.kcp.io", "v1alpha2", "apiexports");
    let client = cache.client();
    let patch = json!({"spec": 2});
    let path = exports.object("s1", "root", "a");
    client.patch::<Value>(&path, PatchType::Merge, &patch, &Default::default()).await.unwrap();
    client.delete(&exports.object("s1", "root", "b"), &Default::default()).await.unwrap();
    let forged = json!({"metadata": {"name": "c", "uid": "c", "annotations": {"kcp.io/shard": "s1"}}});
    cache.create(&exports, "s1", "root", &forged).await;
    cache
        .until("the original replicas", |all| {
            all.keys().eq(["apiexports/s1/root/a", "apiexports/s1/root/b"])
                && all["apiexports/s1/root/a"]["spec"] == 1
        })
        .await;
}

#[tokio::test]
async fn another_object_of_the_same_name_gets_another_replica() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    shard.put(Kind::Export, "root", "a", json!({"metadata": {"generation": 9}})).await;
    shard.replicate(&cache);
    cache.until("the first replica", |all| all.contains_key("apiexports/s1/root/a")).await;
    shard.delete(Kind::Export, "root", "a").await;
    shard.put(Kind::Export, "root", "a", json!({"metadata": {"uid": "second", "generation": 1}})).await;
    cache
        .until("the second replica", |all| {
            all.get("apiexports/s1/root/a").is_some_and(|replica| replica["metadata"]["uid"] == "second")
        })
        .await;
}

#[tokio::test]
async fn a_replica_stays_until_the_finalizers_of_its_origin_are_gone() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    let held = json!({"metadata": {"finalizers": ["f"]}});
    shard.put(Kind::Export, "root", "a", held.clone()).await;
    shard.replicate(&cache);
    cache.until("the replica", |all| all.contains_key("apiexports/s1/root/a")).await;
    let mut deleting = held;
    deleting["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    shard.put(Kind::Export, "root", "a", deleting).await;
    shard.put(Kind::Export, "root", "b", json!({})).await;
    cache.until("the later object", |all| all.contains_key("apiexports/s1/root/b")).await;
    assert!(cache.contents().contains_key("apiexports/s1/root/a"));
    shard.delete(Kind::Export, "root", "a").await;
    cache.until("no replica", |all| !all.contains_key("apiexports/s1/root/a")).await;
}

/// A binding of a role to a group.
fn binding(role: &str, group: &str) -> Value {
    json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    })
}

fn role(verb: &str, group: &str, resource: &str) -> Value {
    json!({"rules": [{"verbs": [verb], "apiGroups": [group], "resources": [resource]}]})
}

#[tokio::test]
async fn published_objects_are_marked_with_the_roles_that_grant_access() {
    let cache = TestCache::start().await;
    let mut shard = Shard::new();
    shard.put(Kind::Role, "system:admin", "cluster-admin", role("*", "*", "*")).await;
    for cluster in ["publisher", "plain"] {
        shard.put(Kind::Cluster, cluster, "cluster", json!({})).await;
        shard.put(Kind::Role, cluster, "binder", role("bind", "apis.kcp.io", "apiexports")).await;
        shard.put(Kind::Role, cluster, "reader", role("get", "", "configmaps")).await;
        shard.put(Kind::Binding, cluster, "binders", binding("binder", "all")).await;
        shard.put(Kind::Binding, cluster, "readers", binding("reader", "all")).await;
        shard.put(Kind::Binding, cluster, "admins", binding("cluster-admin", "admins")).await;
    }
    shard.put(Kind::Export, "publisher", "e", json!({})).await;
    shard.replicate(&cache);
    let replicas = |all: &BTreeMap<String, Value>| -> Vec<String> {
        let marks = |object: &Value| object["metadata"]["annotations"]["internal.kcp.io/replicate"].clone();
        all.iter()
            .map(|(key, object)| match marks(object).as_str() {
                Some(marks) => format!("{} {marks}", key.replace("/s1/publisher/", "/")),
                None => key.replace("/s1/publisher/", "/"),
            })
            .collect()
    };
    let published = [
        "apiexports/e",
        "clusterrolebindings/admins apis.kcp.io,tenancy.kcp.io",
        "clusterrolebindings/binders apis.kcp.io",
        "clusterroles/binder apis.kcp.io",
        "logicalclusters/cluster apis.kcp.io",
    ];
    cache.until("the export and its roles", |all| replicas(all) == published).await;

    // Objects that are created later are marked, too; a role also because of the subjects of its binding.
    shard.put(Kind::Role, "publisher", "policy", role("get", "own.io", "things")).await;
    shard.put(Kind::Binding, "publisher", "policy", binding("policy", "apis.kcp.io:binding:all")).await;
    cache
        .until("a maximal permission policy", |all| {
            let all = replicas(all);
            all.contains(&"clusterroles/policy apis.kcp.io".to_owned())
                && all.contains(&"clusterrolebindings/policy apis.kcp.io".to_owned())
        })
        .await;

    // Without the export the marks are removed, and with them the replicas.
    shard.delete(Kind::Export, "publisher", "e").await;
    cache.until("no replicas", BTreeMap::is_empty).await;
}
