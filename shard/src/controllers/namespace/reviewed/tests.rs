#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::super::testing::{SILENT_WEBHOOK, Shard, condition, config_map, namespace};
use super::*;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
const FAILURE: &str = "NamespaceDeletionContentFailure";

/// Creates a policy that reviews deletions.
async fn policy(shard: &Shard, cluster: &str, expression: &str) {
    let rule = json!({
        "operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "*",
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [rule],
            },
            "validations": [{"expression": expression, "message": "not today"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    shard.create(cluster, POLICIES, policy).await.unwrap();
    shard.create(cluster, BINDINGS, binding).await.unwrap();
    let revision = shard.objects.store().revision();
    shard.hub.wait(revision).await.unwrap();
}

async fn namespace_with(shard: &Shard, cluster: &str, name: &str, objects: &[Value]) {
    shard.create(cluster, "namespaces", namespace(name)).await.unwrap();
    for object in objects {
        shard.create(cluster, "configmaps", object.clone()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_keeps_the_object_and_is_repeated_until_it_is_permitted() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let objects = [config_map("more", "kept"), config_map("more", "free")];
    namespace_with(&shard, "abc", "more", &objects).await;
    policy(&shard, "abc", "oldObject.metadata.name != 'kept'").await;
    shard.delete("abc", "namespaces", None, "more").await;
    let reported = || condition(&shard.get("abc", "namespaces", None, "more").unwrap(), FAILURE);
    shard.until("the refusal is reported", || reported().is_some_and(|(status, ..)| status)).await;
    shard.settle().await;
    let (_, reason, message) = reported().unwrap();
    assert_eq!(reason, "ContentDeletionFailed");
    assert!(
        message.starts_with("Failed to delete all resource types, 1 remaining: ")
            && message.contains("not today"),
        "{message}"
    );
    assert!(shard.get("abc", "configmaps", Some("more"), "kept").is_some());
    assert_eq!(shard.get("abc", "configmaps", Some("more"), "free"), None);
    assert_eq!(shard.get("abc", "serviceaccounts", Some("more"), "default"), None, "another resource");

    let before = shard.objects.store().revision();
    shard.settle().await;
    assert_eq!(shard.objects.store().revision(), before, "a repeated failure writes nothing");
    shard.delete("abc", BINDINGS, None, "b").await;
    shard.until("it is removed", || shard.get("abc", "namespaces", None, "more").is_none()).await;
    assert_eq!(shard.get("abc", "configmaps", Some("more"), "kept"), None);
}

#[tokio::test(start_paused = true)]
async fn a_policy_sees_the_user_of_the_controllers() {
    for (user, is_removed) in [("system:apiserver", true), ("alice", false)] {
        let shard = Shard::start().await;
        shard.workspace("abc").await;
        namespace_with(&shard, "abc", "more", &[config_map("more", "a")]).await;
        // Alice deletes the namespace itself.
        let expression =
            format!("request.resource.resource == 'namespaces' || request.userInfo.username == '{user}'");
        policy(&shard, "abc", &expression).await;
        shard.delete("abc", "namespaces", None, "more").await;
        shard.settle().await;
        assert_eq!(shard.get("abc", "namespaces", None, "more").is_none(), is_removed, "{user}");
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_awaited_after_a_reviewed_deletion() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let mut held = config_map("more", "held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    namespace_with(&shard, "abc", "more", &[held]).await;
    policy(&shard, "abc", "true").await;
    shard.delete("abc", "namespaces", None, "more").await;
    shard.settle().await;
    let left = shard.get("abc", "namespaces", None, "more").unwrap();
    assert!(!condition(&left, FAILURE).unwrap().0);
    let (status, reason, _) = condition(&left, "NamespaceFinalizersRemaining").unwrap();
    assert_eq!((status, &*reason), (true, "SomeFinalizersRemain"));
    let held = shard.get("abc", "configmaps", Some("more"), "held").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    shard
        .change("abc", "configmaps", Some("more"), "held", |object| {
            object["metadata"]["finalizers"] = json!([])
        })
        .await;
    shard.until("it is removed", || shard.get("abc", "namespaces", None, "more").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_webhook_delays_no_namespace_of_another_logical_cluster() {
    let shard = Shard::start().await;
    // More namespaces than the workers of the other controller.
    let names: Vec<String> = (0..40).map(|nth| format!("n{nth}")).collect();
    for cluster in ["abc", "reviewed", "plain"] {
        shard.workspace(cluster).await;
    }
    for name in &names {
        let mut object = config_map(name, "a");
        object["metadata"]["annotations"] = json!({SILENT_WEBHOOK: "yes"});
        namespace_with(&shard, "abc", name, &[object]).await;
    }
    for cluster in ["reviewed", "plain"] {
        namespace_with(&shard, cluster, "more", &[config_map("more", "a")]).await;
    }
    policy(&shard, "abc", "true").await;
    policy(&shard, "reviewed", "true").await;
    for name in &names {
        shard.delete("abc", "namespaces", None, name).await;
    }
    let begin = Instant::now();
    for cluster in ["reviewed", "plain"] {
        shard.delete(cluster, "namespaces", None, "more").await;
        shard.until("it is removed", || shard.get(cluster, "namespaces", None, "more").is_none()).await;
    }
    assert!(begin.elapsed() < MAX_DELETION, "after {:?} of the paused clock", begin.elapsed());
    // The silent webhook is reported in time.
    let is_reported = |name: &str| {
        let left = shard.get("abc", "namespaces", None, name).unwrap();
        condition(&left, FAILURE).is_some_and(|(status, _, message)| {
            status && message.contains("the deletion of configmaps did not end within 30 s")
        })
    };
    shard.until("a failure is reported", || names.iter().any(|name| is_reported(name))).await;
}
