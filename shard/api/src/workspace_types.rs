//! Consequences of a WorkspaceType: its aliases, the initializers of new workspaces, and the allowed parents and children.

use std::collections::BTreeSet;
use std::fmt;

use crate::keys::API_BINDINGS_INITIALIZER;
use crate::{DefaultBinding, TypeReference, TypeSelector, WorkspaceTypeSpec};

/// A WorkspaceType with its location.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocatedType {
    /// Logical cluster that holds the object.
    pub cluster: String,
    /// Canonical path of that logical cluster.
    pub path: String,
    /// Name of the object.
    pub name: String,
    /// Spec of the object.
    pub spec: WorkspaceTypeSpec,
}

impl LocatedType {
    /// `<canonical path>:<name>`: the reference in messages, limits and LogicalClusters.
    pub fn reference(&self) -> TypeReference {
        TypeReference { name: self.name.clone(), path: self.path.clone() }
    }

    /// `<logical cluster>:<name>`: the name of its initializer and of its terminator.
    pub fn initializer(&self) -> String {
        format!("{}:{}", self.cluster, self.name)
    }
}

/// Workspaces in which a type without a path is searched, in this order: the workspace itself, its ancestors from the nearest
/// on, and `root`.
pub fn search_paths(workspace: &str) -> Vec<String> {
    let mut paths = vec![workspace.to_owned()];
    let mut rest = workspace;
    while let Some((parent, _)) = rest.rsplit_once(':') {
        paths.push(parent.to_owned());
        rest = parent;
    }
    if rest != "root" {
        paths.push("root".to_owned());
    }
    paths
}

/// An error that prevents resolving the aliases of a type. The cause is the type's definition. For [`TypeError::Missing`] a
/// retry succeeds once the base type exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// A type extends itself.
    #[error("circular dependency detected in workspace type {first}: {}", .cycle.join(" -> "))]
    Cycle {
        /// The type at which the cycle closes.
        first: String,
        /// The types of the cycle, from `first` on.
        cycle: Vec<String>,
    },
    /// A base type does not exist, or is not in the index yet.
    #[error("unable to find inherited workspace type {0}")]
    Missing(String),
}

/// All types that `own` implements: its base types, depth first and without duplicates, then itself.
///
/// `find` looks up a type by path (or logical cluster) and name.
///
/// # Errors
/// See [`TypeError`].
pub fn aliases(
    own: LocatedType,
    mut find: impl FnMut(&TypeReference) -> Option<LocatedType>,
) -> Result<Vec<LocatedType>, TypeError> {
    // Depth-first search with an explicit stack: the types on the current path, each with its remaining base types.
    let mut seen = BTreeSet::from([own.reference()]);
    let mut found = Vec::new();
    let mut path = vec![(own.reference(), own.spec.extend.with.clone().into_iter())];
    while let Some((_, bases)) = path.last_mut() {
        let Some(base) = bases.next() else {
            path.pop();
            continue;
        };
        if let Some(start) = path.iter().position(|(above, _)| *above == base) {
            return Err(TypeError::Cycle {
                first: base.to_string(),
                cycle: path[start..].iter().map(|(above, _)| above.to_string()).collect(),
            });
        }
        if !seen.insert(base.clone()) {
            continue;
        }
        let located = find(&base).ok_or_else(|| TypeError::Missing(base.to_string()))?;
        path.push((located.reference(), located.spec.extend.with.clone().into_iter()));
        seen.insert(located.reference());
        found.push(located);
    }
    found.push(own);
    Ok(found)
}

/// The initializers of a new workspace whose type has these aliases.
pub fn initializers(aliases: &[LocatedType]) -> Vec<String> {
    let own = aliases.iter().filter(|alias| alias.spec.initializer).map(LocatedType::initializer);
    let bindings = aliases
        .iter()
        .any(|alias| !alias.spec.default_api_bindings.is_empty())
        .then(|| API_BINDINGS_INITIALIZER.to_owned());
    own.chain(bindings).collect()
}

/// The terminators of a new workspace whose type has these aliases.
pub fn terminators(aliases: &[LocatedType]) -> Vec<String> {
    aliases.iter().filter(|alias| alias.spec.terminator).map(LocatedType::initializer).collect()
}

/// The exports that a workspace with these aliases is bound to, without duplicates, in alias order. An empty path is replaced
/// by the logical cluster of the alias.
pub fn default_bindings(aliases: &[LocatedType]) -> Vec<DefaultBinding> {
    let mut bindings: Vec<DefaultBinding> = Vec::new();
    for alias in aliases {
        for binding in &alias.spec.default_api_bindings {
            let path = if binding.path.is_empty() { &alias.cluster } else { &binding.path };
            let binding = DefaultBinding { export: binding.export.clone(), path: path.clone() };
            if !bindings.contains(&binding) {
                bindings.push(binding);
            }
        }
    }
    bindings
}

/// The types of a parent and a child exclude each other. The cause is the request; a retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", aggregate(.0))]
pub struct IncompatibleTypes(Vec<String>);

/// Checks the limits of the child's type against the parent's type, and the reverse. Both lists come from [`aliases`], so the
/// last element of each is the type itself.
///
/// # Errors
/// [`IncompatibleTypes`] with kcp's messages, one for each limit that is broken. The parent's limits are checked only if the
/// child's are kept.
pub fn check_parent_and_child(
    parent: &[LocatedType],
    child: &[LocatedType],
) -> Result<(), IncompatibleTypes> {
    let (Some(parent_type), Some(child_type)) = (parent.last(), child.last()) else {
        return Ok(());
    };
    let (parent_type, child_type) = (parent_type.reference(), child_type.reference());
    let broken = broken_limits(child, &child_type, parent, &parent_type, &PARENTS);
    if !broken.is_empty() {
        return Err(IncompatibleTypes(broken));
    }
    let broken = broken_limits(parent, &parent_type, child, &child_type, &CHILDREN);
    if broken.is_empty() { Ok(()) } else { Err(IncompatibleTypes(broken)) }
}

/// A direction of the check.
struct Direction {
    limit: fn(&WorkspaceTypeSpec) -> Option<&TypeSelector>,
    none: &'static str,
    other: &'static str,
}

const PARENTS: Direction =
    Direction { limit: |spec| spec.limit_allowed_parents.as_ref(), none: "any parent", other: "parent" };

const CHILDREN: Direction =
    Direction { limit: |spec| spec.limit_allowed_children.as_ref(), none: "any children", other: "child" };

fn broken_limits(
    limiting: &[LocatedType],
    limiting_type: &TypeReference,
    limited: &[LocatedType],
    limited_type: &TypeReference,
    direction: &Direction,
) -> Vec<String> {
    let implemented: BTreeSet<String> = limited.iter().map(|alias| alias.reference().to_string()).collect();
    let mut broken = Vec::new();
    for alias in limiting {
        let Some(limit) = (direction.limit)(&alias.spec) else {
            continue;
        };
        if limit.none {
            broken.push(format!("workspace type {limiting_type} cannot have {}", direction.none));
            continue;
        }
        let allowed: BTreeSet<String> = limit.types.iter().map(ToString::to_string).collect();
        if allowed.is_empty() || !allowed.is_disjoint(&implemented) {
            continue;
        }
        let alias = alias.reference();
        let extending =
            if alias == *limiting_type { String::new() } else { format!(" extends {alias}, which") };
        let other = direction.other;
        broken.push(format!(
            "workspace type {limiting_type}{extending} only allows {} {other} workspaces, but {other} type \
             {limited_type} only implements {}",
            GoStringSet(&allowed),
            GoStringSet(&implemented),
        ));
    }
    broken
}

/// A set in the format in which Go prints a list of strings.
struct GoStringSet<'a>(&'a BTreeSet<String>);

impl fmt::Display for GoStringSet<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        write!(formatter, "[{}]", names.join(" "))
    }
}

/// A single message for several errors, in the format of Kubernetes' aggregate error.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(name: &str, extends: &[&str]) -> LocatedType {
        let mut located = LocatedType {
            cluster: "root".to_owned(),
            path: "root".to_owned(),
            name: name.to_owned(),
            spec: WorkspaceTypeSpec::default(),
        };
        located.spec.extend.with = extends.iter().map(|name| at_root(name)).collect();
        located
    }

    fn at_root(name: &str) -> TypeReference {
        TypeReference { name: name.to_owned(), path: "root".to_owned() }
    }

    fn only(names: &[&str]) -> Option<TypeSelector> {
        Some(TypeSelector { none: false, types: names.iter().map(|name| at_root(name)).collect() })
    }

    fn none() -> Option<TypeSelector> {
        Some(TypeSelector { none: true, types: Vec::new() })
    }

    fn names(types: &[LocatedType]) -> Vec<&str> {
        types.iter().map(|found| found.name.as_str()).collect()
    }

    fn find_in(types: Vec<LocatedType>) -> impl FnMut(&TypeReference) -> Option<LocatedType> {
        move |wanted| types.iter().find(|found| found.reference() == *wanted).cloned()
    }

    #[test]
    fn types_are_searched_upwards_and_in_root() {
        assert_eq!(search_paths("root:org:team"), ["root:org:team", "root:org", "root"]);
        assert_eq!(search_paths("root"), ["root"]);
        assert_eq!(search_paths("user:alice"), ["user:alice", "user", "root"]);
        assert_eq!(search_paths("2hzqkbz7v4xk1d0q"), ["2hzqkbz7v4xk1d0q", "root"]);
    }

    #[test]
    fn base_types_come_before_the_type_itself_and_once() {
        let types = vec![
            located("universal", &[]),
            located("base", &["universal"]),
            located("other", &["universal"]),
        ];
        let found = aliases(located("team", &["base", "other"]), find_in(types)).unwrap();
        assert_eq!(names(&found), ["base", "universal", "other", "team"]);
    }

    #[test]
    fn cycles_and_missing_types_are_errors() {
        let types = vec![located("a", &["b"]), located("b", &["c"]), located("c", &["b"])];
        let error = aliases(located("own", &["a"]), find_in(types)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "circular dependency detected in workspace type root:b: root:b -> root:c"
        );
        let error = aliases(located("own", &["own"]), |_| None).unwrap_err();
        assert_eq!(error.to_string(), "circular dependency detected in workspace type root:own: root:own");
        let error = aliases(located("own", &["gone"]), |_| None).unwrap_err();
        assert_eq!(error.to_string(), "unable to find inherited workspace type root:gone");
    }

    #[test]
    fn initializers_follow_the_aliases_and_default_bindings_come_last() {
        let mut universal = located("universal", &[]);
        universal.spec.initializer = true;
        universal.spec.default_api_bindings =
            vec![DefaultBinding { export: "tenancy.kcp.io".to_owned(), path: String::new() }];
        let mut team = located("team", &["universal"]);
        team.cluster = "2hzqkbz7v4xk1d0q".to_owned();
        team.spec.initializer = true;
        team.spec.terminator = true;
        let found = aliases(team, find_in(vec![universal])).unwrap();
        assert_eq!(initializers(&found), ["root:universal", "2hzqkbz7v4xk1d0q:team", "system:apibindings"]);
        assert_eq!(terminators(&found), ["2hzqkbz7v4xk1d0q:team"]);
        assert_eq!(
            default_bindings(&found),
            [DefaultBinding { export: "tenancy.kcp.io".to_owned(), path: "root".to_owned() }]
        );
        assert_eq!(initializers(&[located("plain", &[])]), Vec::<String>::new());
    }

    #[test]
    fn limits_apply_between_all_aliases() {
        let universal = located("universal", &[]);
        let mut root = located("root", &["universal"]);
        root.spec.limit_allowed_parents = none();
        let mut organization = located("organization", &["universal"]);
        organization.spec.limit_allowed_children = only(&["universal"]);
        organization.spec.limit_allowed_parents = only(&["root"]);
        let mut team = located("team", &["universal"]);
        team.spec.limit_allowed_parents = only(&["team", "organization"]);
        let mut special = located("special", &["team"]);
        special.spec.limit_allowed_children = none();
        let mut plain = located("plain", &[]);
        plain.path = "root:org".to_owned();
        let all = vec![universal.clone(), root.clone(), organization.clone(), team.clone(), special.clone()];
        let closure = |own: &LocatedType| aliases(own.clone(), find_in(all.clone())).unwrap();
        let cases = [
            (&root, &organization, None),
            (&organization, &team, None),
            (&team, &team, None),
            (&universal, &universal, None),
            (
                &universal,
                &team,
                Some(
                    "workspace type root:team only allows [root:organization root:team] parent workspaces, but parent \
                     type root:universal only implements [root:universal]",
                ),
            ),
            (&universal, &root, Some("workspace type root:root cannot have any parent")),
            (
                &universal,
                &special,
                Some(
                    "workspace type root:special extends root:team, which only allows [root:organization root:team] \
                     parent workspaces, but parent type root:universal only implements [root:universal]",
                ),
            ),
            (&special, &universal, Some("workspace type root:special cannot have any children")),
            (
                &organization,
                &plain,
                Some(
                    "workspace type root:organization only allows [root:universal] child workspaces, but child type \
                     root:org:plain only implements [root:org:plain]",
                ),
            ),
        ];
        for (parent, child, expected) in cases {
            let result = check_parent_and_child(&closure(parent), &closure(child));
            let text = result.err().map(|error| error.to_string());
            assert_eq!(text.as_deref(), expected, "{} in {}", child.name, parent.name);
        }
    }
}
