//! The command line of `kcp start`, turned into the settings of a shard.

mod access;
mod audit;
mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use super::{FlagError, GivenFlags, ParsedLine, SelfSignedFiles, checked};
use crate::shard::{AdminAccessConfig, HomeWorkspacesConfig, ObjectLimitsConfig, ShardConfig};
use crate::shared::{ConnectionLimits, DrainConfig, EtcdConfig, StoreConfig};
use crate::units::Timespan;
use crate::values::{Battery, ShardName};
use table::FLAGS;

/// A parsed command line of `start`.
#[derive(Debug)]
pub struct ShardFlags {
    /// The equivalent configuration.
    pub config: ShardConfig,
    /// The folder of the shard's files, created for the owner only.
    pub root_directory: PathBuf,
    /// The serving certificate to create at the start if it does not exist, because none was named.
    pub self_signed: Option<SelfSignedFiles>,
    /// The private key of service accounts to create at the start if it does not exist, because none was named.
    pub service_account_key: Option<PathBuf>,
    /// One sentence each: flags and gates without effect, and flags with another effect than in kcp.
    pub warnings: Vec<String>,
}

/// The result of parsing the arguments of `start`.
#[derive(Debug)]
pub enum ShardArguments {
    /// The flags.
    Flags(Box<ShardFlags>),
    /// Help or the version was requested: the text to print.
    Text(String),
}

/// Feature gates of kcp whose features are missing here.
const GATES_WITHOUT_EFFECT: [&str; 3] = ["CacheAPIs", "LogicalClusterMigration", "WorkspaceMounts"];

/// Window of the drain if no flag sets one: kcp ends watches at once then.
const SHORT_DRAIN: Timespan = Timespan::from_secs(2);

/// Interval of compaction that never ends a run.
const NEVER: Timespan = Timespan::from_secs(10 * 365 * 24 * 3600);

impl ShardFlags {
    /// Parses the arguments that follow `start`. Relative paths start from the working directory.
    ///
    /// # Errors
    /// [`FlagError`] names the flag.
    pub fn parse(
        version: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<ShardArguments, FlagError> {
        let mut arguments: Vec<String> = arguments.into_iter().collect();
        if arguments.first().is_some_and(|argument| argument == "options") {
            arguments = vec!["--help".to_owned()];
        }
        match FLAGS.parse(FLAGS.command(version), arguments)? {
            ParsedLine::Text(text) => Ok(ShardArguments::Text(text)),
            ParsedLine::Flags(given) => ShardLine(given).flags().map(Box::new).map(ShardArguments::Flags),
        }
    }
}

/// The parsed flags of a shard.
struct ShardLine(GivenFlags);

impl ShardLine {
    fn flags(&self) -> Result<ShardFlags, FlagError> {
        let given = &self.0;
        given.check_values()?;
        if !given.switch("run-controllers", true) {
            let reason = "controllers run in the shard";
            return Err(FlagError::Unsupported { flag: "run-controllers", reason });
        }
        let root_directory = given.path("root-directory").unwrap_or_else(|| ".kcp".into());
        let certificates = given.path("cert-dir").unwrap_or_else(|| root_directory.clone());
        let (serving, self_signed) = given.serving(6443, &certificates)?;
        let name = given.parsed("shard-name", "shard name")?.unwrap_or_else(ShardName::root);
        let cache_kubeconfig = given.path("cache-kubeconfig").map(Into::into);
        if !name.is_root() && cache_kubeconfig.is_none() {
            let message = "--cache-kubeconfig is required for non-root shards";
            return Err(FlagError::Conflict(message.to_owned()));
        }
        let batteries = self.batteries()?;
        let (service_accounts, service_account_key) = self.service_accounts(&root_directory)?;
        let default = ShardConfig::default();
        let config = ShardConfig {
            name,
            replica_name: given.text("replica-name").map(Into::into),
            serving,
            tls: given.tls()?,
            shard_base_url: given.parsed("shard-base-url", "https URL")?,
            external_url: given.parsed("shard-external-url", "https URL")?,
            virtual_workspace_url: given.parsed("shard-virtual-workspace-url", "https URL")?,
            virtual_workspaces_for_masters_only: !given.switch("run-virtual-workspaces", true),
            store: given.store(&root_directory)?,
            trust: given.trust(),
            token_file: given.path("token-auth-file").map(Into::into),
            service_accounts,
            authentication: self.authentication()?,
            authorization: self.authorization()?,
            audit: self.audit()?,
            admin_access: batteries.contains(&Battery::Admin).then(|| self.admin_access(&root_directory)),
            root_ca: given.path("root-ca-file").map(Into::into),
            root_shard_kubeconfig: given.path("root-shard-kubeconfig-file").map(Into::into),
            cache_kubeconfig,
            logical_cluster_admin_kubeconfig: given.path("logical-cluster-admin-kubeconfig").map(Into::into),
            external_logical_cluster_admin_kubeconfig: given
                .path("external-logical-cluster-admin-kubeconfig")
                .map(Into::into),
            home_workspaces: self.home_workspaces(default.home_workspaces),
            object_limits: self.object_limits(default.object_limits)?,
            event_ttl: given.duration("event-ttl").unwrap_or(default.event_ttl),
            batteries,
            limits: given.connection_limits(ConnectionLimits::default()),
            drain: self.drain(),
            log: given.log("fairlead_shard")?,
            ..ShardConfig::default()
        };
        checked(&config)?;
        let warnings = self.warnings();
        Ok(ShardFlags { config, root_directory, self_signed, service_account_key, warnings })
    }

    fn admin_access(&self, root_directory: &Path) -> AdminAccessConfig {
        let default = AdminAccessConfig::default();
        let below = |flag, default: &Path| self.0.path(flag).unwrap_or_else(|| root_directory.join(default));
        AdminAccessConfig {
            kubeconfig: below("kubeconfig-path", &default.kubeconfig).into(),
            token_hash: below("authentication-admin-token-path", &default.token_hash).into(),
        }
    }

    /// The batteries: a list, or changes of the default by `+battery` and `-battery`.
    fn batteries(&self) -> Result<Vec<Battery>, FlagError> {
        let mut batteries = ShardConfig::default().batteries;
        let wanted = self.0.list("batteries-included");
        if !self.0.is_given("batteries-included") {
            return Ok(batteries);
        }
        let is_change = |item: &String| item.starts_with(['+', '-']);
        let changes = wanted.iter().filter(|item| is_change(item)).count();
        if changes != 0 && changes != wanted.len() {
            let message = "--batteries-included must all be prefixed with + or - or none";
            return Err(FlagError::Conflict(message.to_owned()));
        }
        if changes == 0 {
            batteries.clear();
        }
        for item in &wanted {
            let name = item.strip_prefix(['+', '-']).unwrap_or(item);
            let battery: Battery = serde_json::from_value(name.into())
                .map_err(|_| FlagError::Conflict(format!("unknown battery: {name}")))?;
            batteries.retain(|known| *known != battery);
            if !item.starts_with('-') {
                batteries.push(battery);
            }
        }
        if batteries.contains(&Battery::User) && !batteries.contains(&Battery::Admin) {
            let message = "battery user enabled which requires admin as well";
            return Err(FlagError::Conflict(message.to_owned()));
        }
        Ok(batteries)
    }

    fn home_workspaces(&self, default: HomeWorkspacesConfig) -> HomeWorkspacesConfig {
        HomeWorkspacesConfig {
            enabled: self.0.switch("enable-home-workspaces", default.enabled),
            creator_groups: self.0.list_or("home-workspaces-home-creator-groups", default.creator_groups),
        }
    }

    fn object_limits(&self, default: ObjectLimitsConfig) -> Result<ObjectLimitsConfig, FlagError> {
        let total: usize = self.0.count("logical-cluster-total-object-limit", 0)?;
        Ok(ObjectLimitsConfig {
            total: Some(total).filter(|total| *total > 0),
            scan_interval: self
                .0
                .duration("logical-cluster-object-count-scan-interval")
                .unwrap_or(default.scan_interval),
        })
    }

    fn drain(&self) -> DrainConfig {
        let window = self.0.duration("shutdown-watch-termination-grace-period");
        DrainConfig {
            delay: self.0.duration("shutdown-delay-duration").unwrap_or(DrainConfig::default().delay),
            window: window.filter(|window| *window > Timespan::from_secs(0)).unwrap_or(SHORT_DRAIN),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let gates: Vec<&str> = GATES_WITHOUT_EFFECT.into_iter().filter(|gate| self.0.gate(gate)).collect();
        let gates = (!gates.is_empty()).then(|| format!("gates without effect here: {}", gates.join(", ")));
        let audit = self.policy_without_destination();
        self.0
            .without_effect()
            .into_iter()
            .chain(gates)
            .chain(audit)
            .chain(self.0.older_tls_version())
            .collect()
    }
}

impl GivenFlags {
    /// The store, in the folder of kcp's embedded etcd.
    pub(super) fn store(&self, root_directory: &Path) -> Result<StoreConfig, FlagError> {
        let folder =
            self.path("embedded-etcd-directory").unwrap_or_else(|| root_directory.join("etcd-server"));
        let default = StoreConfig::default();
        let interval = self.duration("etcd-compaction-interval").unwrap_or(default.compaction_interval);
        let compaction_interval = if interval == Timespan::from_secs(0) { NEVER } else { interval };
        let etcd = self.etcd();
        // A copy of what etcd has is no store, and a store is no copy.
        let name = if etcd.is_used() { Path::new("etcd-view.redb") } else { &*default.path };
        Ok(StoreConfig { path: folder.join(name).into(), etcd, compaction_interval, ..default })
    }

    /// `--etcd-servers` and the flags that belong to it. They have no effect without it, as in kcp.
    fn etcd(&self) -> EtcdConfig {
        let servers = self.list("etcd-servers");
        if servers.is_empty() || servers == ["embedded"] {
            return EtcdConfig::default();
        }
        let with_scheme = |url: String| if url.contains("://") { url } else { format!("http://{url}") };
        let prefix = self.text("etcd-prefix").map(|prefix| format!("/{}", prefix.trim_matches('/')));
        let default = EtcdConfig::default();
        EtcdConfig {
            endpoints: servers.into_iter().map(with_scheme).collect(),
            prefix: prefix.unwrap_or(default.prefix),
            ca: self.path("etcd-cafile").map(Into::into),
            certificate: self.path("etcd-certfile").map(Into::into),
            private_key: self.path("etcd-keyfile").map(Into::into),
            ..EtcdConfig::default()
        }
    }
}
