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

    /// Whether `rules` permit everything that this rule permits (the escalation check). As in Kubernetes,
    /// each combination of verb, group, resource and name must be permitted by one rule.
    pub fn is_covered_by(&self, rules: &[Self]) -> bool {
        self.combinations().all(|combination| combination.is_permitted_by(rules))
    }

    /// The permissions in `wanted` that `own` does not permit: one rule for each group, resource and name, with all its
    /// verbs, and one for each URL and verb.
    pub fn missing(wanted: &[Self], own: &[Self]) -> Vec<Self> {
        let mut missing: Vec<Self> = Vec::new();
        let combinations = wanted.iter().flat_map(Self::combinations);
        for combination in combinations.filter(|combination| !combination.is_permitted_by(own)) {
            let rule = combination.to_rule();
            let same = missing.iter_mut().find(|known| {
                known.non_resource_urls.is_empty()
                    && (&known.api_groups, &known.resources, &known.resource_names)
                        == (&rule.api_groups, &rule.resources, &rule.resource_names)
            });
            match same {
                Some(known) if rule.non_resource_urls.is_empty() => known.verbs.extend(rule.verbs),
                _ => missing.push(rule),
            }
        }
        missing
    }

    fn combinations(&self) -> impl Iterator<Item = Combination<'_>> {
        let names = || {
            let all = self.resource_names.is_empty().then_some(None);
            all.into_iter().chain(self.resource_names.iter().map(|name| Some(&**name)))
        };
        let resources = self.api_groups.iter().flat_map(move |group| {
            self.resources.iter().flat_map(move |resource| {
                names().flat_map(move |name| {
                    self.verbs.iter().map(move |verb| Combination::Resource { verb, group, resource, name })
                })
            })
        });
        let paths = self.non_resource_urls.iter();
        let urls = paths.flat_map(|path| self.verbs.iter().map(move |verb| Combination::Path { verb, path }));
        resources.chain(urls)
    }
}

/// One permission of a rule.
enum Combination<'r> {
    Resource { verb: &'r str, group: &'r str, resource: &'r str, name: Option<&'r str> },
    Path { verb: &'r str, path: &'r str },
}

impl Combination<'_> {
    fn is_permitted_by(&self, rules: &[Rule]) -> bool {
        let action = match *self {
            Self::Path { verb, path } => Action::NonResource { verb, path },
            Self::Resource { verb, group, resource, name } => {
                let (resource, subresource) = resource
                    .split_once('/')
                    .map_or((resource, None), |(resource, subresource)| (resource, Some(subresource)));
                Action::Resource { verb, group, version: "", resource, subresource, namespace: None, name }
            }
        };
        rules.iter().any(|rule| rule.permits(&action))
    }

    fn to_rule(&self) -> Rule {
        let list = |text: &str| vec![text.to_owned()];
        match *self {
            Self::Path { verb, path } => {
                Rule { verbs: list(verb), non_resource_urls: list(path), ..Rule::default() }
            }
            Self::Resource { verb, group, resource, name } => Rule {
                verbs: list(verb),
                api_groups: list(group),
                resources: list(resource),
                resource_names: name.map(list).unwrap_or_default(),
                ..Rule::default()
            },
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
mod tests {
    use super::*;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
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

    #[test]
    fn escalation_needs_every_combination() {
        let own = [rule("get,list", "core", "secrets,configmaps", ""), rule("get", "apps", "*", "")];
        for (wanted, covered) in [
            (rule("get", "core", "secrets", ""), true),
            (rule("get,list", "core", "secrets,configmaps", "a"), true),
            (rule("get", "core,apps", "secrets", ""), true),
            (rule("list", "core,apps", "secrets", ""), false),
            (rule("*", "core", "secrets", ""), false),
        ] {
            assert_eq!(wanted.is_covered_by(&own), covered, "{wanted:?}");
        }
    }

    #[test]
    fn missing_permissions_are_listed_by_resource() {
        let own = [rule("get", "core", "secrets", "")];
        let wanted = [
            rule("get,list,watch", "core", "secrets,configmaps", ""),
            rule("get", "core", "configmaps", "a"),
            Rule { verbs: vec!["get".into()], non_resource_urls: vec!["/x".into()], ..Rule::default() },
        ];
        let expected = [
            rule("list,watch", "core", "secrets", ""),
            rule("get,list,watch", "core", "configmaps", ""),
            rule("get", "core", "configmaps", "a"),
            wanted[2].clone(),
        ];
        assert_eq!(Rule::missing(&wanted, &own), expected);
        assert!(Rule::missing(&own, &own).is_empty());
    }
}
