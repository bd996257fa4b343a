//! The part of a root shard that front proxies read: shards, identities of exports, workspaces, logical clusters.
//! It never changes.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::backend::{Body, json as json_response, parameter, streaming};

/// The workspace below root that all requests use.
pub(crate) const WORKSPACE: &str = "bench";
/// Number of other workspaces.
const NEIGHBOURS: usize = 1000;
const IDENTITY: &str = "1de17174";
const REVISION: &str = "1000";

/// Collections as prepared responses.
pub(crate) struct RootShard {
    collections: [Collection; 3],
}

struct Collection {
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    items: Vec<Value>,
}

impl RootShard {
    /// A shard list with one shard at this URL.
    pub(crate) fn new(url: String) -> Self {
        let names =
            || (0..NEIGHBOURS).map(|number| format!("neighbour-{number}")).chain([WORKSPACE.to_owned()]);
        let shard = json!({
            "metadata": metadata("root", "root"),
            "spec": {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": url},
        });
        let clusters = names().map(|name| id(&name)).chain(["root".to_owned()]);
        let clusters =
            clusters.map(|id| json!({"metadata": metadata("cluster", &id), "status": {"phase": "Ready"}}));
        let workspaces = names().map(|name| {
            let id = id(&name);
            json!({"metadata": metadata(&name, "root"), "spec": {"cluster": id}, "status": {"phase": "Ready"}})
        });
        let core = "core.kcp.io/v1alpha1";
        let tenancy = "tenancy.kcp.io/v1alpha1";
        Self {
            collections: [
                Collection::new(core, "shards", "Shard", vec![shard]),
                Collection::new(core, "logicalclusters", "LogicalCluster", clusters.collect()),
                Collection::new(tenancy, "workspaces", "Workspace", workspaces.collect()),
            ],
        }
    }

    /// The response to a request of an index; `None` for other requests.
    pub(crate) fn respond(&self, path: &str, query: &str) -> Option<Response<Body>> {
        // Go encodes the asterisk as %2A.
        let prefixes = ["/clusters/*/apis/", "/clusters/%2A/apis/", "/clusters/root/apis/"];
        let rest = prefixes.into_iter().find_map(|prefix| path.strip_prefix(prefix))?;
        if let Some(export) = rest.strip_prefix("apis.kcp.io/v1alpha2/apiexports/") {
            let export = json!({
                "kind": "APIExport", "apiVersion": "apis.kcp.io/v1alpha2",
                "metadata": metadata(export, "root"), "status": {"identityHash": IDENTITY},
            });
            return Some(json_response(Bytes::from(export.to_string())));
        }
        let (group, resource) = rest.rsplit_once('/')?;
        let resource = resource.strip_suffix(&format!(":{IDENTITY}")).unwrap_or(resource);
        let collection =
            self.collections.iter().find(|known| (known.group, known.resource) == (group, resource))?;
        Some(match parameter(query, "watch") {
            Some(_) => collection.watch(parameter(query, "sendInitialEvents") == Some("true")),
            None => collection.list(),
        })
    }
}

impl Collection {
    fn new(group: &'static str, resource: &'static str, kind: &'static str, mut items: Vec<Value>) -> Self {
        for item in &mut items {
            item["kind"] = json!(kind);
            item["apiVersion"] = json!(group);
        }
        Self { group, resource, kind, items }
    }

    fn list(&self) -> Response<Body> {
        let list = json!({
            "kind": format!("{}List", self.kind), "apiVersion": self.group,
            "metadata": {"resourceVersion": REVISION}, "items": self.items,
        });
        json_response(Bytes::from(list.to_string()))
    }

    /// The initial events, if requested, and no others.
    fn watch(&self, with_initial_events: bool) -> Response<Body> {
        let mut lines = String::new();
        if with_initial_events {
            for item in &self.items {
                lines += &format!("{}\n", json!({"type": "ADDED", "object": item}));
            }
            let end =
                json!({"resourceVersion": REVISION, "annotations": {"k8s.io/initial-events-end": "true"}});
            let bookmark = json!({"kind": self.kind, "apiVersion": self.group, "metadata": end});
            lines += &format!("{}\n", json!({"type": "BOOKMARK", "object": bookmark}));
        }
        let first = stream::iter((!lines.is_empty()).then(|| Ok(Frame::data(Bytes::from(lines)))));
        streaming(StreamBody::new(first.chain(stream::pending())).boxed_unsync())
    }
}

fn metadata(name: &str, cluster: &str) -> Value {
    json!({
        "name": name, "uid": format!("uid-of-{cluster}-{name}"), "resourceVersion": "1",
        "annotations": {"kcp.io/cluster": cluster},
    })
}

/// The logical cluster of a workspace.
fn id(workspace: &str) -> String {
    format!("id{}", workspace.replace('-', ""))
}
