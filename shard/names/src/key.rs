//! The storage key codec: one layout in every backend.
//!
//! ```text
//! <prefix>/<group or "core">/<resource>/[<origin>/]<scope…>/[<namespace>/]<name>
//! ```
//!
//! The origin segment is missing for built-in resources, `customresources` for resources of local and
//! system CRDs, and the identity hash for bound resources. The scope is one segment in a shard (the
//! logical cluster) and two in the cache server (shard, logical cluster). So one range covers a
//! resource in one logical cluster, and one range covers it in all of them.

use core::fmt;
use std::sync::Arc;

/// The origin segment of resources that come from local and system CRDs.
pub const CUSTOM_RESOURCES: &str = "customresources";

/// A resource of a group, `workspaces.tenancy.kcp.io`; the core group is the empty string.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ResourceName {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The plural name.
    pub resource: Arc<str>,
}

impl ResourceName {
    /// Names a resource of a group.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// As Kubernetes writes it in messages: `configmaps`, `workspaces.tenancy.kcp.io`.
impl fmt::Display for ResourceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(formatter, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// Where the definition of a resource comes from; selects the storage range of its objects.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// Compiled into the server.
    BuiltIn,
    /// A CRD of this logical cluster, or a system CRD.
    Custom,
    /// Bound through an APIBinding; the identity hash of the export.
    Identity(Arc<str>),
}

impl Origin {
    /// The segment of storage keys; none for built-in resources.
    pub fn segment(&self) -> Option<&str> {
        match self {
            Self::BuiltIn => None,
            Self::Custom => Some(CUSTOM_RESOURCES),
            Self::Identity(hash) => Some(hash),
        }
    }
}

/// The parts of one decoded storage key, borrowed from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key<'a> {
    /// The API group, empty for core.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The origin segment, `None` for a built-in resource.
    pub origin: Option<&'a str>,
    /// The scope's segments joined by `/`.
    pub scope: &'a str,
    /// The namespace, `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The object's name.
    pub name: &'a str,
}

/// Writes and reads storage keys. Encoding costs one allocation, decoding none.
#[derive(Clone, Copy, Debug)]
pub struct KeyCodec {
    prefix: &'static str,
    scope_segments: usize,
    is_built_in: fn(group: &str, resource: &str) -> bool,
}

impl KeyCodec {
    /// A codec for keys below `prefix` (for example `/registry`) with `scope_segments` scope segments.
    /// Resources for which `is_built_in` is true have no origin segment.
    pub const fn new(
        prefix: &'static str,
        scope_segments: usize,
        is_built_in: fn(group: &str, resource: &str) -> bool,
    ) -> Self {
        Self { prefix, scope_segments, is_built_in }
    }

    /// The prefix of every key, without a trailing slash.
    pub fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// Whether a key begins with the prefix. Another server may have keys with another prefix in the same store.
    pub fn covers(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
    }

    /// The number of segments of a full scope.
    pub fn scope_segments(&self) -> usize {
        self.scope_segments
    }

    /// The key of one object. `scope` has exactly [`scope_segments`](Self::scope_segments) segments.
    pub fn object(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        scope: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> String {
        let mut key = self.range(resource, origin, scope, namespace);
        key.push_str(name);
        key
    }

    /// The prefix (ending in `/`) that all objects of a resource share: in all scopes when `scope` is
    /// empty, below a leading part of the scope, in one scope, or in one namespace of it.
    pub fn range(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        scope: &str,
        namespace: Option<&str>,
    ) -> String {
        let mut key = self.all_origins(resource);
        let scope = Some(scope).filter(|scope| !scope.is_empty());
        for segment in [origin.segment(), scope, namespace].into_iter().flatten() {
            key.push_str(segment);
            key.push('/');
        }
        key
    }

    /// The prefix (ending in `/`) of a resource in all origins, for partial metadata over all scopes.
    pub fn all_origins(&self, resource: &ResourceName) -> String {
        let group = if resource.group.is_empty() { "core" } else { &*resource.group };
        let mut key = String::with_capacity(160);
        for segment in [self.prefix, "/", group, "/", &*resource.resource, "/"] {
            key.push_str(segment);
        }
        key
    }

    /// Splits a key into its parts.
    ///
    /// # Errors
    /// [`KeyError`] when the key does not have the layout of this codec.
    pub fn decode<'a>(&self, key: &'a [u8]) -> Result<Key<'a>, KeyError> {
        self.split(key).ok_or_else(|| KeyError(String::from_utf8_lossy(key).into_owned()))
    }

    fn split<'a>(&self, key: &'a [u8]) -> Option<Key<'a>> {
        let text = core::str::from_utf8(key).ok()?.strip_prefix(self.prefix)?.strip_prefix('/')?;
        let (group, rest) = text.split_once('/')?;
        let (resource, rest) = rest.split_once('/')?;
        let group = if group == "core" { "" } else { group };
        let (origin, rest) = if (self.is_built_in)(group, resource) {
            (None, rest)
        } else {
            let (origin, rest) = rest.split_once('/')?;
            (Some(origin), rest)
        };
        let scope_end = rest.match_indices('/').nth(self.scope_segments.checked_sub(1)?)?.0;
        let (scope, rest) = (&rest[..scope_end], &rest[scope_end + 1..]);
        let (namespace, name) = match rest.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, rest),
        };
        (!name.is_empty() && !name.contains('/')).then_some(Key {
            group,
            resource,
            origin,
            scope,
            namespace,
            name,
        })
    }
}

/// A key of another layout: the store contains foreign data. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[error("the store holds a key of another layout: {0:?}")]
pub struct KeyError(String);

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: KeyCodec = KeyCodec::new("/registry", 1, |group, _| group.is_empty());
    const CACHE: KeyCodec = KeyCodec::new("/cache", 2, |_, _| false);

    #[test]
    fn keys_survive_the_round_trip() {
        let identity = Origin::Identity("abc123".into());
        for (codec, group, resource, origin, scope, namespace, name, text) in [
            (
                SHARD,
                "",
                "configmaps",
                Origin::BuiltIn,
                "root",
                Some("default"),
                "a",
                "/registry/core/configmaps/root/default/a",
            ),
            (SHARD, "", "namespaces", Origin::BuiltIn, "root", None, "a", "/registry/core/namespaces/root/a"),
            (
                SHARD,
                "core.kcp.io",
                "logicalclusters",
                Origin::Custom,
                "x1",
                None,
                "cluster",
                "/registry/core.kcp.io/logicalclusters/customresources/x1/cluster",
            ),
            (
                SHARD,
                "tenancy.kcp.io",
                "workspaces",
                identity,
                "root",
                None,
                "w",
                "/registry/tenancy.kcp.io/workspaces/abc123/root/w",
            ),
            (
                CACHE,
                "core.kcp.io",
                "shards",
                Origin::Custom,
                "s1/root",
                None,
                "s1",
                "/cache/core.kcp.io/shards/customresources/s1/root/s1",
            ),
        ] {
            let key = codec.object(&ResourceName::new(group, resource), &origin, scope, namespace, name);
            assert_eq!(key, text);
            let parts = codec.decode(key.as_bytes()).unwrap();
            let expected = Key { group, resource, origin: origin.segment(), scope, namespace, name };
            assert_eq!(parts, expected);
        }
    }

    #[test]
    fn ranges_end_in_a_slash_so_that_a_does_not_match_ab() {
        let resource = ResourceName::new("", "configmaps");
        assert_eq!(SHARD.range(&resource, &Origin::BuiltIn, "", None), "/registry/core/configmaps/");
        assert_eq!(SHARD.range(&resource, &Origin::BuiltIn, "a", None), "/registry/core/configmaps/a/");
        assert_eq!(
            SHARD.range(&resource, &Origin::BuiltIn, "a", Some("n")),
            "/registry/core/configmaps/a/n/"
        );
        let shards = ResourceName::new("core.kcp.io", "shards");
        assert_eq!(
            CACHE.range(&shards, &Origin::Custom, "s1", None),
            "/cache/core.kcp.io/shards/customresources/s1/"
        );
    }

    #[test]
    fn foreign_keys_are_errors() {
        for key in [
            "",
            "/registry",
            "/registry/core/configmaps",
            "/other/core/configmaps/root/a",
            "/registry/core/configmaps/root/",
            "/registry/core/configmaps/root/n/a/b",
        ] {
            assert!(SHARD.decode(key.as_bytes()).is_err(), "{key}");
        }
    }
}
