//! Reviews of access and of rules, and the escalation check.

use fairlead_certs::Client as Role;
use fairlead_client::{Client, WriteOptions};
use http::Method;
use serde_json::{Value, json};

use super::Shard;
use crate::wire::{RawResponse, send};

const REVIEWS: &str = "/clusters/root/apis/authorization.k8s.io/v1";
const RBAC: &str = "/clusters/root/apis/rbac.authorization.k8s.io/v1";

/// Grants rules to a user by a role with its name.
async fn grant(admin: &Client, user: &str, rules: Value) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user},
        "rules": rules,
    });
    create(admin, &format!("{RBAC}/clusterroles"), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
    });
    create(admin, &format!("{RBAC}/clusterrolebindings"), binding).await;
}

async fn post(shard: &Shard, role: &Role, headers: &[(&str, &str)], path: &str, body: &Value) -> RawResponse {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let credentials = shard.pki.credentials(role).unwrap();
    send(&shard.url(), &credentials, Method::POST, path, &all, body.to_string()).await
}

fn access_review(user: &str, groups: &[&str], attributes: Value, extra: Value) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes, "extra": extra},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_take_scopes_warrants_and_depth_into_account() {
    let shard = Shard::start(json!({})).await;
    let path = format!("{REVIEWS}/subjectaccessreviews");
    let attributes = json!({"verb": "get", "resource": "namespaces", "version": "v1"});
    let scopes = "authentication.kcp.io/scopes";
    let warrant = json!([r#"{"user":"user2","groups":["system:kcp:admin"]}"#]);
    for (user, groups, extra, expected) in [
        ("user", &["system:kcp:admin"][..], json!({}), true),
        ("user", &["system:kcp:admin"], json!({scopes: ["cluster:root"]}), true),
        ("user", &["system:kcp:admin"], json!({scopes: ["cluster:root,cluster:other"]}), true),
        ("user", &["system:kcp:admin"], json!({scopes: ["cluster:root", "cluster:other"]}), false),
        ("user", &[], json!({"authorization.kcp.io/warrant": warrant}), true),
        (
            "system:serviceaccount:default:default",
            &["system:kcp:admin"],
            json!({"authentication.kcp.io/cluster-name": ["other"]}),
            false,
        ),
    ] {
        let review = access_review(user, groups, attributes.clone(), extra.clone());
        let reviewed = post(&shard, &Role::Admin, &[], &path, &review).await;
        assert_eq!(reviewed.code, 201, "{}", reviewed.text);
        let status = &reviewed.json()["status"];
        assert_eq!(status["allowed"], expected, "{user} {groups:?} {extra}");
        assert_eq!(status["reason"], if expected { "access granted" } else { "access denied" });
    }

    // A deep review skips the check of access to the logical cluster; only masters get one.
    let admin = shard.client(&Role::Admin);
    grant(&admin, "user", json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"], "verbs": ["create"]},
        {"nonResourceURLs": ["/api"], "verbs": ["get"]},
    ]))
    .await;
    let review = access_review(
        "user",
        &[],
        json!({
            "verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews",
        }),
        json!({}),
    );
    let discovery = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": "user",
            "nonResourceAttributes": {"verb": "get", "path": "/api"},
        },
    });
    let deep = ("x-kcp-internal-deep-subjectaccessreview", "true");
    for (role, headers, review, expected) in [
        (Role::ShardAdmin, &[][..], &discovery, false),
        (Role::ShardAdmin, &[deep], &discovery, true),
        (Role::Admin, &[deep], &discovery, false),
        (Role::ShardAdmin, &[deep], &review, false),
    ] {
        let reviewed = post(&shard, &role, headers, &path, review).await.json();
        assert_eq!(reviewed["status"]["allowed"], expected, "{role:?} {headers:?} {reviewed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_several_effective_users_are_listed_once() {
    let shard = Shard::start(json!({})).await;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"},
    });
    let warrant = r#"{"user":"user","groups":["system:kcp:admin"]}"#;
    let headers = [
        ("x-remote-user", "system:serviceaccount:default:default"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-extra-authentication.kcp.io%2fcluster-name", "other"),
        ("x-remote-extra-authorization.kcp.io%2fwarrant", warrant),
    ];
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let reviewed = post(&shard, &Role::FrontProxy, &headers, &path, &review).await;
    assert_eq!(reviewed.code, 201, "{}", reviewed.text);
    let reviewed = reviewed.json();
    let rules = reviewed["status"]["resourceRules"].as_array().unwrap();
    for expected in [
        // Of the warrant.
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        // Of both users.
        json!({"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}),
        json!({
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"],
        }),
    ] {
        assert_eq!(rules.iter().filter(|rule| **rule == expected).count(), 1, "{expected}: {rules:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_grants_permissions_that_it_does_not_have() {
    let shard = Shard::start(json!({})).await;
    let admin = shard.client(&Role::Admin);
    let rbac = RBAC;
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules,
        })
    };
    let own = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
    ]);
    grant(&admin, "ann", own).await;
    let headers =
        [("x-remote-user", "ann"), ("x-remote-group", "a"), ("x-remote-group", "system:authenticated")];
    let more = json!([
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]);
    let path = format!("{rbac}/clusterroles");
    let refused = post(&shard, &Role::FrontProxy, &headers, &path, &role("more", more)).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    let expected = "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" \
                    (groups=[\"a\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                    {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"list\"]}\n\
                    {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
                    {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}";
    assert_eq!(refused.json()["message"], expected);
    let same = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let made = post(&shard, &Role::FrontProxy, &headers, &path, &role("same", same)).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

async fn create(client: &Client, path: &str, object: Value) {
    let _: Value = client.create(path, &object, &WriteOptions::default()).await.unwrap();
}
