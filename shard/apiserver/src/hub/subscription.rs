//! A subscription as its reader holds it.

use core::future::poll_fn;
use core::task::{Context, Poll};
use std::sync::{Arc, Weak};

use fairlead_store::Revision;

use super::queue::{Delivery, Queue, SubscriptionEnd};
use super::registrations::Registrations;

/// A registered watcher. Dropping it unregisters it.
pub struct Subscription {
    pub(super) queue: Arc<Queue>,
    pub(super) registrations: Weak<Registrations>,
}

impl Subscription {
    /// Takes the next delivery. Ends with an error exactly once, after what was queued before.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Delivery, SubscriptionEnd>> {
        self.queue.poll_next(context)
    }

    /// Waits for the next delivery.
    ///
    /// # Errors
    /// [`SubscriptionEnd`] when there will be none.
    pub async fn next(&self) -> Result<Delivery, SubscriptionEnd> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The hub's revision when this subscription was registered: it gets all events after it.
    pub fn registered_at(&self) -> Revision {
        self.queue.registered_at
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(registrations) = self.registrations.upgrade() {
            registrations.remove(&self.queue);
        }
    }
}
