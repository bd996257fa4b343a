//! Estimates the cost of an expression from the bounds that schemas declare, as Kubernetes does when a CRD is created.
//!
//! The results decide which rules a CRD may have, so they are those of Kubernetes to the unit, oddities included.

mod calls;
mod coster;
mod size;

pub(crate) use calls::is_sized_comparison;
pub(crate) use coster::estimate;
pub use size::CostEstimate;
