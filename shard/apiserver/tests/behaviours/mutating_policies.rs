//! Mutating admission policies: patches, merged configurations, failures and their order.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, WIDGETS};
use crate::policies::{Policies, rule};

fn json_patch(source: &str) -> Value {
    json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": source}}]})
}

#[tokio::test]
async fn a_mutating_policy_patches_objects() {
    let policies = Policies::start().await;
    for (source, expected) in [
        (
            "[JSONPatch{op: 'add', path: '/data/more', value: object.data.text + '!'}]",
            json!({"text": "x", "more": "x!"}),
        ),
        (
            "[JSONPatch{op: 'test', path: '/data/text', value: 'y'}, JSONPatch{op: 'remove', path: '/data'}]",
            json!({"text": "x"}),
        ),
        (
            "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a'), value: request.name}, JSONPatch{op: 'move', from: '/data/text', path: '/data/b'}]",
            json!({"a": "a", "b": "x"}),
        ),
        (
            "has(object.metadata.labels) ? [JSONPatch{op: 'replace', path: '/data', value: {'all': 'new'}}] : []",
            json!({"all": "new"}),
        ),
    ] {
        policies.mutating("p", &json_patch(source), &json!({})).await;
        let created = policies.post("a", "x").await;
        assert_eq!(created.code, 201, "{source}: {created:?}");
        assert_eq!(created.json()["data"], expected, "{source}");
        assert_eq!(created.json()["metadata"]["annotations"], json!({"kcp.io/cluster": "c"}));
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn a_mutating_policy_merges_configurations() {
    let policies = Policies::start().await;
    let apply = |source: &str| {
        json!({
            "matchConstraints": {"resourceRules": [rule("", "configmaps"), rule("example.com", "widgets")]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": source}}],
        })
    };
    for (source, expected) in [
        (
            "Object{metadata: Object.metadata{labels: {'mutated': 'true'}}}",
            json!({"labels": {"kind": "seen", "mutated": "true"}}),
        ),
        ("Object{data: {'text': object.data.text + '!', 'more': 'y'}}", json!({"text": "x!", "more": "y"})),
        ("Object{?data: optional.none()}", json!({"text": "x"})),
    ] {
        let mut policy = apply(source);
        policy["matchConstraints"]["resourceRules"][1]["operations"] = json!(["CREATE", "UPDATE"]);
        policies.mutating("p", &policy, &json!({})).await;
        let created = policies.post("a", "x").await;
        assert_eq!(created.code, 201, "{source}: {created:?}");
        let (created, labels) = (created.json(), &expected["labels"]);
        let found = if labels.is_null() { &created["data"] } else { &created["metadata"]["labels"] };
        assert_eq!(found, if labels.is_null() { &expected } else { labels }, "{source}");
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
    let widget = json!({"metadata": {"name": "a"}, "spec": {"color": "red", "tags": ["x"]}});
    for (source, expected) in [
        ("Object{spec: Object.spec{size: 7}}", Ok(json!({"color": "red", "size": 7, "tags": ["x"]}))),
        (
            "Object{spec: Object.spec{tags: ['y']}}",
            Err(
                "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tags",
            ),
        ),
        (
            "Object{spec: Object.spec{size: 'large'}}",
            Err("error applying patch: failed to convert patch object to typed object: "),
        ),
        ("Object{spec: Object.other{}}", Err("type mismatch: unexpected type name \"Object.other\"")),
    ] {
        let mut policy = apply(source);
        policy["matchConstraints"]["resourceRules"][1]["operations"] = json!(["CREATE", "UPDATE"]);
        policies.mutating("p", &policy, &json!({})).await;
        let response = policies.0.post(WIDGETS, &widget).await;
        match expected {
            Ok(spec) => assert_eq!(response.json()["spec"], spec, "{source}"),
            Err(expected) => {
                let message = response.failure().2;
                assert!(message.contains(expected), "{source}: {message}");
            }
        }
        policies.0.delete(&format!("{WIDGETS}/a")).await;
    }
}

#[tokio::test]
async fn failed_mutations_are_treated_by_the_failure_policy() {
    let policies = Policies::start().await;
    for (source, expected) in [
        ("[JSONPatch{op: 'remove', path: '/nope'}]", "denied request: JSON Patch: "),
        (
            "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]",
            "changed metadata.name, which identifies the object",
        ),
        ("[JSONPatch{op: 'add', path: '/data', value: 'text'}]", "denied request: JSON Patch: "),
        ("[JSONPatch{op: 'add', path: object.nope, value: 1}]", "resulted in error: no such key: nope"),
        (
            "[JSONPatch{op: 'add', path: '/data', value: Object{data: Object.other{}}}]",
            "type mismatch: unexpected type name \"Object.other\", expected \"Object.data\"",
        ),
    ] {
        for failure_policy in ["Ignore", "Fail"] {
            let mut policy = json_patch(source);
            policy["failurePolicy"] = failure_policy.into();
            policies.mutating("p", &policy, &json!({})).await;
            let response = policies.post("a", "x").await;
            if failure_policy == "Ignore" {
                assert_eq!(response.code, 201, "{source}: {response:?}");
                assert_eq!(response.json()["data"], json!({"text": "x"}));
                policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
            } else {
                let (code, reason, message) = response.failure();
                assert_eq!((code, &*reason), (403, "Invalid"), "{source}");
                assert!(
                    message.starts_with("policy 'p' with binding 'p-binding' denied request: "),
                    "{message}"
                );
                assert!(message.contains(expected), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn mutating_policies_run_in_the_order_of_their_names_and_some_again() {
    let policies = Policies::start().await;
    let append = |text: &str| {
        json_patch(&format!(
            "[JSONPatch{{op: 'replace', path: '/data/text', value: object.data.text + '{text}'}}]"
        ))
    };
    let mut again = append("a");
    again["reinvocationPolicy"] = "IfNeeded".into();
    policies.mutating("second", &append("b"), &json!({})).await;
    policies.mutating("first", &again, &json!({})).await;
    assert_eq!(policies.post("a", "x").await.json()["data"]["text"], "xaba");
    // A policy that changes nothing lets no other one run again.
    policies
        .mutating("second", &json_patch("[JSONPatch{op: 'test', path: '/data', value: 1}]"), &json!({}))
        .await;
    assert_eq!(policies.post("b", "x").await.json()["data"]["text"], "xa");
}
