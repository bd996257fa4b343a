//! Permissions of users with scopes and of service accounts of other logical clusters.

use fairlead_certs::Client as Role;
use fairlead_client::{Client, WriteOptions};
use http::Method;
use serde_json::{Value, json};

use crate::installation::{Installation, until_object};
use crate::wire::{RawResponse, send};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn grant(client: &Client, name: &str, rules: Value, subject: Value) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    let options = WriteOptions::default();
    let _: Value = client.create(&format!("{RBAC}/clusterroles"), &role, &options).await.unwrap();
    let _: Value = client.create(&format!("{RBAC}/clusterrolebindings"), &binding, &options).await.unwrap();
}

/// A ClusterRole is created by a service account of the logical cluster `home`, as the gateway forwards its request to a shard.
async fn create_role(installation: &Installation, home: &str, path: &str, rule: Value) -> RawResponse {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"generateName": "made-"}, "rules": [rule],
    });
    let headers = [
        ("content-type", "application/json"),
        ("x-remote-user", "system:serviceaccount:default:bot"),
        ("x-remote-group", "system:serviceaccounts"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-extra-authentication.kcp.io%2fcluster-name", home),
    ];
    let shard = installation.server("root").url;
    let path = format!("{path}{RBAC}/clusterroles");
    let credentials = installation.credentials(&Role::FrontProxy);
    send(&shard, &credentials, Method::POST, &path, &headers, role.to_string()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_service_account_cannot_grant_what_its_local_namesake_has() {
    let installation = Installation::start(1).await;
    let path = installation.workspace("root", "shop", "root").await;
    let shop = installation.admin(&path);
    // The account of this workspace may do everything.
    let local = json!({"kind": "ServiceAccount", "name": "bot", "namespace": "default"});
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    grant(&shop, "local", all, local).await;
    // The account of another workspace may create roles, and read config maps.
    let cluster: Value = shop.get_json("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await.unwrap();
    let here = cluster["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap().to_owned();
    let foreign = json!({"kind": "User", "name": "system:kcp:serviceaccount:elsewhere:default:bot", "apiGroup": "rbac.authorization.k8s.io"});
    let config_maps = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    let rules = json!([
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]},
        config_maps,
    ]);
    grant(&shop, "foreign", rules, foreign).await;

    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    for (home, rule, code) in
        [("elsewhere", &config_maps, 201), ("elsewhere", &secrets, 403), (here.as_str(), &secrets, 201)]
    {
        let response = create_role(&installation, home, &path_of(&here), rule.clone()).await;
        assert_eq!(response.code, code, "{home} {rule}: {}", response.text);
        if code == 403 {
            assert!(response.text.contains("attempting to grant RBAC permissions not currently held"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_administrators_write_aggregation_rules_and_labels_of_strong_roles() {
    let installation = Installation::start(1).await;
    let path = installation.workspace("root", "shop", "root").await;
    let shop = installation.admin(&path);
    let user = |name: &str| json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let roles = json!([
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["*"]},
    ]);
    // The verb `*` includes `escalate`, so the verbs are listed.
    let mut weaker = roles.clone();
    weaker[1]["verbs"] = json!(["create", "get", "update", "patch"]);
    grant(&shop, "weaker", weaker, user("weaker")).await;
    grant(&shop, "strong", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]), user("nobody"))
        .await;
    let cluster: Value = shop.get_json("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await.unwrap();
    let here = cluster["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap().to_owned();
    let credentials = installation.credentials(&Role::FrontProxy);
    let shard = installation.server("root").url;
    let request = async |method: Method, path: &str, content_type: &str, body: Value| {
        let headers = [
            ("content-type", content_type),
            ("x-remote-user", "weaker"),
            ("x-remote-group", "system:authenticated"),
        ];
        let path = format!("{}{RBAC}/clusterroles{path}", path_of(&here));
        send(&shard, &credentials, method, &path, &headers, body.to_string()).await
    };
    let sum = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]},
    });
    let refused = request(Method::POST, "", "application/json", sum.clone()).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(
        refused.text.contains("must have cluster-admin privileges to use the aggregationRule"),
        "{}",
        refused.text
    );
    // A label that would aggregate rules which the user does not have.
    let label = json!({"metadata": {"labels": {"to": "sum"}}});
    let refused = request(Method::PATCH, "/strong", "application/merge-patch+json", label).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(
        refused.text.contains("attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.text
    );

    let options = WriteOptions::default();
    let _: Value = shop.create(&format!("{RBAC}/clusterroles"), &sum, &options).await.unwrap();
    let config_maps = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    let part = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "part", "labels": {"to": "sum"}}, "rules": [config_maps],
    });
    let _: Value = shop.create(&format!("{RBAC}/clusterroles"), &part, &options).await.unwrap();
    until_object(&shop, &format!("{RBAC}/clusterroles"), "sum", |sum| sum["rules"] == json!([config_maps]))
        .await;
}

fn path_of(cluster: &str) -> String {
    format!("/clusters/{cluster}")
}
