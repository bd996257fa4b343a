//! A reflector of replicas that also detects a new store of the cache server.
//!
//! A reflector resumes from a resourceVersion, which is valid only within one store. If a cache server restarts with
//! an empty store and other shards fill it, an old version may look valid. So the store is identified whenever a watch
//! is opened again, and after every list. Several cache servers on one etcd have one store, so a watch resumes at any of them.

use std::time::Duration;

use fairlead_client::{
    Backoff, Client, ClientError, Event, Ignored, ListWatch, ObjectHead, Reflector, ReflectorOptions,
    ReflectorStatus,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::cache_api::STORE_IDENTITY_OBJECT;

/// The pauses between attempts while the cache server is unreachable.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows one collection of the cache server.
pub(crate) struct Mirror<T> {
    client: Client,
    source: ListWatch,
    store: String,
    reflector: Reflector<T>,
    status: watch::Receiver<ReflectorStatus>,
    /// Number of reconnects of the watch after which the store was checked.
    checked_restarts: u64,
    /// Whether the store was identified before the list that is being read.
    is_identified: bool,
    /// Whether that list is the first one of another store than before.
    is_new_store: bool,
}

/// A change of the collection.
pub(crate) enum MirrorEvent<T> {
    /// The complete list of replicas.
    Replaced {
        /// The replicas.
        items: Vec<T>,
        /// Whether it is the first list of another store than that of the events before. The shards may not have filled it yet.
        is_new_store: bool,
    },
    /// A replica was added or changed.
    Applied(T),
    /// A replica was deleted; this was its last state.
    Deleted(T),
    /// The watch is open again. No event was lost, but writes that failed before may succeed now.
    Reopened,
}

impl<T: DeserializeOwned + Send + 'static> Mirror<T> {
    /// Waits until the cache server is reachable, then starts to follow the collection.
    pub(crate) async fn open(client: Client, collection: String) -> Self {
        let source = ListWatch::new(collection);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let store = loop {
            match store_identity(&client).await {
                Ok(store) => break store,
                Err(error) => {
                    tracing::debug!(path = source.path(), %error, "the cache server does not respond");
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        };
        let (reflector, status) = start(&client, &source);
        let (checked_restarts, is_identified, is_new_store) = (0, true, false);
        Self { client, source, store, reflector, status, checked_restarts, is_identified, is_new_store }
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> MirrorEvent<T> {
        loop {
            let event = tokio::select! {
                event = self.reflector.next() => event,
                // `self` owns the reflector, so its status channel stays open.
                _ = self.status.changed() => {
                    if self.status.borrow_and_update().restarts == self.checked_restarts {
                        continue;
                    }
                    self.checked_restarts = self.status.borrow().restarts;
                    // Without a response, the watch is about to break, too, and the check runs again after the next reconnect.
                    if self.is_same_store().await.unwrap_or(true) {
                        return MirrorEvent::Reopened;
                    }
                    self.list_again();
                    continue;
                }
            };
            return match event {
                Event::Replaced { items, .. } => {
                    if !std::mem::take(&mut self.is_identified) {
                        // The list may be that of a store which is not the last one by now.
                        let is_same = self.is_same_store().await;
                        if is_same != Some(true) {
                            if is_same.is_none() {
                                tokio::time::sleep(FIRST_PAUSE).await;
                            }
                            self.list_again();
                            continue;
                        }
                    }
                    MirrorEvent::Replaced { items, is_new_store: std::mem::take(&mut self.is_new_store) }
                }
                Event::Applied(item) => MirrorEvent::Applied(item),
                Event::Deleted(item) => MirrorEvent::Deleted(item),
                Event::Progress(_) => continue,
            };
        }
    }

    /// Whether the store is the one that was read; `None` without a response.
    async fn is_same_store(&mut self) -> Option<bool> {
        match store_identity(&self.client).await {
            Ok(store) if store == self.store => Some(true),
            Ok(store) => {
                tracing::info!(
                    path = self.source.path(),
                    "the cache server has a new store; listing all objects again"
                );
                self.store = store;
                self.is_identified = true;
                self.is_new_store = true;
                Some(false)
            }
            Err(error) => {
                tracing::debug!(path = self.source.path(), %error, "the cache server does not respond");
                None
            }
        }
    }

    fn list_again(&mut self) {
        (self.reflector, self.status) = start(&self.client, &self.source);
        self.checked_restarts = 0;
    }
}

fn start<T: DeserializeOwned + Send + 'static>(
    client: &Client,
    source: &ListWatch,
) -> (Reflector<T>, watch::Receiver<ReflectorStatus>) {
    let options = ReflectorOptions {
        initial_backoff: FIRST_PAUSE,
        longest_backoff: LONGEST_PAUSE,
        ..ReflectorOptions::default()
    };
    let reflector = Reflector::new(client.clone(), source.clone(), options);
    let status = reflector.status();
    (reflector, status)
}

async fn store_identity(client: &Client) -> Result<String, ClientError> {
    client.get_json::<ObjectHead<Ignored>>(STORE_IDENTITY_OBJECT).await.map(|head| head.metadata.uid)
}
