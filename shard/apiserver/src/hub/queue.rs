//! The queue of one subscription, and the events that it selects.

use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::Arc;

use fairlead_names::{Origin, ResourceName};
use fairlead_store::Revision;
use parking_lot::Mutex;

use super::event::ObjectEvent;
use crate::scope::ScopeSelector;

/// The events that a subscription gets.
#[derive(Clone, Debug)]
pub struct Interest {
    /// The resource.
    pub resource: ResourceName,
    /// The origin; `None` for all of them.
    pub origin: Option<Origin>,
    /// The scopes.
    pub scopes: ScopeSelector,
    /// The namespace; `None` for all of them.
    pub namespace: Option<Arc<str>>,
    /// A label `(key, value)` that the object has, or had before the change.
    pub label: Option<(Arc<str>, Arc<str>)>,
}

impl Interest {
    /// Whether an event matches, without regard to the label.
    pub(crate) fn wants(&self, event: &ObjectEvent) -> bool {
        self.resource == event.resource
            && self.origin.as_ref().is_none_or(|origin| *origin == event.origin)
            && self.namespace.as_deref().is_none_or(|namespace| event.namespace.as_deref() == Some(namespace))
            && self.scopes.selects(&event.scope)
    }
}

/// An item of a subscription's queue.
#[derive(Clone)]
pub enum Delivery {
    /// A change.
    Event(Arc<ObjectEvent>),
    /// Events up to this revision have been delivered.
    Progress(Revision),
}

/// The reason for the end of a subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubscriptionEnd {
    /// The host ended it: the scope is gone or no longer served.
    #[error("the watch was cancelled by the server")]
    Cancelled,
    /// The subscription has reached its deadline.
    #[error("the watch has reached its timeout")]
    Expired,
    /// Its reader was too slow. It may resume from the last revision that it got.
    #[error("the watch fell behind")]
    Lagged,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
}

/// The queue of a subscription, shared with the hub: about 200 bytes while idle.
pub(super) struct Queue {
    pub(super) id: u64,
    pub(super) interest: Interest,
    pub(super) registered_at: Revision,
    pub(super) wants_progress: bool,
    capacity: usize,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    pending: VecDeque<Delivery>,
    waker: Option<Waker>,
    end: Option<SubscriptionEnd>,
}

impl Queue {
    pub(super) fn new(
        id: u64,
        interest: Interest,
        registered_at: Revision,
        progress: ProgressNotifications,
        capacity: usize,
    ) -> Self {
        let wants_progress = progress == ProgressNotifications::On;
        Self { id, interest, registered_at, wants_progress, capacity, state: Mutex::default() }
    }

    /// Takes the next delivery. After the queued deliveries, returns the error that ended the subscription.
    pub(super) fn poll_next(&self, context: &Context<'_>) -> Poll<Result<Delivery, SubscriptionEnd>> {
        let mut state = self.state.lock();
        if let Some(delivery) = state.pending.pop_front() {
            if state.pending.is_empty() {
                // An idle watch holds no buffer.
                state.pending = VecDeque::new();
            }
            return Poll::Ready(Ok(delivery));
        }
        if let Some(end) = state.end {
            return Poll::Ready(Err(end));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Queues a delivery. The waker is returned, to be woken after all locks are released.
    pub(super) fn push(&self, delivery: Delivery) -> Option<Waker> {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return None;
        }
        if state.pending.len() >= self.capacity {
            if matches!(delivery, Delivery::Progress(_)) {
                return None;
            }
            state.end = Some(SubscriptionEnd::Lagged);
        } else {
            state.pending.push_back(delivery);
        }
        state.waker.take()
    }

    /// Ends the subscription after its queued deliveries.
    pub(super) fn end(&self, end: SubscriptionEnd) -> Option<Waker> {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        state.waker.take()
    }
}

/// Whether a subscription gets bookmarks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProgressNotifications {
    /// The subscription gets no bookmarks.
    Off,
    /// The subscription gets bookmarks.
    On,
}
