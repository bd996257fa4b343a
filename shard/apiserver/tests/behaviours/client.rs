//! Requests to a test server, and its responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::{ApiServer, DynamicAdmission, ResponseBody};
use fairlead_process::Metrics;
use fairlead_store::{MemoryStore, Revision, Store};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::host::{ResourcesOfTest, TestHost, TestServerParts, assemble, assemble_on, assemble_with};

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub(crate) const GADGETS: &str = "/apis/example.com/v1/gadgets";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// The headers of a body in JSON.
pub(crate) const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A server with a namespace `default` in the logical cluster `c`, and its client.
pub(crate) struct Server(TestServerParts);

impl Server {
    /// The webhooks and policies of the server.
    pub(crate) fn dynamic(&self) -> &DynamicAdmission {
        &self.0.dynamic
    }

    pub(crate) async fn start() -> Self {
        Self::start_with(HubOptions::default()).await
    }

    pub(crate) async fn start_with(options: HubOptions) -> Self {
        Self::start_serving(options, &|_| Vec::new()).await
    }

    /// A server with further resources.
    pub(crate) async fn start_serving(options: HubOptions, resources: ResourcesOfTest<'_>) -> Self {
        let server = Self(assemble(options, resources));
        server.create("/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
        server
    }

    /// A server with other settings than the default ones.
    pub(crate) async fn configured(
        configure: impl FnOnce(ApiServer<TestHost>, &Metrics) -> ApiServer<TestHost>,
    ) -> Self {
        let server = Self(assemble_with(HubOptions::default(), &|_| Vec::new(), configure));
        server.create("/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
        server
    }

    /// A server with a store to which other replicas commit as well.
    pub(crate) async fn start_replica() -> Self {
        Self::start_in_memory(MemoryStore::new().shared()).await
    }

    /// A server with a store to which nobody else commits.
    pub(crate) async fn start_alone() -> Self {
        Self::start_in_memory(MemoryStore::new()).await
    }

    async fn start_in_memory(store: MemoryStore) -> Self {
        let server = Self(assemble_on(Arc::new(store), HubOptions::default(), &|_| Vec::new(), |api, _| api));
        server.create("/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
        server
    }

    /// The value of a series in `/metrics`; 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = String::from_utf8(self.0.metrics.text().unwrap().to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// Aborts the hub's task.
    pub(crate) fn abort_hub(&self) {
        self.0.driver.abort();
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// A request within the logical cluster `c`, unless the path begins with two slashes.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> TestResponse {
        let (parts, body) = self.open(method, path, headers, body).await.into_parts();
        assert!(!matches!(body, ResponseBody::Watch(_)), "{path} is a watch");
        let bytes = body.collect().await.unwrap().to_bytes();
        TestResponse { code: parts.status, headers: parts.headers, bytes }
    }

    /// A request whose response body is not read.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> fairlead_apiserver::Response {
        let uri = match path.strip_prefix("//") {
            Some(path) => format!("/{path}"),
            None => format!("/clusters/c{path}"),
        };
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.api.handle(request.body(Full::new(body.into())).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> TestResponse {
        self.send("GET", path, &[("accept", accept)], "").await
    }

    /// Posts an object, with the type of the path if it has none; [`send`](Self::send) sends what it gets.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.send("POST", path, JSON, typed(path, body)).await
    }

    /// As [`post`](Self::post).
    pub(crate) async fn put(&self, path: &str, body: &Value) -> TestResponse {
        self.send("PUT", path, JSON, typed(path, body)).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> TestResponse {
        let content_type = format!("application/{kind}-patch+json");
        self.send("PATCH", path, &[("content-type", &content_type)], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> TestResponse {
        self.send("DELETE", path, &[], "").await
    }

    /// Creates an object that must not exist yet.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body).await;
        assert_eq!(response.code, 201, "{response:?}");
        response.json()
    }

    /// Creates a config map in `default`.
    pub(crate) async fn config_map(&self, name: &str, labels: Value) -> Value {
        self.create(CONFIG_MAPS, &json!({"metadata": {"name": name, "labels": labels}})).await
    }

    pub(crate) async fn watch(&self, path: &str) -> WatchStream {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> WatchStream {
        let headers = [("accept", accept), ("accept-encoding", "gzip")];
        let response = self.open("GET", path, &headers, "").await;
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, StatusCode::OK, "{path}");
        assert_eq!(parts.headers["content-type"], "application/json");
        assert_eq!(parts.headers.get("content-encoding"), None, "watches are never compressed");
        WatchStream { body, text: Vec::new() }
    }

    /// Waits until the hub has delivered everything that was written.
    pub(crate) async fn wait_for_hub(&self) -> Revision {
        let revision = self.store().revision();
        self.hub().wait(revision).await.unwrap();
        revision
    }
}

/// An object with apiVersion and kind: those of the path if it has none. The kinds of the tests' resources are their singular names.
fn typed(path: &str, object: &Value) -> String {
    let mut object = object.clone();
    let segments: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
    let below = segments.iter().position(|segment| *segment == "apis").map(|at| &segments[at + 1..]);
    if let (Some([group, version, below @ ..]), Some(fields)) = (below, object.as_object_mut()) {
        let resource = match below {
            ["namespaces", _, resource, ..] | [resource, ..] => *resource,
            [] => "",
        };
        let kind = resource.trim_end_matches('s');
        let kind: String =
            kind.chars().take(1).flat_map(char::to_uppercase).chain(kind.chars().skip(1)).collect();
        if !fields.contains_key("kind") && ["Widget", "Gadget", "Ruled", "Boat", "Fleet"].contains(&&*kind) {
            fields.entry("apiVersion").or_insert_with(|| format!("{group}/{version}").into());
            fields.insert("kind".to_owned(), kind.into());
        }
    }
    object.to_string()
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The `Warning` headers.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// Code, reason and message of a failure.
    pub(crate) fn failure(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")), "{self:?}");
        assert_eq!(status["code"], self.code.as_u16());
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (self.code.as_u16(), text("reason"), text("message"))
    }

    /// The names of a list's items.
    pub(crate) fn names(&self) -> Vec<String> {
        assert_eq!(self.code, 200, "{self:?}");
        let list = self.json();
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// An open watch.
pub(crate) struct WatchStream {
    body: ResponseBody,
    text: Vec<u8>,
}

impl WatchStream {
    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        // With the paused clock, only a watch that sends nothing reaches this timeout.
        tokio::time::timeout(Duration::from_secs(4 * 3600), self.read()).await.expect("the watch hangs")
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => self.text.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => {
                    assert!(self.text.is_empty(), "the stream ends within a frame");
                    return None;
                }
            }
        }
    }

    /// The next event as `TYPE name revision`.
    pub(crate) async fn brief(&mut self) -> String {
        let Some(event) = self.next().await else { return "end".to_owned() };
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        format!("{} {} {}", text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"]))
    }
}

pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
