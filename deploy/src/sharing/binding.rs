//! The requests for APIBindings and APIExports.

use fairlead_client::{Client, ClientError, List, WriteOptions};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
/// Characters of names that stay as they are in a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An APIBinding to create.
#[derive(Debug)]
pub(crate) struct NewBinding<'a> {
    pub name: &'a str,
    pub export_path: &'a str,
    pub export_name: &'a str,
    pub claims: Vec<Value>,
}

/// Creates an APIBinding.
pub(crate) async fn create(workspace: &Client, new: NewBinding<'_>) -> Result<Value, ClientError> {
    let mut spec = json!({ "reference": { "export": { "path": new.export_path, "name": new.export_name } } });
    if !new.claims.is_empty() {
        spec["permissionClaims"] = Value::Array(new.claims);
    }
    let body = json!({
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": { "name": new.name },
        "spec": spec,
    });
    workspace.create(BINDINGS, &body, &WriteOptions::default()).await
}

/// An APIBinding.
pub(crate) async fn get(workspace: &Client, name: &str) -> Result<Value, ClientError> {
    workspace.get_json(&path(BINDINGS, name)).await
}

/// All APIBindings of a workspace.
pub(crate) async fn list(workspace: &Client) -> Result<Vec<Value>, ClientError> {
    let list: List<Value> = workspace.get_json(BINDINGS).await?;
    Ok(list.items)
}

/// Writes an APIBinding whose resourceVersion is that of the server.
pub(crate) async fn replace(workspace: &Client, binding: &Value) -> Result<Value, ClientError> {
    workspace.replace(&path(BINDINGS, name_of(binding)), binding, &WriteOptions::default()).await
}

/// The permission claims of an APIExport.
pub(crate) async fn claims_of_export(workspace: &Client, name: &str) -> Result<Vec<Value>, ClientError> {
    let export: Value = workspace.get_json(&path(EXPORTS, name)).await?;
    let claims = export.pointer("/spec/permissionClaims").and_then(Value::as_array);
    Ok(claims.cloned().unwrap_or_default())
}

/// The name of an object.
pub(crate) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Whether an APIBinding is bound.
pub(crate) fn is_bound(binding: &Value) -> bool {
    binding.pointer("/status/phase").and_then(Value::as_str) == Some("Bound")
}

/// Reasons and messages of the conditions that are not true.
pub(crate) fn unmet_conditions(binding: &Value) -> Option<String> {
    let conditions = binding.pointer("/status/conditions").and_then(Value::as_array)?;
    let text = |condition: &Value, field: &str| {
        condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let unmet = conditions.iter().filter(|condition| {
        text(condition, "status") != "True"
            && text(condition, "type") != "Ready"
            && !text(condition, "message").is_empty()
    });
    let texts: Vec<_> = unmet
        .map(|condition| format!("{}: {}", text(condition, "reason"), text(condition, "message")))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn path(collection: &str, name: &str) -> String {
    format!("{collection}/{}", utf8_percent_encode(name, SEGMENT))
}
