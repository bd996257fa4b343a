//! `matchConstraints` of policies and `matchResources` of their bindings.

use std::sync::Arc;

use fairlead_process::Status;
use serde_json::Value;

use super::{NamespaceReader, Operation, Rule, TargetSelectors, matched_version};
use crate::registry::AdmissionRequest;

/// The writes that a policy or binding reviews.
#[derive(Debug)]
pub(in crate::dynamic_admission) struct MatchConstraints {
    selectors: TargetSelectors,
    /// Empty: all resources. Only bindings may have none.
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    matches_equivalent: bool,
}

impl MatchConstraints {
    pub(in crate::dynamic_admission) fn parse(constraints: &Value) -> Self {
        let rules = |field: &str| {
            constraints[field].as_array().into_iter().flatten().map(Rule::parse).collect::<Vec<_>>()
        };
        Self {
            selectors: TargetSelectors::parse(constraints),
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            matches_equivalent: constraints["matchPolicy"] != "Exact",
        }
    }

    /// The version in which the write is reviewed, or `None` if it is not. The rules, which exclude most writes, are
    /// compared first.
    pub(in crate::dynamic_admission) fn matched_version(
        &self,
        namespaces: &NamespaceReader,
        write: &AdmissionRequest<'_>,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<str>>, Status> {
        let version = if self.rules.is_empty() {
            Some(write.version.into())
        } else {
            matched_version(&self.rules, self.matches_equivalent, write, operation)
        };
        let Some(version) = version else { return Ok(None) };
        if matched_version(&self.excluded, self.matches_equivalent, write, operation).is_some() {
            return Ok(None);
        }
        let is_selected = self.selectors.select(namespaces, write, object, old)?;
        Ok(is_selected.then_some(version))
    }
}
