//! A short notation for RBAC objects. Lists are words separated by spaces; `core` is the core group (empty in RBAC).

use serde_json::{Value, json};

const API: &str = "rbac.authorization.k8s.io";

/// A ClusterRole without metadata beyond its name.
pub(super) fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("{API}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    })
}

/// A Role in a namespace.
pub(super) fn role(namespace: &str, name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("{API}/v1"),
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": rules,
    })
}

/// A ClusterRoleBinding from groups to a ClusterRole.
pub(super) fn cluster_role_binding(name: &str, role: &str, groups: &[&str]) -> Value {
    json!({
        "apiVersion": format!("{API}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": API, "kind": "ClusterRole", "name": role},
        "subjects": groups
            .iter()
            .map(|group| json!({"apiGroup": API, "kind": "Group", "name": group}))
            .collect::<Vec<_>>(),
    })
}

/// A rule that allows `verbs` on `resources` of `groups`.
pub(super) fn allow(verbs: &str, groups: &str, resources: &str) -> Value {
    let groups: Vec<&str> =
        groups.split_whitespace().map(|group| if group == "core" { "" } else { group }).collect();
    json!({"apiGroups": groups, "resources": words(resources), "verbs": words(verbs)})
}

/// A rule as of [`allow`], for objects of these names only.
pub(super) fn allow_named(verbs: &str, groups: &str, resources: &str, names: &str) -> Value {
    let mut rule = allow(verbs, groups, resources);
    rule["resourceNames"] = json!(words(names));
    rule
}

/// A rule that allows `verbs` on URL paths.
pub(super) fn allow_urls(verbs: &str, urls: &str) -> Value {
    json!({"nonResourceURLs": words(urls), "verbs": words(verbs)})
}

/// Rules that allow all verbs on all resources and URL paths.
pub(super) fn allow_all() -> Vec<Value> {
    vec![allow("*", "*", "*"), allow_urls("*", "*")]
}

/// Adds an annotation.
pub(super) fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = value.into();
    object
}

/// Adds a label.
pub(super) fn labelled(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"][key] = value.into();
    object
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
