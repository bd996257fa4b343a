//! The watch hub: one feed in, many subscriptions out.
//!
//! Every watch, every informer of a controller and every virtual workspace hangs off one hub. It is
//! never synchronous with writes: a writer that must see its own write waits with [`Hub::wait`].
//!
//! * An event is decoded once and shared; its body on the wire is built once and shared.
//! * A subscription names (resource, origin, scope) and optionally one label equality; it is indexed
//!   by them, so an event touches only those it concerns.
//! * A subscription is a queue. One that is not read overflows and ends; the others do not notice.

mod driver;
mod event;
mod index;
mod queue;
mod registrations;
mod subscription;

pub use driver::{Hub, HubClosed};
pub use event::{ObjectChange, ObjectEvent};
pub use queue::{Delivery, Interest, ProgressNotifications, SubscriptionEnd};
pub use registrations::{HubOptions, Observer};
pub use subscription::Subscription;

pub(crate) use event::FrameType;
