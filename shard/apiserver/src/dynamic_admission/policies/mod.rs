//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies of the scope that is written to (KEP-3488, KEP-3962).
//!
//! A write in a scope without policies costs one map look-up. Policies are reviewed in the order of their names, each for
//! its bindings in the order of theirs, each of these for its parameters.

mod binding;
mod budget;
mod index;
mod invocation;
mod message;
mod mutate;
mod params;
mod permissions;
mod policy;
mod review;
mod validate;

pub(super) use index::PolicyIndex;
pub(super) use mutate::PolicyReinvocations;
pub(super) use permissions::check_permissions;
pub(super) use review::PolicyReview;
