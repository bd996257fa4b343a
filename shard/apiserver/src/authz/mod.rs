//! Role based access control: rules, and who they are given to.
//!
//! Pure functions from roles and bindings to a decision. Which roles and bindings count where
//! is the host's business.

mod policy;
mod rule;

pub use policy::{Binding, Policy, Role, RoleKind, RoleReference, Subject};
pub use rule::{Query, Rule};
