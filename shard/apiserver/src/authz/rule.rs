//! A rule of a role, and the actions that it permits.

use serde::{Deserialize, Serialize};

use crate::host::Action;

/// A rule of a Role or ClusterRole (`rbac.authorization.k8s.io/v1` PolicyRule).
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// The permitted verbs; `*` is every verb.
    pub verbs: Vec<String>,
    /// The groups; `*` is every group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources: `pods`, `pods/status`, `*/status`, `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names of the objects; empty is all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// The paths of non-resource requests; a trailing `*` matches any rest.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Whether the rule permits an action.
    pub fn permits(&self, action: &Action<'_>) -> bool {
        match *action {
            Action::Resource { verb, group, resource, subresource, name, .. } => {
                contains_or_star(&self.verbs, verb)
                    && contains_or_star(&self.api_groups, group)
                    && self.resources.iter().any(|rule| covers_resource(rule, resource, subresource))
                    && (self.resource_names.is_empty()
                        || name.is_some_and(|name| self.resource_names.iter().any(|own| own == name)))
            }
            Action::NonResource { verb, path } => {
                contains_or_star(&self.verbs, verb)
                    && self.non_resource_urls.iter().any(|rule| covers_path(rule, path))
            }
        }
    }
}

/// Whether a list of names contains `wanted` or `*`.
fn contains_or_star(names: &[String], wanted: &str) -> bool {
    names.iter().any(|name| name == "*" || name == wanted)
}

fn covers_resource(rule: &str, resource: &str, subresource: Option<&str>) -> bool {
    match (rule.split_once('/'), subresource) {
        (None, None) => rule == "*" || rule == resource,
        (None, Some(_)) => rule == "*",
        (Some((own, own_subresource)), Some(subresource)) => {
            own_subresource == subresource && (own == "*" || own == resource)
        }
        (Some(_), None) => false,
    }
}

fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::authz) fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        let split = |text: &str| -> Vec<String> {
            if text.is_empty() {
                Vec::new()
            } else {
                text.split(',').map(|part| part.replace("core", "")).collect()
            }
        };
        Rule {
            verbs: split(verbs),
            api_groups: split(groups),
            resources: split(resources),
            resource_names: split(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn action<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: Option<&'a str>) -> Action<'a> {
        let (resource, subresource) =
            resource.split_once('/').map_or((resource, None), |(r, s)| (r, Some(s)));
        Action::Resource { verb, group, version: "v1", resource, subresource, namespace: None, name }
    }

    #[test]
    fn rules_permit_what_they_name() {
        for (rule, action, permitted) in [
            (rule("*", "*", "*", ""), action("get", "", "secrets", None), true),
            (rule("*", "*", "*", ""), action("get", "", "secrets/status", None), true),
            (rule("get", "core", "secrets", ""), action("get", "", "secrets", Some("a")), true),
            (rule("get", "core", "secrets", ""), action("list", "", "secrets", None), false),
            (rule("get", "core", "secrets", ""), action("get", "apps", "secrets", None), false),
            (rule("get", "core", "secrets", ""), action("get", "", "secrets/status", None), false),
            (rule("get", "core", "*/status", ""), action("get", "", "secrets/status", None), true),
            (rule("get", "core", "secrets/status", ""), action("get", "", "secrets/status", None), true),
            (rule("get", "core", "secrets/status", ""), action("get", "", "secrets", None), false),
            (rule("get", "core", "secrets", "a"), action("get", "", "secrets", Some("a")), true),
            (rule("get", "core", "secrets", "a"), action("get", "", "secrets", Some("b")), false),
            (rule("list", "core", "secrets", "a"), action("list", "", "secrets", None), false),
        ] {
            assert_eq!(rule.permits(&action), permitted, "{rule:?} {action:?}");
        }
    }

    #[test]
    fn urls_match_exactly_or_by_a_trailing_star() {
        let rule = Rule {
            verbs: vec!["get".into()],
            non_resource_urls: vec!["/".into(), "/api*".into()],
            ..Rule::default()
        };
        for (verb, path, permitted) in
            [("get", "/", true), ("get", "/apis", true), ("get", "/x", false), ("post", "/", false)]
        {
            assert_eq!(rule.permits(&Action::NonResource { verb, path }), permitted, "{verb} {path}");
        }
    }
}
