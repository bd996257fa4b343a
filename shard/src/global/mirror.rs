//! A reflector of replicas that also notices when the cache server has lost its store.
//!
//! A reflector resumes by resourceVersion, which means something only within one store. After a cache server has begun
//! anew with an empty one, and other shards have filled it, an old version may look valid there. So whenever a watch has
//! to be opened again, the identity of the store is looked at first.

use std::time::Duration;

use fairlead_client::{
    Backoff, Client, ClientError, Event, Ignored, ListWatch, ObjectHead, Reflector, ReflectorOptions,
    ReflectorStatus,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::cache_api::FIRST_OBJECT;

/// The pauses between tries while the cache server cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows one collection of the cache server.
pub(crate) struct Mirror<T> {
    client: Client,
    source: ListWatch,
    store: String,
    reflector: Reflector<T>,
    status: watch::Receiver<ReflectorStatus>,
    opened: u64,
}

/// What happened.
pub(crate) enum MirrorEvent<T> {
    /// These are all replicas now.
    Replaced(Vec<T>),
    /// A replica was added or changed.
    Applied(T),
    /// A replica is gone; this was its last state.
    Deleted(T),
    /// The connection is (again) there; nothing was lost, but what could not be written before can be now.
    Reopened,
}

impl<T: DeserializeOwned + Send + 'static> Mirror<T> {
    /// Begins as soon as the cache server can be reached.
    pub(crate) async fn open(client: Client, collection: String) -> Self {
        let source = ListWatch::new(collection);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let store = loop {
            match store_identity(&client).await {
                Ok(store) => break store,
                Err(error) => {
                    tracing::debug!(path = source.path(), %error, "the cache server cannot be asked");
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        };
        let (reflector, status) = start(&client, &source);
        Self { client, source, store, reflector, status, opened: 0 }
    }

    /// The next event, however long it takes.
    pub(crate) async fn next(&mut self) -> MirrorEvent<T> {
        loop {
            let event = tokio::select! {
                event = self.reflector.next() => event,
                // The reflector lives as long as this does.
                _ = self.status.changed() => {
                    if self.status.borrow_and_update().restarts == self.opened {
                        continue;
                    }
                    self.opened = self.status.borrow().restarts;
                    if self.is_same_store().await {
                        return MirrorEvent::Reopened;
                    }
                    tracing::info!(path = self.source.path(), "the cache server has a new store; reading everything again");
                    (self.reflector, self.status) = start(&self.client, &self.source);
                    self.opened = 0;
                    continue;
                }
            };
            return match event {
                Event::Replaced { items, .. } => MirrorEvent::Replaced(items),
                Event::Applied(item) => MirrorEvent::Applied(item),
                Event::Deleted(item) => MirrorEvent::Deleted(item),
                Event::Progress(_) => continue,
            };
        }
    }

    /// Whether the store is the one that was read. If it cannot be asked, the watch is about to break, too, and the
    /// question comes again when it has been opened once more.
    async fn is_same_store(&mut self) -> bool {
        match store_identity(&self.client).await {
            Ok(store) if store == self.store => true,
            Ok(store) => {
                self.store = store;
                false
            }
            Err(error) => {
                tracing::debug!(path = self.source.path(), %error, "the cache server cannot be asked");
                true
            }
        }
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
    client.get_json::<ObjectHead<Ignored>>(FIRST_OBJECT).await.map(|head| head.metadata.uid)
}
