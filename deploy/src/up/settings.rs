//! The configuration files that the processes of an installation get.

use std::net::SocketAddr;

use fairlead_certs::{CertificateFiles, Client, InventoryError, Layout, Server, ShardName};
use fairlead_config::{
    AddressQuotaConfig, AuthenticationConfig, CacheConfig, DenyConfig, DrainConfig, GatewayConfig, HttpsUrl,
    IndexConfig, IssuerConfig, ListenerConfig, ListenerQuotasConfig, ListenerTlsConfig, OidcConfig,
    PlacementClientConfig, ProcessConfig, ProcessKind, ServiceAccountConfig, ServingConfig, ShardConfig,
    StoreConfig, Timespan, TlsVersion, TokenPolicy, TraceContextPolicy, TrustConfig, UnitError,
    UpgradeProtocol, UpstreamConfig, UpstreamIdentityConfig,
};

use super::topology::{Process, Role, Topology};
use crate::site::Site;

/// How long open requests may take when a process is stopped: on a developer's machine nobody wants to wait for the
/// time that is right behind a load balancer.
pub(crate) const DRAIN_WINDOW: Timespan = Timespan::from_secs(2);

/// The client that the issuer's tokens are for.
pub(crate) const CLIENT_ID: &str = "fairlead";
/// What precedes the names and groups of those who sign in, so that no issuer can make anybody `system:` anything.
pub(crate) const USERNAME_PREFIX: &str = "oidc:";
/// The user with rights; see `rights`.
pub(crate) const DEVELOPER: &str = "developer";
/// Those who can sign in to begin with.
pub(crate) const USERS: &str = "\
# Who can sign in at the development issuer, without a password. Read again when it changes.
# What somebody may do is said elsewhere: as for `oidc:` and the name, and `oidc:` and each group, in RBAC.
users:
- name: developer
  groups: [developers]
- name: visitor
";

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    /// The process's name.
    pub process: String,
    /// YAML.
    pub text: String,
}

/// Settings that could not be put together; a defect of this program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Shard(#[from] InventoryError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("the configuration of the {0} cannot be written as YAML: {1}")]
    Yaml(ProcessKind, String),
}

/// One file per process.
pub(crate) fn config_files(site: &Site, topology: &Topology) -> Result<Vec<ConfigFile>, SettingsError> {
    let all = topology.processes.iter();
    let file = |process: &Process| {
        let text = match process.role {
            Role::Gateway => yaml(&gateway(site, topology, process)),
            Role::Issuer => yaml(&issuer(site, process)),
            Role::Shard => yaml(&shard(site, topology, process)?),
            Role::Cache => yaml(&cache(site, process)),
        };
        Ok(ConfigFile { process: process.name.clone(), text: text? })
    };
    all.map(file).collect()
}

/// How `fairlead login` is called for the door for tokens.
pub(crate) fn login_arguments(site: &Site, topology: &Topology) -> [String; 4] {
    [
        "login".to_owned(),
        format!("--issuer={}", topology.issuer().url()),
        format!("--client-id={CLIENT_ID}"),
        format!("--ca-file={}", site.certificates().serving_ca().display()),
    ]
}

fn gateway(site: &Site, topology: &Topology, process: &Process) -> GatewayConfig {
    let certificates = site.certificates();
    let kubeconfigs = site.kubeconfigs();
    let CertificateFiles { certificate, key } = certificates.client_cert(&Client::FrontProxy);
    GatewayConfig {
        listeners: vec![
            ListenerConfig {
                name: "internal".to_owned(),
                serving: serving(&certificates, process.address, &Server::Gateway),
                client_ca: Some(certificates.client_ca().into()),
                placement_endpoint: true,
                admin_page: true,
                ..ListenerConfig::default()
            },
            edge(site, topology),
        ],
        index: IndexConfig {
            root_shard_kubeconfig: kubeconfigs.root_shard().into(),
            shards_kubeconfig: kubeconfigs.shards().into(),
            snapshot: Some(site.data(&process.name).join("index").into()),
            ..IndexConfig::default()
        },
        upstream: UpstreamConfig {
            certificate: certificate.into(),
            private_key: key.into(),
            server_ca: certificates.serving_ca().into(),
            ..UpstreamConfig::default()
        },
        drain: drain(),
        state_file: Some(site.data(&process.name).join("state").into()),
        ..GatewayConfig::default()
    }
}

/// A door as one behind a CDN would be, but for the CDN: tokens of the issuer and of service accounts count, certificates
/// do not.
fn edge(site: &Site, topology: &Topology) -> ListenerConfig {
    let certificates = site.certificates();
    let CertificateFiles { certificate, key } = certificates.client_cert(&Client::FrontProxyEdge);
    ListenerConfig {
        name: "edge".to_owned(),
        serving: serving(&certificates, topology.edge, &Server::Gateway),
        tokens: TokenPolicy::Refuse,
        authenticate_before_routing: true,
        trace_context: TraceContextPolicy::Restart,
        authentication: AuthenticationConfig {
            oidc: Some(OidcConfig {
                issuer_url: topology.issuer().url(),
                client_id: CLIENT_ID.to_owned(),
                ca_file: Some(certificates.serving_ca().into()),
                username_prefix: USERNAME_PREFIX.to_owned(),
                groups_claim: "groups".to_owned(),
                groups_prefix: USERNAME_PREFIX.to_owned(),
                signing_algorithms: vec!["ES256".to_owned()],
                ..OidcConfig::default()
            }),
            service_accounts: ServiceAccountConfig {
                key_files: vec![certificates.service_account_keys().verification_keys.into()],
                ..ServiceAccountConfig::default()
            },
            drop_groups: ["system:masters", "system:kcp:*"].map(str::to_owned).into(),
            ..AuthenticationConfig::default()
        },
        // Not system:*, which service accounts are.
        deny: DenyConfig {
            users: ["system:kcp:*", "system:admin", "system:apiserver"].map(str::to_owned).into(),
            impersonation: true,
            ..DenyConfig::default()
        },
        upgrades: vec![UpgradeProtocol::Websocket],
        upstream_identity: Some(UpstreamIdentityConfig {
            certificate: certificate.into(),
            private_key: key.into(),
        }),
        // All clients are of one machine, so only what no client does by itself is too much.
        quotas: ListenerQuotasConfig {
            per_address: AddressQuotaConfig {
                connections: Some(5_000),
                failures_per_second: Some(50),
                ..AddressQuotaConfig::default()
            },
            ..ListenerQuotasConfig::default()
        },
        cache_control_no_store: true,
        watch_keep_alive: Some(Timespan::from_secs(30)),
        tls: ListenerTlsConfig { minimum_version: TlsVersion::Tls13, ..ListenerTlsConfig::default() },
        ..ListenerConfig::default()
    }
}

fn issuer(site: &Site, process: &Process) -> IssuerConfig {
    IssuerConfig {
        serving: serving(&site.certificates(), process.address, &Server::Issuer),
        users: site.users().into(),
        signing_key: site.data(&process.name).join("signing.key").into(),
        client_id: CLIENT_ID.to_owned(),
        drain: drain(),
        ..IssuerConfig::default()
    }
}

fn shard(site: &Site, topology: &Topology, process: &Process) -> Result<ShardConfig, SettingsError> {
    let certificates = site.certificates();
    let kubeconfigs = site.kubeconfigs();
    let name: ShardName = process.name.parse()?;
    let gateway: HttpsUrl = topology.gateway().url().parse()?;
    let is_root = process == topology.root_shard();
    let picker = certificates.client_cert(&Client::ShardPicker(name.clone()));
    Ok(ShardConfig {
        name: process.name.parse()?,
        serving: serving(&certificates, process.address, &Server::Shard(name)),
        shard_base_url: Some(process.url().parse()?),
        external_url: Some(gateway.clone()),
        store: store(site, process),
        trust: TrustConfig {
            client_ca: Some(certificates.client_ca().into()),
            request_header_ca: Some(certificates.requestheader_ca().into()),
            request_header_allowed_names: [Client::FrontProxy, Client::FrontProxyEdge]
                .map(|c| c.user_name())
                .into(),
        },
        root_shard_kubeconfig: (!is_root).then(|| kubeconfigs.root_shard().into()),
        cache_kubeconfig: Some(kubeconfigs.cache().into()),
        logical_cluster_admin_kubeconfig: Some(kubeconfigs.logical_cluster_admin().into()),
        placement: Some(PlacementClientConfig {
            url: gateway,
            certificate: picker.certificate.into(),
            private_key: picker.key.into(),
            server_ca: certificates.serving_ca().into(),
            ..PlacementClientConfig::default()
        }),
        drain: drain(),
        ..ShardConfig::default()
    })
}

fn cache(site: &Site, process: &Process) -> CacheConfig {
    let certificates = site.certificates();
    CacheConfig {
        serving: serving(&certificates, process.address, &Server::Cache),
        client_ca: certificates.client_ca().into(),
        store: store(site, process),
        drain: drain(),
        ..CacheConfig::default()
    }
}

fn serving(certificates: &Layout, address: SocketAddr, server: &Server) -> ServingConfig {
    let CertificateFiles { certificate, key } = certificates.serving_cert(server);
    ServingConfig { address, certificate: certificate.into(), private_key: key.into() }
}

fn store(site: &Site, process: &Process) -> StoreConfig {
    StoreConfig { path: site.data(&process.name).join("store.redb").into(), ..StoreConfig::default() }
}

fn drain() -> DrainConfig {
    DrainConfig { window: DRAIN_WINDOW, ..DrainConfig::default() }
}

fn yaml<T: ProcessConfig + serde::Serialize>(config: &T) -> Result<String, SettingsError> {
    let kind = T::KIND;
    let settings =
        serde_saphyr::to_string(config).map_err(|error| SettingsError::Yaml(kind, error.to_string()))?;
    Ok(format!(
        "# Written by `fairlead up` at each start: changes here are lost.\n\
         # `fairlead config defaults {kind}` tells what the settings mean.\n\
         {settings}"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeMap;
    use std::time::SystemTime;

    use fairlead_certs::{Inventory, Plan, Renewal};
    use fairlead_config::load;
    use fairlead_lint::lint;

    use super::*;
    use crate::kubeconfigs::{Addresses, InnerAddresses};

    #[test]
    fn the_files_are_complete_and_everything_they_name_exists() {
        let folder = tempfile::tempdir().unwrap();
        let site = Site::at(folder.path()).unwrap();
        let (topology, _ports) = Topology::plan(2, 0, None, &BTreeMap::new()).unwrap();
        let names = topology.shards().map(|shard| shard.name.as_str());
        let inventory = Inventory::parse(names, std::iter::empty::<&str>()).unwrap().with_issuer();
        let certificates = site.certificates();
        let plan = Plan::for_inventory(&inventory);
        plan.apply(&certificates, SystemTime::now(), Renewal::WhenDue).unwrap();
        let inner = InnerAddresses { root_shard: topology.root_shard().url(), cache: topology.cache().url() };
        let addresses = Addresses { gateway: topology.gateway().url(), inner: Some(inner) };
        site.kubeconfigs().write(&certificates, &addresses, &site.admin_kubeconfig()).unwrap();
        std::fs::create_dir_all(folder.path().join("config")).unwrap();
        std::fs::write(site.users(), USERS).unwrap();

        for file in config_files(&site, &topology).unwrap() {
            std::fs::write(site.config(&file.process), &file.text).unwrap();
        }
        for (process, kind) in [
            ("gateway", ProcessKind::Gateway),
            ("root", ProcessKind::Shard),
            ("shard-1", ProcessKind::Shard),
            ("cache", ProcessKind::Cache),
            ("issuer", ProcessKind::Issuer),
        ] {
            assert_eq!(lint(kind, &site.config(process)), [], "{process}");
        }
        let root: ShardConfig = load(&site.config("root")).unwrap();
        let other: ShardConfig = load(&site.config("shard-1")).unwrap();
        assert!(root.name.is_root() && root.root_shard_kubeconfig.is_none());
        assert!(other.root_shard_kubeconfig.is_some());
        assert_eq!(other.effective_external_url().as_str(), topology.gateway().url());
        assert_ne!(root.store.path, other.store.path);
    }
}
