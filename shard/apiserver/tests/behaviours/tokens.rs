//! Admission of a subresource whose objects are not stored: tokens of service accounts.

use serde_json::{Value, json};

use crate::client::{Server, TestResponse};
use crate::policies::{Policies, rule};
use crate::webhooks::{Webhooks, configure};

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/bot/token";

fn request() -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["a"], "expirationSeconds": 600},
    })
}

async fn webhook(server: &Server, webhooks: &Webhooks, kind: &str, path: &str, changes: &Value) {
    let mut all = json!({
        "name": "t.example.com",
        "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["serviceaccounts/token"],
        }],
    });
    for (field, value) in changes.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    configure(server, kind, "t", vec![webhooks.webhook(path, &all)]).await;
}

#[tokio::test]
async fn webhooks_review_requests_for_tokens() {
    for kind in ["mutating", "validating"] {
        let (server, webhooks) = (Server::start().await, Webhooks::start().await);
        webhook(&server, &webhooks, kind, "allow/a", &json!({})).await;
        let response = server.post(&format!("{TOKEN}?fieldManager=m"), &request()).await;
        assert_eq!(response.code, 201, "{response:?}");
        assert_eq!(response.json()["metadata"].get("annotations"), None, "{kind}");
        let reviews = webhooks.take_reviews();
        let [review] = &*reviews else { panic!("one review: {reviews:?}") };
        let expected = json!({
            "operation": "CREATE", "name": "bot", "namespace": "default", "subResource": "token",
            "kind": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
            "resource": {"group": "", "version": "v1", "resource": "serviceaccounts"},
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "m"},
            "oldObject": null,
        });
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&review[field], value, "{kind} {field}");
        }
        assert_eq!(review["object"]["spec"], request()["spec"], "{kind}");
        assert_eq!(review["object"]["metadata"]["annotations"]["kcp.io/cluster"], "c", "{kind}");
        let owner = &review["object"]["metadata"]["managedFields"][0];
        assert_eq!(
            (&owner["manager"], &owner["subresource"], &owner["apiVersion"]),
            (&json!("m"), &json!("token"), &json!("authentication.k8s.io/v1")),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn an_object_that_is_not_stored_has_the_namespace_of_the_request() {
    let server = Server::start().await;
    for (namespace, code) in [(json!(null), 201), (json!("default"), 201), (json!("other"), 400)] {
        let mut object = request();
        object["metadata"] = json!({"namespace": namespace});
        let response = server.post(TOKEN, &object).await;
        assert_eq!(response.code, code, "{namespace}: {response:?}");
        let expected = if code == 201 { json!("default") } else { json!(null) };
        assert_eq!(response.json()["metadata"]["namespace"], expected, "{namespace}");
    }
}

#[tokio::test]
async fn a_webhook_may_refuse_a_token_and_sees_dry_runs() {
    for (path, side_effects, query, is_dry_run, expected) in [
        (
            "deny/a",
            "None",
            "",
            false,
            Some("admission webhook \"t.example.com\" denied the request: not today"),
        ),
        ("allow/a", "None", "?dryRun=All", true, None),
        ("allow/a", "NoneOnDryRun", "?dryRun=All", true, None),
    ] {
        let (server, webhooks) = (Server::start().await, Webhooks::start().await);
        let changes = json!({"sideEffects": side_effects});
        webhook(&server, &webhooks, "validating", path, &changes).await;
        let response: TestResponse = server.post(&format!("{TOKEN}{query}"), &request()).await;
        match expected {
            None => assert_eq!(response.code, 201, "{path}{query}: {response:?}"),
            Some(message) => assert_eq!(response.failure().2, message),
        }
        assert_eq!(webhooks.take_reviews()[0]["dryRun"], is_dry_run, "{path}{query}");
    }
}

#[tokio::test]
async fn policies_change_and_refuse_requests_for_tokens() {
    let policies = Policies::start().await;
    let constraints = json!({"resourceRules": [rule("", "serviceaccounts/token")]});
    let validations = json!({
        "matchConstraints": constraints,
        "validations": [{"expression": "!('secret' in object.spec.audiences)", "message": "not for secret"}],
    });
    policies.validating("v", &validations, &json!({})).await;
    for (source, expected) in [
        (
            "Object{spec: Object.spec{expirationSeconds: 900}}",
            Ok(json!({"audiences": ["a"], "expirationSeconds": 900})),
        ),
        ("Object{spec: Object.spec{other: 900}}", Err("other")),
    ] {
        let policy = json!({
            "matchConstraints": constraints,
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": source}}],
        });
        policies.mutating("p", &policy, &json!({})).await;
        let response = policies.0.post(TOKEN, &request()).await;
        match expected {
            Ok(spec) => assert_eq!(response.json()["spec"], spec, "{source}: {response:?}"),
            Err(expected) => assert!(response.failure().2.contains(expected), "{source}: {response:?}"),
        }
    }
    let patch = |value: &str| {
        json!({
            "matchConstraints": constraints,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                format!("[JSONPatch{{op: 'replace', path: '/spec/audiences/0', value: '{value}'}}]")}}],
        })
    };
    policies.mutating("p", &patch("b"), &json!({})).await;
    assert_eq!(policies.0.post(TOKEN, &request()).await.json()["spec"]["audiences"], json!(["b"]));
    // What a mutation has set is validated.
    policies.mutating("p", &patch("secret"), &json!({})).await;
    let (code, _, message) = policies.0.post(TOKEN, &request()).await.failure();
    assert_eq!(code, 422);
    assert!(message.contains("not for secret"), "{message}");
}
