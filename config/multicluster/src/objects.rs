//! The stream of objects: follows the slice, and watches each of its endpoints.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{AbortHandle, BoxStream, SelectAll, Stream, StreamExt, abortable};
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::endpoints::{SliceUrls, scoped};
use crate::key::ObjectKey;
use crate::provider::Provider;
use crate::view::{Change, EndpointId, View};
use crate::watch::{Watch, watch};

/// The changes of all objects of a resource, over all endpoints of a slice. The stream never ends.
///
/// It holds the current version of each object by its key, and one connection or more to each endpoint.
pub struct Objects<K: Resource> {
    provider: Provider,
    resource: K::DynamicType,
    slice: Watch<DynamicObject>,
    urls: SliceUrls,
    endpoints: HashMap<String, Endpoint>,
    next_id: u64,
    watches: SelectAll<EndpointWatch<K>>,
    view: View<K>,
    ready: VecDeque<Change<K>>,
}

/// The watch of an endpoint, whose events name it.
type EndpointWatch<K> = BoxStream<'static, (EndpointId, Result<Event<K>, watcher::Error>)>;

/// An endpoint that is watched. Its watch ends with it.
struct Endpoint {
    id: EndpointId,
    client: Client,
    watch: AbortHandle,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Provider {
    /// The objects of a resource in all workspaces that have bound it.
    pub fn objects<K>(&self, resource: &K::DynamicType) -> Objects<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        K::DynamicType: Clone,
    {
        Objects::new(self.clone(), resource.clone())
    }
}

impl<K> Objects<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone,
{
    fn new(provider: Provider, resource: K::DynamicType) -> Self {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", provider.slice()));
        let slice = watch(provider.slices(), only);
        Self {
            provider,
            resource,
            slice,
            urls: SliceUrls::default(),
            endpoints: HashMap::new(),
            next_id: 0,
            watches: SelectAll::new(),
            view: View::default(),
            ready: VecDeque::new(),
        }
    }

    /// The last version of an object that the stream has seen.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.view.get(key).map(|(_, object)| Arc::clone(object))
    }

    /// The last versions of all objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<K>)> {
        self.view.iter()
    }

    /// The number of endpoints in the slice.
    pub fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    /// A client of an object's logical cluster, through the endpoint that serves the object. It can read and write what the
    /// APIExport publishes, and what its claims allow.
    pub fn client_of(&self, key: &ObjectKey) -> Option<Client> {
        let (id, _) = self.view.get(key)?;
        let endpoint = self.endpoints.values().find(|endpoint| endpoint.id == id)?;
        Some(scoped(&endpoint.client, &key.cluster))
    }

    fn on_slice(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) {
        match event {
            Ok(event) => {
                let urls = self.urls.observe(event).clone();
                self.follow(&urls);
            }
            Err(error) => {
                tracing::warn!(slice = self.provider.slice(), %error, "cannot watch the endpoint slice")
            }
        }
    }

    /// Starts and ends watches, so that each URL has one.
    fn follow(&mut self, urls: &BTreeSet<String>) {
        let gone: Vec<String> = self.endpoints.keys().filter(|url| !urls.contains(*url)).cloned().collect();
        for url in gone {
            if let Some(endpoint) = self.endpoints.remove(&url) {
                self.ready.extend(self.view.remove_endpoint(endpoint.id));
            }
        }
        for url in urls {
            if self.endpoints.contains_key(url) {
                continue;
            }
            match self.provider.endpoint_client(url) {
                Ok(client) => self.watch(url, client),
                // The next change of the slice tries again.
                Err(error) => tracing::warn!(%error, "the endpoint is left out"),
            }
        }
    }

    fn watch(&mut self, url: &str, client: Client) {
        let id = EndpointId(self.next_id);
        self.next_id += 1;
        let everywhere = Api::<K>::all_with(scoped(&client, "*"), &self.resource);
        let events = watch(everywhere, watcher::Config::default());
        let (events, watch) = abortable(events.map(move |event| (id, event)));
        self.watches.push(events.boxed());
        self.endpoints.insert(url.to_owned(), Endpoint { id, client, watch });
    }

    fn on_event(&mut self, id: EndpointId, event: Result<Event<K>, watcher::Error>) {
        let Some((url, _)) = self.endpoints.iter().find(|(_, endpoint)| endpoint.id == id) else { return };
        match event {
            Ok(event) => self.ready.extend(self.view.observe(id, event)),
            Err(error) => tracing::warn!(%url, %error, "cannot watch the endpoint"),
        }
    }
}

// No field is pinned in place.
impl<K: Resource> Unpin for Objects<K> {}

impl<K> Stream for Objects<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone,
{
    type Item = Change<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change<K>>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Poll::Ready(Some(change));
            }
            if let Poll::Ready(Some(event)) = self.slice.poll_next_unpin(context) {
                self.on_slice(event);
                continue;
            }
            match self.watches.poll_next_unpin(context) {
                Poll::Ready(Some((id, event))) => self.on_event(id, event),
                // Without endpoints, the slice wakes the task.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
