//! Lists: selectors, pages, resource versions and sizes.

use std::io::Read as _;

use bytes::Bytes;
use fairlead_apiserver::ResponseBody;
use fairlead_store::Revision;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, GADGETS, METADATA, Server, TABLE, WIDGETS, version_of};

async fn numbered(server: &Server, count: usize) {
    for number in 0..count {
        server
            .config_map(
                &format!("n{number:02}"),
                json!({"parity": if number % 2 == 0 { "even" } else { "odd" }}),
            )
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_as_new_as_the_store() {
    let server = Server::start().await;
    let empty = server.get("/api/v1/namespaces/default/secrets").await.json();
    assert_eq!(empty["items"], json!([]));
    assert_eq!((&empty["kind"], &empty["apiVersion"]), (&json!("SecretList"), &json!("v1")));
    assert!(version_of(&empty) > 0);
    let last = server.config_map("a", json!({})).await;
    server.create(GADGETS, &json!({"metadata": {"name": "g"}})).await;
    let list = server.get(CONFIG_MAPS).await.json();
    assert_eq!(
        version_of(&list),
        server.store().revision().0,
        "the revision it was read at, not its newest item's"
    );
    assert_eq!(version_of(&list["items"][0]), version_of(&last));
    // Typed lists carry no kinds, those of custom resources do.
    assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
    let gadget = &server.get(GADGETS).await.json()["items"][0];
    assert_eq!((&gadget["kind"], &gadget["apiVersion"]), (&json!("Gadget"), &json!("example.com/v1")));
    assert_eq!(gadget["metadata"]["annotations"], json!({"kcp.io/cluster": "c"}));
}

#[tokio::test(start_paused = true)]
async fn selectors_select() {
    let server = Server::start().await;
    for (name, labels) in
        [("a", json!({"app": "web"})), ("b", json!({"app": "db", "tier": "x"})), ("c", json!({}))]
    {
        server.config_map(name, labels).await;
    }
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
    server.create("/api/v1/namespaces/other/configmaps", &json!({"metadata": {"name": "a"}})).await;
    for (name, color) in [("w1", "red"), ("w2", "blue")] {
        server.create(WIDGETS, &json!({"metadata": {"name": name}, "spec": {"color": color}})).await;
    }
    let table: &[(&str, &str, &[&str])] = &[
        (CONFIG_MAPS, "labelSelector=app", &["a", "b"]),
        (CONFIG_MAPS, "labelSelector=app%3Dweb", &["a"]),
        (CONFIG_MAPS, "labelSelector=app%20in%20(web,db),tier", &["b"]),
        (CONFIG_MAPS, "labelSelector=app!%3Dweb", &["b", "c"]),
        (CONFIG_MAPS, "labelSelector=!app", &["c"]),
        (CONFIG_MAPS, "fieldSelector=metadata.name%3Db", &["b"]),
        (CONFIG_MAPS, "fieldSelector=metadata.name!%3Db", &["a", "c"]),
        (CONFIG_MAPS, "fieldSelector=metadata.name%3Da&labelSelector=app%3Ddb", &[]),
        (CONFIG_MAPS, "fieldSelector=metadata.namespace%3Dother", &[]),
        ("/api/v1/configmaps", "fieldSelector=metadata.namespace%3Dother", &["a"]),
        ("/api/v1/configmaps", "fieldSelector=metadata.name%3Da", &["a", "a"]),
        ("/api/v1/namespaces", "fieldSelector=status.phase%3DActive", &["default", "other"]),
        (WIDGETS, "fieldSelector=spec.color%3Dblue", &["w2"]),
        (WIDGETS, "fieldSelector=spec.color!%3Dblue", &["w1"]),
    ];
    for (path, query, names) in table {
        assert_eq!(server.get(&format!("{path}?{query}")).await.names(), *names, "{query}");
    }
    for (path, field, message) in [
        (
            CONFIG_MAPS,
            "data.x",
            "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (WIDGETS, "spec.size", "field label not supported: spec.size"),
        ("/api/v1/namespaces", "spec.x", "field label not supported: spec.x"),
    ] {
        for watch in ["", "&watch=true"] {
            let failure = server.get(&format!("{path}?fieldSelector={field}%3D1{watch}")).await.failure();
            assert_eq!(failure, (400, "BadRequest".into(), message.to_owned()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_state() {
    let server = Server::start().await;
    numbered(&server, 11).await;
    let (mut names, mut pages, mut next) = (Vec::new(), Vec::new(), String::new());
    let first = version_of(&server.get(CONFIG_MAPS).await.json());
    loop {
        let page = server.get(&format!("{CONFIG_MAPS}?limit=4{next}")).await;
        names.extend(page.names());
        let metadata = page.json()["metadata"].clone();
        assert_eq!(metadata["resourceVersion"], first.to_string());
        pages.push(metadata["remainingItemCount"].as_u64());
        // Neither of these may show on later pages.
        server.config_map(&format!("n05-{}", pages.len()), json!({})).await;
        server.delete(&format!("{CONFIG_MAPS}/n10")).await;
        let Some(token) = metadata["continue"].as_str() else { break };
        next = format!("&continue={token}");
    }
    assert_eq!(names, (0..11).map(|number| format!("n{number:02}")).collect::<Vec<_>>());
    assert_eq!(pages, [Some(7), Some(3), None]);

    let odd = server.get(&format!("{CONFIG_MAPS}?limit=2&labelSelector=parity%3Dodd")).await;
    assert_eq!(
        (odd.names(), &odd.json()["metadata"]["remainingItemCount"]),
        (vec!["n01".into(), "n03".into()], &json!(null))
    );
    assert!(odd.json()["metadata"]["continue"].is_string());
    let exact = server.get(&format!("{CONFIG_MAPS}?limit=5&labelSelector=parity%3Dodd")).await;
    assert_eq!(exact.json()["metadata"].get("continue"), None, "a page that holds the rest is the last");
}

#[tokio::test(start_paused = true)]
async fn a_continue_token_of_another_server_is_rejected() {
    let (server, other) = (Server::start().await, Server::start().await);
    numbered(&server, 5).await;
    numbered(&other, 50).await;
    let page = other.get(&format!("{CONFIG_MAPS}?limit=2")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (code, reason, message) =
        server.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.failure();
    assert_eq!((code, &*reason), (400, "BadRequest"));
    assert!(message.starts_with("continue key is not valid"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_returns_a_token_for_the_latest_revision() {
    let server = Server::start().await;
    numbered(&server, 5).await;
    let page = server.get(&format!("{CONFIG_MAPS}?limit=2")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    server.config_map("n99", json!({})).await;
    server.store().compact(server.store().revision()).await.unwrap();
    let expired = server.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    let (code, reason, message) = expired.failure();
    assert_eq!((code, &*reason), (410, "Expired"));
    assert!(
        message
            .starts_with("The provided continue parameter is too old to display a consistent list result.")
    );
    let token = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let on = server.get(&format!("{CONFIG_MAPS}?limit=500&continue={token}")).await;
    assert_eq!(on.names(), ["n02", "n03", "n04", "n99"]);
}

#[tokio::test(start_paused = true)]
async fn a_continue_token_is_valid_for_its_list_only() {
    let server = Server::start().await;
    numbered(&server, 3).await;
    server.create("//clusters/d/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
    server.create(&format!("//clusters/d{CONFIG_MAPS}"), &json!({"metadata": {"name": "zz"}})).await;
    let page = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let elsewhere = server.get(&format!("//clusters/d{CONFIG_MAPS}?continue={token}")).await;
    assert_eq!(elsewhere.names(), ["zz"], "the token is a place within the list that it is used on");
}

#[tokio::test(start_paused = true)]
async fn resource_versions_of_lists() {
    let server = Server::start().await;
    numbered(&server, 2).await;
    let then = server.store().revision().0;
    server.config_map("n02", json!({})).await;
    let now = server.store().revision().0;
    let (old, new): (&[&str], &[&str]) = (&["n00", "n01"], &["n00", "n01", "n02"]);
    let table = [
        ("".to_owned(), new, now),
        ("resourceVersion=0".to_owned(), new, now),
        (format!("resourceVersion={then}"), new, now),
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"), new, now),
        (format!("resourceVersion={then}&resourceVersionMatch=Exact"), old, then),
        (format!("resourceVersion={then}&limit=5"), old, then),
        (format!("resourceVersion={then}&limit=5&resourceVersionMatch=NotOlderThan"), new, now),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), new, now),
        ("limit=-1".to_owned(), new, now),
    ];
    for (query, names, version) in table {
        let list = server.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(
            (&*list.names(), version_of(&list.json())),
            (&*names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), version),
            "{query}"
        );
    }
    let invalid = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: ";
    let table = [
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            format!("{invalid}resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ),
        (
            "resourceVersionMatch=Exact",
            422,
            format!("{invalid}resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ),
        (
            "resourceVersion=5&continue=abc",
            400,
            "specifying resource version is not allowed when using continue".to_owned(),
        ),
        ("continue=garbage", 400, "continue key is not valid".to_owned()),
        ("resourceVersion=abc", 400, "resourceVersion: Invalid value: \"abc\"".to_owned()),
        ("limit=abc", 400, "abc".to_owned()),
        (
            "labelSelector=%3D%3D%3D",
            400,
            "found '==', expected: !, identifier, or 'end of string'".to_owned(),
        ),
        ("labelSelector=a+b", 400, "unable to parse requirement: found 'b', expected: in, ".to_owned()),
        ("fieldSelector=a", 400, "invalid selector: 'a'; can't understand 'a'".to_owned()),
        (
            "resourceVersion=99999999",
            504,
            format!("Timeout: Too large resource version: 99999999, current: {now}"),
        ),
        ("resourceVersion=99999999&resourceVersionMatch=Exact", 504, "Too large".to_owned()),
    ];
    for (query, code, message) in table {
        let failure = server.get(&format!("{CONFIG_MAPS}?{query}")).await.failure();
        assert_eq!(failure.0, code, "{query} {failure:?}");
        assert!(failure.2.contains(&message), "{query} {failure:?}");
    }
    server.store().compact(Revision(now)).await.unwrap();
    let gone = server.get(&format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).await;
    assert_eq!(
        gone.failure(),
        (410, "Expired".into(), "The resourceVersion for the provided list is too old.".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_get_waits_for_a_future_resource_version() {
    let server = std::sync::Arc::new(Server::start().await);
    server.config_map("a", json!({})).await;
    let next = server.store().revision().0 + 1;
    let reader = server.clone();
    let read =
        tokio::spawn(async move { reader.get(&format!("{CONFIG_MAPS}/a?resourceVersion={next}")).await });
    tokio::task::yield_now().await;
    server.patch(&format!("{CONFIG_MAPS}/a"), "merge", &json!({"data": {"a": "b"}})).await;
    assert_eq!(read.await.unwrap().json()["data"], json!({"a": "b"}));
    let never = server.get(&format!("{CONFIG_MAPS}/a?resourceVersion=99999999")).await;
    assert_eq!((never.failure().0, never.header("retry-after")), (504, "1"));
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a?resourceVersion=x")).await.failure().0, 400);
}

/// Creates config maps of 1 KiB.
async fn large(server: &Server, count: usize) {
    for number in 0..count {
        let object = json!({
            "metadata": {"name": format!("n{number:04}"), "labels": {"last": (number + 1 == count).to_string()}},
            "data": {"text": "x".repeat(1024)},
        });
        server.create(CONFIG_MAPS, &object).await;
    }
}

/// The names in a list or table.
fn names(list: &Value) -> Vec<&str> {
    let all = list["items"].as_array().or(list["rows"].as_array()).unwrap();
    let objects = all.iter().map(|one| if one["object"].is_object() { &one["object"] } else { one });
    objects.map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_large_list_is_sent_in_pieces_of_one_revision() {
    const COUNT: usize = 700;
    let server = Server::start().await;
    large(&server, COUNT).await;
    let revision = server.store().revision().0;
    let expected: Vec<String> = (0..COUNT).map(|number| format!("n{number:04}")).collect();
    for (query, accept, count) in [
        ("", "application/json", COUNT),
        ("?limit=600", "application/json", 600),
        ("?limit=700", "application/json", COUNT),
        ("", TABLE, COUNT),
        ("?limit=600", TABLE, 600),
        ("", METADATA, COUNT),
    ] {
        let response = server.open("GET", &format!("{CONFIG_MAPS}{query}"), &[("accept", accept)], "").await;
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(matches!(response.body(), ResponseBody::List(_)), "{query} {accept}");
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        let mut pieces = 0;
        while let Some(piece) = body.frame().await {
            let piece = piece.unwrap().into_data().unwrap();
            assert!(piece.len() < 256 * 1024, "{} bytes", piece.len());
            bytes.extend_from_slice(&piece);
            // A write between two pieces.
            if pieces == 0 {
                let patch = json!({"metadata": {"labels": {"later": "yes"}}});
                server.patch(&format!("{CONFIG_MAPS}/n0{}", COUNT - 1), "merge", &patch).await;
            }
            pieces += 1;
        }
        assert!(pieces > 2, "{pieces} pieces");
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(names(&list), expected[..count], "{query} {accept}");
        let metadata = &list["metadata"];
        assert!(metadata["resourceVersion"].is_string());
        assert_eq!(metadata["continue"].is_string(), count < COUNT, "{query}: {metadata}");
        let remaining = (count < COUNT).then_some(json!(COUNT - count)).unwrap_or_default();
        assert_eq!(metadata["remainingItemCount"], remaining);
        assert!(version_of(&list) >= revision);
    }
    // The next page begins where the first one ends.
    let first = server.get(&format!("{CONFIG_MAPS}?limit=600")).await.json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = server.get(&format!("{CONFIG_MAPS}?limit=600&continue={token}")).await;
    assert_eq!(second.names(), expected[600..]);
}

#[tokio::test(start_paused = true)]
async fn a_large_list_is_compressed_in_pieces() {
    let server = Server::start().await;
    large(&server, 300).await;
    let response = server.send("GET", CONFIG_MAPS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!((response.header("content-encoding"), response.header("vary")), ("gzip", "Accept-Encoding"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*response.bytes).read_to_string(&mut text).unwrap();
    assert_eq!(names(&serde_json::from_str(&text).unwrap()).len(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_selection_in_a_large_list_is_found() {
    let server = Server::start().await;
    large(&server, 2500).await;
    assert_eq!(server.get(&format!("{CONFIG_MAPS}?labelSelector=last%3Dtrue")).await.names(), ["n2499"]);
    let page = server.get(&format!("{CONFIG_MAPS}?labelSelector=last%3Dtrue&limit=1")).await.json();
    assert_eq!((names(&page), &page["metadata"]["continue"]), (vec!["n2499"], &Value::Null));
    let counted = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    assert_eq!(counted["metadata"]["remainingItemCount"], 2499);
}

#[tokio::test(start_paused = true)]
async fn a_page_before_very_many_objects_does_not_count_them() {
    let server = Server::start().await;
    large(&server, 3500).await;
    let counted = server.get(&format!("{CONFIG_MAPS}?limit=600")).await.json();
    assert_eq!(counted["metadata"]["remainingItemCount"], 2900);
    let mut page = server.get(&format!("{CONFIG_MAPS}?limit=400")).await.json();
    let mut all = names(&page).len();
    while let Some(token) = page["metadata"]["continue"].as_str() {
        assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
        page = server.get(&format!("{CONFIG_MAPS}?limit=400&continue={token}")).await.json();
        all += names(&page).len();
    }
    assert_eq!(all, 3500);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_revision_is_compacted_is_broken_off() {
    let server = Server::start().await;
    large(&server, 400).await;
    let mut body = server.open("GET", CONFIG_MAPS, &[], "").await.into_body();
    let first: Bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(!first.is_empty());
    server.config_map("later", json!({})).await;
    server.store().compact(server.store().revision()).await.unwrap();
    let error = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("the list ends as if it were complete"),
        }
    };
    assert!(error.to_string().contains("too old"), "{error}");
}
