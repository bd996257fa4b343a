//! Admission webhooks, called over TLS.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::Server;
use crate::https::HttpsServer;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A server of webhooks, one per path. It keeps the requests of the reviews.
pub(crate) struct Webhooks {
    server: HttpsServer,
    reviews: Arc<Mutex<Vec<Value>>>,
}

impl Webhooks {
    pub(crate) async fn start() -> Self {
        let reviews = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&reviews);
        let server = HttpsServer::start(move |path, body| reply(path, body, Arc::clone(&seen))).await;
        Self { server, reviews }
    }

    /// A webhook for creates, updates and deletes of config maps.
    pub(crate) fn webhook(&self, path: &str, changes: &Value) -> Value {
        let mut webhook = json!({
            "name": format!("{path}.example.com"),
            "clientConfig": self.server.client_config(&format!("/{path}")),
            "rules": [{
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        for (field, value) in changes.as_object().into_iter().flatten() {
            webhook[field] = value.clone();
        }
        webhook
    }

    pub(crate) fn take_reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.reviews.lock().unwrap())
    }
}

async fn reply(path: String, review: Value, seen: Arc<Mutex<Vec<Value>>>) -> Response<Full<Bytes>> {
    let mut wanted = review["request"].clone();
    wanted["path"] = path.clone().into();
    seen.lock().unwrap().push(wanted);
    let patched = |patch: Value| {
        let patch = STANDARD.encode(patch.to_string());
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    let mut response = match &*path {
        "/label/a" => patched(json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "a"}}])),
        "/append/a" => {
            let text = review["request"]["object"]["data"]["text"].as_str().unwrap_or_default();
            patched(json!([{"op": "add", "path": "/data/text", "value": format!("{text}+")}]))
        }
        "/take-over/a" => patched(json!([
            {"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "webhook"}
        ])),
        "/release/a" => patched(json!([{"op": "remove", "path": "/metadata/managedFields"}])),
        "/spoil/a" => patched(json!([
            {"op": "replace", "path": "/metadata/managedFields/0/apiVersion", "value": ""}
        ])),
        "/corrupt/a" => patched(json!([{"op": "replace", "path": "/data", "value": "text"}])),
        "/rename/a" => patched(json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
        "/deny/a" => {
            json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "not today"}})
        }
        "/warn/a" => json!({"allowed": true, "warnings": ["mind the gap"]}),
        "/wrong-uid/a" => json!({"allowed": true, "uid": "another"}),
        "/silent/a" => std::future::pending().await,
        "/redirect/a" => {
            let response = Response::builder().status(307).header("location", "/warn/a");
            return response.body(Full::default()).unwrap();
        }
        _ => json!({"allowed": true}),
    };
    if response.get("uid").is_none() {
        response["uid"] = review["request"]["uid"].clone();
    }
    let answer =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Response::new(Full::from(answer.to_string()))
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x"}})
}

pub(crate) async fn configure(server: &Server, kind: &str, name: &str, webhooks: Vec<Value>) {
    let resource = format!("{CONFIGURATIONS}/{kind}webhookconfigurations");
    server.create(&resource, &json!({"metadata": {"name": name}, "webhooks": webhooks})).await;
}

#[tokio::test]
async fn a_mutating_webhook_changes_the_object_and_sees_its_scope() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    configure(&server, "mutating", "m", vec![webhooks.webhook("label/a", &json!({"name": "l.example.com"}))])
        .await;
    let created = server.create(CONFIG_MAPS, &config_map("one")).await;
    assert_eq!(created["metadata"]["labels"], json!({"seen": "a"}));
    let reviews = webhooks.take_reviews();
    let [review] = &*reviews else { panic!("one review: {reviews:?}") };
    assert_eq!(review["operation"], "CREATE");
    assert_eq!(review["name"], "one");
    assert_eq!(review["namespace"], "default");
    assert_eq!(review["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(review["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(review["userInfo"]["username"], "admin");
    assert_eq!(review["options"], json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));
    assert_eq!(review["object"]["metadata"]["annotations"]["kcp.io/cluster"], "c");
    assert_eq!(review["oldObject"], Value::Null);
}

#[tokio::test]
async fn a_validating_webhook_refuses_creates_updates_and_deletes() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    server.create(CONFIG_MAPS, &config_map("one")).await;
    configure(
        &server,
        "validating",
        "v",
        vec![webhooks.webhook("deny/a", &json!({"name": "d.example.com"}))],
    )
    .await;
    let one = format!("{CONFIG_MAPS}/one");
    let refusal = (
        403,
        "Forbidden".to_owned(),
        "admission webhook \"d.example.com\" denied the request: not today".to_owned(),
    );
    assert_eq!(server.post(CONFIG_MAPS, &config_map("two")).await.failure(), refusal);
    let patch = json!({"data": {"text": "y"}});
    assert_eq!(server.patch(&one, "merge", &patch).await.failure(), refusal);
    assert_eq!(server.delete(&one).await.failure(), refusal);
    assert_eq!(server.get(&one).await.json()["data"]["text"], "x");
    let operations: Vec<Value> =
        webhooks.take_reviews().iter().map(|review| review["operation"].clone()).collect();
    assert_eq!(operations, ["CREATE", "UPDATE", "DELETE"]);
    // The configuration itself is not reviewed, so it can be deleted.
    let configuration = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v");
    assert_eq!(server.delete(&configuration).await.code, 200);
    assert_eq!(server.delete(&one).await.code, 200);
}

#[tokio::test]
async fn warnings_of_a_webhook_reach_the_client() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    configure(
        &server,
        "validating",
        "v",
        vec![webhooks.webhook("warn/a", &json!({"name": "w.example.com"}))],
    )
    .await;
    let response = server.post(CONFIG_MAPS, &config_map("one")).await;
    assert_eq!(response.code, 201);
    assert!(response.warnings().iter().any(|warning| warning.contains("mind the gap")), "{response:?}");
}

#[tokio::test]
async fn a_failing_webhook_is_treated_by_its_failure_policy() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    let unreachable = json!({"url": "https://127.0.0.1:1/"});
    for (path, changes, expected) in [
        ("wrong-uid", json!({}), "received invalid webhook response: expected response.uid="),
        ("redirect", json!({}), "failed to call webhook: the server responded with status 307"),
        ("silent", json!({"timeoutSeconds": 1}), "context deadline exceeded"),
        (
            "gone",
            json!({"clientConfig": unreachable}),
            "failed to call webhook: cannot connect to 127.0.0.1:1",
        ),
        (
            "service",
            json!({"clientConfig": {"service": {"name": "s", "namespace": "n"}}}),
            "failed to call webhook: a logical cluster has no services",
        ),
    ] {
        for (policy, code) in [("Ignore", 201), ("Fail", 500)] {
            let mut webhook = webhooks.webhook(&format!("{path}/a"), &changes);
            webhook["name"] = format!("{path}.example.com").into();
            webhook["failurePolicy"] = policy.into();
            configure(&server, "validating", "v", vec![webhook]).await;
            let response = server.post(CONFIG_MAPS, &config_map(&format!("{path}-x"))).await;
            assert_eq!(response.code, code, "{path} {policy}: {response:?}");
            if policy == "Fail" {
                let message = response.failure().2;
                let start =
                    format!("Internal error occurred: failed calling webhook \"{path}.example.com\": ");
                assert!(message.starts_with(&start) && message.contains(expected), "{message}");
            }
            server.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v")).await;
        }
    }
}

#[tokio::test]
async fn selectors_and_rules_limit_what_a_webhook_sees() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    let labelled = |value: &str| json!({"matchLabels": {"kind": value}});
    for (changes, expected) in [
        (json!({"objectSelector": labelled("seen")}), 1),
        (json!({"objectSelector": labelled("other")}), 0),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), 1),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}), 0),
        (
            json!({"rules": [{"operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}),
            0,
        ),
        (
            json!({"rules": [{
                "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
                "scope": "Cluster",
            }]}),
            0,
        ),
    ] {
        let mut webhook = webhooks.webhook("allow/a", &changes);
        webhook["name"] = "a.example.com".into();
        configure(&server, "validating", "v", vec![webhook]).await;
        let object = json!({"metadata": {"name": "one", "labels": {"kind": "seen"}}});
        assert_eq!(server.post(CONFIG_MAPS, &object).await.code, 201);
        assert_eq!(webhooks.take_reviews().len(), expected, "{changes}");
        server.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v")).await;
        server.delete(&format!("{CONFIG_MAPS}/one")).await;
    }
}

#[tokio::test]
async fn match_conditions_limit_what_a_webhook_sees() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    let condition = |expression: &str| json!({"name": "c", "expression": expression});
    for (conditions, policy, expected) in [
        (json!([condition("object.data.text == 'x'")]), "Fail", Ok(1)),
        (json!([condition("object.data.text != 'x'")]), "Fail", Ok(0)),
        (json!([condition("object.nope == 1")]), "Ignore", Ok(0)),
        (
            json!([condition("object.nope == 1")]),
            "Fail",
            Err(
                "configmaps \"one\" is forbidden: expression 'object.nope == 1' resulted in error: no such key: nope",
            ),
        ),
        (json!([condition("authorizer.requestResource.check('create').allowed()")]), "Fail", Ok(1)),
        (json!([condition("request.userInfo.username.startsWith('system:')")]), "Fail", Ok(0)),
    ] {
        for kind in ["mutating", "validating"] {
            let changes =
                json!({"name": "a.example.com", "matchConditions": conditions, "failurePolicy": policy});
            configure(&server, kind, "w", vec![webhooks.webhook("allow/a", &changes)]).await;
            let response = server.post(CONFIG_MAPS, &config_map("one")).await;
            match expected {
                Ok(reviews) => {
                    assert_eq!(response.code, 201, "{conditions}: {response:?}");
                    assert_eq!(webhooks.take_reviews().len(), reviews, "{conditions}");
                }
                Err(message) => {
                    assert_eq!(response.failure(), (403, "Forbidden".to_owned(), message.to_owned()));
                    assert!(webhooks.take_reviews().is_empty());
                }
            }
            server.delete(&format!("{CONFIGURATIONS}/{kind}webhookconfigurations/w")).await;
            server.delete(&format!("{CONFIG_MAPS}/one")).await;
        }
    }
    let webhook =
        webhooks.webhook("allow/a", &json!({"name": "a.example.com", "matchConditions": [condition("1")]}));
    let object = json!({"metadata": {"name": "w"}, "webhooks": [webhook]});
    let message =
        server.post(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations"), &object).await.failure().2;
    assert!(message.ends_with("must evaluate to bool but got int"), "{message}");
}

#[tokio::test]
async fn policies_and_webhooks_let_each_other_run_again() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    let again = json!({"name": "first.example.com", "reinvocationPolicy": "IfNeeded"});
    configure(&server, "mutating", "m", vec![webhooks.webhook("append/a", &again)]).await;
    let source = "[JSONPatch{op: 'replace', path: '/data/text', value: object.data.text + '-'}]";
    let spec = json!({
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        }]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": source}}],
    });
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    server.create(&format!("{CONFIGURATIONS}/mutatingadmissionpolicies"), &policy).await;
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
    server.create(&format!("{CONFIGURATIONS}/mutatingadmissionpolicybindings"), &binding).await;
    // The webhook, the policy, and the webhook again because the policy has changed the object.
    let created = server.create(CONFIG_MAPS, &config_map("one")).await;
    assert_eq!(created["data"]["text"], "x+-+");
}

#[tokio::test]
async fn a_webhook_is_called_again_if_a_later_one_changed_the_object() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    let again = json!({"name": "first.example.com", "reinvocationPolicy": "IfNeeded"});
    let once = json!({"name": "second.example.com"});
    let both = vec![webhooks.webhook("append/a", &again), webhooks.webhook("append/a", &once)];
    configure(&server, "mutating", "m", both).await;
    let created = server.create(CONFIG_MAPS, &config_map("one")).await;
    assert_eq!(created["data"]["text"], "x+++");
}

#[tokio::test]
async fn a_change_that_a_webhook_may_not_make_is_an_error_of_the_webhook() {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    for (path, name, expected) in [
        ("rename/a", "r.example.com", "changed metadata.name, which identifies the object"),
        ("corrupt/a", "c.example.com", "ConfigMap"),
    ] {
        configure(&server, "mutating", "m", vec![webhooks.webhook(path, &json!({"name": name}))]).await;
        let (code, _, message) = server.post(CONFIG_MAPS, &config_map("one")).await.failure();
        assert_eq!(code, 500, "{message}");
        assert!(message.contains(&format!("admission webhook {name:?}")), "{message}");
        assert!(message.contains(expected), "{message}");
        server.delete(&format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/m")).await;
    }
}
