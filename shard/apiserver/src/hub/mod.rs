//! The watch hub: distributes the feed of one store to many subscriptions.
//!
//! All watches and all informers of controllers are subscriptions of one hub. The hub is never
//! synchronous with writes: a writer that must see its own write waits with [`Hub::wait`].
//!
//! * An event is decoded once and shared; its common frame is built once and shared.
//! * A subscription names (resource, origin, scope) and optionally one label equality. It is indexed
//!   by resource and by scope or label, so an event visits only matching subscriptions.
//! * A subscription is a queue. One that is not read overflows and ends; others are not affected.

mod backlog;
mod driver;
mod event;
mod index;
mod queue;
mod registrations;
mod subscription;

pub use backlog::{Backlog, BacklogError};
pub use driver::{Hub, HubClosed};
pub use event::{ObjectChange, ObjectEvent};
pub use queue::{Delivery, Interest, ProgressNotifications, SubscriptionEnd};
pub use registrations::{HubOptions, InvalidatedWatches, Observer, WatchInvalidator};
pub use subscription::Subscription;

pub(crate) use event::{EventLabels, FrameType, Labels};

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod position_tests;
