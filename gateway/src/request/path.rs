//! Parser of request paths. A path is decoded and cleaned exactly once.
//!
//! All later code uses one form of the path: the routing decision and the
//! forwarded bytes come from the same decoding, so that no second parser can disagree.

use std::borrow::Cow;
use std::fmt;

use fairlead_names::{home_cluster_name, is_dns_label};
use percent_encoding::{percent_decode_str, percent_encode};

use crate::request::clean::{
    ENCODED_EXCEPT_PERCENT, check_bytes, clean, decode, encode, is_clean, is_clean_bytes, is_plain,
};
use crate::request::path_error::PathError;

/// A parsed request path, before any look-up.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum RequestPath<'a> {
    /// `/clusters/<reference>[/rest]`.
    Cluster(ClusterTarget<'a>),
    /// Any other path: forwarded unchanged, if there is a mapping for it.
    Other(OtherPath<'a>),
    /// An endpoint of the gateway itself.
    Local(LocalEndpoint),
}

/// Whether paths below `/clusters/` are resolved to the shards of logical clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClusterPaths {
    /// They are resolved.
    Resolved,
    /// They are ordinary paths, because the mapping file does not map `/clusters/`.
    Ordinary,
}

/// A path below `/clusters/`.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct ClusterTarget<'a> {
    /// The logical cluster, by id or by workspace path.
    pub(crate) reference: Reference<'a>,
    /// The rest of the path in canonical percent-encoding: empty, or beginning with `/`.
    pub(crate) rest: Cow<'a, str>,
}

/// A clean path that is neither below `/clusters/` nor local.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OtherPath<'a> {
    /// The path as the client wrote it.
    pub(crate) raw: &'a str,
}

/// Endpoints of the gateway itself. Exact paths only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LocalEndpoint {
    /// `/livez`, `/livez/ping`.
    Live,
    /// `/readyz`, `/readyz/informer-sync`.
    Ready,
    /// `/metrics`.
    Metrics,
    /// A file at `/services/fairlead/admin/`.
    Admin(AdminFile),
    /// `/services/fairlead/v1/explain`.
    Explain,
    /// `/services/fairlead/v1/stats`.
    Stats,
    /// `/services/fairlead/v1/shard-picks`.
    ShardPicks,
    /// `/services/fairlead/v1/status`.
    Status,
    /// `/services/fairlead/v1/tail`.
    Tail,
    /// `/services/fairlead/v1/top`.
    Top,
}

/// Files of the admin page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AdminFile {
    /// The address without the trailing slash, which is redirected.
    Redirect,
    Page,
    Style,
    Script,
}

/// A valid reference to a logical cluster: labels joined by colons, of which the first is the id
/// of a logical cluster. `user:<name>` has already been replaced by the home cluster's id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reference<'a>(Cow<'a, str>);

impl<'a> RequestPath<'a> {
    /// Parses the path of a request target. A path that is already plain and clean (as kubectl and
    /// client-go send it) costs one pass and no allocation.
    ///
    /// # Errors
    /// [`PathError`]; its variants document the responses.
    pub(crate) fn parse(raw: &'a str, clusters: ClusterPaths) -> Result<Self, PathError> {
        if !raw.starts_with('/') {
            return Err(PathError::Malformed("it does not begin with a slash"));
        }
        check_bytes(raw)?;
        if !is_clean(raw) {
            let cleaned = clean(raw.as_bytes());
            return Err(PathError::Unclean(percent_encode(&cleaned, ENCODED_EXCEPT_PERCENT).to_string()));
        }
        if clusters == ClusterPaths::Resolved
            && let Some(below) = raw.strip_prefix("/clusters/")
            && !below.starts_with('/')
            && !below.is_empty()
        {
            return Self::parse_cluster(raw, below);
        }
        if let Some(endpoint) = LocalEndpoint::parse(raw) {
            return Ok(Self::Local(endpoint));
        }
        if raw.contains('%') {
            let decoded = decode(raw);
            if !is_clean_bytes(&decoded) {
                return Err(PathError::Unclean(encode(&clean(&decoded))));
            }
        }
        Ok(Self::Other(OtherPath { raw }))
    }

    fn parse_cluster(raw: &'a str, below: &'a str) -> Result<Self, PathError> {
        let (segment, rest) = match below.find('/') {
            Some(end) => below.split_at(end),
            None => (below, ""),
        };
        let reference = Reference::parse_encoded(segment)?;
        // `/clusters/x/` and `/clusters/x` are the same resource; a trailing slash of a longer path is kept.
        if rest.len() <= 1 {
            let rest = Cow::Borrowed("");
            return Ok(Self::Cluster(ClusterTarget { reference, rest }));
        }
        let rest = if is_plain(rest) {
            Cow::Borrowed(rest)
        } else {
            let decoded = decode(rest);
            if !is_clean_bytes(&decoded) {
                return Err(PathError::Unclean(encode(&clean(&decode(raw)))));
            }
            Cow::Owned(encode(&decoded))
        };
        Ok(Self::Cluster(ClusterTarget { reference, rest }))
    }
}

/// The logical cluster that a path names after the prefix of its mapping: the segment after `clusters`, but only before
/// an `api` or `apis` segment, because after it `clusters` may be a resource of an API group. `None` for a wildcard and
/// for a path without a logical cluster.
///
/// # Errors
/// [`PathError::InvalidCluster`] for a segment that cannot name a logical cluster.
pub(crate) fn cluster_below_prefix(below: &str) -> Result<Option<Reference<'_>>, PathError> {
    let found = cluster_in(below)?;
    // A backend that decodes the path first might find another logical cluster.
    if below.contains('%') {
        let decoded = decode(below);
        let decoded = String::from_utf8_lossy(&decoded);
        let meant = cluster_in(&decoded).map(|meant| meant.map(|meant| meant.to_string()));
        if meant != Ok(found.as_ref().map(ToString::to_string)) {
            return Err(PathError::InvalidCluster(below.to_owned()));
        }
    }
    Ok(found)
}

fn cluster_in(below: &str) -> Result<Option<Reference<'_>>, PathError> {
    let mut segments = below.split('/');
    while let Some(segment) = segments.next() {
        match segment {
            "api" | "apis" => break,
            "clusters" => return Reference::parse_or_wildcard(segments.next().unwrap_or_default()),
            _ => {}
        }
    }
    Ok(None)
}

/// The path below `/clusters/<cluster>` for a path that names no logical cluster, joined and cleaned as Go's `path.Join` does,
/// which drops a trailing slash. An invalid cluster name results in a path that is refused later.
pub(crate) fn cluster_path(cluster: &str, path: &str) -> String {
    let joined = [b"/clusters/", cluster.as_bytes(), &decode(path)].concat();
    let mut cleaned = clean(&joined);
    if cleaned.len() > 1 && cleaned.ends_with(b"/") {
        cleaned.pop();
    }
    encode(&cleaned)
}

impl LocalEndpoint {
    /// The endpoint at exactly this path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        Some(match path {
            "/livez" | "/livez/ping" => Self::Live,
            "/readyz" | "/readyz/informer-sync" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/services/fairlead/admin" => Self::Admin(AdminFile::Redirect),
            "/services/fairlead/admin/" => Self::Admin(AdminFile::Page),
            "/services/fairlead/admin/style.css" => Self::Admin(AdminFile::Style),
            "/services/fairlead/admin/script.js" => Self::Admin(AdminFile::Script),
            "/services/fairlead/v1/explain" => Self::Explain,
            "/services/fairlead/v1/stats" => Self::Stats,
            "/services/fairlead/v1/shard-picks" => Self::ShardPicks,
            "/services/fairlead/v1/status" => Self::Status,
            "/services/fairlead/v1/tail" => Self::Tail,
            "/services/fairlead/v1/top" => Self::Top,
            _ => return None,
        })
    }
}

impl<'a> Reference<'a> {
    /// Parses a decoded reference: a logical cluster's id or a workspace path.
    ///
    /// # Errors
    /// [`PathError::InvalidCluster`] for anything else, `*` included.
    pub(crate) fn parse(text: impl Into<Cow<'a, str>>) -> Result<Self, PathError> {
        let text = text.into();
        if !text.split(':').all(is_dns_label) {
            return Err(PathError::InvalidCluster(text.into_owned()));
        }
        let Some(below) = text.strip_prefix("user:") else {
            return Ok(Self(text));
        };
        let (user, below) = below.split_once(':').map_or((below, None), |(user, below)| (user, Some(below)));
        let home = home_cluster_name(user);
        Ok(Self(Cow::Owned(match below {
            None => home,
            Some(below) => format!("{home}:{below}"),
        })))
    }

    /// The root logical cluster of the workspace tree.
    pub(crate) fn root() -> Reference<'static> {
        Reference(Cow::Borrowed("root"))
    }

    /// Parses an encoded segment. `None` for an empty segment and for the wildcard.
    ///
    /// # Errors
    /// [`PathError::InvalidCluster`] for an invalid reference.
    pub(crate) fn parse_or_wildcard(segment: &'a str) -> Result<Option<Self>, PathError> {
        match segment {
            "" | "*" | "%2A" | "%2a" => Ok(None),
            name => Self::parse_encoded(name).map(Some),
        }
    }

    /// Parses an encoded segment.
    ///
    /// # Errors
    /// [`PathError::InvalidCluster`] for an invalid reference.
    pub(crate) fn parse_encoded(segment: &'a str) -> Result<Self, PathError> {
        if !segment.contains('%') {
            return Self::parse(segment);
        }
        match percent_decode_str(segment).decode_utf8() {
            Ok(text) => Self::parse(text),
            Err(_) => Err(PathError::InvalidCluster(segment.to_owned())),
        }
    }

    /// The first label, which is an id, and the names after it.
    pub(crate) fn labels(&self) -> (&str, impl Iterator<Item = &str>) {
        let mut labels = self.0.split(':');
        (labels.next().unwrap_or_default(), labels)
    }

    /// Whether the first label has the form of a generated id (kcp's have 16 base-36 characters; home clusters
    /// have 11 to 13), so that the index may not have seen it yet.
    pub(crate) fn is_id_shaped(&self) -> bool {
        let (top, _) = self.labels();
        (11..=16).contains(&top.len()) && top.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    /// The outcome as one line, so that a table of paths reads like the specification.
    fn outcome(raw: &str) -> String {
        match RequestPath::parse(raw, ClusterPaths::Resolved) {
            Ok(RequestPath::Cluster(target)) => format!("cluster {} {}", target.reference, target.rest),
            Ok(RequestPath::Other(_)) => "other".into(),
            Ok(RequestPath::Local(endpoint)) => format!("local {endpoint:?}"),
            Err(PathError::Malformed(reason)) => format!("400 {reason}"),
            Err(PathError::Unclean(location)) => format!("307 {location}"),
            Err(PathError::InvalidCluster(name)) => format!("403 {name}"),
        }
    }

    #[test]
    fn paths_below_clusters() {
        for (raw, expected) in [
            ("/clusters/root", "cluster root "),
            ("/clusters/root/", "cluster root "),
            ("/clusters/root/api/v1/namespaces", "cluster root /api/v1/namespaces"),
            ("/clusters/root/api/v1/", "cluster root /api/v1/"),
            ("/clusters/root:org:team/apis", "cluster root:org:team /apis"),
            ("/clusters/root%3Aorg/api", "cluster root:org /api"),
            ("/clusters/user:alice/api", "cluster v1u4alow0iv9 /api"),
            ("/clusters/user:alice:a:b/api", "cluster v1u4alow0iv9:a:b /api"),
            ("/clusters/user/api", "cluster user /api"),
            ("/clusters/system:admin/api", "cluster system:admin /api"),
            // The canonical encoding is forwarded.
            ("/clusters/root/a%20b", "cluster root /a%20b"),
            ("/clusters/root/a%3Ab%2Fc", "cluster root /a:b/c"),
            ("/clusters/root/a%2fb%25c", "cluster root /a/b%25c"),
            ("/clusters/root/%61pi", "cluster root /api"),
            ("/clusters/root/{x}", "cluster root /%7Bx%7D"),
            ("/clusters/root/\u{e4}", "cluster root /%C3%A4"),
            ("/clusters/root/%ff", "cluster root /%FF"),
            ("/clusters/root/a*b!c'(d)", "cluster root /a*b!c'(d)"),
            // Only the first reference counts.
            ("/clusters/a/clusters/b/api", "cluster a /clusters/b/api"),
            ("/clusters", "other"),
            ("/clusters/", "other"),
            ("/clusters%2Froot/api", "other"),
        ] {
            assert_eq!(outcome(raw), expected, "{raw}");
        }
    }

    #[test]
    fn references_that_cannot_name_a_cluster() {
        let long = "a".repeat(64);
        for name in
            ["*", "Root", "a.b", "a::b", ":a", "a:", "-a", "a-", "a%2Fb", "a%2F..%2Fb", "%ff", "~", &long]
        {
            let outcome = outcome(&format!("/clusters/{name}/api"));
            assert!(outcome.starts_with("403 "), "{name}: {outcome}");
        }
    }

    #[test]
    fn unclean_paths_are_redirected() {
        for (raw, expected) in [
            ("/clusters/root//api", "307 /clusters/root/api"),
            ("//clusters/root/api", "307 /clusters/root/api"),
            ("/clusters/root/./api/", "307 /clusters/root/api/"),
            ("/clusters/root/../other/api", "307 /clusters/other/api"),
            ("/clusters/../metrics", "307 /metrics"),
            ("/..", "307 /"),
            ("/clusters/root/%2e%2e/root/version", "307 /clusters/root/version"),
            ("/clusters/root/%2E%2E/%2e%2e/%2e%2e/metrics", "307 /metrics"),
            ("/clusters/root/a%2F%2Fb", "307 /clusters/root/a/b"),
            ("/clusters/root/a%2F..%2Fb", "307 /clusters/root/b"),
            ("/clusters/a%2Fb//x%20y", "307 /clusters/a%2Fb/x%20y"),
            ("/services/x/%2e%2e/y", "307 /services/y"),
            ("//evil.example/x", "307 /evil.example/x"),
            ("/\\evil.example//x", "307 /%5Cevil.example/x"),
        ] {
            assert_eq!(outcome(raw), expected, "{raw}");
        }
    }

    #[test]
    fn malformed_paths() {
        for raw in [
            "",
            "*",
            "clusters/root",
            "/clusters/root/%00",
            "/a\u{0}b",
            "/a\u{7f}",
            "/%0d%0aX:y",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
        ] {
            let outcome = outcome(raw);
            assert!(outcome.starts_with("400 "), "{raw:?}: {outcome}");
        }
    }

    #[test]
    fn local_endpoints_are_exact() {
        for (raw, expected) in [
            ("/services/fairlead/v1/shard-picks", "local ShardPicks"),
            ("/services/fairlead/v1/status", "local Status"),
            ("/services/fairlead/v1/top", "local Top"),
            ("/livez", "local Live"),
            ("/livez/ping", "local Live"),
            ("/readyz", "local Ready"),
            ("/readyz/informer-sync", "local Ready"),
            ("/metrics", "local Metrics"),
            ("/metrics/", "other"),
            ("/livez/", "other"),
            ("/readyz/foo", "other"),
            ("/healthz", "other"),
            ("/api", "other"),
            ("/services", "other"),
            ("/", "other"),
        ] {
            assert_eq!(outcome(raw), expected, "{raw}");
        }
    }

    #[test]
    fn a_cluster_is_found_behind_a_prefix() {
        for (below, expected) in [
            ("/apiexport/abc/x/clusters/*/apis/a/v1/b", "none"),
            ("/apiexport/abc/x/clusters/root:org/apis/a/v1/b", "root:org"),
            ("/apiexport/abc/x/clusters/Root/api", "403"),
            ("/apiexport", "none"),
            ("/x/clusters", "none"),
            // A resource named `clusters` is not a logical cluster.
            ("/x/apis/cluster.x-k8s.io/v1/namespaces/n/clusters/foo_bar", "none"),
            ("/apiexport/%63lusters/foo", "403"),
            ("/apiexport/clusters%2Ffoo", "403"),
            ("/apiexport/clusters/f%6fo", "foo"),
            ("/apiexport/%20/clusters/foo/x", "foo"),
            ("/apiexport/clusters/foo/apis/%63lusters/bar", "foo"),
        ] {
            let found = match cluster_below_prefix(below) {
                Ok(Some(reference)) => reference.to_string(),
                Ok(None) => "none".to_owned(),
                Err(_) => "403".to_owned(),
            };
            assert_eq!(found, expected, "{below}");
        }
    }

    #[test]
    fn a_path_without_a_cluster_is_put_below_one() {
        for (cluster, path, expected) in [
            ("abc", "/api/v1/pods", "/clusters/abc/api/v1/pods"),
            ("abc", "/version/", "/clusters/abc/version"),
            ("abc", "/a%20b", "/clusters/abc/a%20b"),
            ("../services", "/x", "/services/x"),
            ("a b", "/x", "/clusters/a%20b/x"),
            ("..", "/", "/"),
        ] {
            assert_eq!(cluster_path(cluster, path), expected, "{cluster} {path}");
        }
    }

    #[test]
    fn clusters_paths_are_ordinary_when_they_are_not_resolved() {
        for raw in ["/clusters/root", "/clusters/*/api", "/clusters/Root/x"] {
            let parsed = RequestPath::parse(raw, ClusterPaths::Ordinary);
            assert_eq!(parsed, Ok(RequestPath::Other(OtherPath { raw })));
        }
    }

    #[test]
    fn a_plain_path_is_not_copied() {
        let raw = "/clusters/root:org/api/v1/namespaces";
        let RequestPath::Cluster(target) = RequestPath::parse(raw, ClusterPaths::Resolved).unwrap() else {
            panic!("not a cluster path");
        };
        assert!(matches!(target.rest, Cow::Borrowed(_)));
        assert!(matches!(target.reference, Reference(Cow::Borrowed(_))));
    }

    #[test]
    fn generated_ids_are_distinguished_from_names() {
        for (text, expected) in [
            ("2hzqkbz7v4xk1d0q", true),
            ("v1u4alow0iv9:a", true),
            ("root", false),
            ("system:admin", false),
            ("my-workspace-one", false),
        ] {
            assert_eq!(Reference::parse(text).unwrap().is_id_shaped(), expected, "{text}");
        }
    }

    proptest! {
        /// A forwarded path is clean, parsing it again gives the same path, and it holds nothing that a second parser could read
        /// differently.
        #[test]
        fn forwarded_paths_are_canonical(raw in "/(clusters|services)/[a-z:%/.2efE\\\\0-9 ]{0,40}") {
            match RequestPath::parse(&raw, ClusterPaths::Resolved) {
                Ok(RequestPath::Cluster(target)) => {
                    let forwarded = format!("/clusters/id{}", target.rest);
                    prop_assert!(is_clean_bytes(&decode(&forwarded)), "{forwarded}");
                    let RequestPath::Cluster(again) = RequestPath::parse(&forwarded, ClusterPaths::Resolved).unwrap() else {
                        return Err(TestCaseError::fail("changed its kind"));
                    };
                    prop_assert_eq!(again.rest, target.rest);
                }
                Err(PathError::Unclean(location)) => {
                    prop_assert!(location.starts_with('/') && !location.starts_with("//"));
                    prop_assert!(!matches!(RequestPath::parse(&location, ClusterPaths::Resolved), Err(PathError::Unclean(_))), "{location}");
                }
                _ => {}
            }
        }
    }
}
