//! Role based access control: rules, roles and bindings.
//!
//! Pure functions of roles and bindings. The host decides which roles and bindings apply in a scope.

mod escalation;
mod policy;
mod rule;

pub use escalation::{Missing, missing_permissions};
pub use policy::{Binding, Policy, Role, RoleKind, RoleReference, Subject};
pub use rule::Rule;
