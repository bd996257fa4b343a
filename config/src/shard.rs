//! The settings of a shard.

use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{
    AllowedPeersConfig, ConnectionLimits, DrainConfig, LogConfig, ServingConfig, SlowClientsConfig,
    StoreConfig, TrustConfig,
};
use crate::units::Timespan;
use crate::values::{Battery, HttpsUrl, InputFile, SecretFile, ShardName};

settings! {
    /// A shard: the API server of a part of all workspaces.
    pub struct ShardConfig {
        /// Name; "root" makes it the root shard. Never change it. Flag: --shard-name.
        name ("name"): ShardName = ShardName::root();
        /// Address and serving certificate.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// The URL by which other shards and the gateway reach it; null means its own address. Flag: --shard-base-url.
        shard_base_url ("shardBaseURL"): Option<HttpsUrl> = None;
        /// The URL by which users reach its workspaces, that is the gateway's; null means shardBaseURL.
        /// Flag: --shard-external-url.
        external_url ("externalURL"): Option<HttpsUrl> = None;
        /// The URL of its virtual workspaces; null means shardBaseURL. Flag: --shard-virtual-workspace-url.
        virtual_workspace_url ("virtualWorkspaceURL"): Option<HttpsUrl> = None;
        /// Peers that may connect: gateways, other shards, and clients that use this shard directly.
        peers ("peers"): AllowedPeersConfig = AllowedPeersConfig::default();
        /// Storage of objects.
        store ("store"): StoreConfig = StoreConfig::default();
        /// Trusted authorities.
        trust ("trust"): TrustConfig = TrustConfig::default();
        /// CSV file of static tokens: token,user,uid,"group,group". Flag: --token-auth-file.
        token_file ("tokenFile"): Option<SecretFile> = None;
        /// Tokens of service accounts.
        service_accounts ("serviceAccounts"): ShardServiceAccountsConfig = ShardServiceAccountsConfig::default();
        /// Kubeconfig of the root shard, context shard-base; needed by every other shard.
        /// Flag: --root-shard-kubeconfig-file.
        root_shard_kubeconfig ("rootShardKubeconfig"): Option<SecretFile> = None;
        /// Kubeconfig of the cache server; needed by every shard but the root. Flag: --cache-kubeconfig.
        cache_kubeconfig ("cacheKubeconfig"): Option<SecretFile> = None;
        /// Kubeconfig with the credential by which this shard creates logical clusters on other shards; its server is ignored.
        /// Flag: --logical-cluster-admin-kubeconfig.
        logical_cluster_admin_kubeconfig ("logicalClusterAdminKubeconfig"): Option<SecretFile> = None;
        /// Gateway that places new workspaces; null means that the shard places them at random by itself.
        placement ("placement"): Option<PlacementClientConfig> = None;
        /// Optional content of the root workspace: admin, workspace-types. Flag: --batteries-included.
        batteries ("batteries"): Vec<Battery> = vec![Battery::Admin, Battery::WorkspaceTypes];
        /// Limits of the listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits::default();
        /// Time limits of slow clients, including gateways, which have limits of their own.
        slow_clients ("slowClients"): SlowClientsConfig = SlowClientsConfig::default();
        /// Shutdown of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// Format and level of logs.
        log ("log"): LogConfig = LogConfig::default();
    }

    /// Tokens of service accounts: how a shard issues and verifies them. All shards have the same keys.
    pub struct ShardServiceAccountsConfig {
        /// PEM file: the private key that signs tokens; without it none are issued.
        /// Flag: --service-account-private-key-file.
        signing_key ("signingKey"): Option<SecretFile> = None;
        /// PEM files with further public or private keys whose tokens are accepted; the signing key is always accepted.
        /// Flag: --service-account-key-file.
        key_files ("keyFiles"): Vec<InputFile> = Vec::new();
        /// Accepted issuers; the first one issues. Flag: --service-account-issuer.
        issuers ("issuers"): Vec<String> = vec!["https://kcp.default.svc".to_owned()];
        /// Accepted audiences, and those of tokens that request none; empty means the issuers. Flag: --api-audiences.
        audiences ("audiences"): Vec<String> = Vec::new();
        /// Whether the account, and the secret that a token is bound to, must still exist. Flag: --service-account-lookup.
        lookup ("lookup"): bool = true;
        /// The longest validity of a token; null means that the request decides. Flag: --service-account-max-token-expiration.
        max_validity ("maxValidity"): Option<Timespan> = None;
    }

    /// Gateway that places new workspaces.
    pub struct PlacementClientConfig {
        /// URL of a gateway listener with placementEndpoint.
        url ("url"): HttpsUrl = HttpsUrl::of_listener(ServingConfig::default().address);
        /// PEM file: the certificate that the shard presents there.
        certificate ("certificate"): InputFile = "shard.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "shard.key".into();
        /// PEM bundle: authorities of the gateway's serving certificate.
        server_ca ("serverCA"): InputFile = "serving-ca.crt".into();
        /// Time limit of a request; after it the shard places the workspace by itself.
        timeout ("timeout"): Timespan = Timespan::from_millis(200);
    }
}

impl ShardConfig {
    /// The URL by which other shards and the gateway reach this one.
    pub fn base_url(&self) -> HttpsUrl {
        self.shard_base_url.clone().unwrap_or_else(|| HttpsUrl::of_listener(self.serving.address))
    }

    /// The URL by which users reach its workspaces.
    pub fn effective_external_url(&self) -> HttpsUrl {
        self.external_url.clone().unwrap_or_else(|| self.base_url())
    }

    /// The URL of its virtual workspaces.
    pub fn effective_virtual_workspace_url(&self) -> HttpsUrl {
        self.virtual_workspace_url.clone().unwrap_or_else(|| self.base_url())
    }
}

impl ProcessConfig for ShardConfig {
    const KIND: ProcessKind = ProcessKind::Shard;

    fn check(&self, checker: &mut Checker) {
        if !self.name.is_root() {
            let name = &self.name;
            if self.root_shard_kubeconfig.is_none() {
                let message = format!("shard {name} is not the root shard and has no kubeconfig for it");
                checker.fault(
                    "rootShardKubeconfig",
                    &message,
                    "set rootShardKubeconfig, or name the shard \"root\"",
                );
            }
            if self.cache_kubeconfig.is_none() {
                let message = format!("shard {name} is not the root shard and has no cache server");
                checker.fault("cacheKubeconfig", &message, "set cacheKubeconfig, or name the shard \"root\"");
            }
        }
        if self.serving.address.port() == 0 && self.shard_base_url.is_none() {
            let message = "with port 0 the URL of this shard is unknown";
            checker.fault("serving.address", message, "give it a port, or set shardBaseURL");
        }
        if let Some(placement) = &self.placement {
            checker.within("placement", |checker| {
                checker.at_least("timeout", placement.timeout, Timespan::from_millis(1));
            });
        }
        if self.service_accounts.issuers.is_empty() {
            let message = "tokens of service accounts need an issuer";
            checker.fault(
                "serviceAccounts.issuers",
                message,
                "name at least one, such as https://kcp.default.svc",
            );
        }
        checker.within("peers", |checker| self.peers.check(checker));
        checker.within("store", |checker| self.store.check(checker));
        checker.within("limits", |checker| self.limits.check(checker));
        checker.within("slowClients", |checker| self.slow_clients.check(checker));
    }
}
