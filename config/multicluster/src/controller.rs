//! A controller: reconciles each object of the stream, never one object twice at the same time.

use std::collections::{HashMap, HashSet};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt, poll_fn};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::key::ObjectKey;
use crate::objects::Objects;
use crate::view::Change;

/// Objects that are reconciled at the same time, by default.
const CONCURRENCY: usize = 16;
/// First and longest pause after a failure.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// A controller over all shards.
pub struct Controller<K: Resource> {
    objects: Objects<K>,
    concurrency: usize,
}

/// An object to reconcile.
pub struct Request<K> {
    /// The object's logical cluster, namespace and name.
    pub key: ObjectKey,
    /// Its current version; `None` if it is gone.
    pub object: Option<Arc<K>>,
    /// A client of its logical cluster, limited to what the APIExport publishes and claims; `None` if it is gone.
    pub client: Option<Client>,
}

/// The next reconciliation after a successful one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// When the object changes.
    AwaitChange,
    /// After this time, or earlier when the object changes.
    RequeueAfter(Duration),
}

impl<K> Controller<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone,
{
    /// A controller of the objects of a stream.
    pub fn new(objects: Objects<K>) -> Self {
        Self { objects, concurrency: CONCURRENCY }
    }

    /// Limits the objects that are reconciled at the same time; at least 1.
    pub fn with_concurrency(self, concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), ..self }
    }

    /// Reconciles until `shutdown` completes, then waits for the running reconciliations.
    ///
    /// An object is reconciled when it appears, changes and is gone, and after a failure with back-off from 0.2 s to 60 s.
    /// Changes during its reconciliation lead to one more. All run in the task of the caller.
    pub async fn run_until<F, Outcome, E>(self, reconcile: F, shutdown: impl Future<Output = ()>)
    where
        F: Fn(Request<K>) -> Outcome,
        Outcome: Future<Output = Result<Action, E>>,
        E: Display,
    {
        let Self { mut objects, concurrency } = self;
        let (requests, mut receiver) = mpsc::unbounded_channel();
        let mut queue = pin!(scheduler(poll_fn(move |context| receiver.poll_recv(context))));
        let mut shutdown = pin!(shutdown);
        let mut running = HashSet::new();
        let mut failures: HashMap<ObjectKey, u32> = HashMap::new();
        let mut reconciliations = FuturesUnordered::new();
        let schedule = |message: ObjectKey, after: Duration| {
            // The receiver lives as long as the loop.
            let _ = requests.send(ScheduleRequest { message, run_at: Instant::now() + after });
        };
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(change) = objects.next() => {
                    let (Change::Applied(key, _) | Change::Gone(key, _)) = change;
                    schedule(key, Duration::ZERO);
                }
                Some(key) = std::future::poll_fn(|context| {
                    queue.as_mut().hold_unless(|key| !running.contains(key)).poll_next_unpin(context)
                }), if running.len() < concurrency => {
                    let (object, client) = (objects.get(&key), objects.client_of(&key));
                    let reconciliation = reconcile(Request { key: key.clone(), object, client });
                    running.insert(key.clone());
                    reconciliations.push(async move { (key, reconciliation.await) });
                }
                Some((key, outcome)) = reconciliations.next() => {
                    running.remove(&key);
                    match outcome {
                        Ok(action) => {
                            failures.remove(&key);
                            if let Action::RequeueAfter(after) = action {
                                schedule(key, after);
                            }
                        }
                        Err(error) => {
                            let count = failures.entry(key.clone()).or_default();
                            let pause = retry_pause(*count);
                            *count = count.saturating_add(1);
                            tracing::warn!(%key, %error, ?pause, "the reconciliation failed");
                            schedule(key, pause);
                        }
                    }
                }
            }
        }
        // Ends the watches.
        drop(objects);
        while reconciliations.next().await.is_some() {}
    }

    /// Reconciles without an end.
    pub async fn run<F, Outcome, E>(self, reconcile: F)
    where
        F: Fn(Request<K>) -> Outcome,
        Outcome: Future<Output = Result<Action, E>>,
        E: Display,
    {
        self.run_until(reconcile, std::future::pending()).await;
    }
}

/// The pause after a failure that follows `earlier` others.
fn retry_pause(earlier: u32) -> Duration {
    FIRST_RETRY.saturating_mul(2_u32.saturating_pow(earlier)).min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let pauses = [0, 1, 2, 20, u32::MAX].map(|earlier| retry_pause(earlier).as_millis());
        assert_eq!(pauses, [200, 400, 800, 60_000, 60_000]);
    }
}
