//! Metrics of requests, under the names of Kubernetes.

use serde_json::json;

use crate::client::{CONFIG_MAPS, GADGETS, Server, WIDGETS};

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_resource_verb_and_code() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    server.get(&format!("{CONFIG_MAPS}/a")).await;
    server.get(&format!("{CONFIG_MAPS}/none")).await;
    server.get(CONFIG_MAPS).await;
    server.get("/api/v1/configmaps").await;
    server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "b"}})).await;
    server.get("/apis").await;
    server.get("/apis/example.com/v1/nonsense-of-a-tenant").await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    server.patch(&format!("{WIDGETS}/w/status"), "merge", &json!({"status": {"phase": "x"}})).await;
    let total = |code: u16,
                 dry_run: &str,
                 (group, resource): (&str, &str),
                 scope: &str,
                 subresource: &str,
                 verb: &str| {
        let version = if resource.is_empty() { "" } else { "v1" };
        server.metric(&format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"{group}\",\
             resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",\
             version=\"{version}\"}}"
        ))
    };
    let maps = ("", "configmaps");
    let widgets = ("example.com", "widgets");
    for (code, dry_run, resource, scope, subresource, verb) in [
        (201, "", maps, "resource", "", "POST"),
        (201, "All", maps, "resource", "", "POST"),
        (200, "", maps, "resource", "", "GET"),
        (404, "", maps, "resource", "", "GET"),
        (200, "", maps, "namespace", "", "LIST"),
        (200, "", maps, "cluster", "", "LIST"),
        (200, "", ("", ""), "", "/apis", "GET"),
        (404, "", ("", ""), "", "", "GET"),
        (201, "", widgets, "resource", "", "POST"),
        (200, "", widgets, "resource", "status", "PATCH"),
    ] {
        assert_eq!(
            total(code, dry_run, resource, scope, subresource, verb),
            1.0,
            "{code} {resource:?} {verb}"
        );
    }
    assert_eq!(server.metric("authorization_attempts_total{result=\"allowed\"}"), 11.0);
    assert_eq!(server.metric("authentication_attempts{result=\"success\"}"), 11.0);
}

#[tokio::test(start_paused = true)]
async fn lists_are_counted_by_resource() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.create(GADGETS, &json!({"metadata": {"name": name}})).await;
    }
    for _ in 0..3 {
        server.get(&format!("{GADGETS}?resourceVersion=0")).await;
    }
    // kcp's tests read this line.
    let line = "apiserver_cache_list_total{group=\"example.com\",index=\"\",resource=\"gadgets\"}";
    assert_eq!(server.metric(line), 3.0);
    let returned = "apiserver_cache_list_returned_objects_total{group=\"example.com\",resource=\"gadgets\"}";
    assert_eq!(server.metric(returned), 6.0);
}

#[tokio::test(start_paused = true)]
async fn open_watches_and_their_events_are_counted() {
    let server = Server::start().await;
    let open = "apiserver_longrunning_requests{component=\"apiserver\",group=\"\",resource=\"configmaps\",\
        scope=\"namespace\",subresource=\"\",verb=\"WATCH\",version=\"v1\"}";
    let events = "apiserver_watch_events_total{group=\"\",resource=\"configmaps\",version=\"v1\"}";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    assert_eq!(server.metric(open), 1.0);
    server.config_map("a", json!({})).await;
    watch.next().await;
    assert_eq!(server.metric(events), 1.0);
    drop(watch);
    assert_eq!(server.metric(open), 0.0);
}
