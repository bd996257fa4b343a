//! The escalation check: the permissions that a role grants and its author does not have.

use std::collections::HashMap;

use super::Rule;
use crate::host::Action;

/// The permissions that are missing, or that they cannot be determined within bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Missing {
    /// One rule for each group, resource and name, with all its verbs, and one for each URL and verb; at most
    /// [`MAX_MISSING`]. Empty: nothing is missing.
    Rules(Vec<Rule>),
    /// The rules have too many combinations to compare them.
    TooComplex,
}

/// Rules of a response. The sum of their combinations is a product of what the client sends.
const MAX_MISSING: usize = 1_000;

/// Texts that one check compares, about 10 ns each. A role of 400 permissions and an author with 50 rules of 20 texts
/// need 400,000.
const MAX_COMPARISONS: usize = 8_000_000;

/// The permissions in `wanted` that `own` does not permit. As in Kubernetes, each combination of verb, group, resource and
/// name must be permitted by one rule.
///
/// A rule of the author that contains a wanted one as a whole is found without its combinations, so that an administrator
/// may grant rules of any size.
pub fn missing_permissions(wanted: &[Rule], own: &[Rule]) -> Missing {
    let mut budget = MAX_COMPARISONS;
    let mut missing: Vec<Rule> = Vec::new();
    let mut positions: HashMap<ObjectKey<'_>, usize> = HashMap::new();
    let size_of_own: usize = own.iter().map(size).sum::<usize>() + 1;
    for rule in wanted {
        let mut is_contained = false;
        for one in own {
            let Some(rest) = budget.checked_sub(comparisons(rule, one)) else { break };
            budget = rest;
            is_contained = contains(one, rule);
            if is_contained {
                break;
            }
        }
        if is_contained {
            continue;
        }
        for combination in combinations(rule) {
            let Some(rest) = budget.checked_sub(size_of_own) else { return Missing::TooComplex };
            budget = rest;
            if combination.is_permitted_by(own) {
                continue;
            }
            match combination.object_key().map(|key| positions.entry(key)) {
                Some(std::collections::hash_map::Entry::Occupied(entry)) => {
                    missing[*entry.get()].verbs.push(combination.verb().to_owned());
                }
                entry => {
                    if missing.len() == MAX_MISSING {
                        return Missing::Rules(missing);
                    }
                    if let Some(std::collections::hash_map::Entry::Vacant(entry)) = entry {
                        entry.insert(missing.len());
                    }
                    missing.push(combination.to_rule());
                }
            }
        }
    }
    Missing::Rules(missing)
}

/// Whether `own` permits everything that `wanted` permits, by itself.
fn contains(own: &Rule, wanted: &Rule) -> bool {
    let has_all = |own: &[String], wanted: &[String]| {
        own.iter().any(|one| one == "*") || wanted.iter().all(|one| own.contains(one))
    };
    let resources = own.resources.iter().any(|one| one == "*")
        || wanted.resources.iter().all(|one| own.resources.contains(one));
    let names = own.resource_names.is_empty()
        || (!wanted.resource_names.is_empty()
            && wanted.resource_names.iter().all(|one| own.resource_names.contains(one)));
    let objects = wanted.resources.is_empty()
        || wanted.api_groups.is_empty()
        || (resources && names && has_all(&own.api_groups, &wanted.api_groups));
    let urls = wanted.non_resource_urls.iter().all(|one| own.non_resource_urls.contains(one));
    has_all(&own.verbs, &wanted.verbs) && objects && urls
}

/// The number of comparisons of [`contains`], at most.
fn comparisons(wanted: &Rule, own: &Rule) -> usize {
    let each = |own: &[String], wanted: &[String]| own.len() * (wanted.len() + 1);
    each(&own.verbs, &wanted.verbs)
        + each(&own.api_groups, &wanted.api_groups)
        + each(&own.resources, &wanted.resources)
        + each(&own.resource_names, &wanted.resource_names)
        + each(&own.non_resource_urls, &wanted.non_resource_urls)
        + 1
}

/// The number of texts of a rule.
fn size(rule: &Rule) -> usize {
    rule.verbs.len()
        + rule.api_groups.len()
        + rule.resources.len()
        + rule.resource_names.len()
        + rule.non_resource_urls.len()
        + 1
}

/// Group, resource and name.
type ObjectKey<'r> = (&'r str, &'r str, Option<&'r str>);

fn combinations(rule: &Rule) -> impl Iterator<Item = Combination<'_>> {
    let names = || {
        let all = rule.resource_names.is_empty().then_some(None);
        all.into_iter().chain(rule.resource_names.iter().map(|name| Some(&**name)))
    };
    let resources = rule.api_groups.iter().flat_map(move |group| {
        rule.resources.iter().flat_map(move |resource| {
            names().flat_map(move |name| {
                rule.verbs.iter().map(move |verb| Combination::Resource { verb, group, resource, name })
            })
        })
    });
    let paths = rule.non_resource_urls.iter();
    let urls = paths.flat_map(|path| rule.verbs.iter().map(move |verb| Combination::Path { verb, path }));
    resources.chain(urls)
}

/// One permission of a rule.
enum Combination<'r> {
    Resource { verb: &'r str, group: &'r str, resource: &'r str, name: Option<&'r str> },
    Path { verb: &'r str, path: &'r str },
}

impl<'r> Combination<'r> {
    fn verb(&self) -> &'r str {
        match *self {
            Self::Resource { verb, .. } | Self::Path { verb, .. } => verb,
        }
    }

    fn object_key(&self) -> Option<ObjectKey<'r>> {
        match *self {
            Self::Resource { group, resource, name, .. } => Some((group, resource, name)),
            Self::Path { .. } => None,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::super::rule::tests::rule;
    use super::*;

    fn numbered(prefix: &str, count: usize) -> String {
        let names: Vec<String> = (0..count).map(|number| format!("{prefix}{number}")).collect();
        names.join(",")
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
            assert_eq!(
                missing_permissions(std::slice::from_ref(&wanted), &own) == Missing::Rules(Vec::new()),
                covered,
                "{wanted:?}"
            );
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
        assert_eq!(missing_permissions(&wanted, &own), Missing::Rules(expected.to_vec()));
        assert_eq!(missing_permissions(&own, &own), Missing::Rules(Vec::new()));
    }

    /// A request of 1.5 KB has 100,000 combinations, and one of 3 MiB has more than could ever be compared.
    #[test]
    fn the_cost_of_a_check_is_bounded() {
        let large = rule("a,b", &numbered("g", 300), &numbered("r", 300), &numbered("n", 300));
        let Missing::Rules(missing) = missing_permissions(std::slice::from_ref(&large), &[]) else {
            panic!("a list of missing rules");
        };
        assert_eq!(missing.len(), MAX_MISSING);
        let own: Vec<Rule> = (0..30_000).map(|number| rule("a", &format!("g{number}"), "r0", "")).collect();
        assert_eq!(missing_permissions(std::slice::from_ref(&large), &own), Missing::TooComplex);
        assert_eq!(missing_permissions(&own, &own), Missing::TooComplex);
        assert_eq!(missing_permissions(&[large], &[rule("*", "*", "*", "")]), Missing::Rules(Vec::new()));
    }
}
