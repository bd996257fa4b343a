//! The kcp API groups as Rust types and their schemas.

mod rules;
mod schema;

pub use rules::{Violation, unknown_rules, validate_transition};
pub use schema::{Column, ResourceDefinition, Scope, Version, resource, resources, system_resources};
