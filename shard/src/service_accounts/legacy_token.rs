//! Legacy tokens: without expiry, stored in secrets of type `kubernetes.io/service-account-token`.

use serde_json::{Value, json};

/// The issuer of legacy tokens.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// The claims of the token in a secret.
pub(super) fn legacy_claims(cluster: &str, namespace: &str, account: &Value, secret: &str) -> Value {
    let name = account["metadata"]["name"].as_str().unwrap_or_default();
    json!({
        "iss": LEGACY_ISSUER,
        "kubernetes.io/serviceaccount/clusterName": cluster,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}
