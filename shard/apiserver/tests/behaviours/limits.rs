//! Limits of requests: number at the same time, and time.

use std::time::Duration;

use fairlead_apiserver::RequestLimits;
use serde_json::json;

use crate::client::{CONFIG_MAPS, Server};
use crate::webhooks::{Webhooks, configure};

const ENDLESS: &str = r#"{"metadata": {"name": "a", "labels": {"never": "ends"}}}"#;
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_of_their_class_are_refused() {
    let limits = RequestLimits { mutating: 1, ..RequestLimits::default() };
    let server = Server::configured(|api, _| api.with_limits(limits)).await;
    let endless = server.send("POST", CONFIG_MAPS, &[JSON], ENDLESS);
    tokio::pin!(endless);
    assert!(futures_util::poll!(&mut endless).is_pending());
    assert_eq!(server.metric("apiserver_current_inflight_requests{request_kind=\"mutating\"}"), 1.0);
    let refused = server.post(CONFIG_MAPS, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(
        refused.failure(),
        (429, "TooManyRequests".into(), "Too many requests, please try again later.".into())
    );
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(server.get(CONFIG_MAPS).await.code, 200, "reads have a limit of their own");
    let _watch = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    assert_eq!(server.metric("apiserver_current_inflight_requests{request_kind=\"readOnly\"}"), 0.0);
    assert_eq!(endless.await.failure().0, 504);
    assert_eq!(server.metric("apiserver_current_inflight_requests{request_kind=\"mutating\"}"), 0.0);
    server.config_map("b", json!({})).await;
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_scope_leave_places_to_others() {
    let limits = RequestLimits { mutating: 4, ..RequestLimits::default() };
    let server = Server::configured(|api, _| api.with_limits(limits)).await;
    let mut endless: Vec<_> =
        (0..3).map(|_| Box::pin(server.send("POST", CONFIG_MAPS, &[JSON], ENDLESS))).collect();
    for request in &mut endless {
        assert!(futures_util::poll!(request).is_pending());
    }
    let object = json!({"metadata": {"name": "b"}});
    assert_eq!(server.post(CONFIG_MAPS, &object).await.code, 429, "the scope has three of four places");
    server.create("//clusters/d/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
    server.create(&format!("//clusters/d{CONFIG_MAPS}"), &object).await;
}

#[tokio::test]
async fn webhooks_that_do_not_respond_stop_only_their_own_scope() {
    const WAITING: &str = "fairlead_shard_requests_waiting_for_webhooks";
    let limits = RequestLimits { mutating: 4, ..RequestLimits::default() };
    let server = Server::configured(|api, _| api.with_limits(limits)).await;
    let webhooks = Webhooks::start().await;
    let silent = webhooks.webhook("silent/a", &json!({"name": "s.example.com", "timeoutSeconds": 30}));
    configure(&server, "validating", "v", vec![silent]).await;
    let object = |name: &str| json!({"metadata": {"name": name}}).to_string();
    let mut hanging: Vec<_> = (0..3)
        .map(|number| Box::pin(server.send("POST", CONFIG_MAPS, &[JSON], object(&format!("w{number}")))))
        .collect();
    while server.metric(WAITING) < 3.0 {
        for request in &mut hanging {
            assert!(futures_util::poll!(request).is_pending());
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(server.metric("apiserver_current_inflight_requests{request_kind=\"mutating\"}"), 0.0);
    let refused = server.send("POST", CONFIG_MAPS, &[JSON], object("w4")).await;
    assert_eq!(
        refused.failure(),
        (
            429,
            "TooManyRequests".into(),
            "too many requests of this logical cluster wait for its webhooks, please try again later".into()
        )
    );
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/w4")).await.code, 404);
    let secrets = "/api/v1/namespaces/default/secrets";
    for _ in 0..4 {
        let name = json!({"metadata": {"generateName": "not-reviewed-"}});
        assert_eq!(server.post(secrets, &name).await.code, 201);
    }
    server.create("//clusters/d/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
    assert_eq!(
        server.send("POST", &format!("//clusters/d{CONFIG_MAPS}"), &[JSON], object("a")).await.code,
        201
    );
    drop(hanging);
    assert_eq!(server.metric(WAITING), 0.0);
    assert_eq!(server.metric("apiserver_current_inflight_requests{request_kind=\"mutating\"}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_after_its_time() {
    let server = Server::start().await;
    for (query, seconds) in
        [("", 60), ("?timeout=5s", 5), ("?timeout=1m30s", 60), ("?timeout=0s", 60), ("?timeout=500ms", 0)]
    {
        let began = tokio::time::Instant::now();
        let timed_out = server.send("POST", &format!("{CONFIG_MAPS}{query}"), &[JSON], ENDLESS).await;
        assert_eq!(
            timed_out.failure(),
            (504, "Timeout".into(), "Timeout: request did not complete within the allotted timeout".into())
        );
        // The clock is paused, so this is exact.
        assert_eq!(began.elapsed().as_secs(), seconds, "{query}");
    }
    let invalid = server.get(&format!("{CONFIG_MAPS}?timeout=soon")).await;
    assert_eq!(
        invalid.failure(),
        (
            400,
            "BadRequest".into(),
            "invalid timeout specified in the request URL - time: invalid duration \"soon\"".into()
        )
    );
    // A watch has a limit of its own.
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&timeout=1s&timeoutSeconds=100")).await;
    tokio::time::advance(Duration::from_secs(70)).await;
    server.config_map("later", json!({})).await;
    assert!(watch.brief().await.starts_with("ADDED later "));
}
