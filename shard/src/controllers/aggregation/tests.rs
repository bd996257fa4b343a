#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use serde_json::json;

use super::super::testing::Shard;
use super::*;

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

#[test]
fn rules_are_collected_by_selector_and_name_and_each_once() {
    let role = |name: &str, labels: Value, verbs: &[&str]| {
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
    };
    let all = [
        role("c", json!({"to": "a"}), &["get", "list"]),
        role("b", json!({"to": "a", "also": "x"}), &["list"]),
        role("d", json!({"to": "b"}), &["watch"]),
        role("sum", json!({"to": "a"}), &["delete"]),
        role("e", json!({}), &["patch"]),
    ];
    for (selectors, expected) in [
        (json!([{"matchLabels": {"to": "a"}}]), json!([{"verbs": ["list"]}, {"verbs": ["get"]}])),
        (
            json!([{"matchLabels": {"to": "b"}}, {"matchExpressions": [{"key": "also", "operator": "Exists"}]}]),
            json!([{"verbs": ["watch"]}, {"verbs": ["list"]}]),
        ),
        (json!([{"matchLabels": {"to": "nobody"}}]), Value::Null),
    ] {
        let sum =
            json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        assert_eq!(aggregate(&sum, &all).unwrap(), expected, "{selectors}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_role_follows_the_roles_that_it_selects() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let role = |name: &str, verb: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"to": "sum"}},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}],
        })
    };
    let mut sum = role("sum", "get");
    sum["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]});
    shard.create("abc", ROLES, sum).await.unwrap();
    let verbs = || {
        let sum = shard.get("abc", ROLES, None, "sum").unwrap();
        let rules = sum["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().map(|rule| rule["verbs"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    shard.until("its own rules are replaced", || verbs().is_empty()).await;
    for (name, verb) in [("b", "list"), ("a", "watch")] {
        shard.create("abc", ROLES, role(name, verb)).await.unwrap();
    }
    shard.until("it has both rules", || verbs() == ["watch", "list"]).await;
    shard.delete("abc", ROLES, None, "a").await;
    shard.until("a rule is gone", || verbs() == ["list"]).await;
    shard.change("abc", ROLES, None, "b", |role| role["metadata"]["labels"] = json!({})).await;
    shard.until("no role is selected", || verbs().is_empty()).await;
}
