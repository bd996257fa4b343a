//! The configuration files of the processes of an installation.

use std::net::SocketAddr;
use std::path::PathBuf;

use fairlead_certs::{CertificateFiles, Client, InventoryError, Layout, Server, ShardName};
use fairlead_config::{
    AddressQuotaConfig, AuthenticationConfig, CacheConfig, DenyConfig, DrainConfig, EtcdConfig,
    GatewayConfig, HttpsUrl, IndexConfig, IssuerConfig, ListenerConfig, ListenerQuotasConfig,
    ListenerTlsConfig, OidcConfig, PlacementClientConfig, ProcessConfig, ProcessKind, ServiceAccountConfig,
    ServingConfig, ShardConfig, ShardServiceAccountsConfig, StoreConfig, Timespan, TlsVersion, TokenPolicy,
    TraceContextPolicy, TrustConfig, UnitError, UpgradeProtocol, UpstreamConfig, UpstreamIdentityConfig,
};
use serde::Serialize;

use super::topology::{Process, Role, Topology};
use crate::installation::Installation;

/// Drain window of all processes. It is shorter than behind a load balancer, because a developer waits for it.
pub(crate) const DRAIN_WINDOW: Timespan = Timespan::from_secs(2);

/// The OAuth client of the development issuer.
pub(crate) const CLIENT_ID: &str = "fairlead";
/// Prefix of user names and groups from the issuer, so that no token can name a `system:` user or group.
pub(crate) const USERNAME_PREFIX: &str = "oidc:";
/// The user with rights; see `development_rights`.
pub(crate) const DEVELOPER: &str = "developer";
/// The initial users file.
pub(crate) const USERS: &str = "\
# Users of the development issuer, which has no passwords. The file is read again when it changes.
# RBAC gives rights to the user `oidc:<name>` and to the groups `oidc:<group>`.
users:
- name: developer
  groups: [developers]
- name: visitor
";

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    /// Name of the process.
    pub process: String,
    /// Content, YAML.
    pub text: String,
}

/// Settings that cannot be made; a defect of this program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Shard(#[from] InventoryError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("the configuration of the {0} cannot be written as YAML: {1}")]
    Yaml(ProcessKind, String),
    #[error("the configuration of etcd cannot be written as YAML: {0}")]
    EtcdYaml(String),
}

/// One file per process.
pub(crate) fn config_files(
    installation: &Installation,
    topology: &Topology,
) -> Result<Vec<ConfigFile>, SettingsError> {
    let all = topology.processes.iter();
    let file = |process: &Process| {
        let text = match process.role {
            Role::Gateway => yaml(&gateway(installation, topology, process)),
            Role::Issuer => yaml(&issuer(installation, process)),
            Role::Shard => yaml(&shard(installation, topology, process)?),
            Role::Cache => yaml(&cache(installation, topology, process)),
            Role::Etcd => etcd(installation, process),
        };
        Ok(ConfigFile { process: process.name.clone(), text: text? })
    };
    all.map(file).collect()
}

/// Arguments of `fairlead login` for the listener for tokens.
pub(crate) fn login_arguments(installation: &Installation, topology: &Topology) -> [String; 4] {
    [
        "login".to_owned(),
        format!("--issuer={}", topology.issuer().url()),
        format!("--client-id={CLIENT_ID}"),
        format!("--ca-file={}", installation.certificates().serving_ca().display()),
    ]
}

fn gateway(installation: &Installation, topology: &Topology, process: &Process) -> GatewayConfig {
    let certificates = installation.certificates();
    let kubeconfigs = installation.kubeconfigs();
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
            edge(installation, topology),
        ],
        index: IndexConfig {
            root_shard_kubeconfig: kubeconfigs.root_shard().into(),
            shards_kubeconfig: kubeconfigs.shards().into(),
            snapshot: Some(installation.data(&process.name).join("index").into()),
            ..IndexConfig::default()
        },
        upstream: UpstreamConfig {
            certificate: certificate.into(),
            private_key: key.into(),
            server_ca: certificates.serving_ca().into(),
            ..UpstreamConfig::default()
        },
        drain: drain(),
        state_file: Some(installation.data(&process.name).join("state").into()),
        ..GatewayConfig::default()
    }
}

/// A listener as one behind a CDN would be, but without the CDN: it accepts tokens of the issuer and of service accounts,
/// and no certificates.
fn edge(installation: &Installation, topology: &Topology) -> ListenerConfig {
    let certificates = installation.certificates();
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
        // Not `system:*`, because service accounts are `system:serviceaccount:*`.
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
        // All clients are on one machine and share its address, so the limits are above what clients cause together.
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

fn issuer(installation: &Installation, process: &Process) -> IssuerConfig {
    IssuerConfig {
        serving: serving(&installation.certificates(), process.address, &Server::Issuer),
        users: installation.users().into(),
        signing_key: installation.data(&process.name).join("signing.key").into(),
        client_id: CLIENT_ID.to_owned(),
        drain: drain(),
        ..IssuerConfig::default()
    }
}

fn shard(
    installation: &Installation,
    topology: &Topology,
    process: &Process,
) -> Result<ShardConfig, SettingsError> {
    let certificates = installation.certificates();
    let kubeconfigs = installation.kubeconfigs();
    let name: ShardName = process.name.parse()?;
    let gateway: HttpsUrl = topology.gateway().url().parse()?;
    let is_root = process == topology.root_shard();
    let placement_client = certificates.client_cert(&Client::ShardPicker(name.clone()));
    Ok(ShardConfig {
        name: process.name.parse()?,
        serving: serving(&certificates, process.address, &Server::Shard(name.clone())),
        shard_base_url: Some(process.url().parse()?),
        external_url: Some(gateway.clone()),
        store: store(installation, topology, process, &format!("/shards/{name}"), &Client::Shard(name)),
        trust: TrustConfig {
            client_ca: Some(certificates.client_ca().into()),
            request_header_ca: Some(certificates.requestheader_ca().into()),
            request_header_allowed_names: [Client::FrontProxy, Client::FrontProxyEdge]
                .map(|c| c.user_name())
                .into(),
            ..TrustConfig::default()
        },
        service_accounts: ShardServiceAccountsConfig {
            signing_key: Some(certificates.service_account_keys().signing_key.into()),
            key_files: vec![certificates.service_account_keys().verification_keys.into()],
            ..ShardServiceAccountsConfig::default()
        },
        root_ca: Some(certificates.serving_ca().into()),
        root_shard_kubeconfig: (!is_root).then(|| kubeconfigs.root_shard().into()),
        cache_kubeconfig: Some(kubeconfigs.cache().into()),
        logical_cluster_admin_kubeconfig: Some(kubeconfigs.logical_cluster_admin().into()),
        external_logical_cluster_admin_kubeconfig: Some(kubeconfigs.external_logical_cluster_admin().into()),
        placement: Some(PlacementClientConfig {
            url: gateway,
            certificate: placement_client.certificate.into(),
            private_key: placement_client.key.into(),
            server_ca: certificates.serving_ca().into(),
            ..PlacementClientConfig::default()
        }),
        drain: drain(),
        ..ShardConfig::default()
    })
}

fn cache(installation: &Installation, topology: &Topology, process: &Process) -> CacheConfig {
    let certificates = installation.certificates();
    CacheConfig {
        serving: serving(&certificates, process.address, &Server::Cache),
        client_ca: certificates.client_ca().into(),
        store: store(installation, topology, process, "/cache", &Client::Cache),
        drain: drain(),
        ..CacheConfig::default()
    }
}

fn serving(certificates: &Layout, address: SocketAddr, server: &Server) -> ServingConfig {
    let CertificateFiles { certificate, key } = certificates.serving_cert(server);
    ServingConfig { address, certificate: certificate.into(), private_key: key.into() }
}

/// The file of a server; with etcd, a prefix, and a file for the local copy. The server is `client` to etcd.
fn store(
    installation: &Installation,
    topology: &Topology,
    process: &Process,
    prefix: &str,
    client: &Client,
) -> StoreConfig {
    let file = |name: &str| installation.data(&process.name).join(name).into();
    let Some(etcd) = topology.etcd() else {
        return StoreConfig { path: file("store.redb"), ..StoreConfig::default() };
    };
    let certificates = installation.certificates();
    let CertificateFiles { certificate, key } = certificates.client_cert(client);
    StoreConfig {
        path: file("view.redb"),
        etcd: EtcdConfig {
            endpoints: vec![etcd.url()],
            prefix: prefix.to_owned(),
            ca: Some(certificates.serving_ca().into()),
            certificate: Some(certificate.into()),
            private_key: Some(key.into()),
            ..EtcdConfig::default()
        },
        ..StoreConfig::default()
    }
}

/// etcd's own configuration. Only holders of certificates of the installation have access.
fn etcd(installation: &Installation, process: &Process) -> Result<String, SettingsError> {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct EtcdFile {
        name: &'static str,
        data_dir: PathBuf,
        listen_client_urls: String,
        advertise_client_urls: String,
        listen_peer_urls: &'static str,
        initial_advertise_peer_urls: &'static str,
        initial_cluster: String,
        client_transport_security: TransportSecurity,
        enable_grpc_gateway: bool,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct TransportSecurity {
        cert_file: PathBuf,
        key_file: PathBuf,
        client_cert_auth: bool,
        trusted_ca_file: PathBuf,
    }
    let certificates = installation.certificates();
    let CertificateFiles { certificate, key } = certificates.serving_cert(&Server::Etcd);
    // There are no peers: any port will do.
    let (name, peer) = ("development", "http://127.0.0.1:0");
    let file = EtcdFile {
        name,
        data_dir: installation.data(&process.name),
        listen_client_urls: process.url(),
        advertise_client_urls: process.url(),
        listen_peer_urls: peer,
        initial_advertise_peer_urls: peer,
        initial_cluster: format!("{name}={peer}"),
        client_transport_security: TransportSecurity {
            cert_file: certificate,
            key_file: key,
            client_cert_auth: true,
            trusted_ca_file: certificates.client_ca(),
        },
        // It would need a client certificate of its own.
        enable_grpc_gateway: false,
    };
    serde_saphyr::to_string(&file).map_err(|error| SettingsError::EtcdYaml(error.to_string()))
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
         # `fairlead config defaults {kind}` explains the settings.\n\
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
    use crate::kubeconfigs::{Addresses, InternalAddresses};
    use crate::up::topology::{StoreKind, WantedPorts};

    #[test]
    fn the_files_are_complete_and_everything_they_name_exists() {
        for store in [StoreKind::File, StoreKind::Etcd] {
            check_files(store);
        }
    }

    fn check_files(store: StoreKind) {
        let folder = tempfile::tempdir().unwrap();
        let installation = Installation::at(folder.path()).unwrap();
        let ports = WantedPorts { gateway: 0, edge: None, etcd: None };
        let (topology, _ports) = Topology::plan(2, store, ports, &BTreeMap::new()).unwrap();
        let names = topology.shards().map(|shard| shard.name.as_str());
        let inventory =
            Inventory::parse(names, std::iter::empty::<&str>()).unwrap().with_issuer().with_etcd();
        let certificates = installation.certificates();
        let plan = Plan::for_inventory(&inventory);
        plan.apply(&certificates, SystemTime::now(), Renewal::WhenDue).unwrap();
        let inner =
            InternalAddresses { root_shard: topology.root_shard().url(), cache: topology.cache().url() };
        let addresses = Addresses { gateway: topology.gateway().url(), inner: Some(inner) };
        installation
            .kubeconfigs()
            .write(&certificates, &addresses, &installation.admin_kubeconfig())
            .unwrap();
        std::fs::create_dir_all(folder.path().join("config")).unwrap();
        std::fs::write(installation.users(), USERS).unwrap();

        for file in config_files(&installation, &topology).unwrap() {
            std::fs::write(installation.config(&file.process), &file.text).unwrap();
        }
        for (process, kind) in [
            ("gateway", ProcessKind::Gateway),
            ("root", ProcessKind::Shard),
            ("shard-1", ProcessKind::Shard),
            ("cache", ProcessKind::Cache),
            ("issuer", ProcessKind::Issuer),
        ] {
            assert_eq!(lint(kind, &installation.config(process)), [], "{process}");
        }
        let root: ShardConfig = load(&installation.config("root")).unwrap();
        let other: ShardConfig = load(&installation.config("shard-1")).unwrap();
        assert!(root.name.is_root() && root.root_shard_kubeconfig.is_none());
        assert!(other.root_shard_kubeconfig.is_some());
        assert_eq!(other.effective_external_url().as_str(), topology.gateway().url());
        assert_ne!(root.store.path, other.store.path);
        assert_eq!(root.store.etcd.is_used(), store == StoreKind::Etcd);
        if store == StoreKind::Etcd {
            let cache: CacheConfig = load(&installation.config("cache")).unwrap();
            let prefixes = [root.store, other.store, cache.store].map(|store| store.etcd.prefix);
            assert_eq!(prefixes, ["/shards/root", "/shards/shard-1", "/cache"]);
            let etcd = std::fs::read_to_string(installation.config("etcd")).unwrap();
            assert!(etcd.contains("client-cert-auth: true"), "{etcd}");
        }
    }
}
