//! Paths of the cache server's API.

use std::borrow::Cow;

use fairlead_names::ResourceName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A resource of the cache server.
#[derive(Clone, Debug)]
pub(crate) struct CacheResource {
    /// Group and plural name.
    pub(crate) name: ResourceName,
    /// The version in which replicas are written and read.
    pub(crate) version: Cow<'static, str>,
}

impl CacheResource {
    pub(crate) fn new(group: &str, version: &'static str, resource: &str) -> Self {
        Self { name: ResourceName::new(group, resource), version: Cow::Borrowed(version) }
    }

    /// The resource that ClusterCachedResources with an identity publish.
    pub(crate) fn published(name: &ResourceName, version: &str, identity: &str) -> Self {
        // The core group has no segment below /apis.
        let group = if name.group.is_empty() { "core" } else { &name.group };
        let resource = format!("{}:{identity}", name.resource);
        Self { name: ResourceName::new(group, &resource), version: Cow::Owned(version.to_owned()) }
    }

    /// The path of the replicas in a shard's logical cluster; `*` stands for all.
    pub(crate) fn collection(&self, shard: &str, cluster: &str) -> String {
        let ResourceName { group, resource } = &self.name;
        format!("/services/cache/shards/{shard}/clusters/{cluster}/apis/{group}/{}/{resource}", self.version)
    }

    /// The path of one replica.
    pub(crate) fn object(&self, shard: &str, cluster: &str, name: &str) -> String {
        // Names of roles may contain almost any character.
        format!("{}/{}", self.collection(shard, cluster), utf8_percent_encode(name, UNRESERVED))
    }
}

/// An object that the cache server creates once in a new store. Its UID identifies the store.
pub(super) const STORE_IDENTITY_OBJECT: &str = "/services/cache/shards/system:cache:server/clusters/system:system-crds\
    /apis/apiextensions.k8s.io/v1/customresourcedefinitions/shards.core.kcp.io";

/// RFC 3986 unreserved characters, and the colon, are not escaped.
const UNRESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_have_a_path() {
        let roles = CacheResource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
        assert_eq!(
            roles.object("s1", "root", "system:a b?"),
            "/services/cache/shards/s1/clusters/root/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b%3F"
        );
        for (group, expected) in [("g.io", "g.io/v1/things:id"), ("", "core/v1/things:id")] {
            let published = CacheResource::published(&ResourceName::new(group, "things"), "v1", "id");
            assert_eq!(
                published.collection("s1", "c"),
                format!("/services/cache/shards/s1/clusters/c/apis/{expected}")
            );
        }
    }
}
