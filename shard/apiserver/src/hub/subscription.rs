//! The reading end of a subscription.

use core::future::poll_fn;
use core::task::{Context, Poll};
use std::sync::{Arc, Weak};

use fairlead_store::Revision;

use super::queue::{Delivery, Queue, SubscriptionEnd};
use super::registrations::Registrations;

/// A registered subscription. Dropping it unregisters it.
pub struct Subscription {
    pub(super) queue: Arc<Queue>,
    pub(super) registrations: Weak<Registrations>,
}

impl Subscription {
    /// Takes the next delivery. After the queued deliveries, returns the error that ended the subscription.
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
