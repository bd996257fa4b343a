//! Watches: events, their order, and the end of the stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_apiserver::hub::HubOptions;
use fairlead_store::Revision;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, GADGETS, METADATA, Server, TABLE, WIDGETS, WatchStream, version_of};

async fn expect(watch: &mut WatchStream, events: &[String]) {
    for event in events {
        assert_eq!(&watch.brief().await, event);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_starts_at_the_requested_resource_version() {
    let server = Server::start().await;
    let before = server.store().revision().0;
    let a = version_of(&server.config_map("a", json!({})).await);
    let b = version_of(&server.config_map("b", json!({})).await);
    let added = |name: &str, version: u64| format!("ADDED {name} {version}");
    let state = [added("a", a), added("b", b)];
    let table: Vec<(String, Vec<String>)> = vec![
        (String::new(), state.to_vec()),
        ("&resourceVersion=0".to_owned(), state.to_vec()),
        (format!("&resourceVersion={before}"), state.to_vec()),
        (format!("&resourceVersion={a}"), vec![added("b", b)]),
        (format!("&resourceVersion={b}"), vec![]),
        ("&sendInitialEvents=false&resourceVersionMatch=NotOlderThan".to_owned(), vec![]),
        ("&fieldSelector=metadata.name%3Db".to_owned(), vec![added("b", b)]),
    ];
    let mut watches = Vec::new();
    for (query, events) in table {
        let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true{query}")).await;
        expect(&mut watch, &events).await;
        watches.push(watch);
    }
    let after = version_of(
        &server.patch(&format!("{CONFIG_MAPS}/b"), "merge", &json!({"data": {"x": "y"}})).await.json(),
    );
    for watch in &mut watches {
        assert_eq!(watch.brief().await, format!("MODIFIED b {after}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_a_future_resource_version() {
    let server = Server::start().await;
    let future = server.store().revision().0 + 2;
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={future}")).await;
    let mut created = Vec::new();
    for name in ["a", "b", "c"] {
        created.push((name, version_of(&server.config_map(name, json!({})).await)));
    }
    // It is `c`, except on an etcd whose other users have taken a revision meanwhile.
    let (name, version) = created.into_iter().find(|(_, version)| *version > future).unwrap();
    assert_eq!(watch.brief().await, format!("ADDED {name} {version}"));
}

#[tokio::test(start_paused = true)]
async fn a_compacted_start_is_an_error_event() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.config_map(name, json!({})).await;
    }
    server.store().compact(server.wait_for_hub().await).await.unwrap();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        (&event["object"]["kind"], &event["object"]["code"], &event["object"]["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert!(event["object"]["message"].as_str().unwrap().starts_with("too old resource version: 1 ("));
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_a_bookmark() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}&allowWatchBookmarks=true")).await;
    assert!(watch.brief().await.starts_with("ADDED a "));
    let revision = server.store().revision().0.to_string();
    assert_eq!(
        watch.next().await.unwrap(),
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}}}})
    );
    server.config_map("b", json!({})).await;
    assert!(watch.brief().await.starts_with("ADDED b "));

    let future = server.store().revision().0 + 1;
    let refused = server.get(&format!("{CONFIG_MAPS}?{query}&resourceVersion={}", future + 7)).await;
    assert_eq!(refused.failure().0, 504);
    for (query, message) in [
        (
            "watch=true&sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=true&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let failure = server.get(&format!("{CONFIG_MAPS}?{query}")).await.failure();
        let expected =
            format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {message}");
        assert_eq!(failure, (422, "Invalid".into(), expected));
    }
    assert_eq!(server.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=abc")).await.failure().0, 400);
}

/// As in Kubernetes, a watch without a version is one with `sendInitialEvents=true`.
#[tokio::test(start_paused = true)]
async fn the_state_of_a_watch_without_a_version_ends_with_a_bookmark() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    for query in ["", "&resourceVersion=0"] {
        let path = format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true{query}");
        let mut watch = server.watch(&path).await;
        assert!(watch.brief().await.starts_with("ADDED a "));
        let bookmark = watch.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        assert_eq!(
            bookmark["object"]["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_on_request() {
    let server = Server::start().await;
    let start = server.store().revision().0;
    let secrets =
        format!("/api/v1/namespaces/default/secrets?watch=true&resourceVersion={start}&timeoutSeconds=100");
    let mut without = server.watch(&secrets).await;
    let mut with = server.watch(&format!("{secrets}&allowWatchBookmarks=true")).await;
    server.config_map("elsewhere", json!({})).await;
    let revision = server.wait_for_hub().await.0;
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Secret", "apiVersion": "v1", "metadata": {"resourceVersion": revision.to_string()}}});
    assert_eq!(with.next().await.unwrap(), bookmark, "once a minute");
    assert_eq!(with.next().await.unwrap(), bookmark, "and at the end");
    assert_eq!((with.next().await, without.next().await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn entering_a_selector_is_added_and_leaving_it_is_deleted() {
    let server = Server::start().await;
    for path in [
        format!("{WIDGETS}?watch=true&labelSelector=team%3Dx"),
        format!("{WIDGETS}?watch=true&fieldSelector=spec.color%3Dred"),
        "//clusters/*/apis/example.com/v1/widgets?watch=true&labelSelector=team%3Dx".to_owned(),
    ] {
        let mut watch = server.watch(&path).await;
        let one = format!("{WIDGETS}/w");
        let body = |team: &str, color: &str, size: u64| json!({"metadata": {"name": "w", "labels": {"team": team}}, "spec": {"color": color, "size": size}});
        server.create(WIDGETS, &body("y", "blue", 1)).await;
        let mut versions = Vec::new();
        for patch in [
            body("x", "red", 1),
            body("x", "red", 2),
            body("y", "blue", 3),
            body("y", "blue", 4),
            body("x", "red", 4),
        ] {
            versions.push(version_of(&server.patch(&one, "merge", &patch).await.json()));
        }
        server.delete(&one).await;
        let deleted = server.store().revision().0;
        expect(&mut watch, &[format!("ADDED w {}", versions[0]), format!("MODIFIED w {}", versions[1])])
            .await;
        let gone = watch.next().await.unwrap();
        assert_eq!((&gone["type"], version_of(&gone["object"])), (&json!("DELETED"), versions[2]));
        assert_eq!(
            gone["object"]["spec"],
            json!({"color": "red", "size": 2}),
            "as it was when it was last selected"
        );
        expect(&mut watch, &[format!("ADDED w {}", versions[4]), format!("DELETED w {deleted}")]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_carries_its_own_revision_and_the_last_state() {
    let server = Server::start().await;
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let created = server.config_map("a", json!({"x": "y"})).await;
    server.delete(&format!("{CONFIG_MAPS}/a")).await;
    watch.next().await;
    let deleted = watch.next().await.unwrap();
    assert_eq!(
        (&deleted["type"], version_of(&deleted["object"])),
        (&json!("DELETED"), server.store().revision().0)
    );
    assert_eq!(deleted["object"]["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(deleted["object"]["metadata"]["annotations"]["kcp.io/cluster"], "c");
}

#[tokio::test(start_paused = true)]
async fn tables_and_metadata_can_be_watched() {
    let server = Server::start().await;
    let start = server.store().revision().0;
    let path =
        format!("{WIDGETS}?watch=true&resourceVersion={start}&allowWatchBookmarks=true&timeoutSeconds=10");
    let mut table = server.watch_as(&path, TABLE).await;
    let mut metadata = server.watch_as(&path, METADATA).await;
    let created = server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {"color": "red"}})).await;
    server.patch(&format!("{WIDGETS}/w"), "merge", &json!({"spec": {"color": "blue"}})).await;

    let first = table.next().await.unwrap();
    assert_eq!(
        (&first["type"], &first["object"]["kind"], &first["object"]["apiVersion"]),
        (&json!("ADDED"), &json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(first["object"]["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(first["object"]["rows"][0]["cells"], json!(["w", "red"]));
    assert_eq!(first["object"]["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let second = table.next().await.unwrap();
    assert_eq!(
        (&second["object"]["columnDefinitions"], &second["object"]["rows"][0]["cells"]),
        (&Value::Null, &json!(["w", "blue"]))
    );
    let bookmark = table.next().await.unwrap();
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));

    let first = metadata.next().await.unwrap();
    assert_eq!(first["object"]["kind"], "PartialObjectMetadata");
    assert_eq!((&first["object"]["metadata"], first["object"].get("spec")), (&created["metadata"], None));
    metadata.next().await;
    assert_eq!(metadata.next().await.unwrap()["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn timeouts_end_a_watch_cleanly() {
    let server = Server::start().await;
    let started = tokio::time::Instant::now();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=5")).await;
    assert_eq!(watch.next().await, None);
    assert!((5..=6).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    let mut unlimited = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let started = tokio::time::Instant::now();
    assert_eq!(unlimited.next().await, None);
    assert!((30..=60).contains(&(started.elapsed().as_secs() / 60)), "{:?}", started.elapsed());
    assert_eq!(server.hub().subscriptions(), 2, "they are dropped with their bodies");
    drop((watch, unlimited));
    assert_eq!(server.hub().subscriptions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_watch_ends_without_affecting_others() {
    let server = Server::start_with(HubOptions { queue_capacity: 8, ..HubOptions::default() }).await;
    let mut slow = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let mut quick = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    for number in 0..20 {
        server.config_map(&format!("n{number:02}"), json!({})).await;
        assert!(quick.brief().await.starts_with("ADDED"));
    }
    server.wait_for_hub().await;
    for number in 0..8 {
        assert!(slow.brief().await.starts_with(&format!("ADDED n{number:02} ")));
    }
    assert_eq!(slow.next().await, None);
    server.config_map("last", json!({})).await;
    assert!(quick.brief().await.starts_with("ADDED last "));
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_watches_one_after_the_other() {
    let server = Server::start().await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(server.watch(&format!("{CONFIG_MAPS}?watch=true")).await);
    }
    let started = tokio::time::Instant::now();
    server.hub().end_evenly(Duration::from_secs(20));
    watches.push(server.watch(&format!("{CONFIG_MAPS}?watch=true")).await);
    let mut ends = Vec::new();
    for mut watch in watches {
        ends.push(tokio::spawn(async move {
            assert_eq!(watch.next().await, None);
            started.elapsed().as_secs()
        }));
    }
    let mut seconds = Vec::new();
    for end in ends {
        seconds.push(end.await.unwrap());
    }
    seconds.sort_unstable();
    seconds.dedup();
    assert!(seconds.len() >= 10, "spread: {seconds:?}");
    assert!(*seconds.last().unwrap() <= 21, "latecomers too: {seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn the_host_can_end_the_watches_of_a_scope() {
    let server = Server::start().await;
    let mut here = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let mut there = server.watch(&format!("//clusters/d{CONFIG_MAPS}?watch=true&timeoutSeconds=3600")).await;
    server.hub().end(|interest| interest.scopes.selects("d") && interest.scopes.one().is_some());
    assert_eq!(there.next().await, None);
    server.config_map("a", json!({})).await;
    assert!(here.brief().await.starts_with("ADDED a "));
}

#[tokio::test(start_paused = true)]
async fn waiting_fails_once_the_hub_task_has_ended() {
    let server = Server::start().await;
    let revision = server.wait_for_hub().await;
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let hub = server.hub().clone();
    let waiter = tokio::spawn(async move { hub.wait(Revision(revision.0 + 1)).await });
    tokio::task::yield_now().await;
    server.abort_hub();
    assert!(waiter.await.unwrap().is_err());
    assert!(server.hub().wait(revision).await.is_ok(), "what has passed has passed");
    assert_eq!(watch.next().await, None);
}

/// A client that lists and then watches, and maintains a copy.
#[derive(Default)]
struct Copy {
    objects: BTreeMap<String, Value>,
    version: u64,
}

impl Copy {
    fn apply(&mut self, event: &Value) {
        let object = &event["object"];
        let version = version_of(object);
        assert!(version > self.version, "versions only grow: {event} after {}", self.version);
        self.version = version;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "ADDED" => assert!(self.objects.insert(name, object.clone()).is_none(), "{event}"),
            "MODIFIED" => assert!(self.objects.insert(name, object.clone()).is_some(), "{event}"),
            "DELETED" => assert!(self.objects.remove(&name).is_some(), "{event}"),
            other => panic!("{other}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// While others write, every client that lists and watches ends with the same copy, whenever it starts and whatever it
    /// selects: no gap, no duplicate, no disorder.
    #[test]
    fn list_and_watch_neither_miss_nor_repeat_events(
        writes in prop::collection::vec((0_u8..6, 0_u8..3), 10..60),
        starts in prop::collection::vec(0_usize..60, 1..6),
        selecting in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = Arc::new(Server::start().await);
            let select = if selecting { "&labelSelector=side%3Dleft" } else { "" };
            let mut readers = Vec::new();
            for (position, (name, action)) in writes.iter().enumerate() {
                for _ in starts.iter().filter(|start| **start == position) {
                    let reader = server.clone();
                    readers.push(tokio::spawn(async move {
                        let list = reader.get(&format!("{CONFIG_MAPS}?limit=500{select}")).await.json();
                        let version = version_of(&list);
                        let watch = reader.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}{select}")).await;
                        (list, watch)
                    }));
                    tokio::task::yield_now().await;
                }
                let one = format!("{CONFIG_MAPS}/n{name}");
                let labels = json!({"side": if position % 3 == 0 { "right" } else { "left" }, "at": position.to_string()});
                match action {
                    0 => drop(server.post(CONFIG_MAPS, &json!({"metadata": {"name": format!("n{name}"), "labels": labels}})).await),
                    1 => drop(server.patch(&one, "merge", &json!({"metadata": {"labels": labels}})).await),
                    _ => drop(server.delete(&one).await),
                }
            }
            // A last write that every client selects marks the end.
            server.config_map("zz-end", json!({"side": "left"})).await;
            let finally: BTreeMap<String, String> = server.get(&format!("{CONFIG_MAPS}?{}", select.trim_start_matches('&'))).await.json()["items"]
                .as_array().unwrap().iter()
                .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item["metadata"]["resourceVersion"].to_string()))
                .collect();
            for reader in readers {
                let (list, mut watch) = reader.await.unwrap();
                let mut copy = Copy { version: version_of(&list), ..Copy::default() };
                for item in list["items"].as_array().unwrap() {
                    copy.objects.insert(item["metadata"]["name"].as_str().unwrap().to_owned(), item.clone());
                }
                while !copy.objects.contains_key("zz-end") {
                    copy.apply(&watch.next().await.unwrap());
                }
                let copied: BTreeMap<String, String> = copy.objects.iter()
                    .map(|(name, object)| (name.clone(), object["metadata"]["resourceVersion"].to_string()))
                    .collect();
                assert_eq!(copied, finally);
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_however_much_others_have_written() {
    // The last events are in memory; before them, the watch reads the store's log.
    for others in [10, 6000] {
        let server = Server::start().await;
        let start = version_of(&server.config_map("a", json!({"app": "web"})).await);
        let label = async |app: &str| {
            let patch = json!({"metadata": {"labels": {"app": app}}});
            version_of(&server.patch(&format!("{CONFIG_MAPS}/a"), "merge", &patch).await.json())
        };
        let moved = label("db").await;
        for number in 0..others {
            server.create(GADGETS, &json!({"metadata": {"name": format!("g{number}")}})).await;
        }
        let query = format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}");
        let mut all = server.watch(&query).await;
        let mut web = server.watch(&format!("{query}&labelSelector=app%3Dweb")).await;
        let mut database = server.watch(&format!("{query}&labelSelector=app%3Ddb")).await;
        let back = label("web").await;
        expect(&mut all, &[format!("MODIFIED a {moved}"), format!("MODIFIED a {back}")]).await;
        expect(&mut web, &[format!("DELETED a {moved}"), format!("ADDED a {back}")]).await;
        expect(&mut database, &[format!("ADDED a {moved}"), format!("DELETED a {back}")]).await;
    }
}
