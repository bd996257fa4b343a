//! The rules of webhooks and policies: which operations on which resources they review.

use std::sync::Arc;

use serde_json::Value;

use super::Operation;
use crate::registry::AdmissionRequest;

/// One rule. `*` in a list stands for every value.
#[derive(Debug)]
pub(in crate::dynamic_admission) struct Rule {
    operations: Vec<Box<str>>,
    groups: Vec<Box<str>>,
    versions: Vec<Box<str>>,
    /// `resource`, `resource/subresource`, each part may be `*`.
    resources: Vec<Box<str>>,
    /// Names of objects; empty for all. Only rules of policies have them.
    names: Vec<Box<str>>,
    scope: RuleScope,
}

#[derive(Debug, PartialEq, Eq)]
enum RuleScope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    pub(in crate::dynamic_admission) fn parse(rule: &Value) -> Self {
        let list = |field: &str| -> Vec<Box<str>> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
        };
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            names: list("resourceNames"),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => RuleScope::Cluster,
                Some("Namespaced") => RuleScope::Namespaced,
                _ => RuleScope::All,
            },
        }
    }

    /// Whether the rule covers the write in this version of its resource.
    pub(in crate::dynamic_admission) fn matches(
        &self,
        write: &AdmissionRequest<'_>,
        operation: Operation,
        version: &str,
    ) -> bool {
        let contains = |values: &[Box<str>], wanted: &str| {
            values.iter().any(|value| &**value == "*" || &**value == wanted)
        };
        let name = &write.resource.name;
        // A namespace object belongs to no namespace.
        let is_namespaced =
            write.namespace.is_some() && !(name.group.is_empty() && &*name.resource == "namespaces");
        contains(&self.operations, operation.as_str())
            && contains(&self.groups, &name.group)
            && contains(&self.versions, version)
            && self.resources.iter().any(|pattern| covers(pattern, &name.resource, write.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *write.name))
            && match self.scope {
                RuleScope::All => true,
                RuleScope::Cluster => !is_namespaced,
                RuleScope::Namespaced => is_namespaced,
            }
    }
}

/// The version of the resource in which one of the rules covers the write: the requested one if possible, and with
/// `matchPolicy: Equivalent` another served one.
pub(in crate::dynamic_admission) fn matched_version(
    rules: &[Rule],
    matches_equivalent: bool,
    write: &AdmissionRequest<'_>,
    operation: Operation,
) -> Option<Arc<str>> {
    let matches = |version: &str| rules.iter().any(|rule| rule.matches(write, operation, version));
    if matches(write.version) {
        return Some(write.version.into());
    }
    let served = write.resource.versions.served.iter().filter(|_| matches_equivalent);
    served.map(|version| &version.name).find(|version| matches(version)).cloned()
}

fn covers(pattern: &str, resource: &str, subresource: Option<&str>) -> bool {
    let (of_resource, of_subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (of_resource == "*" || of_resource == resource)
        && (of_subresource == "*" || of_subresource == subresource.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_resources_and_subresources() {
        for (pattern, resource, subresource, expected) in [
            ("boats", "boats", None, true),
            ("boats", "boats", Some("status"), false),
            ("boats/status", "boats", Some("status"), true),
            ("boats/*", "boats", None, true),
            ("boats/*", "boats", Some("scale"), true),
            ("*", "boats", None, true),
            ("*", "boats", Some("status"), false),
            ("*/status", "boats", Some("status"), true),
            ("*/status", "boats", None, false),
            ("*/*", "boats", Some("scale"), true),
            ("ships", "boats", None, false),
        ] {
            assert_eq!(
                covers(pattern, resource, subresource),
                expected,
                "{pattern} {resource} {subresource:?}"
            );
        }
    }
}
