//! Objects, definitions and workspaces that a measurement needs.

use bytes::Bytes;
use fairlead_client::{Client, WriteOptions};
use serde_json::{Value, json};

use super::super::LoadError;
use super::super::run::{Until, body, closed_loop, post, retried};
use super::server::Server;

/// The collection in which measurements make config maps, below the path of a workspace.
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// A config map whose JSON has about this size.
pub(super) fn config_map(name: &str, size: usize) -> Bytes {
    let filler = "x".repeat(size.saturating_sub(name.len() + 80));
    body(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "filler": filler },
    }))
}

/// Creates config maps `object-<number>`, many at a time.
pub(super) async fn fill(
    server: &Server,
    prefix: &str,
    numbers: std::ops::Range<usize>,
    size: usize,
) -> Result<(), LoadError> {
    let first = numbers.start;
    closed_loop(
        &server.clients(prefix, 4),
        64,
        Until::Count(numbers.len()),
        move |client, number| async move {
            let object = config_map(&format!("object-{:06}", first + number), size);
            Ok(post(&client, CONFIG_MAPS, object).await?)
        },
    )
    .await
    .map(drop)
}

/// Creates a universal workspace; returns the path of its logical cluster when it is ready.
pub(super) async fn workspace(root: &Client, name: &str) -> Result<String, LoadError> {
    let object = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": { "type": { "name": "universal", "path": "root" } },
    });
    retried(|| async { post(root, WORKSPACES, body(&object)).await }).await?;
    let path = format!("{WORKSPACES}?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut watch = root.watch(&path).await?;
    while let Some(event) = watch.next().await {
        let workspace: Value = serde_json::from_slice(&event?.object).unwrap_or_default();
        if workspace["status"]["phase"] == "Ready" {
            return Ok(format!("/clusters/{}", workspace["spec"]["cluster"].as_str().unwrap_or_default()));
        }
    }
    Err(LoadError::Unexpected(format!("workspace {name} did not become ready")))
}

/// A definition of `<plural>.bench.example.com`, cluster-scoped, whose `spec` has this schema.
pub(super) fn definition(plural: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.bench.example.com") },
        "spec": {
            "group": "bench.example.com", "scope": "Cluster",
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } },
            }],
        },
    })
}

/// The collection of such a definition.
pub(super) fn collection(plural: &str) -> String {
    format!("/apis/bench.example.com/v1/{plural}")
}

/// Creates a definition; returns when its resource is served.
pub(super) async fn define(client: &Client, plural: &str, definition: &Value) -> Result<(), LoadError> {
    client.create::<Value>(DEFINITIONS, definition, &WriteOptions::default()).await?;
    let collection = format!("{}?limit=1", collection(plural));
    retried(|| async { client.get(&collection).await.map(drop) }).await
}
