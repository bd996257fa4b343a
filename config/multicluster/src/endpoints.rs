//! The URLs of an APIExportEndpointSlice, and clients of logical clusters below them. Pure but for the clients.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;

/// The URLs of one slice, as its watch has given them.
#[derive(Debug, Default)]
pub(crate) struct SliceUrls {
    urls: BTreeSet<String>,
    /// The URLs of a list that has not ended yet.
    listed: BTreeSet<String>,
}

impl SliceUrls {
    /// The URLs after an event. A slice that does not exist has none.
    pub(crate) fn observe(&mut self, event: Event<DynamicObject>) -> &BTreeSet<String> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(slice) => self.listed = urls_of(&slice),
            Event::InitDone => self.urls = std::mem::take(&mut self.listed),
            Event::Apply(slice) => self.urls = urls_of(&slice),
            Event::Delete(_) => self.urls.clear(),
        }
        &self.urls
    }
}

fn urls_of(slice: &DynamicObject) -> BTreeSet<String> {
    let endpoints = slice.data.pointer("/status/endpoints").and_then(|endpoints| endpoints.as_array());
    let urls = endpoints.into_iter().flatten().filter_map(|endpoint| endpoint.get("url")?.as_str());
    urls.map(|url| url.trim_end_matches('/').to_owned()).collect()
}

/// A client of a logical cluster, or of all with `*`, over the connections of its endpoint's client.
pub(crate) fn scoped(endpoint: &Client, cluster: &str) -> Client {
    let prefix = format!("/clusters/{cluster}").into();
    Client::new(ClusterService { endpoint: endpoint.clone(), prefix }, endpoint.default_namespace())
}

/// Puts the logical cluster before the path of requests.
#[derive(Clone)]
struct ClusterService {
    endpoint: Client,
    prefix: Arc<str>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower_service::Service<Request<Body>> for ClusterService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The endpoint's client waits for itself when it sends.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let uri: Uri = format!("{}{path}", service.prefix).parse()?;
            *request.uri_mut() = uri;
            Ok(service.endpoint.send(request).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn slice(urls: &[&str]) -> DynamicObject {
        let endpoints: Vec<_> = urls.iter().map(|url| json!({ "url": url })).collect();
        let slice = json!({ "metadata": { "name": "s" }, "status": { "endpoints": endpoints } });
        serde_json::from_value(slice).unwrap()
    }

    fn observed(urls: &mut SliceUrls, event: Event<DynamicObject>) -> Vec<String> {
        urls.observe(event).iter().cloned().collect()
    }

    #[test]
    fn urls_are_those_of_the_last_complete_state() {
        let mut urls = SliceUrls::default();
        assert!(observed(&mut urls, Event::Init).is_empty());
        assert!(observed(&mut urls, Event::InitApply(slice(&["https://a/x/", "https://b/x"]))).is_empty());
        assert_eq!(observed(&mut urls, Event::InitDone), ["https://a/x", "https://b/x"]);
        assert_eq!(observed(&mut urls, Event::Apply(slice(&["https://b/x"]))), ["https://b/x"]);
        assert_eq!(observed(&mut urls, Event::Init), ["https://b/x"], "a list has only begun");
        assert!(observed(&mut urls, Event::InitDone).is_empty(), "the slice is not in the list");
        observed(&mut urls, Event::Apply(slice(&["https://b/x"])));
        assert!(observed(&mut urls, Event::Delete(slice(&[]))).is_empty());
        let without_status: DynamicObject = serde_json::from_value(json!({ "metadata": {} })).unwrap();
        assert!(observed(&mut urls, Event::Apply(without_status)).is_empty());
    }
}
