//! Two shards with providers and consumers on both.

use std::path::Path;

use fairlead_client::{Client, WriteOptions};
use fairlead_tests::harness::{Installation, ShardSettings};
use serde_json::{Value, json};

use crate::site::{TIMEOUT, eventually};

pub(super) const SHARDS: [&str; 2] = ["root", "shard-1"];
pub(super) const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
pub(super) const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
pub(super) const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
pub(super) const KINDS: [&str; 2] = ["anchors", "buoys"];
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// The installation, with workspaces that do not change.
pub(super) struct Site {
    pub(super) installation: Installation,
    pub(super) exports: Vec<Export>,
    pub(super) consumers: Vec<Workspace>,
}

/// A workspace of one shard.
#[derive(Clone, Debug)]
pub(super) struct Workspace {
    pub(super) shard: &'static str,
    /// The name of the logical cluster.
    pub(super) cluster: String,
}

impl Workspace {
    /// The path of a collection in this workspace.
    pub(super) fn path(&self, collection: &str) -> String {
        format!("/clusters/{}{collection}", self.cluster)
    }
}

/// An export that is deleted and created again and again. Its Secret stays, so that its identity is always the same.
#[derive(Clone, Debug)]
pub(super) struct Export {
    pub(super) name: String,
    pub(super) provider: Workspace,
    pub(super) identity: String,
    /// The name of the provider's workspace below root.
    parent: String,
}

impl Site {
    /// Starts an installation whose consumers and exports have this number of pairs.
    pub(super) async fn start(directory: &Path, bindings: usize) -> Self {
        let settings = ShardSettings { verify_at_start: false, ..ShardSettings::default() };
        let installation = Installation::start(directory, &SHARDS, &settings).await.unwrap();
        // At 1,000 pairs, 10 exports and 100 consumers.
        let exports = [2, 4, 6, 8, 10].into_iter().find(|count| bindings <= count * count * 10).unwrap_or(10);
        let mut site = Self { installation, exports: Vec::new(), consumers: Vec::new() };
        let mut providers = Vec::new();
        for shard in SHARDS {
            let parent = format!("provider-{shard}");
            providers.push((site.workspace(&parent, shard).await, parent));
        }
        for number in 0..exports {
            let (provider, parent) = providers[number % providers.len()].clone();
            let name = format!("export-{number}");
            let mut export = Export { name, provider, identity: String::new(), parent };
            site.publish(&mut export).await;
            site.exports.push(export);
        }
        for number in 0..bindings.div_ceil(exports) {
            let consumer = site.workspace(&format!("consumer-{number}"), SHARDS[number % SHARDS.len()]).await;
            for collection in ["configmaps", "secrets"] {
                let path = consumer.path(&format!("/api/v1/namespaces/default/{collection}"));
                for name in ["first", "second"] {
                    create(&site.admin(""), &path, &json!({ "metadata": { "name": name } })).await;
                }
            }
            site.consumers.push(consumer);
        }
        site
    }

    /// A client of the gateway.
    pub(super) fn admin(&self, prefix: &str) -> Client {
        self.installation.admin(prefix).unwrap()
    }

    /// A client of a shard with all rights.
    pub(super) fn direct(&self, shard: &str) -> Client {
        self.installation.direct(shard, "").unwrap()
    }

    async fn publish(&self, export: &mut Export) {
        let client = self.admin("");
        for kind in KINDS {
            create(&client, &export.provider.path(SCHEMAS), &export.schema(kind)).await;
        }
        create(&client, &export.provider.path(EXPORTS), &export.object()).await;
        let path = export.provider.path(&format!("{EXPORTS}/{}", export.name));
        export.identity = eventually("the identity of an export", || async {
            let object: Value = client.get_json(&path).await.map_err(|error| error.to_string())?;
            object["status"]["identityHash"].as_str().map(str::to_owned).ok_or(object.to_string())
        })
        .await;
    }

    /// Creates a universal workspace below root on a shard; returns it when it is ready.
    async fn workspace(&self, name: &str, shard: &'static str) -> Workspace {
        let client = self.admin("/clusters/root");
        let object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
            "spec": {
                "type": { "name": "universal", "path": "root" },
                "location": { "selector": { "matchLabels": { "name": shard } } },
            },
        });
        create(&client, WORKSPACES, &object).await;
        let path = format!("{WORKSPACES}?watch=1&fieldSelector=metadata.name%3D{name}");
        let mut watch = client.watch(&path).await.unwrap();
        let ready = async {
            loop {
                let event = watch.next().await.expect("the watch ended").unwrap();
                let workspace: Value = serde_json::from_slice(&event.object).unwrap();
                if workspace["status"]["phase"] == "Ready" {
                    let cluster = workspace["spec"]["cluster"].as_str().unwrap().to_owned();
                    return Workspace { shard, cluster };
                }
            }
        };
        tokio::time::timeout(TIMEOUT, ready).await.expect("the workspace is ready")
    }
}

impl Export {
    pub(super) fn group(&self) -> String {
        format!("{}.example.com", self.name)
    }

    /// The export, which claims config maps and secrets.
    pub(super) fn object(&self) -> Value {
        let resources = KINDS.map(|kind| {
            json!({
                "group": self.group(), "name": kind, "schema": self.schema_name(kind), "storage": { "crd": {} },
            })
        });
        let claims = ["configmaps", "secrets"]
            .map(|resource| json!({ "group": "", "resource": resource, "verbs": ["get", "list", "watch"] }));
        json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": { "name": self.name },
            "spec": { "resources": resources, "permissionClaims": claims },
        })
    }

    /// The path by which bindings name the export.
    pub(super) fn reference(&self) -> Value {
        json!({ "path": format!("root:{}", self.parent), "name": self.name })
    }

    fn schema_name(&self, kind: &str) -> String {
        format!("v1.{kind}.{}", self.group())
    }

    fn schema(&self, kind: &str) -> Value {
        let singular = kind.trim_end_matches('s');
        let mut name = singular.to_owned();
        name[..1].make_ascii_uppercase();
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": { "name": self.schema_name(kind) },
            "spec": {
                "group": self.group(), "scope": "Cluster",
                "names": { "plural": kind, "singular": singular, "kind": name, "listKind": format!("{name}List") },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "type": "object" } }],
            },
        })
    }
}

/// Creates an object as soon as the server accepts it.
async fn create(client: &Client, collection: &str, object: &Value) {
    eventually(collection, || async {
        match client.create::<Value>(collection, object, &WriteOptions::default()).await {
            Err(error) if error.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}
