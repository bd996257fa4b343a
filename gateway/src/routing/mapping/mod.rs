//! Path mappings: path prefixes and their targets, from kcp's mapping file or built in.

mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod live;
mod pattern;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use fairlead_client::Endpoint;
use fairlead_config::ServicesPolicy;

use crate::request::ClusterPaths;
use crate::request::identity_headers::{IdentityHeaderNames, TrustedIdentityHeaders};
use crate::upstream::BackendSpec;
pub(crate) use file::BackendUrl;
pub(crate) use live::{LivePathMappings, RootPathPolicy};
use pattern::{Pattern, PatternMatch};

/// Earlier sets of trusted headers kept separately. Older ones are merged into the oldest kept set. The merge only strips more
/// headers from requests that began before that many changes.
const MAX_EARLIER_SETS: usize = 64;

/// All current path mappings. Immutable: a changed file creates a new value.
#[derive(Clone, Debug)]
pub(crate) struct PathMappings {
    /// Whether `/clusters/` is routed to shards.
    pub(crate) clusters: ClusterPaths,
    /// Names of the identity headers for shards, if they differ from the defaults.
    pub(crate) shard_identity_header_names: Option<Arc<IdentityHeaderNames>>,
    /// Headers that backends or listeners trust for identity, in addition to the defaults.
    trusted: Option<Arc<TrustedIdentityHeaders>>,
    /// Earlier values of `trusted`, each with the time when it was replaced; the latest last.
    earlier_trusted_headers: Arc<Vec<(Instant, Arc<TrustedIdentityHeaders>)>>,
    /// All mappings, more specific ones first.
    mappings: Vec<Mapping>,
}

/// A path pattern and its target.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pattern: Pattern,
    /// The server or virtual workspaces behind the pattern.
    pub(crate) target: Target,
    /// Names of the identity headers for the target, if they differ from the defaults.
    pub(crate) identity_header_names: Option<Arc<IdentityHeaderNames>>,
}

/// The target of a mapping.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A server.
    Backend(Backend),
    /// The virtual workspaces of shards.
    Services(ServicesPolicy),
}

/// A server, with a prefix for the path and the query of requests.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    /// The server's address and credential.
    pub(crate) spec: BackendSpec,
    url: BackendUrl,
}

impl PathMappings {
    /// The mappings without a mapping file.
    pub(crate) fn built_in(services: ServicesPolicy) -> Self {
        let mut mappings = Vec::new();
        if services != ServicesPolicy::Refuse
            && let Ok(pattern) = Pattern::parse("/services/")
        {
            mappings.push(Mapping {
                pattern,
                target: Target::Services(services),
                identity_header_names: None,
            });
        }
        Self {
            clusters: ClusterPaths::Resolved,
            shard_identity_header_names: None,
            trusted: None,
            earlier_trusted_headers: Arc::default(),
            mappings,
        }
    }

    /// Adds the headers that listeners trust.
    fn with_listener_headers(mut self, listeners: &TrustedIdentityHeaders) -> Self {
        let mut trusted = listeners.clone();
        let backends = self.mappings.iter().filter_map(|mapping| mapping.identity_header_names.as_deref());
        for names in backends.chain(self.shard_identity_header_names.as_deref()) {
            trusted.add_backend(names);
        }
        self.trusted = (!trusted.is_empty()).then(|| Arc::new(trusted));
        self
    }

    /// Carries over the trusted headers of the value that this one replaces. A request that is being authenticated may still be
    /// authenticated with those headers. When the configuration changes, listeners first stop trusting a header; only then
    /// it is removed here.
    fn with_history_of(mut self, before: &Self) -> Self {
        let mut all = Vec::clone(&before.earlier_trusted_headers);
        if let Some(trusted) = before.trusted.as_ref().filter(|_| before.trusted != self.trusted) {
            all.push((Instant::now(), Arc::clone(trusted)));
        }
        if all.len() > MAX_EARLIER_SETS {
            let (_, oldest) = all.remove(0);
            Arc::make_mut(&mut all[0].1).extend(&oldest);
        }
        self.earlier_trusted_headers = Arc::new(all);
        self
    }

    /// The headers that a listener or backend trusted for identity at any time since `began`. The request was authenticated
    /// with some of them, however often the configuration has changed since. Without such headers this costs two loads.
    pub(crate) fn trusted_headers_since(&self, began: Instant) -> Option<Arc<TrustedIdentityHeaders>> {
        let before = self.earlier_trusted_headers.iter().rev();
        let mut all = self.trusted.clone();
        for (_, trusted) in before.take_while(|(until, _)| *until >= began) {
            match &mut all {
                Some(all) => Arc::make_mut(all).extend(trusted),
                None => all = Some(Arc::clone(trusted)),
            }
        }
        all
    }

    /// The most specific mapping for a clean path. Linear in the number of mappings, which is small.
    pub(crate) fn find<'p>(&self, path: &'p str) -> Option<(&Mapping, PatternMatch<'p>)> {
        self.mappings.iter().find_map(|mapping| Some((mapping, mapping.pattern.matches(path)?)))
    }

    /// Whether `/services/` is mapped to this server, for all shards.
    pub(crate) fn maps_services_to(&self, server: &Endpoint) -> bool {
        let target = self.find("/services/").map(|(mapping, _)| &mapping.target);
        let Some(Target::Backend(backend)) = target else { return false };
        Endpoint::parse(&backend.spec.url)
            .is_ok_and(|backend| (backend.host(), backend.port()) == (server.host(), server.port()))
    }

    fn has_root_beside_clusters(&self) -> bool {
        self.clusters == ClusterPaths::Resolved
            && self.mappings.iter().any(|mapping| mapping.pattern.is_root())
    }

    fn new(
        clusters: ClusterPaths,
        shard_identity_header_names: Option<Arc<IdentityHeaderNames>>,
        mut mappings: Vec<Mapping>,
    ) -> Self {
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.pattern.specificity()));
        Self {
            clusters,
            shard_identity_header_names,
            trusted: None,
            earlier_trusted_headers: Arc::default(),
            mappings,
        }
    }
}

impl Target {
    /// The server, if the target is one.
    pub(crate) fn backend(&self) -> Option<&Backend> {
        match self {
            Self::Backend(backend) => Some(backend),
            Self::Services(_) => None,
        }
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Backend(backend) => write!(formatter, "{} leads to {}", self.pattern, backend.spec.url),
            Target::Services(ServicesPolicy::RootShard) => {
                write!(formatter, "{} leads to the root shard's virtual workspaces", self.pattern)
            }
            Target::Services(_) => {
                write!(
                    formatter,
                    "{} leads to the virtual workspaces of the shard of its logical cluster",
                    self.pattern
                )
            }
        }
    }
}

impl Backend {
    /// Path and query of the upstream request: the backend's own path and query, then the request's whole path and query.
    pub(crate) fn path_and_query(&self, path: &str, query: Option<&str>) -> String {
        let queries: Cow<'_, str> = match (self.url.query(), query) {
            (None, None) => Cow::Borrowed(""),
            (Some(one), None) | (None, Some(one)) => Cow::Owned(format!("?{one}")),
            (Some(own), Some(given)) => Cow::Owned(format!("?{own}&{given}")),
        };
        format!("{}{path}{queries}", self.url.path())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn headers_trusted_at_any_time_since_a_request_began_apply_to_it() {
        let trust = |name: &str| {
            let mut trusted = TrustedIdentityHeaders::default();
            trusted.add_name(name);
            trusted
        };
        let paths = LivePathMappings::built_in(ServicesPolicy::Refuse);
        let is_trusted = |began, name: &'static str| {
            let trusted = paths.load().trusted_headers_since(began);
            trusted.is_some_and(|trusted| trusted.contains(&http::HeaderName::from_static(name)))
        };
        let began = Instant::now();
        paths.set_listener_trusted_headers(trust("x-first"));
        assert!(is_trusted(Instant::now(), "x-first") && !is_trusted(began, "x-second"));
        for _ in 0..1000 {
            paths.set_listener_trusted_headers(trust("x-second"));
            paths.set_listener_trusted_headers(TrustedIdentityHeaders::default());
        }
        let later = Instant::now();
        assert!(is_trusted(began, "x-first") && is_trusted(began, "x-second"));
        assert!(!is_trusted(later, "x-first") && !is_trusted(later, "x-second"));
        assert!(paths.load().earlier_trusted_headers.len() <= MAX_EARLIER_SETS);
        // A replaced mapping file keeps the earlier headers.
        paths.set_built_in(ServicesPolicy::Refuse);
        assert!(is_trusted(began, "x-first") && !is_trusted(later, "x-first"));
    }

    fn backend(name: &str, url: &str) -> Target {
        let url = BackendUrl::parse(url).unwrap();
        let spec = BackendSpec { name: name.into(), url: url.origin().into(), credential: None };
        Target::Backend(Backend { spec, url })
    }

    #[test]
    fn the_most_specific_mapping_wins() {
        let names = ["/", "/a/", "/a/{cluster}/", "/a/b/", "/a/b/c/", "/services/"];
        let mappings = names.map(|path| Mapping {
            pattern: Pattern::parse(path).unwrap(),
            target: backend(path, "https://x"),
            identity_header_names: None,
        });
        let paths = PathMappings::new(ClusterPaths::Ordinary, None, mappings.into());
        for (path, expected) in [
            ("/", "/"),
            ("/x", "/"),
            ("/a", "/a/"),
            ("/a/x", "/a/{cluster}/"),
            ("/a/b", "/a/b/"),
            ("/a/b/x", "/a/b/"),
            ("/a/b/c/d", "/a/b/c/"),
            ("/services", "/services/"),
            ("/clusters/root", "/"),
        ] {
            let (mapping, _) = paths.find(path).unwrap();
            assert_eq!(mapping.pattern, Pattern::parse(expected).unwrap(), "{path}");
        }
    }

    #[test]
    fn a_services_mapping_to_a_single_server_is_detected() {
        let root = Endpoint::parse("https://root:6444").unwrap();
        for (path, url, expected) in [
            ("/services/", "https://root:6444/", true),
            ("/services", "https://root:6444/base", true),
            ("/", "https://root:6444", true),
            ("/services/", "https://root", false),
            ("/services/", "https://virtual-workspaces:6444", false),
            ("/services/apiexport/", "https://root:6444", false),
            ("/e2e/", "https://root:6444", false),
        ] {
            let pattern = Pattern::parse(path).unwrap();
            let mapping = Mapping { pattern, target: backend(path, url), identity_header_names: None };
            let paths = PathMappings::new(ClusterPaths::Resolved, None, vec![mapping]);
            assert_eq!(paths.maps_services_to(&root), expected, "{path} to {url}");
        }
        assert!(!PathMappings::built_in(ServicesPolicy::OwningShard).maps_services_to(&root));
    }

    #[test]
    fn a_backend_keeps_its_own_path_and_query() {
        for (url, path, query, expected) in [
            ("https://x", "/a/b", None, "/a/b"),
            ("https://x/", "/a/b", Some("c=d"), "/a/b?c=d"),
            ("https://x/base/", "/a%2Fb/", None, "/base/a%2Fb/"),
            ("https://x/base?e=f", "/a", Some("c=d;g"), "/base/a?e=f&c=d;g"),
            ("https://x?e=f", "/a", None, "/a?e=f"),
        ] {
            let Target::Backend(backend) = backend("x", url) else { unreachable!() };
            assert_eq!(backend.path_and_query(path, query), expected, "{url} {path}");
        }
    }
}
