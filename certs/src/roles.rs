//! Roles in an installation: certificate authorities, servers, and clients with certificates.

use std::fmt;

use crate::ShardName;

/// A certificate authority. Each signs for one kind of trust only, so that a leaf cannot be used for another purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Authority {
    /// Signs serving certificates; kubeconfigs and servers that call other servers trust it.
    Serving,
    /// Signs identities: common name is the user, organisation is the group.
    Client,
    /// Signs the few clients that may assert *other* identities in request headers. A leaked key of such a client leaks every
    /// identity, so this authority is separate from [`Authority::Client`].
    RequestHeader,
}

impl Authority {
    /// All authorities, in the order in which they are issued.
    pub const ALL: [Self; 3] = [Self::Serving, Self::Client, Self::RequestHeader];

    /// The stem of its files, e.g. `client-ca`.
    #[must_use]
    pub fn file_stem(self) -> &'static str {
        match self {
            Self::Serving => "serving-ca",
            Self::Client => "client-ca",
            Self::RequestHeader => "requestheader-ca",
        }
    }

    /// The common name of its certificate.
    #[must_use]
    pub fn common_name(self) -> &'static str {
        match self {
            Self::Serving => "fairlead-serving-ca",
            Self::Client => "fairlead-client-ca",
            Self::RequestHeader => "fairlead-requestheader-ca",
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_stem())
    }
}

/// A process that listens with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Server {
    /// The front proxy.
    Gateway,
    /// One shard.
    Shard(ShardName),
    /// The cache server.
    Cache,
    /// The development issuer.
    Issuer,
    /// The development etcd.
    Etcd,
}

impl Server {
    /// The stem of its files. It contains the kind, so that a shard called `cache` and the cache have different files.
    #[must_use]
    pub fn file_stem(&self) -> String {
        match self {
            Self::Gateway => "gateway".to_owned(),
            Self::Shard(name) => format!("shard-{name}"),
            Self::Cache => "cache".to_owned(),
            Self::Issuer => "issuer".to_owned(),
            Self::Etcd => "etcd".to_owned(),
        }
    }

    pub(crate) fn common_name(&self) -> String {
        format!("fairlead-{}", self.file_stem())
    }
}

/// A holder of a client certificate. User and group names are those of kcp, for its clients and policies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Client {
    /// Used by the operator of the installation at the gateway.
    Admin,
    /// Used by the gateway's index at every shard.
    ShardAdmin,
    /// Used by a shard at another shard.
    LogicalClusterAdmin,
    /// Used by a shard at the gateway.
    ExternalLogicalClusterAdmin,
    /// Used by the gateway at a shard, for requests of its users: may assert identities in request headers.
    FrontProxy,
    /// Used in the same way for the listener that accepts only tokens, so that shards can distinguish its requests.
    FrontProxyEdge,
    /// Used by a shard at virtual workspaces.
    Shard(ShardName),
    /// Used by a shard at the gateway's placement endpoint. Separate from [`Client::Shard`], because a certificate of
    /// `system:masters` should not be presented to public listeners of the gateway.
    ShardPicker(ShardName),
    /// Used by shards at the cache server.
    Cache,
}

impl Client {
    /// The user name in the certificate; also the stem of its files.
    #[must_use]
    pub fn user_name(&self) -> String {
        match self {
            Self::Admin => "kcp-admin".to_owned(),
            Self::ShardAdmin => "shard-admin".to_owned(),
            Self::LogicalClusterAdmin => "logical-cluster-admin".to_owned(),
            Self::ExternalLogicalClusterAdmin => "external-logical-cluster-admin".to_owned(),
            Self::FrontProxy => "kcp-front-proxy".to_owned(),
            Self::FrontProxyEdge => "kcp-front-proxy-edge".to_owned(),
            Self::Shard(name) => format!("kcp-shard-{name}"),
            Self::ShardPicker(name) => format!("shard-{name}-picker"),
            Self::Cache => "cache-client".to_owned(),
        }
    }

    /// The group in the certificate.
    #[must_use]
    pub fn group(&self) -> Option<&'static str> {
        match self {
            Self::Admin => Some("system:kcp:admin"),
            Self::ShardAdmin | Self::Shard(_) | Self::Cache => Some("system:masters"),
            Self::LogicalClusterAdmin => Some("system:kcp:logical-cluster-admin"),
            Self::ExternalLogicalClusterAdmin => Some("system:kcp:external-logical-cluster-admin"),
            Self::FrontProxy | Self::FrontProxyEdge => None,
            Self::ShardPicker(_) => Some("system:fairlead:shard"),
        }
    }

    /// The authority that signs the certificate.
    #[must_use]
    pub fn signer(&self) -> Authority {
        match self {
            Self::FrontProxy | Self::FrontProxyEdge => Authority::RequestHeader,
            Self::Admin
            | Self::ShardAdmin
            | Self::LogicalClusterAdmin
            | Self::ExternalLogicalClusterAdmin
            | Self::Shard(_)
            | Self::ShardPicker(_)
            | Self::Cache => Authority::Client,
        }
    }
}
