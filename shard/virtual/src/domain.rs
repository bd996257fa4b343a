//! The path of a request to a virtual workspace: `/services/<name>/<domain>/clusters/<cluster>/…`.

use std::borrow::Cow;

use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ClusterName;

/// The path below which virtual workspaces are served.
pub const SERVICES: &str = "/services";

/// The domain and the logical clusters that a path names, after the name of its virtual workspace.
#[derive(Debug, Eq, PartialEq)]
pub struct DomainPath<'p> {
    /// The segments of the domain.
    pub domain: Vec<&'p str>,
    /// The logical clusters.
    pub scopes: ScopeSelector,
    /// The number of segments before the path within the logical cluster.
    pub length: usize,
}

impl<'p> DomainPath<'p> {
    /// Parses a domain of `count` segments and `clusters/<cluster>`, where the cluster is `*` or the name of a logical cluster.
    /// Paths of workspaces are not resolved here, as in kcp: they may be on another shard. `None`: it has another form.
    pub fn parse(segments: &'p [Cow<'_, str>], count: usize) -> Option<Self> {
        let (domain, rest) = segments.split_at_checked(count)?;
        let [clusters, cluster, ..] = rest else { return None };
        if &**clusters != "clusters" || domain.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let scopes = match &**cluster {
            "*" => ScopeSelector::all(),
            // `user:<name>` and `system:<name>` are no single segments either.
            name if !name.contains(':') => {
                ScopeSelector::One(Scope::new(ClusterName::parse(name).ok()?.as_str()))
            }
            _ => return None,
        };
        Some(Self { domain: domain.iter().map(|segment| &**segment).collect(), scopes, length: count + 2 })
    }
}

/// The raw path behind its first `count` segments: empty, or with a leading slash.
pub(crate) fn behind(path: &str, count: usize) -> &str {
    let mut rest = path;
    for _ in 0..count {
        let segment = rest.strip_prefix('/').unwrap_or(rest);
        rest = segment.find('/').map_or("", |end| &segment[end..]);
    }
    rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_apiserver::request::RequestPath;

    use super::*;

    #[test]
    fn a_path_names_a_domain_and_one_or_all_logical_clusters() {
        let one = |name: &str| Some(ScopeSelector::One(Scope::new(name)));
        for (path, count, domain, scopes) in [
            ("root:t/clusters/*/api", 1, &["root:t"][..], Some(ScopeSelector::all())),
            ("root:t/clusters/abc", 1, &["root:t"], one("abc")),
            ("root%3At/clusters/abc/apis", 1, &["root:t"], one("abc")),
            ("c/export/clusters/abc/apis", 2, &["c", "export"], one("abc")),
            ("clusters/abc/apis", 0, &[], one("abc")),
            ("root:t/clusters/root:org/api", 1, &[], None),
            ("root:t/clusters/user:alice/api", 1, &[], None),
            ("root:t/clusters/system:admin/api", 1, &[], None),
            ("root:t/clusters/A_b/api", 1, &[], None),
            ("root:t/clusters", 1, &[], None),
            ("root:t/api/v1", 1, &[], None),
            ("root:t", 1, &[], None),
            ("", 1, &[], None),
        ] {
            let parsed = RequestPath::parse(path).unwrap();
            let found = DomainPath::parse(parsed.segments(), count);
            assert_eq!(found.as_ref().map(|found| found.scopes.clone()), scopes, "{path}");
            assert_eq!(found.map(|found| found.domain).unwrap_or_default(), domain, "{path}");
        }
    }

    #[test]
    fn the_rest_of_a_path_keeps_its_escapes() {
        for (path, count, rest) in [
            ("/services/x/y/clusters/c/api/v1/a%2Cb/", 5, "/api/v1/a%2Cb/"),
            ("/services/x/y/clusters/c", 5, ""),
            ("/services/x/y/clusters/c/", 5, "/"),
            ("/a", 0, "/a"),
        ] {
            assert_eq!(behind(path, count), rest, "{path}");
        }
    }
}
