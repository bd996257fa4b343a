#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_api::{annotation, label};
use fairlead_config::DrainConfig;
use fairlead_names::export_hash;
use fairlead_process::Shutdown;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde_json::json;

use super::super::testing::{Shard, condition};
use super::feeds::SliceQueues;
use super::*;
use crate::export_directory::IndexedExports;
use crate::external_clusters::ExternalClusters;
use crate::external_clusters::test_server::recording;
use crate::global::CacheResource;
use crate::global::test_cache::{TestCache, until_view};
use crate::names::{API_EXPORT_ENDPOINT_SLICES, API_EXPORTS};

const SLICES: &str = "apiexportendpointslices.apis.kcp.io";
const URL: &str = "https://one.example.com/services/apiexport/provider/e";

fn met(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"})
}

fn ready() -> Value {
    json!([met("APIExportValid"), met("PartitionValid")])
}

fn planned(slice: &Value, export: ExportState, partition: PartitionState<'_>) -> Value {
    conditions::plan(slice, "abc", export, partition, Timestamp::UNIX_EPOCH)
}

#[test]
fn conditions_and_selector_follow_export_and_partition() {
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {"export": {"name": "e"}, "partition": "p"},
        "status": {"endpoints": [{"url": "u"}], "shardSelector": "old"},
    });
    let partition = json!({"spec": {"selector": {"matchLabels": {"region": "eu"}}}});
    let everywhere = json!({"spec": {}});
    let invalid = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}});
    type Expected = (bool, &'static str, &'static str);
    let valid: Expected = (true, "", "");
    let missing: Expected = (false, "APIExportNotFound", "Error getting APIExport abc|e");
    let no_partition: Expected =
        (false, "PartitionInvalidReference", r#"partition.topology.kcp.io "p" not found"#);
    let bad_partition: Expected =
        (false, "PartitionInvalidReference", r#""Like" is not a valid label selector operator"#);
    for (export, partition, export_valid, partition_valid, selector, keeps_endpoints) in [
        (ExportState::Found, PartitionState::Unset, valid, Some(valid), None, true),
        (ExportState::Found, PartitionState::Found(&partition), valid, Some(valid), Some("region=eu"), true),
        (ExportState::Found, PartitionState::Found(&everywhere), valid, Some(valid), None, true),
        (ExportState::Found, PartitionState::NotFound, valid, Some(no_partition), Some("old"), false),
        (ExportState::Found, PartitionState::Found(&invalid), valid, Some(bad_partition), Some("old"), true),
        (ExportState::NotFound, PartitionState::Found(&partition), missing, None, Some("old"), false),
        (
            ExportState::Unknown,
            PartitionState::Unset,
            (false, "InternalError", "Error getting APIExport abc|e"),
            None,
            Some("old"),
            true,
        ),
    ] {
        let new = planned(&slice, export, partition);
        let shown = |kind: &str| condition(&new, kind);
        let expected = |(met, reason, message): Expected| (met, reason.to_owned(), message.to_owned());
        assert_eq!(shown("APIExportValid"), Some(expected(export_valid)), "{export:?} {partition:?}");
        assert_eq!(shown("PartitionValid"), partition_valid.map(expected), "{export:?} {partition:?}");
        assert_eq!(new["status"]["shardSelector"].as_str(), selector, "{export:?} {partition:?}");
        assert_eq!(new["status"]["endpoints"].is_array(), keeps_endpoints, "{export:?} {partition:?}");
        assert_eq!(planned(&new, export, partition), new, "planning again changes nothing");
    }
}

#[test]
fn an_endpoint_is_published_for_consumers_on_selected_shards() {
    let applied = |url: &str| {
        let key = format!("k:{}", json!({"url": url}));
        json!([{"manager": "one", "operation": "Apply", "subresource": "status",
                "fieldsV1": {"f:status": {"f:endpoints": {key: {".": {}, "f:url": {}}}}}}])
    };
    let of_another = json!([{"manager": "two", "operation": "Apply", "subresource": "status",
        "fieldsV1": {"f:status": {"f:endpoints": {format!("k:{}", json!({"url": "https://two"})): {}}}}}]);
    let slice = |urls: &[&str], managed: &Value| {
        let endpoints: Vec<Value> = urls.iter().map(|url| json!({"url": url})).collect();
        json!({"metadata": {"managedFields": managed}, "status": {"conditions": ready(), "endpoints": endpoints}})
    };
    let nothing = json!([]);
    let [keep, publish, withdraw] = [EndpointPlan::Keep, EndpointPlan::Publish, EndpointPlan::Withdraw];
    for (case, slice, [selected, outside, unused]) in [
        ("an empty slice", slice(&[], &nothing), [publish, keep, keep]),
        ("the own endpoint", slice(&[URL], &applied(URL)), [keep, keep, withdraw]),
        ("another shard's endpoint", slice(&["https://two"], &of_another), [publish, keep, keep]),
        ("the own endpoint at an earlier URL", slice(&["old"], &applied("old")), [publish, keep, withdraw]),
        ("an endpoint that the owner has removed", slice(&[], &applied(URL)), [publish, keep, withdraw]),
        ("a client's entry of the own URL", slice(&[URL], &nothing), [keep, keep, keep]),
        ("unknown owners", slice(&[URL], &Value::Null), [keep, keep, withdraw]),
    ] {
        for (has_consumers, is_selected, expected) in
            [(true, true, selected), (true, false, outside), (false, true, unused), (false, false, unused)]
        {
            let facts = EndpointFacts { shard: "one", url: URL, is_selected, has_consumers };
            assert_eq!(endpoint::plan(&slice, &facts), expected, "{case}: {facts:?}");
        }
    }
}

#[test]
fn a_slice_is_ready_when_all_of_its_conditions_are_true() {
    let failed = json!([met("APIExportValid"), {"type": "PartitionValid", "status": "False", "lastTransitionTime": ""}]);
    for (conditions, expected) in [(json!(null), false), (json!([]), false), (failed, false), (ready(), true)]
    {
        let slice = json!({"status": {"conditions": conditions}});
        assert_eq!(endpoint::is_ready(&slice), expected, "{slice}");
    }
}

/// The exports in the store, found by logical cluster, and exports with bindings.
struct StoredExports {
    objects: ObjectStore,
    bound: Mutex<FxHashSet<String>>,
}

impl ExportDirectory for StoredExports {
    fn cluster_of(&self, path_or_cluster: &str, export: &str) -> Result<Option<Box<str>>, Status> {
        let scope = Scope::new(path_or_cluster);
        let found = self.objects.get(&API_EXPORTS, &CUSTOM, &scope, None, export)?;
        Ok(found.map(|_| path_or_cluster.into()))
    }

    fn has_bindings(&self, export_cluster: &str, export: &str) -> bool {
        self.bound.lock().contains(&export_hash(export_cluster, export))
    }
}

struct Installation {
    shard: Shard,
    exports: Arc<StoredExports>,
    queues: Arc<SliceQueues>,
}

impl Installation {
    async fn start() -> Self {
        Self::start_with(GlobalView::new(), None).await
    }

    async fn start_with(global: Arc<GlobalView>, external: Option<ExternalClusters>) -> Self {
        let shard = Shard::start().await;
        shard.workspace("abc").await;
        shard.ensure("root", stored_shard("one", json!({"region": "eu"}))).await;
        let exports = Arc::new(StoredExports { objects: shard.objects.clone(), bound: Mutex::default() });
        let controllers = EndpointSliceControllers {
            family: SliceFamily::Exports,
            objects: shard.objects.clone(),
            hub: shard.hub.clone(),
            definitions: shard.definitions.clone(),
            clusters: shard.clusters.clone(),
            placement: shard.placement(&global),
            global,
            exports: exports.clone(),
            external: external.map(Arc::new),
            shard: "one".to_owned(),
        };
        let queues = controllers.queues();
        controllers.run(&queues, &shard.tasks, &shard.shutdown);
        Self { shard, exports, queues }
    }

    async fn create_slice(&self, partition: Option<&str>) {
        let object = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": {"name": "s"},
            "spec": {"export": {"path": "provider", "name": "e"}, "partition": partition},
        });
        self.shard.create("abc", SLICES, object).await.unwrap();
    }

    async fn create_export(&self) {
        self.shard.ensure("provider", export()).await;
    }

    fn bind(&self, is_bound: bool) {
        let hash = export_hash("provider", "e");
        if is_bound {
            self.exports.bound.lock().insert(hash.clone());
        } else {
            self.exports.bound.lock().remove(&hash);
        }
        self.queues.binding_changed(&hash);
    }

    fn slice(&self) -> Value {
        self.shard.get("abc", SLICES, None, "s").unwrap_or_default()
    }

    fn urls(&self) -> Vec<String> {
        let slice = self.slice();
        let all = slice["status"]["endpoints"].as_array().into_iter().flatten();
        all.filter_map(|endpoint| endpoint["url"].as_str().map(str::to_owned)).collect()
    }

    async fn until_urls(&self, description: &str, urls: &[&str]) {
        self.shard.until(description, || self.urls() == urls).await;
    }

    async fn until_condition(&self, kind: &str, reason: &str) {
        let holds = || {
            condition(&self.slice(), kind)
                .is_some_and(|(is_met, found, _)| is_met == reason.is_empty() && found == reason)
        };
        self.shard.until(&format!("{kind} {reason}"), holds).await;
    }

    /// Applies an endpoint as another shard does.
    async fn apply(&self, shard: &str, url: &str) {
        let writer = EndpointWriter {
            definitions: self.shard.definitions.clone(),
            external: None,
            shard: shard.to_owned(),
        };
        writer
            .apply(SliceFamily::Exports.kind(), SliceOwner::ThisShard, ("abc", "s"), Some(url))
            .await
            .unwrap();
    }
}

fn export() -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
        "metadata": {"name": "e", "annotations": {annotation::PATH: "root:provider"}}, "spec": {},
    })
}

fn stored_shard(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "metadata": {"name": name, "labels": labels},
        "spec": {"baseURL": "https://b", "virtualWorkspaceURL": format!("https://{name}.example.com")},
    })
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_exists_while_the_shard_has_consumers() {
    let installation = Installation::start().await;
    installation.create_slice(None).await;
    installation.until_condition("APIExportValid", "APIExportNotFound").await;
    installation.create_export().await;
    installation.until_condition("APIExportValid", "").await;
    installation.until_condition("PartitionValid", "").await;
    installation.shard.settle().await;
    assert_eq!(installation.urls(), Vec::<String>::new(), "no consumers");

    installation.bind(true);
    installation.until_urls("the endpoint", &[URL]).await;
    installation.apply("two", "https://two").await;
    installation.until_urls("both endpoints", &[URL, "https://two"]).await;
    installation.bind(false);
    installation.until_urls("the endpoint of the other shard", &["https://two"]).await;
    installation.bind(true);
    installation.until_urls("both endpoints again", &["https://two", URL]).await;

    installation.shard.discard("provider", &export()).await;
    installation.until_condition("APIExportValid", "APIExportNotFound").await;
    installation.until_urls("no endpoints without the export", &[]).await;
    installation.create_export().await;
    installation.until_urls("the endpoint of this shard", &[URL]).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_belongs_to_its_shard_as_field_manager() {
    let installation = Installation::start().await;
    installation.create_export().await;
    installation.create_slice(None).await;
    installation.bind(true);
    installation.until_urls("the endpoint", &[URL]).await;
    let scope = Scope::new("abc");
    let objects = &installation.shard.objects;
    let stored = objects.get(&API_EXPORT_ENDPOINT_SLICES, &CUSTOM, &scope, None, "s").unwrap().unwrap();
    let slice = objects.tree_with_managed_fields(&stored).unwrap();
    let entries = slice["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!((&own["operation"], &own["subresource"]), (&json!("Apply"), &json!("status")));
    let key = format!("k:{}", json!({"url": URL}));
    assert_eq!(own["fieldsV1"], json!({"f:status": {"f:endpoints": {key: {".": {}, "f:url": {}}}}}));
    let before = stored.revision;
    installation.queues.binding_changed(&export_hash("provider", "e"));
    installation.shard.settle().await;
    let stored = objects.get(&API_EXPORT_ENDPOINT_SLICES, &CUSTOM, &scope, None, "s").unwrap().unwrap();
    assert_eq!(stored.revision, before, "nothing is written again");
}

#[tokio::test(start_paused = true)]
async fn a_partition_limits_the_shards() {
    let installation = Installation::start().await;
    installation.create_export().await;
    installation.bind(true);
    installation.create_slice(Some("p")).await;
    installation.until_condition("PartitionValid", "PartitionInvalidReference").await;
    installation.shard.settle().await;
    assert_eq!(installation.urls(), Vec::<String>::new(), "the partition does not exist");

    let partition = json!({
        "apiVersion": "topology.kcp.io/v1alpha1", "kind": "Partition", "metadata": {"name": "p"},
        "spec": {"selector": {"matchLabels": {"region": "us"}}},
    });
    installation.shard.create("abc", "partitions.topology.kcp.io", partition).await.unwrap();
    installation.until_condition("PartitionValid", "").await;
    assert_eq!(installation.slice()["status"]["shardSelector"], "region=us");
    installation.shard.settle().await;
    assert_eq!(installation.urls(), Vec::<String>::new(), "this shard is not selected");

    installation.shard.ensure("root", stored_shard("one", json!({"region": "us"}))).await;
    installation.until_urls("the endpoint of a selected shard", &[URL]).await;
    let select = |one: &mut Value| one["spec"]["selector"] = json!({"matchLabels": {"region": "asia"}});
    installation.shard.change("abc", "partitions.topology.kcp.io", None, "p", select).await;
    installation
        .shard
        .until("the new selector", || installation.slice()["status"]["shardSelector"] == "region=asia")
        .await;
    installation.shard.settle().await;
    assert_eq!(installation.urls(), [URL], "consumers keep the endpoint");
    installation.bind(false);
    installation.until_urls("no endpoint without consumers", &[]).await;

    installation.shard.delete("abc", "partitions.topology.kcp.io", None, "p").await;
    installation.until_condition("PartitionValid", "PartitionInvalidReference").await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_follows_the_url_of_the_shard() {
    let installation = Installation::start().await;
    installation.create_export().await;
    installation.create_slice(None).await;
    installation.bind(true);
    installation.until_urls("the endpoint", &[URL]).await;
    let mut moved = stored_shard("one", json!({}));
    moved["spec"]["virtualWorkspaceURL"] = "https://new.example.com".into();
    installation.shard.ensure("root", moved).await;
    installation.until_urls("the new URL", &["https://new.example.com/services/apiexport/provider/e"]).await;
}

#[tokio::test]
async fn a_slice_of_another_shard_gets_the_endpoint_by_a_request_to_its_logical_cluster() {
    let cache = TestCache::start().await;
    let slices = CacheResource::new("apis.kcp.io", "v1alpha1", "apiexportendpointslices");
    let replica = |urls: &[&str]| {
        let endpoints: Vec<Value> = urls.iter().map(|url| json!({"url": url})).collect();
        json!({
            "metadata": {"name": "s", "annotations": {"kcp.io/shard": "two"}},
            "spec": {"export": {"path": "provider", "name": "e"}},
            "status": {"conditions": ready(), "endpoints": endpoints},
        })
    };
    cache.create(&slices, "two", "remote", &replica(&[])).await;
    let global = GlobalView::new();
    let (followed, client) = (global.clone(), cache.client());
    tokio::spawn(async move { followed.run(client, Shutdown::new(&DrainConfig::default())).await });
    until_view(&global, "the slice", || global.get(&slices.name, "remote", "s").is_some()).await;

    let (external, mut requests) = recording(200).await;
    let installation = Installation::start_with(global.clone(), Some(external)).await;
    installation.create_export().await;
    installation.bind(true);
    let (line, body) = requests.recv().await.unwrap();
    let path = "/clusters/remote/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/s/status";
    assert_eq!(line, format!("patch {path}?fieldmanager=one"));
    let configuration = |status: Value| {
        json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": {"name": "s"},
               "status": status})
    };
    assert_eq!(body, configuration(json!({"endpoints": [{"url": URL}]})));

    cache.client().delete(&slices.object("two", "remote", "s"), &Default::default()).await.unwrap();
    cache.create(&slices, "two", "remote", &replica(&[URL])).await;
    let is_listed = || {
        global.get(&slices.name, "remote", "s").is_some_and(|one| one["status"]["endpoints"][0]["url"] == URL)
    };
    until_view(&global, "the endpoint", is_listed).await;
    installation.bind(false);
    // The first request is repeated if the controller looks again before its replica shows the endpoint.
    let with_endpoint = configuration(json!({"endpoints": [{"url": URL}]}));
    let body = loop {
        let (_, body) = requests.recv().await.unwrap();
        if body != with_endpoint {
            break body;
        }
    };
    assert_eq!(body, configuration(json!({})));
}

#[tokio::test(start_paused = true)]
async fn the_default_slice_of_an_export_gets_an_endpoint_by_a_binding() {
    let shard = Shard::start().await;
    for workspace in ["provider", "consumer"] {
        shard.workspace(workspace).await;
    }
    shard.ensure("root", stored_shard("one", json!({}))).await;
    let global = GlobalView::new();
    let bindings = shard.definitions.bindings().clone();
    let exports = IndexedExports { lookup: shard.exports.clone(), bindings: bindings.clone() };
    let controllers = EndpointSliceControllers {
        family: SliceFamily::Exports,
        objects: shard.objects.clone(),
        hub: shard.hub.clone(),
        definitions: shard.definitions.clone(),
        clusters: shard.clusters.clone(),
        placement: shard.placement(&global),
        global,
        exports: Arc::new(exports),
        external: None,
        shard: "one".to_owned(),
    };
    controllers.start(&bindings, &shard.tasks, &shard.shutdown);
    let mut export = export();
    export["metadata"]["annotations"] = json!({});
    shard.ensure("provider", export).await;
    let slice = || shard.get("provider", SLICES, None, "e").unwrap_or_default();
    let has_export = || condition(&slice(), "PartitionValid").is_some_and(|(is_met, ..)| is_met);
    shard.until("the default slice is ready", has_export).await;
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": "b", "labels": {label::EXPORT: export_hash("provider", "e")}},
        "spec": {"reference": {"export": {"path": "provider", "name": "e"}}},
    });
    shard.create("consumer", "apibindings.apis.kcp.io", binding).await.unwrap();
    shard.until("the endpoint", || slice()["status"]["endpoints"] == json!([{"url": URL}])).await;
    shard.delete("consumer", "apibindings.apis.kcp.io", None, "b").await;
    shard.until("no endpoint", || slice()["status"]["endpoints"].as_array().is_none_or(Vec::is_empty)).await;
}
