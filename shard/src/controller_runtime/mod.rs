//! The runtime of all controllers: the [`Controller`] trait, a work queue, and the workers and event feeds around it.
//!
//! The runtime does not depend on any controller or resource.

mod bulk;
mod driver;
mod queue;

pub(crate) use driver::{Controller, drive, feed};
pub(crate) use queue::{Queue, ReconcileOutcome};
