use fairlead_multicluster::{Change, Provider};
use futures_util::StreamExt;
use kube::Config;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

use super::Server;

pub const PROVIDER_CLUSTER: &str = "root:harbour";

/// Two endpoints, and the server of the slice `anchors` that lists them.
pub struct Installation {
    pub slices: Server,
    pub first: Server,
    pub second: Server,
}

/// The stream of all Anchors, whose changes are compared as text: `+key` applied, `-key` gone.
pub struct Objects(fairlead_multicluster::Objects<DynamicObject>);

impl Installation {
    pub async fn start() -> Self {
        let (slices, first, second) = tokio::join!(Server::start(), Server::start(), Server::start());
        let installation = Self { slices, first, second };
        installation.publish(&[&installation.first, &installation.second]);
        installation
    }

    /// Writes the URLs of the slice.
    pub fn publish(&self, endpoints: &[&Server]) {
        let urls: Vec<_> = endpoints.iter().map(|server| json!({ "url": endpoint_url(server) })).collect();
        let content = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice",
            "status": { "endpoints": urls },
        });
        self.slices.with(|slices| slices.apply(PROVIDER_CLUSTER, "anchors", content));
    }

    /// The URL of the provider's workspace.
    pub fn provider_url(&self) -> String {
        format!("{}/clusters/{PROVIDER_CLUSTER}", self.slices.url())
    }

    pub fn provider(&self) -> Provider {
        let config = Config::new(self.provider_url().parse().unwrap());
        Provider::new(config, "anchors").unwrap()
    }

    pub fn anchors(&self) -> fairlead_multicluster::Objects<DynamicObject> {
        let kind = GroupVersionKind::gvk("harbour.example.com", "v1", "Anchor");
        self.provider().objects(&ApiResource::from_gvk(&kind))
    }

    pub fn objects(&self) -> Objects {
        Objects(self.anchors())
    }
}

fn endpoint_url(server: &Server) -> String {
    format!("{}/services/apiexport/{PROVIDER_CLUSTER}/harbour", server.url())
}

impl Objects {
    /// The next changes, in any order. Later ones are still to come.
    pub async fn expect(&mut self, expected: &[&str]) {
        let mut changes = Vec::new();
        for _ in expected {
            changes.push(self.next().await);
        }
        changes.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(changes, expected);
    }

    /// Creates one more object, whose appearance must be the next change: the endpoint has given nothing else before it.
    pub async fn expect_nothing_before_another_of(&mut self, server: &Server) {
        let name = server.with(|anchors| {
            let name = format!("marker-{}", anchors.revision());
            anchors.apply("marker", &name, json!({}));
            name
        });
        assert_eq!(self.next().await, format!("+marker|default/{name}"));
    }

    /// Reads changes while something else happens, which must come to an end without a change.
    pub async fn idle_until(&mut self, event: impl Future<Output = ()>) {
        tokio::select! {
            () = event => {}
            change = self.next() => panic!("unexpected {change}"),
        }
    }

    pub fn inner(&self) -> &fairlead_multicluster::Objects<DynamicObject> {
        &self.0
    }

    async fn next(&mut self) -> String {
        match self.0.next().await.unwrap() {
            Change::Applied(key, _) => format!("+{key}"),
            Change::Gone(key, _) => format!("-{key}"),
        }
    }
}
