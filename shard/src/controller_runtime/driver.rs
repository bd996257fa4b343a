//! Runs controllers: feeds keys from events into a queue, and runs workers on the queue.

use core::future::poll_fn;
use core::hash::Hash;
use core::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::hub::{Delivery, Hub, Interest, ObjectEvent, ProgressNotifications, SubscriptionEnd};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{Shutdown, Status};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::queue::{Queue, ReconcileOutcome};

/// A level-based controller: it reads the whole state of one key and advances it. `reconcile` is idempotent.
#[async_trait]
pub(crate) trait Controller: Send + Sync + 'static {
    /// Identifies the object that is reconciled.
    type Key: Clone + Eq + Hash + Send + Sync + core::fmt::Debug + 'static;

    /// Name in logs.
    const NAME: &'static str;
    /// Number of keys that are reconciled concurrently. They mostly wait for commits, so they share one task.
    const WORKERS: usize;

    /// Advances one key by one step or more.
    async fn reconcile(&self, key: &Self::Key) -> Result<ReconcileOutcome, Status>;
}

/// Runs the workers of a controller until the process drains or ceases to lead. A queue has one driver at a time.
pub(crate) async fn drive<C: Controller>(controller: Arc<C>, queue: Arc<Queue<C::Key>>, shutdown: Shutdown) {
    queue.resume();
    let mut working = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.draining() => break,
            Some((key, next, busy)) = working.next(), if !working.is_empty() => queue.done(key, next, busy),
            key = queue.take(), if working.len() < C::WORKERS => {
                let controller = controller.clone();
                working.push(async move {
                    let (result, busy) = timed(controller.reconcile(&key)).await;
                    let next = match result {
                        Ok(next) => next,
                        Err(status) => {
                            // Conflicts between writers are expected and not logged.
                            if status.code != 409 {
                                tracing::warn!(controller = C::NAME, ?key, %status, "a reconciliation failed and will be retried");
                            }
                            ReconcileOutcome::Retry
                        }
                    };
                    (key, next, busy)
                });
                // A reconciliation computes for up to some milliseconds. Requests that arrived meanwhile come first.
                tokio::task::yield_now().await;
            }
        }
    }
    // Drain: running reconciliations finish, no other ones start.
    while let Some((key, next, busy)) = working.next().await {
        queue.done(key, next, busy);
    }
}

/// The result of a future, and the time that it computed, without that in which it waited.
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let mut future = pin!(future);
    let mut busy = Duration::ZERO;
    let result = poll_fn(|context| {
        let begin = Instant::now();
        let polled = future.as_mut().poll(context);
        busy += begin.elapsed();
        polled
    });
    let result = result.await;
    (result, busy)
}

/// Passes events of a resource, in all logical clusters, to `keys` until the process drains. If the subscription falls
/// behind, it is replaced, and `resync` adds all keys.
pub(crate) async fn feed(
    hub: Hub,
    resource: ResourceName,
    origin: Option<Origin>,
    shutdown: Shutdown,
    resync: impl Fn(),
    keys: impl Fn(&ObjectEvent),
) {
    loop {
        let interest = Interest {
            resource: resource.clone(),
            origin: origin.clone(),
            scopes: ScopeSelector::all(),
            namespace: None,
            label: None,
        };
        let subscription = hub.subscribe(interest, ProgressNotifications::Off, None);
        resync();
        let end = loop {
            tokio::select! {
                biased;
                () = shutdown.draining() => return,
                delivery = subscription.next() => match delivery {
                    Ok(Delivery::Event(event)) => keys(&event),
                    Ok(Delivery::Progress(_)) => {}
                    Err(end) => break end,
                },
            }
        };
        match end {
            SubscriptionEnd::Lagged => {
                tracing::info!(%resource, "the subscription of a controller lagged; all objects are queued again")
            }
            SubscriptionEnd::Cancelled | SubscriptionEnd::Expired => {}
            SubscriptionEnd::Shutdown => return,
        }
    }
}
