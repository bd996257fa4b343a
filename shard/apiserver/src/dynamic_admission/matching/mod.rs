//! Which writes a webhook or policy reviews: rules and selectors.

mod constraints;
mod operation;
mod rules;
mod selectors;

pub(super) use constraints::MatchConstraints;
pub(super) use operation::Operation;
pub(super) use rules::{Rule, matched_version};
pub(super) use selectors::{NamespaceReader, TargetSelectors};
