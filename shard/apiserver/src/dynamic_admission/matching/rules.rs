//! The rules of a webhook: which operations on which resources it reviews.

use serde_json::Value;

use crate::registry::AdmissionRequest;

/// The operation of a write, as rules name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// A delete.
    Delete,
}

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// The kind of the options of the request.
    pub(super) fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// One rule. `*` in a list stands for every value.
#[derive(Debug)]
pub(super) struct Rule {
    operations: Vec<Box<str>>,
    groups: Vec<Box<str>>,
    versions: Vec<Box<str>>,
    /// `resource`, `resource/subresource`, each part may be `*`.
    resources: Vec<Box<str>>,
    scope: RuleScope,
}

#[derive(Debug, PartialEq, Eq)]
enum RuleScope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    pub(super) fn parse(rule: &Value) -> Self {
        let list = |field: &str| -> Vec<Box<str>> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
        };
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => RuleScope::Cluster,
                Some("Namespaced") => RuleScope::Namespaced,
                _ => RuleScope::All,
            },
        }
    }

    /// Whether the rule covers the write in this version of its resource.
    pub(super) fn matches(&self, write: &AdmissionRequest<'_>, operation: Operation, version: &str) -> bool {
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
            && match self.scope {
                RuleScope::All => true,
                RuleScope::Cluster => !is_namespaced,
                RuleScope::Namespaced => is_namespaced,
            }
    }
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
