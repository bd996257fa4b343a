//! The export of 50 kinds, and its objects.

use bytes::Bytes;
use fairlead_client::{Client, WriteOptions};
use http::Method;
use serde_json::{Map, Value, json};

use super::super::LoadError;
use super::super::run::{body, retried, send};

/// The kinds of the export.
pub(super) const KINDS: usize = 50;
/// The collection of APIBindings, below the path of a workspace.
pub(super) const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
const SLICES: &str = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices";
const NAME: &str = "shared";
const GROUP: &str = "shared.example.com";

/// An export that has an identity.
pub(super) struct Published {
    /// The provider's workspace.
    provider: Client,
    /// The path of the provider's workspace, such as `root:provider`.
    path: String,
    /// The hash of the identity.
    pub(super) identity: String,
    /// The bytes of all its schemas.
    pub(super) schema_bytes: usize,
}

impl Published {
    /// Publishes the kinds in a workspace, whose path is given with colons.
    pub(super) async fn publish(provider: Client, path: &str) -> Result<Self, LoadError> {
        let mut schema_bytes = 0;
        for kind in 0..KINDS {
            let schema = schema(kind, "v1", &[]);
            schema_bytes += schema.to_string().len();
            provider.create::<Value>(SCHEMAS, &schema, &WriteOptions::default()).await?;
        }
        let resources: Vec<Value> = (0..KINDS)
            .map(|kind| {
                json!({
                    "group": GROUP, "name": plural(kind), "schema": schema_name(kind, "v1"),
                    "storage": { "crd": {} },
                })
            })
            .collect();
        let export = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": { "name": NAME },
            "spec": { "resources": resources },
        });
        provider.create::<Value>(EXPORTS, &export, &WriteOptions::default()).await?;
        let mut watch = provider.watch(&format!("{EXPORTS}?watch=1")).await?;
        while let Some(event) = watch.next().await {
            let export: Value = serde_json::from_slice(&event?.object).unwrap_or_default();
            if let Some(identity) = export["status"]["identityHash"].as_str() {
                let identity = identity.to_owned();
                return Ok(Self { provider, path: path.to_owned(), identity, schema_bytes });
            }
        }
        Err(LoadError::Unexpected("the export got no identity".to_owned()))
    }

    /// A binding to the export.
    pub(super) fn binding(&self) -> Bytes {
        body(&json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": NAME },
            "spec": { "reference": { "export": { "path": self.path, "name": NAME } } },
        }))
    }

    /// The URL of the provider's view on a shard, by the URL of the shard.
    pub(super) async fn endpoint(&self, shard: &str) -> Result<String, LoadError> {
        let mut watch = self.provider.watch(&format!("{SLICES}?watch=1")).await?;
        while let Some(event) = watch.next().await {
            let slice: Value = serde_json::from_slice(&event?.object).unwrap_or_default();
            let endpoints = slice["status"]["endpoints"].as_array().into_iter().flatten();
            let mut urls = endpoints.filter_map(|endpoint| endpoint["url"].as_str());
            if let Some(url) = urls.find(|url| url.starts_with(shard)) {
                return Ok(url.to_owned());
            }
        }
        Err(LoadError::Unexpected(format!("the endpoint slice has no URL of {shard}")))
    }

    /// Replaces the schema of the first kind by one of another version, which has one more field.
    pub(super) async fn change(&self, version: &str) -> Result<(), LoadError> {
        let patch = json!([{
            "op": "replace", "path": "/spec/resources/0/schema", "value": schema_name(0, version),
        }]);
        let path = format!("{EXPORTS}/{NAME}");
        let content_type = fairlead_client::PatchType::Json.content_type();
        // The export's controller may write, too.
        retried(|| send(&self.provider, Method::PATCH, &path, content_type, body(&patch))).await
    }

    /// Creates the schema that [`Published::change`] needs, with a field of its name.
    pub(super) async fn prepare(&self, version: &str) -> Result<(), LoadError> {
        let schema = schema(0, version, &[version]);
        Ok(self.provider.create::<Value>(SCHEMAS, &schema, &WriteOptions::default()).await.map(drop)?)
    }
}

/// The path of a kind's collection, below the path of a workspace.
pub(super) fn collection(kind: usize) -> String {
    format!("/apis/{GROUP}/v1/{}", plural(kind))
}

/// An object of a kind with a field of some bytes.
pub(super) fn object(kind: usize, name: &str, bytes: usize) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": format!("Thing{kind}"), "metadata": { "name": name },
        "spec": { "field0": "x".repeat(bytes) },
    })
}

fn plural(kind: usize) -> String {
    format!("thing{kind}s")
}

fn schema_name(kind: usize, version: &str) -> String {
    format!("{version}.{}.{GROUP}", plural(kind))
}

fn schema(kind: usize, version: &str, more: &[&str]) -> Value {
    let text = json!({ "type": "string", "maxLength": 4_096 });
    let fields =
        (0..50).map(|index| format!("field{index}")).chain(more.iter().map(|field| (*field).to_owned()));
    let fields: Map<String, Value> = fields.map(|field| (field, text.clone())).collect();
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": { "name": schema_name(kind, version) },
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {
                "plural": plural(kind), "singular": format!("thing{kind}"), "kind": format!("Thing{kind}"),
                "listKind": format!("Thing{kind}List"),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "type": "object", "properties": { "spec": { "type": "object", "properties": fields } } },
            }],
        },
    })
}
