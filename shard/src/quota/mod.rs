//! Limits on the number of objects: ResourceQuotas, and the limit on all objects of a logical cluster.
//!
//! The number of objects is known exactly, not by sampling: a logical cluster that has a limit is counted once, by reading
//! its keys, and from then on each event of the hub changes the count. A create reserves its share before it is
//! committed, so concurrent creates never exceed a limit together, and none of them writes to the quota object.
//! Controllers write directly to the store: their objects count but are not refused.

mod limits;
mod tracker;
mod usage;

pub(crate) use limits::Quota;
pub(crate) use tracker::{QuotaKey, UsageTracker};
