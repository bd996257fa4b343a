//! The settings of a shard.

use crate::audit::AuditConfig;
use crate::authentication::{OidcConfig, WebhookConfig};
use crate::authorization::AuthorizationConfig;
use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{
    AllowedPeersConfig, ConnectionLimits, DrainConfig, LogConfig, ServerTlsConfig, ServingConfig,
    SlowClientsConfig, StoreConfig, TrustConfig, check_replica_name,
};
use crate::units::Timespan;
use crate::values::{Battery, HttpsUrl, InputFile, OwnPath, SecretFile, ShardName};

settings! {
    /// A shard: the API server of a part of all workspaces.
    pub struct ShardConfig {
        /// Name; "root" makes it the root shard. Never change it. Flag: --shard-name.
        name ("name"): ShardName = ShardName::root();
        /// Name of this replica among those of the shard on one etcd, by which the leader is known; null means its host and
        /// process. Flag: --replica-name.
        replica_name ("replicaName"): Option<String> = None;
        /// Address and serving certificate.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// TLS versions, cipher suites and further certificates.
        tls ("tls"): ServerTlsConfig = ServerTlsConfig::default();
        /// The URL by which other shards and the gateway reach it; null means its own address. Flag: --shard-base-url.
        shard_base_url ("shardBaseURL"): Option<HttpsUrl> = None;
        /// The URL by which users reach its workspaces, that is the gateway's; null means shardBaseURL.
        /// Flag: --shard-external-url.
        external_url ("externalURL"): Option<HttpsUrl> = None;
        /// The URL of its virtual workspaces; null means shardBaseURL. Flag: --shard-virtual-workspace-url.
        virtual_workspace_url ("virtualWorkspaceURL"): Option<HttpsUrl> = None;
        /// Whether only members of system:masters reach the virtual workspaces at this shard. Then other clients reach them at
        /// fairlead-virtual-workspaces, whose URL is virtualWorkspaceURL. Flag: --run-virtual-workspaces=false.
        virtual_workspaces_for_masters_only ("virtualWorkspacesForMastersOnly"): bool = false;
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
        /// Further methods of authentication.
        authentication ("authentication"): ShardAuthenticationConfig = ShardAuthenticationConfig::default();
        /// Order and settings of authorizers.
        authorization ("authorization"): AuthorizationConfig = AuthorizationConfig::default();
        /// Audit log.
        audit ("audit"): Option<AuditConfig> = None;
        /// Administrators whose tokens the shard creates at its start.
        admin_access ("adminAccess"): Option<AdminAccessConfig> = None;
        /// PEM bundle of ConfigMaps kube-root-ca.crt; null means the serving certificate. Flag: --root-ca-file.
        root_ca ("rootCA"): Option<InputFile> = None;
        /// Kubeconfig of the root shard, context shard-base; needed by every other shard.
        /// Flag: --root-shard-kubeconfig-file.
        root_shard_kubeconfig ("rootShardKubeconfig"): Option<SecretFile> = None;
        /// Kubeconfig of the cache server; needed by every shard but the root, which without it serves the cache itself, below
        /// /services/cache. Flag: --cache-kubeconfig.
        cache_kubeconfig ("cacheKubeconfig"): Option<SecretFile> = None;
        /// Kubeconfig with the credential by which this shard creates logical clusters on other shards; its server is ignored.
        /// Flag: --logical-cluster-admin-kubeconfig.
        logical_cluster_admin_kubeconfig ("logicalClusterAdminKubeconfig"): Option<SecretFile> = None;
        /// Kubeconfig by which this shard reads objects of logical clusters on other shards through the gateway: accounts of tokens,
        /// issuers of workspace types. Flag: --external-logical-cluster-admin-kubeconfig.
        external_logical_cluster_admin_kubeconfig ("externalLogicalClusterAdminKubeconfig"): Option<SecretFile> = None;
        /// Gateway that places new workspaces; null means that the shard places them at random by itself.
        placement ("placement"): Option<PlacementClientConfig> = None;
        /// Home workspaces of users.
        home_workspaces ("homeWorkspaces"): HomeWorkspacesConfig = HomeWorkspacesConfig::default();
        /// Limit of objects per logical cluster.
        object_limits ("objectLimits"): ObjectLimitsConfig = ObjectLimitsConfig::default();
        /// Time after which an event is deleted; 0s keeps events for ever. Flag: --event-ttl.
        event_ttl ("eventTTL"): Timespan = Timespan::from_secs(3600);
        /// Optional content of the root workspace: admin, user, workspace-types, metrics-viewer. Flag: --batteries-included.
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
        /// URL of the keys in the issuer's discovery document; null means this shard. Flag: --service-account-jwks-uri.
        keys_url ("keysURL"): Option<HttpsUrl> = None;
        /// Whether the account, and the secret that a token is bound to, must still exist. Flag: --service-account-lookup.
        lookup ("lookup"): bool = true;
        /// The longest validity of a token; null means that the request decides. Flag: --service-account-max-token-expiration.
        max_validity ("maxValidity"): Option<Timespan> = None;
    }

    /// Methods of authentication besides certificates, static tokens and service accounts.
    pub struct ShardAuthenticationConfig {
        /// Whether requests without a credential are those of system:anonymous; otherwise they get 401. Flag: --anonymous-auth.
        anonymous ("anonymous"): bool = true;
        /// Tokens of one OpenID Connect issuer.
        oidc ("oidc"): Option<OidcConfig> = None;
        /// File with an AuthenticationConfiguration of apiserver.config.k8s.io. Not together with oidc.
        /// Flag: --authentication-config.
        configuration ("configuration"): Option<InputFile> = None;
        /// A token review webhook.
        webhook ("webhook"): Option<WebhookConfig> = None;
        /// Whether workspace types may define issuers of their own. Flag: --feature-gates=WorkspaceAuthentication=true.
        workspaces ("workspaces"): bool = false;
    }

    /// Administrators whose tokens the shard creates: kcp-admin, shard-admin, and user with the battery of this name.
    pub struct AdminAccessConfig {
        /// Kubeconfig with their tokens, written before the shard is ready. Flag: --kubeconfig-path.
        kubeconfig ("kubeconfig"): OwnPath = "admin.kubeconfig".into();
        /// File with the hash of shard-admin's token, which stays the same as long as the kubeconfig has it.
        /// Flag: --authentication-admin-token-path.
        token_hash ("tokenHash"): OwnPath = ".admin-token-store".into();
    }

    /// Home workspaces of users.
    pub struct HomeWorkspacesConfig {
        /// Whether users may have one. Flag: --enable-home-workspaces.
        enabled ("enabled"): bool = true;
        /// Groups whose members may create theirs. Flag: --home-workspaces-home-creator-groups.
        creator_groups ("creatorGroups"): Vec<String> = vec!["system:authenticated".to_owned()];
    }

    /// Limit of objects per logical cluster.
    pub struct ObjectLimitsConfig {
        /// Objects of all resources together; null means no limit. Flag: --logical-cluster-total-object-limit.
        total ("total"): Option<usize> = None;
        /// Without effect: objects are counted as they are written. Flag: --logical-cluster-object-count-scan-interval.
        scan_interval ("scanInterval"): Timespan = Timespan::from_secs(60);
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

impl ShardConfig {
    fn check_access(&self, checker: &mut Checker) {
        if let Some(audit) = &self.audit {
            checker.within("audit", |checker| audit.check(checker));
        }
        checker.within("authorization", |checker| self.authorization.check(checker));
        checker.within("authentication", |checker| {
            if let Some(oidc) = &self.authentication.oidc {
                oidc.check(self.authentication.configuration.is_some(), checker);
            }
        });
        checker.within("objectLimits", |checker| {
            checker.at_least("scanInterval", self.object_limits.scan_interval, Timespan::from_millis(1));
        });
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
        check_replica_name(self.replica_name.as_deref(), checker);
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
        self.check_access(checker);
        checker.within("peers", |checker| self.peers.check(checker));
        checker.within("store", |checker| self.store.check(checker));
        checker.within("limits", |checker| self.limits.check(checker));
        checker.within("slowClients", |checker| self.slow_clients.check(checker));
    }
}
