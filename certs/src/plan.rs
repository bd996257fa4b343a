//! The plan of keys and certificates: a pure function of the inventory.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

use crate::{Authority, CertificateFiles, Client, Host, Inventory, Layout, Server};

/// Lifetime of a new authority: long enough to rotate it in time.
pub(crate) const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Lifetime of a new leaf.
pub(crate) const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// All keys and certificates of an installation, authorities first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    items: Vec<Item>,
}

/// A key or certificate of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A self-signed authority: its key and its trust bundle.
    Authority(Authority),
    /// The key pair of service-account tokens, shared by all shards.
    ServiceAccountKey,
    /// A certificate and its key.
    Leaf(Leaf),
}

/// A planned leaf certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The holder, which determines the key usage.
    pub usage: Usage,
    /// The authority that signs it.
    pub signer: Authority,
    /// The subject's common name; the user name of a client.
    pub common_name: String,
    /// The subject's organisation; the group of a client.
    pub organization: Option<String>,
    /// The names of a server. Empty for clients.
    pub hosts: BTreeSet<Host>,
}

/// The extended key usage of a leaf, exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// `serverAuth`, for a server.
    Serving(Server),
    /// `clientAuth`, for a client.
    Client(Client),
}

impl Plan {
    /// The plan for an installation. Equal inventories give equal plans.
    #[must_use]
    pub fn for_inventory(inventory: &Inventory) -> Self {
        let shards = || inventory.shards.iter().cloned();
        let hosts: BTreeSet<Host> = inventory.hosts.iter().cloned().chain(local_hosts()).collect();

        let servers = [Server::Gateway, Server::Cache].into_iter().chain(shards().map(Server::Shard));
        let servers = servers.chain(inventory.has_issuer.then_some(Server::Issuer));
        let servers = servers.chain(inventory.has_etcd.then_some(Server::Etcd));
        let clients = [
            Client::Admin,
            Client::ShardAdmin,
            Client::LogicalClusterAdmin,
            Client::ExternalLogicalClusterAdmin,
            Client::FrontProxy,
            Client::FrontProxyEdge,
            Client::Cache,
        ]
        .into_iter()
        .chain(shards().flat_map(|name| [Client::Shard(name.clone()), Client::ShardPicker(name)]));

        let items = Authority::ALL
            .into_iter()
            .map(Item::Authority)
            .chain([Item::ServiceAccountKey])
            .chain(servers.map(|server| Item::Leaf(Leaf::serving(server, hosts.clone()))))
            .chain(clients.map(|client| Item::Leaf(Leaf::client(client))))
            .collect();
        Self { items }
    }

    /// The items, in the order in which they are issued.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }
}

impl Item {
    /// The file in the report: the certificate, or the public key of a key pair.
    #[must_use]
    pub fn file(&self, layout: &Layout) -> PathBuf {
        match self {
            Self::Authority(authority) => layout.trust(*authority),
            Self::ServiceAccountKey => layout.service_account_keys().verification_keys,
            Self::Leaf(leaf) => leaf.files(layout).certificate,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority(authority) => authority.fmt(f),
            Self::ServiceAccountKey => f.write_str("service-account key"),
            Self::Leaf(leaf) => leaf.fmt(f),
        }
    }
}

impl Leaf {
    fn serving(server: Server, hosts: BTreeSet<Host>) -> Self {
        Self {
            signer: Authority::Serving,
            common_name: server.common_name(),
            organization: None,
            hosts,
            usage: Usage::Serving(server),
        }
    }

    fn client(client: Client) -> Self {
        Self {
            signer: client.signer(),
            common_name: client.user_name(),
            organization: client.group().map(str::to_owned),
            hosts: BTreeSet::new(),
            usage: Usage::Client(client),
        }
    }

    /// The paths of its files.
    #[must_use]
    pub fn files(&self, layout: &Layout) -> CertificateFiles {
        match &self.usage {
            Usage::Serving(server) => layout.serving_cert(server),
            Usage::Client(client) => layout.client_cert(client),
        }
    }

    /// Its subject, such as `CN=kcp-admin,O=system:kcp:admin`.
    #[must_use]
    pub fn subject(&self) -> String {
        match &self.organization {
            Some(organization) => format!("CN={},O={organization}", self.common_name),
            None => format!("CN={}", self.common_name),
        }
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.usage {
            Usage::Serving(server) => write!(f, "{} serving", server.file_stem()),
            Usage::Client(client) => write!(f, "{} client", client.user_name()),
        }
    }
}

/// The host names of every server on its own machine.
fn local_hosts() -> [Host; 3] {
    [
        Host::Name("localhost".to_owned()),
        Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Host::Address(IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn leaves(plan: &Plan) -> Vec<&Leaf> {
        plan.items()
            .iter()
            .filter_map(|item| match item {
                Item::Leaf(leaf) => Some(leaf),
                Item::Authority(_) | Item::ServiceAccountKey => None,
            })
            .collect()
    }

    #[test]
    fn the_plan_of_two_shards_has_these_subjects() {
        let plan = Plan::for_inventory(&Inventory::parse(["root", "alpha"], ["kcp.example.com"]).unwrap());
        let subjects: Vec<_> = leaves(&plan).iter().map(|leaf| (leaf.signer, leaf.subject())).collect();
        let serving = |name: &str| (Authority::Serving, format!("CN=fairlead-{name}"));
        let client = |subject: &str| (Authority::Client, subject.to_owned());
        assert_eq!(
            subjects,
            [
                serving("gateway"),
                serving("cache"),
                serving("shard-alpha"),
                serving("shard-root"),
                client("CN=kcp-admin,O=system:kcp:admin"),
                client("CN=shard-admin,O=system:masters"),
                client("CN=logical-cluster-admin,O=system:kcp:logical-cluster-admin"),
                client("CN=external-logical-cluster-admin,O=system:kcp:external-logical-cluster-admin"),
                (Authority::RequestHeader, "CN=kcp-front-proxy".to_owned()),
                (Authority::RequestHeader, "CN=kcp-front-proxy-edge".to_owned()),
                client("CN=cache-client,O=system:masters"),
                client("CN=kcp-shard-alpha,O=system:masters"),
                client("CN=shard-alpha-picker,O=system:fairlead:shard"),
                client("CN=kcp-shard-root,O=system:masters"),
                client("CN=shard-root-picker,O=system:fairlead:shard"),
            ]
        );
        for leaf in leaves(&plan) {
            let hosts: Vec<_> = leaf.hosts.iter().map(ToString::to_string).collect();
            match leaf.usage {
                Usage::Serving(_) => assert_eq!(hosts, ["kcp.example.com", "localhost", "127.0.0.1", "::1"]),
                Usage::Client(_) => assert!(hosts.is_empty()),
            }
        }
    }

    #[test]
    fn no_shard_name_makes_two_leaves_share_a_file_or_a_subject() {
        let nasty = [
            "admin",
            "cache",
            "gateway",
            "picker",
            "admin-picker",
            "kcp",
            "client",
            "front-proxy",
            "shard-a",
            "a",
        ];
        let plan = Plan::for_inventory(&Inventory::parse(nasty, [] as [&str; 0]).unwrap());
        let layout = Layout::new("pki");
        let (mut files, mut subjects) = (HashSet::new(), HashSet::new());
        for leaf in leaves(&plan) {
            assert!(files.insert(leaf.files(&layout).certificate), "{leaf}");
            assert!(subjects.insert(leaf.common_name.clone()), "{leaf}");
        }
    }
}
