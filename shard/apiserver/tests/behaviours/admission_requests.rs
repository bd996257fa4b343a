//! The parts of a request that webhooks and policies see beside the object: its options, and the owners of fields.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, Server, TestResponse, WIDGETS};
use crate::policies::Policies;
use crate::webhooks::{Webhooks, configure};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

/// A server whose webhooks of a kind see all writes of config maps and widgets, and of their subresources.
async fn reviewed_by(kind: &str, path: &str) -> (Server, Webhooks) {
    let (server, webhooks) = (Server::start().await, Webhooks::start().await);
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["", "example.com"], "apiVersions": ["*"],
        "resources": ["configmaps", "widgets", "widgets/*"],
    }]);
    let changes = json!({"name": "w.example.com", "rules": rules});
    configure(&server, kind, "w", vec![webhooks.webhook(path, &changes)]).await;
    (server, webhooks)
}

async fn send(server: &Server, method: &str, path: &str, content_type: &str, body: &Value) -> TestResponse {
    let headers = [("content-type", content_type), ("user-agent", "program/1")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let response = server.send(method, path, &headers, body).await;
    assert!(response.code.is_success(), "{method} {path}: {response:?}");
    response
}

#[tokio::test]
async fn webhooks_see_the_options_of_a_request() {
    let (server, webhooks) = reviewed_by("validating", "allow/a").await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    send(&server, "POST", WIDGETS, JSON, &widget).await;
    webhooks.take_reviews();
    let (a, b) = (config_map("a", "1"), config_map("b", "1"));
    let nothing = Value::Null;
    let preconditions = |uid: &Value| json!({"preconditions": {"uid": uid}, "orphanDependents": false});
    let text = json!({"data": {"text": "2"}});
    let status = json!({"status": {"phase": "x"}});
    for (method, path, query, content_type, body, kind, options) in [
        // The program in the User-Agent is no option.
        ("POST", CONFIG_MAPS, "", JSON, &a, "CreateOptions", json!({})),
        (
            "POST",
            CONFIG_MAPS,
            "fieldManager=m&fieldValidation=Strict&dryRun=All",
            JSON,
            &b,
            "CreateOptions",
            json!({"fieldManager": "m", "fieldValidation": "Strict", "dryRun": ["All"]}),
        ),
        (
            "PUT",
            "a",
            "fieldManager=m&fieldValidation=Warn",
            JSON,
            &config_map("a", "3"),
            "UpdateOptions",
            json!({"fieldManager": "m", "fieldValidation": "Warn"}),
        ),
        ("PATCH", "a", "fieldManager=p", MERGE, &text, "UpdateOptions", json!({"fieldManager": "p"})),
        // A patch has the options of the create or update that it is, which have no `force`.
        ("PATCH", "a", "fieldManager=s&force=true", APPLY, &a, "UpdateOptions", json!({"fieldManager": "s"})),
        (
            "PATCH",
            "b",
            "fieldManager=s&force=true&fieldValidation=Ignore",
            APPLY,
            &b,
            "CreateOptions",
            json!({"fieldManager": "s", "fieldValidation": "Ignore"}),
        ),
        (
            "PATCH",
            "w/status",
            "fieldManager=c",
            MERGE,
            &status,
            "UpdateOptions",
            json!({"fieldManager": "c"}),
        ),
        (
            "DELETE",
            "b",
            "propagationPolicy=Foreground&gracePeriodSeconds=5&dryRun=All",
            JSON,
            &nothing,
            "DeleteOptions",
            json!({"propagationPolicy": "Foreground", "gracePeriodSeconds": 5, "dryRun": ["All"]}),
        ),
        (
            "DELETE",
            CONFIG_MAPS,
            "fieldSelector=metadata.name=b&propagationPolicy=Background",
            JSON,
            &nothing,
            "DeleteOptions",
            json!({"propagationPolicy": "Background"}),
        ),
    ] {
        let collection = if path.starts_with("w/") { WIDGETS } else { CONFIG_MAPS };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{collection}/{path}") };
        send(&server, method, &format!("{path}?{query}"), content_type, body).await;
        assert_options(&webhooks, kind, &options, &format!("{method} {path}?{query}"));
    }
    let uid = server.get(&format!("{CONFIG_MAPS}/a")).await.json()["metadata"]["uid"].clone();
    let body = preconditions(&uid);
    send(&server, "DELETE", &format!("{CONFIG_MAPS}/a"), JSON, &body).await;
    assert_options(&webhooks, "DeleteOptions", &body, "DELETE with preconditions");
}

fn assert_options(webhooks: &Webhooks, kind: &str, options: &Value, request: &str) {
    let mut expected = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
    for (field, value) in options.as_object().unwrap() {
        expected[field] = value.clone();
    }
    let reviews = webhooks.take_reviews();
    let [review] = &*reviews else { panic!("one review of {request}: {reviews:?}") };
    assert_eq!(review["options"], expected, "{request}");
}

#[tokio::test]
async fn reviews_of_a_deleted_collection_have_no_name() {
    let (server, webhooks) = reviewed_by("validating", "allow/a").await;
    for name in ["a", "b"] {
        send(&server, "POST", CONFIG_MAPS, JSON, &config_map(name, "1")).await;
    }
    webhooks.take_reviews();
    send(&server, "DELETE", CONFIG_MAPS, JSON, &Value::Null).await;
    let reviews = webhooks.take_reviews();
    let mut deleted: Vec<_> =
        reviews.iter().map(|review| (&review["name"], &review["oldObject"]["metadata"]["name"])).collect();
    deleted.sort_by_key(|(_, name)| name.as_str());
    assert_eq!(deleted, [(&Value::Null, &json!("a")), (&Value::Null, &json!("b"))]);
}

#[tokio::test]
async fn webhooks_see_the_owners_of_fields_before_and_after_a_write() {
    for kind in ["mutating", "validating"] {
        let (server, webhooks) = reviewed_by(kind, "allow/a").await;
        let path = format!("{CONFIG_MAPS}/a");
        let mut before = Value::Null;
        for (method, path, content_type, body) in [
            ("POST", &*format!("{CONFIG_MAPS}?fieldManager=one"), JSON, config_map("a", "1")),
            ("PATCH", &*format!("{path}?fieldManager=two"), MERGE, json!({"data": {"more": "2"}})),
            ("PUT", &*path, JSON, config_map("a", "3")),
            ("PATCH", &*format!("{path}?fieldManager=s&force=true"), APPLY, config_map("a", "4")),
        ] {
            let after = send(&server, method, path, content_type, &body).await.json();
            let after = after["metadata"]["managedFields"].clone();
            let reviews = webhooks.take_reviews();
            let [review] = &*reviews else { panic!("one review of {method} {path}: {reviews:?}") };
            assert_eq!(review["object"]["metadata"]["managedFields"], after, "{method} {path}");
            assert_eq!(review["oldObject"]["metadata"]["managedFields"], before, "{method} {path}");
            assert_ne!(after, before, "{method} {path}");
            before = after;
        }
        send(&server, "DELETE", &path, JSON, &Value::Null).await;
        let reviews = webhooks.take_reviews();
        assert_eq!(reviews[0]["object"], Value::Null);
        assert_eq!(reviews[0]["oldObject"]["metadata"]["managedFields"], before);
    }
}

#[tokio::test]
async fn a_mutating_webhook_may_change_the_owners_of_fields() {
    for (path, managers, warns) in [
        ("take-over/a", json!(["webhook"]), false),
        ("release/a", json!([]), false),
        // Owners that are not valid afterwards are those of before.
        ("spoil/a", json!(["m"]), true),
        // Fields of webhooks have no owner until the next write.
        ("append/a", json!(["m"]), false),
    ] {
        let (server, _webhooks) = reviewed_by("mutating", path).await;
        // The validating webhook sees the owners that are stored.
        let seen = Webhooks::start().await;
        let webhook = seen.webhook("allow/a", &json!({"name": "v.example.com"}));
        configure(&server, "validating", "v", vec![webhook]).await;
        let url = format!("{CONFIG_MAPS}?fieldManager=m");
        let response = send(&server, "POST", &url, JSON, &config_map("a", "1")).await;
        let stored =
            server.get(&format!("{CONFIG_MAPS}/a")).await.json()["metadata"]["managedFields"].clone();
        assert_eq!(managers_of(&stored), managers, "{path}");
        assert_eq!(seen.take_reviews()[0]["object"]["metadata"]["managedFields"], stored, "{path}");
        let warnings = response.warnings();
        let is_warned = warnings.iter().any(|warning| {
            warning.contains(".metadata.managedFields was in an invalid state after admission")
                && warning.contains("apiVersion must not be empty")
        });
        assert_eq!(is_warned, warns, "{path}: {warnings:?}");
    }
}

fn managers_of(managed_fields: &Value) -> Value {
    managed_fields.as_array().into_iter().flatten().map(|entry| entry["manager"].clone()).collect()
}

#[tokio::test]
async fn policies_see_options_and_owners() {
    let policies = Policies::start().await;
    for (source, is_admitted) in [
        ("request.options.fieldManager == 'm' && request.options.kind == 'CreateOptions'", true),
        ("has(request.options.fieldValidation)", false),
        ("object.metadata.managedFields.exists(entry, entry.manager == 'm')", true),
        ("object.metadata.managedFields.exists(entry, entry.manager == 'other')", false),
    ] {
        let validations = json!({"validations": [{"expression": source}]});
        policies.validating("p", &validations, &json!({})).await;
        let url = format!("{CONFIG_MAPS}?fieldManager=m");
        let response = policies.0.post(&url, &config_map("a", "1")).await;
        assert_eq!(response.code, if is_admitted { 201 } else { 422 }, "{source}: {response:?}");
        policies
            .0
            .delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/p-binding")
            .await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn a_mutating_policy_may_change_the_owners_of_fields() {
    let policies = Policies::start().await;
    let source = "[JSONPatch{op: 'replace', path: '/metadata/managedFields/0/manager', value: 'policy'}]";
    let spec = json!({
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": source}}],
    });
    policies.mutating("p", &spec, &json!({})).await;
    let created = policies.0.create(&format!("{CONFIG_MAPS}?fieldManager=m"), &config_map("a", "1")).await;
    assert_eq!(managers_of(&created["metadata"]["managedFields"]), json!(["policy"]));
    assert_eq!(created["data"], json!({"text": "1"}));
}
