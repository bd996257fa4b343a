//! kube-rs: objects, watches, conditions, finalizers, discovery.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{AsyncReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event as Finalization, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{Config, Event, InitialListStrategy, watcher};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::json;

use super::{api, client, object};
use crate::installation::{Installation, until, within};

fn config_map(name: &str, count: u32) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "count": count.to_string() } }))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_changed_and_deleted() {
    let installation = Installation::start(1).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&installation, "/clusters/root").await);
    let created = maps.create(&PostParams::default(), &config_map("log", 1)).await.unwrap();
    assert!(created.uid().is_some() && created.resource_version().is_some());
    let refused = maps.create(&PostParams::default(), &config_map("log", 1)).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
    );
    let mut changed = created.clone();
    changed.data = config_map("log", 2).data;
    let replaced = maps.replace("log", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(replaced.resource_version(), created.resource_version());
    let conflict = maps.replace("log", &PostParams::default(), &created).await.unwrap_err();
    assert!(
        matches!(&conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict")
    );
    let same = maps.replace("log", &PostParams::default(), &replaced).await.unwrap();
    assert_eq!(same.resource_version(), replaced.resource_version(), "nothing changed, nothing written");
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "kind": "log" } } }));
    maps.patch("log", &PatchParams::default(), &patch).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("dry", 1)).await.unwrap();
    assert_eq!(maps.list(&ListParams::default().labels("kind=log")).await.unwrap().items.len(), 1);
    assert!(maps.get_opt("dry").await.unwrap().is_none());
    let stale = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            resource_version: created.resource_version(),
            uid: None,
        }),
        ..DeleteParams::default()
    };
    assert!(matches!(maps.delete("log", &stale).await, Err(kube::Error::Api(status)) if status.code == 409));
    maps.delete("log", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("log").await.unwrap().is_none());

    for number in 0..25 {
        maps.create(&PostParams::default(), &config_map(&format!("page-{number:02}"), number)).await.unwrap();
    }
    let (mut seen, mut parameters) = (Vec::new(), ListParams::default().limit(10));
    loop {
        let page = maps.list(&parameters).await.unwrap();
        seen.extend(page.items.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("page-")));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(seen, (0..25).map(|number| format!("page-{number:02}")).collect::<Vec<_>>());
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert!(
        !maps
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .any(|map| map.name_any().starts_with("page-"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_applied_by_several_managers() {
    let installation = Installation::start(1).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&installation, "/clusters/root").await);
    let configuration = |data: serde_json::Value| {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "log"}, "data": data}),
        )
    };
    let one = PatchParams::apply("one");
    let created = maps.patch("log", &one, &configuration(json!({"a": "1"}))).await.unwrap();
    let same = maps.patch("log", &one, &configuration(json!({"a": "1"}))).await.unwrap();
    assert_eq!(same.resource_version(), created.resource_version(), "nothing changed, nothing written");
    let two = PatchParams::apply("two");
    let refused = maps.patch("log", &two, &configuration(json!({"a": "2"}))).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409
            && status.details.as_ref().is_some_and(|details| details.causes[0].field == ".data.a")),
        "{refused:?}"
    );
    let forced = maps.patch("log", &two.force(), &configuration(json!({"a": "2", "b": "2"}))).await.unwrap();
    let owners: BTreeSet<String> =
        forced.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    assert_eq!(owners, BTreeSet::from(["two".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_receive_all_events_with_every_initial_strategy() {
    let installation = Installation::start(1).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&installation, "/clusters/root").await);
    let label = json!({ "seen": "yes" });
    let make = |name: String| {
        let map: ConfigMap =
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": label } })).unwrap();
        let maps = maps.clone();
        async move { maps.create(&PostParams::default(), &map).await.unwrap() }
    };
    for number in 0..12 {
        make(format!("old-{number}")).await;
    }
    for (strategy, name) in
        [(InitialListStrategy::ListWatch, "list"), (InitialListStrategy::StreamingList, "stream")]
    {
        let config = Config {
            initial_list_strategy: strategy,
            label_selector: Some("seen=yes".to_owned()),
            page_size: matches!(name, "list").then_some(5),
            ..Config::default()
        };
        let mut events = std::pin::pin!(watcher(maps.clone(), config));
        let mut initial = BTreeSet::new();
        loop {
            match within(name, events.try_next()).await.unwrap().unwrap() {
                Event::Init => initial.clear(),
                Event::InitApply(map) => assert!(initial.insert(map.name_any()), "{name}: twice"),
                Event::InitDone => break,
                event => panic!("{name}: too early: {event:?}"),
            }
        }
        assert_eq!(initial.len(), 12, "{name}: {initial:?}");
        let new = format!("new-{name}");
        make(new.clone()).await;
        let patch = Patch::Merge(json!({ "data": { "a": "b" } }));
        maps.patch(&new, &PatchParams::default(), &patch).await.unwrap();
        // For this watcher, an object that leaves the selection is deleted.
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "seen": "no" } } }));
        maps.patch(&new, &PatchParams::default(), &patch).await.unwrap();
        let mut kinds = Vec::new();
        while kinds.len() < 3 {
            match within(name, events.try_next()).await.unwrap().unwrap() {
                Event::Apply(map) if map.name_any() == new => kinds.push("apply"),
                Event::Delete(map) if map.name_any() == new => kinds.push("delete"),
                event => panic!("{name}: {event:?}"),
            }
        }
        assert_eq!(kinds, ["apply", "apply", "delete"], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_established_discovered_and_finalized() {
    let installation = Installation::start(1).await;
    let client = client(&installation, "/clusters/root").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(json!({
        "metadata": { "name": "buoys.sea.example.com" },
        "spec": {
            "group": "sea.example.com", "scope": "Cluster",
            "names": { "plural": "buoys", "singular": "buoy", "kind": "Buoy", "shortNames": ["bu"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "colour": { "type": "string", "default": "red" } } },
                    "status": { "type": "object", "properties": { "lit": { "type": "boolean" } } },
                } } },
            }],
        },
    }));
    definitions.create(&PostParams::default(), &definition.unwrap()).await.unwrap();
    let name = "buoys.sea.example.com";
    let established = await_condition(definitions.clone(), name, conditions::is_crd_established());
    within("the condition", established).await.unwrap();

    for is_aggregated in [false, true] {
        let discovery = kube::Discovery::new(client.clone());
        let discovery = if is_aggregated { discovery.run_aggregated().await } else { discovery.run().await };
        let discovery = discovery.unwrap();
        let group = discovery.get("sea.example.com").expect("the group is discovered");
        let (resource, capabilities) = group.recommended_kind("Buoy").unwrap();
        assert_eq!((resource.plural.as_str(), capabilities.subresources.len()), ("buoys", 1));
        for group in ["tenancy.kcp.io", "core.kcp.io", "apis.kcp.io", "rbac.authorization.k8s.io"] {
            assert!(discovery.has_group(group), "{group}");
        }
    }

    let buoys = api(&client, "sea.example.com", "v1", "Buoy", "buoys");
    let buoy = object(json!({
        "apiVersion": "sea.example.com/v1", "kind": "Buoy", "metadata": { "name": "north" },
        "spec": {}, "status": { "lit": true },
    }));
    let made = buoys.create(&PostParams::default(), &buoy).await.unwrap();
    assert_eq!((&made.data["spec"]["colour"], &made.data["status"]), (&json!("red"), &json!(null)));
    assert_eq!(made.metadata.generation, Some(1));
    let lit = Patch::Merge(json!({ "status": { "lit": true }, "spec": { "colour": "green" } }));
    let made = buoys.patch_status("north", &PatchParams::default(), &lit).await.unwrap();
    assert_eq!((&made.data["spec"]["colour"], &made.data["status"]["lit"]), (&json!("red"), &json!(true)));
    assert_eq!(made.metadata.generation, Some(1), "a status change does not increase the generation");
    let green = Patch::Merge(json!({ "status": { "lit": false }, "spec": { "colour": "green" } }));
    let made = buoys.patch("north", &PatchParams::default(), &green).await.unwrap();
    assert_eq!((&made.data["spec"]["colour"], &made.data["status"]["lit"]), (&json!("green"), &json!(true)));
    assert_eq!(made.metadata.generation, Some(2));

    let reconcile = |event: Finalization<_>| async move {
        match event {
            Finalization::Apply(_) | Finalization::Cleanup(_) => {
                Ok::<_, std::fmt::Error>(Action::await_change())
            }
        }
    };
    let keeper = "sea.example.com/keeper";
    finalizer(&buoys, keeper, Arc::new(buoys.get("north").await.unwrap()), reconcile).await.unwrap();
    buoys.delete("north", &DeleteParams::default()).await.unwrap();
    let deleting = buoys.get("north").await.unwrap();
    assert!(deleting.metadata.deletion_timestamp.is_some(), "the finalizer delays the deletion");
    let uid = deleting.uid().unwrap();
    let gone = tokio::spawn({
        let buoys = buoys.clone();
        async move { await_condition(buoys, "north", conditions::is_deleted(&uid)).await.map(drop) }
    });
    finalizer(&buoys, keeper, Arc::new(deleting), reconcile).await.unwrap();
    within("the end of it", gone).await.unwrap().unwrap();

    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    until("the end of the definition", || async {
        if definitions.get_opt(name).await.unwrap().is_none() { Ok(()) } else { Err("still there") }
    })
    .await;
    let discovery = kube::Discovery::new(client).run().await.unwrap();
    assert!(!discovery.has_group("sea.example.com"));
    let refused = buoys.get("north").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 404), "{refused}");
}

/// Behind a CDN, the listener sends spaces on idle watches. Clients must not take them for events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spaces_on_an_idle_watch_are_no_events() {
    let installation = Installation::start(1).await;
    let config = installation.directory().join("config/gateway.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let changed = text.replace("watchKeepAlive: null", "watchKeepAlive: 100ms");
    assert_ne!(changed, text);
    std::fs::write(&config, changed).unwrap();
    installation.signal("gateway", Signal::HUP);
    let log = installation.directory().join("logs/gateway.log");
    until("the setting is in force", || async {
        let log = std::fs::read_to_string(&log).unwrap();
        if log.contains("reloaded") { Ok(()) } else { Err(log) }
    })
    .await;

    let client = client(&installation, "/clusters/root").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut events = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
    let raw = http::Request::get("/api/v1/namespaces/default/configmaps?watch=1").body(Vec::new()).unwrap();
    let mut raw = Box::pin(client.request_stream(raw).await.unwrap());
    let mut silent = 0;
    while silent < 10 {
        let mut byte = [0];
        within("a blank", raw.read_exact(&mut byte)).await.unwrap();
        silent = if byte == *b" " { silent + 1 } else { 0 };
    }
    maps.create(&PostParams::default(), &config_map("late", 1)).await.unwrap();
    loop {
        match within("an event", events.try_next()).await.unwrap().expect("the watch ended") {
            WatchEvent::Added(map) if map.name_any() == "late" => break,
            // The bookmark is at the end of the initial state.
            WatchEvent::Added(_) | WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
