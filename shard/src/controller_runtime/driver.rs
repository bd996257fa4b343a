//! The driver of all controllers: maps events to keys in a queue, and runs workers on that queue.

use core::hash::Hash;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::hub::{Delivery, Hub, Interest, ObjectEvent, Progress, SubscriptionEnd};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{Shutdown, Status};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::queue::{Queue, ReconcileOutcome};

/// A level-based controller: it looks at the whole state of one key and brings it forward. Calling it
/// again is always right.
#[async_trait]
pub(crate) trait Controller: Send + Sync + 'static {
    /// What is brought forward.
    type Key: Clone + Eq + Hash + Send + Sync + core::fmt::Debug + 'static;

    /// For logs.
    const NAME: &'static str;
    /// How many keys are worked on at once. They wait for commits most of the time, so they share a task.
    const WORKERS: usize;

    /// Brings one key forward by one step or more.
    async fn reconcile(&self, key: &Self::Key) -> Result<ReconcileOutcome, Status>;
}

/// Works on a controller's queue until the process drains.
pub(crate) async fn drive<C: Controller>(controller: Arc<C>, queue: Arc<Queue<C::Key>>, shutdown: Shutdown) {
    let mut working = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.draining() => break,
            Some((key, next)) = working.next(), if !working.is_empty() => queue.done(key, next),
            key = queue.take(), if working.len() < C::WORKERS => {
                let controller = controller.clone();
                working.push(async move {
                    let next = match controller.reconcile(&key).await {
                        Ok(next) => next,
                        Err(status) => {
                            // Conflicts are how two writers find out about each other.
                            if status.code != 409 {
                                tracing::warn!(controller = C::NAME, ?key, %status, "will be tried again");
                            }
                            ReconcileOutcome::Retry
                        }
                    };
                    (key, next)
                });
            }
        }
    }
    // What has begun is brought to its end; nothing new is taken.
    while let Some((key, next)) = working.next().await {
        queue.done(key, next);
    }
}

/// Feeds changes of a resource, in all logical clusters, to `keys` until the process drains. A
/// subscription that falls behind is replaced by another, after `resync` has looked at everything.
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
        let subscription = hub.subscribe(interest, Progress::Unwanted, None);
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
                tracing::info!(%resource, "a controller fell behind and looks at everything again")
            }
            SubscriptionEnd::Cancelled | SubscriptionEnd::Expired => {}
            SubscriptionEnd::Shutdown => return,
        }
    }
}
