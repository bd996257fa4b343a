//! The reasons for which other shards need an object: the words in its `internal.kcp.io/replicate` annotation.

use fairlead_api::group::BINDING_PREFIX;
use fairlead_apiserver::Action;
use fairlead_apiserver::authz::{Binding, Rule, Subject};

/// The reasons that a shard determines. Other words in the annotation are kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Reasons {
    /// The object grants the permission to bind an API export, or permissions on bound resources.
    pub(super) apis: bool,
    /// The object grants access to workspace content.
    pub(super) core: bool,
    /// The object grants permissions on workspace types.
    pub(super) tenancy: bool,
}

impl Reasons {
    /// The reasons for a role with these rules.
    pub(super) fn of_rules(rules: &[Rule]) -> Self {
        rules.iter().map(Self::of_rule).fold(Self::default(), Self::union)
    }

    /// The reasons for a binding, apart from its role: it grants permissions on bound resources.
    pub(super) fn of_subjects(binding: &Binding) -> Self {
        let apis = binding.subjects.iter().any(|subject| match subject {
            Subject::Group { name } | Subject::User { name } => name.starts_with(BINDING_PREFIX),
            Subject::ServiceAccount { .. } => false,
        });
        Self { apis, ..Self::default() }
    }

    fn of_rule(rule: &Rule) -> Self {
        // Restrictions to object names are irrelevant.
        let rule = Rule { resource_names: Vec::new(), ..rule.clone() };
        let content = |verb: &String| permits(&rule, verb, "apis.kcp.io", "apiexports", Some("content"));
        Self {
            apis: permits(&rule, "bind", "apis.kcp.io", "apiexports", None) || rule.verbs.iter().any(content),
            core: rule.permits(&Action::NonResource { verb: "access", path: "/" }),
            tenancy: ["use", "initialize", "terminate"]
                .into_iter()
                .any(|verb| permits(&rule, verb, "tenancy.kcp.io", "workspacetypes", None)),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            apis: self.apis || other.apis,
            core: self.core || other.core,
            tenancy: self.tenancy || other.tenancy,
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The new value of the annotation, given the present one; `None` removes it.
    pub(super) fn annotation(self, present: Option<&str>) -> Option<String> {
        let own = [("apis.kcp.io", self.apis), ("core.kcp.io", self.core), ("tenancy.kcp.io", self.tenancy)];
        let foreign = present
            .into_iter()
            .flat_map(|words| words.split(','))
            .filter(|word| !word.is_empty() && own.iter().all(|(name, _)| name != word));
        let mut words: Vec<&str> = foreign.collect();
        words.extend(own.iter().filter(|(_, holds)| *holds).map(|(name, _)| *name));
        words.sort_unstable();
        words.dedup();
        (!words.is_empty()).then(|| words.join(","))
    }
}

fn permits(rule: &Rule, verb: &str, group: &str, resource: &str, subresource: Option<&str>) -> bool {
    let (version, namespace, name) = ("", None, None);
    rule.permits(&Action::Resource { verb, group, version, resource, subresource, namespace, name })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn words(reasons: Reasons) -> String {
        reasons.annotation(None).unwrap_or_default()
    }

    /// The cases include the roles of a recorded kcp.
    #[test]
    fn rules_have_reasons() {
        for (rule, expected) in [
            (
                json!({"verbs": ["bind"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "resourceNames": ["x"]}),
                "apis.kcp.io",
            ),
            (
                json!({"verbs": ["get"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"]}),
                "apis.kcp.io",
            ),
            (json!({"verbs": ["get"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"]}), ""),
            (json!({"verbs": ["bind"], "apiGroups": ["other"], "resources": ["apiexports"]}), ""),
            (json!({"verbs": ["*"], "apiGroups": ["tenancy.kcp.io"], "resources": ["*"]}), "tenancy.kcp.io"),
            (
                json!({"verbs": ["use"], "apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"], "resourceNames": ["team"]}),
                "tenancy.kcp.io",
            ),
            (
                json!({"verbs": ["initialize"], "apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"]}),
                "tenancy.kcp.io",
            ),
            (json!({"verbs": ["get"], "apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"]}), ""),
            (json!({"verbs": ["access"], "nonResourceURLs": ["/"]}), "core.kcp.io"),
            (json!({"verbs": ["get"], "nonResourceURLs": ["/"]}), ""),
            (json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), "apis.kcp.io,tenancy.kcp.io"),
        ] {
            let rules: Vec<Rule> = serde_json::from_value(json!([rule])).unwrap();
            assert_eq!(words(Reasons::of_rules(&rules)), expected, "{rule}");
        }
    }

    #[test]
    fn foreign_reasons_are_kept() {
        let apis = Reasons { apis: true, ..Reasons::default() };
        for (reasons, present, expected) in [
            (apis, None, Some("apis.kcp.io")),
            (apis, Some("tenancy.kcp.io"), Some("apis.kcp.io")),
            (apis, Some("mine,core.kcp.io"), Some("apis.kcp.io,mine")),
            (Reasons::default(), Some("apis.kcp.io"), None),
            (Reasons::default(), Some("mine"), Some("mine")),
            (Reasons::default(), Some(""), None),
        ] {
            assert_eq!(reasons.annotation(present).as_deref(), expected, "{reasons:?} {present:?}");
        }
    }
}
