//! The one place where the gateway is put together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_authn::ServiceAccountLookup;
use fairlead_client::{Endpoint, Names};
use fairlead_config::{ConfigError, Finding, GatewayConfig, IndexConfig, KcpBehaviour};
use fairlead_process::{
    FatalError, Health, InheritedSockets, LoadError, Metrics, MetricsError, Probe, Reloadable, Reloads,
    Shutdown, Tasks, chain,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::acme::{Acme, BindPatience};
use crate::core::{Core, root_cluster};
use crate::cors::{BadOrigin, Cors};
use crate::doors::{DoorError, DoorParts, Doors, PreparedDoors, Sockets};
use crate::identity::Believed;
use crate::index::{
    IndexOptions, IndexParts, IndexReport, ShardSelection, WorkspaceAuthentication, what_is_missing,
};
use crate::lanes::Lanes;
use crate::local::MetricsReaders;
use crate::mapping::{LivePaths, RootPath};
use crate::mount::MountRules;
use crate::observe::{GatewayMetrics, shard_metrics};
use crate::peers::X_FORWARDED_FOR;
use crate::pick::{PickMetrics, PickSettings, Picker, Signs};
use crate::proxy::DataPlane;
use crate::request::HeaderLimits;
use crate::route::{Freshness, LabelsBehindMounts, Patience, Router};
use crate::service_accounts::ShardLookup;
use crate::shard_credentials::{ShardKubeconfigError, shard_clients};
use crate::status::certificate_files;
use crate::table::TableWriter;
use crate::top::TopWorkspaces;
use crate::trace::Tracing;
use crate::upstream::{
    AdmissionOptions, BreakerOptions, CredentialFiles, HealthOptions, OwnCredentials, Unreachable,
    UpstreamCredential, UpstreamOptions, Upstreams,
};
use crate::workspaces::WorkspaceAuthenticators;

/// What its settings' file is called where files are looked at.
pub(crate) const CONFIGURATION: &str = "configuration";

/// What a process lends the gateway.
pub struct Environment {
    /// Where it counts.
    pub metrics: Metrics,
    /// What keeps files fresh.
    pub reloads: Reloads,
    /// What ends it.
    pub shutdown: Shutdown,
    /// Where its tasks run.
    pub tasks: Tasks,
    /// What tells the addresses of shards and other servers.
    pub names: Names,
    /// Sockets that were open before the process began.
    pub inherited: Arc<InheritedSockets>,
}

/// A running gateway.
pub struct Gateway {
    /// Its doors on the network by name, with the real ports.
    pub doors: Vec<(String, SocketAddr)>,
    core: Arc<Core>,
    lanes: Arc<Lanes>,
    opened: Doors,
    config: GatewayConfig,
    shutdown: Shutdown,
    ready: watch::Receiver<bool>,
}

/// A gateway that its settings' file and its successor both have to do with.
pub type SharedGateway = Arc<Mutex<Gateway>>;

/// The gateway cannot start; the operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A door cannot be opened.
    #[error("{error}")]
    Door {
        /// The setting that it is about.
        key: String,
        /// Why.
        #[source]
        error: DoorError,
    },
    /// A file that is needed cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] ShardKubeconfigError),
    /// An expression for origins is none.
    #[error("corsAllowedOrigins: {0}")]
    Cors(#[source] BadOrigin),
    /// The access log cannot be opened.
    #[error("the access log {file} cannot be opened", file = file.display())]
    AccessLog {
        /// Its file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The collector of spans cannot be spoken to.
    #[error("tracing.otlpEndpoint: {0}")]
    Collector(String),
    /// The system has no room for the threads that serve.
    #[error("the threads that serve connections cannot be started")]
    Threads(#[source] std::io::Error),
    /// A fault in the program.
    #[error("metrics cannot be registered")]
    Metrics(#[from] MetricsError),
}

/// A configuration cannot be put in force, and nothing has changed; the operator has to act.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct Refused {
    /// The setting that it is about.
    key: String,
    reason: String,
    hint: Option<String>,
}

impl Refused {
    fn door((key, error): (String, DoorError)) -> Self {
        Self { hint: error.hint(), ..Self::because(&key, &error) }
    }

    fn because(key: &str, error: &dyn std::error::Error) -> Self {
        Self { key: key.to_owned(), reason: chain(error), hint: None }
    }

    /// The same with its place in the file.
    pub fn at(self, file: &Path) -> Finding {
        fairlead_config::finding(file, &self.key, self.reason, self.hint)
    }
}

impl FatalError for StartError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Door { error, .. } => error.hint(),
            Self::Load(_)
            | Self::Kubeconfig(_)
            | Self::Cors(_)
            | Self::AccessLog { .. }
            | Self::Collector(_)
            | Self::Threads(_)
            | Self::Metrics(_) => None,
        }
    }
}

impl StartError {
    /// The setting that it is about.
    fn key(&self) -> &str {
        match self {
            Self::Door { key, .. } => key,
            Self::Kubeconfig(_) => "index",
            Self::Load(_) => "upstream",
            Self::Cors(_) => "corsAllowedOrigins",
            Self::AccessLog { .. } => "accessLog.file",
            Self::Collector(_) => "tracing.otlpEndpoint",
            Self::Threads(_) | Self::Metrics(_) => "",
        }
    }
}

/// What a process makes of its settings before anything runs.
struct Assembled {
    core: Arc<Core>,
    lanes: Arc<Lanes>,
    doors: Doors,
    acme: Acme,
    prepared: PreparedDoors,
    index: IndexParts,
    ready: watch::Receiver<bool>,
}

impl Gateway {
    /// Does with settings whatever starting with them would do, short of listening and running.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn check(config: &GatewayConfig, environment: &Environment) -> Result<(), Refused> {
        match Self::assemble(config, environment, Sockets::Unbound) {
            Ok(_) => Ok(()),
            Err(error) => Err(Refused { hint: error.hint(), ..Refused::because(error.key(), &error) }),
        }
    }

    /// Binds the doors and starts everything as tasks of the environment. Ready only after the first sync of
    /// the index; until then what is not known yet gets 503.
    ///
    /// # Errors
    /// [`StartError`]; nothing has been started then that the environment's shutdown does not end.
    pub fn start(config: GatewayConfig, environment: &Environment) -> Result<Self, StartError> {
        let assembled = Self::assemble(&config, environment, Sockets::Bound)?;
        let Assembled { core, lanes, mut doors, acme, prepared, index, ready } = assembled;
        let Environment { tasks, shutdown, inherited, .. } = environment;
        // A predecessor has the socket until it drains.
        let patience = if inherited.is_successor() { BindPatience::UntilFree } else { BindPatience::None };
        let responder = acme.responder(patience).map_err(|(address, source)| StartError::Door {
            key: "acme.httpAddress".to_owned(),
            error: DoorError::Bind { address: address.to_string(), source },
        })?;
        if let Some(responder) = responder {
            tasks.spawn("acme", responder.serve(shutdown.clone()));
        }
        let log = core.access_log.configure(&config.access_log);
        log.map_err(|source| StartError::AccessLog { file: config.access_log.file.to_path_buf(), source })?;
        tasks.spawn("index", crate::index::run(index, shutdown.clone()));
        doors.apply(prepared);
        for name in inherited.close_rest() {
            tracing::warn!(socket = name, "no door listens where this inherited socket does: closed");
        }
        let shutdown = shutdown.clone();
        Ok(Self { doors: doors.addresses(), core, lanes, opened: doors, config, shutdown, ready })
    }

    fn assemble(
        config: &GatewayConfig,
        environment: &Environment,
        sockets: Sockets,
    ) -> Result<Assembled, StartError> {
        // Before anything of pingora runs: it would take another provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let Environment { metrics, reloads, shutdown, tasks, names, inherited } = environment;
        let gateway_metrics = Arc::new(GatewayMetrics::new(metrics)?);
        gateway_metrics.set_connections_limit(config.limits.max_connections);
        let clients = shard_clients(config, reloads, names)?;
        warn_of_holes(config);
        let as_kcp = Arc::new(ArcSwap::from_pointee(config.as_kcp.clone()));
        let (paths, credential) = paths(config, &as_kcp, clients.root.endpoint(), reloads)?;

        let writer = TableWriter::new();
        let table = writer.table();
        let patience = Patience { wait: config.index.miss_wait.get(), ..Patience::default() };
        let report: Arc<IndexReport> = Arc::default();
        let freshness = Arc::clone(&report) as Arc<dyn Freshness>;
        let router = Arc::new(Router::new(Arc::clone(&table), Arc::clone(&freshness), patience));
        let upstreams = Arc::new(Upstreams::new(
            credential,
            own_credentials(config, reloads)?,
            upstream_options(config),
            shard_metrics(&gateway_metrics),
            names.clone(),
        ));
        let picker = Arc::new(Picker::new(
            Arc::clone(&table),
            freshness,
            Arc::clone(&upstreams) as Arc<dyn Signs>,
            PickSettings::new(config.shard_pick.clone()),
            PickMetrics::new(metrics)?,
        ));
        let health = Health::new();
        health.ping(&[Probe::Live]);
        let ready = watch::Sender::new(false);
        let seen = ready.subscribe();
        let (as_kcp_now, shards) = (Arc::clone(&as_kcp), Arc::clone(&table));
        health.check("informer-sync", &[Probe::Ready], move || {
            let is_enough = as_kcp_now.load().contains(&KcpBehaviour::Readiness) && shards.load().is_listed();
            if is_enough || *seen.borrow() { Ok(()) } else { Err(what_is_missing(&shards.load())) }
        });
        if let Some(limit) = config.index.max_age {
            let (report, table) = (Arc::clone(&report), Arc::clone(&table));
            health.check("index-age", &[Probe::Ready], move || report.is_younger(limit.get(), &table.load()));
        }
        let when_ready = ready.subscribe();
        let failing = reloads.clone();
        health.note("reloads", &[Probe::Ready], move || {
            let failures: Vec<String> = failing.failures().into_iter().map(told_to_anybody).collect();
            (!failures.is_empty()).then(|| format!("the last good one is in effect: {}", failures.join(", ")))
        });
        let (as_kcp_now, leaving) = (Arc::clone(&as_kcp), shutdown.clone());
        health.check("shutdown", &[Probe::Ready], move || {
            let stays_ready = as_kcp_now.load().contains(&KcpBehaviour::Drain);
            if leaving.is_announced() && !stays_ready {
                Err("process is shutting down".to_owned())
            } else {
                Ok(())
            }
        });
        router.set_labels_behind_mounts(behind_mounts(config));
        let authentication = workspace_authentication(config);
        let index = IndexParts {
            writer,
            router: Arc::clone(&router),
            picker: Arc::clone(&picker),
            upstreams: Arc::clone(&upstreams),
            clients: clients.clone(),
            options: index_options(config),
            ready,
            report: Arc::clone(&report),
            authentication: authentication.clone(),
            as_kcp: Arc::clone(&as_kcp),
        };

        let core = Arc::new(Core {
            table,
            router,
            paths,
            mounts: ArcSwap::from_pointee(mount_rules(config)),
            cors: ArcSwap::from_pointee(Cors::new(&config.cors_allowed_origins).map_err(StartError::Cors)?),
            as_kcp,
            workspaces: authentication.map(WorkspaceAuthenticators::new),
            upstreams,
            picker,
            metrics: Arc::clone(&gateway_metrics),
            top: TopWorkspaces::new(std::time::Instant::now()),
            access_log: Arc::new(AccessLog::new(metrics)?),
            traces: Tracing::new(metrics, tasks, shutdown, names)?,
            health,
            index: report,
            slow_clients: ArcSwap::from_pointee(config.slow_clients.clone()),
            metrics_readers: MetricsReaders::new(root_cluster(&clients.root)),
            header_limits: ArcSwap::from_pointee(header_limits(config)),
            doors: ArcSwap::default(),
            certificate_files: ArcSwap::from_pointee(certificate_files(config)),
            reloads: reloads.clone(),
            tail: Arc::default(),
            shutdown: shutdown.clone(),
            started: Instant::now(),
        });
        core.paths.set_believed_at_doors(believed_at_doors(config));
        let traces = core.traces.prepare(&config.tracing);
        core.traces.apply(traces.map_err(|error| StartError::Collector(error.to_string()))?);
        let app = Arc::new(DataPlane::new(Arc::clone(&core)));

        let lookup: Arc<dyn ServiceAccountLookup> =
            Arc::new(ShardLookup::new(Arc::clone(&core.router), clients));
        let lanes = Arc::new(Lanes::start().map_err(StartError::Threads)?);
        let acme = Acme::of(config, reloads, metrics, names)?;
        let doors = Doors::new(DoorParts {
            acme: acme.clone(),
            core: Arc::clone(&core),
            app,
            lanes: Arc::clone(&lanes),
            lookup,
            reloads: reloads.clone(),
            shutdown: shutdown.clone(),
            tasks: tasks.clone(),
            inherited: Arc::clone(inherited),
            // Until a successor knows as much as its predecessor, that one serves.
            gate: if inherited.is_successor() { when_ready.clone() } else { watch::channel(true).1 },
        });
        let prepared = doors.prepare(config, sockets);
        let prepared = prepared.map_err(|(key, error)| StartError::Door { key, error })?;
        Ok(Assembled { core, lanes, doors, acme, prepared, index, ready: when_ready })
    }

    /// Returns when everything was read once, as `/readyz` says it.
    pub async fn ready(&self) {
        // The sender lives as long as the index; without it nothing becomes ready any more.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }

    /// What says when everything was read once.
    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.clone()
    }

    /// What serves connections.
    pub(crate) fn lanes(&self) -> Arc<Lanes> {
        Arc::clone(&self.lanes)
    }

    /// The settings in force.
    pub(crate) fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// Its doors as far as sockets go.
    pub(crate) fn open_doors(&self) -> &Doors {
        &self.opened
    }

    /// Opens log files anew, after somebody has moved them away.
    pub fn log_reopener(&self) -> impl Fn() + Send + Sync + use<> {
        let log = Arc::clone(&self.core.access_log);
        move || log.reopen()
    }

    /// Puts a new configuration in force: doors are opened, changed and closed, everything else changes as far as that goes
    /// while connections are open. What needs a restart is named in the log and stays as it was.
    ///
    /// # Errors
    /// [`Refused`] if something of it cannot be; then nothing has changed.
    pub fn reconfigure(&mut self, config: GatewayConfig) -> Result<(), Refused> {
        // All that can fail comes first.
        let prepared = self.opened.prepare(&config, Sockets::Bound).map_err(Refused::door)?;
        let cors = Cors::new(&config.cors_allowed_origins)
            .map_err(|error| Refused::because("corsAllowedOrigins", &error))?;
        let log = self.core.access_log.prepare(&config.access_log);
        let log = log.map_err(|error| Refused::because("accessLog.file", &error))?;
        let traces = self.core.traces.prepare(&config.tracing);
        let traces = traces.map_err(|error| Refused::because("tracing.otlpEndpoint", &error))?;

        if self.config.as_kcp != config.as_kcp {
            warn_of_holes(&config);
        }
        self.core.certificate_files.store(Arc::new(certificate_files(&config)));
        self.core.as_kcp.store(Arc::new(config.as_kcp.clone()));
        // What doors are about to believe is taken off requests first, and what they have believed, until they do not any more.
        let believed = believed_at_doors(&config);
        let mut meanwhile = believed_at_doors(&self.config);
        meanwhile.extend(&believed);
        self.core.paths.set_believed_at_doors(meanwhile);
        self.opened.apply(prepared);
        self.core.paths.set_believed_at_doors(believed);
        self.doors = self.opened.addresses();
        let patience = Patience { wait: config.index.miss_wait.get(), ..Patience::default() };
        self.core.router.set_patience(patience);
        self.core.upstreams.set_options(upstream_options(&config));
        self.core.slow_clients.store(Arc::new(config.slow_clients.clone()));
        self.core.header_limits.store(Arc::new(header_limits(&config)));
        self.core.metrics.set_connections_limit(config.limits.max_connections);
        self.core.picker.set_settings(PickSettings::new(config.shard_pick.clone()));
        self.core.cors.store(Arc::new(cors));
        if let Err(error) = self.core.access_log.apply(log) {
            tracing::error!(%error, "there is no room for the access log's thread");
        }
        self.core.traces.apply(traces);
        self.core.mounts.store(Arc::new(mount_rules(&config)));
        self.core.router.set_labels_behind_mounts(behind_mounts(&config));
        if config.paths.mapping_file.is_none() && self.config.paths.mapping_file.is_none() {
            self.core.paths.set_built_in(config.paths.services);
        }
        self.shutdown.configure(&config.drain);
        for what in restart_needed(&self.config, &config) {
            tracing::warn!(setting = what, "this change of the configuration needs a restart");
        }
        self.config = config;
        Ok(())
    }
}

/// Follows the configuration file until the process drains.
///
/// # Errors
/// [`LoadError`] if it cannot be read now.
pub fn follow_configuration(
    gateway: &SharedGateway,
    file: &Path,
    reloads: &Reloads,
) -> Result<(), LoadError> {
    // Whoever runs it ends it.
    let (followed, path) = (Arc::downgrade(gateway), file.to_owned());
    reloads.register(CONFIGURATION, [path.clone()], move || {
        let config: GatewayConfig = fairlead_config::load(&path)?;
        match followed.upgrade() {
            Some(gateway) => {
                gateway.lock().reconfigure(config).map_err(|refused| ConfigError::Faulty(refused.at(&path)))
            }
            None => Ok(()),
        }
    })?;
    Ok(())
}

/// What could not be reloaded, and where the fault is, if that is said: whoever may ask whether we are ready learns no
/// folders and no contents.
fn told_to_anybody((what, reason): (String, String)) -> String {
    let place = reason.split_whitespace().find_map(|word| {
        let word = word.trim_matches(|end: char| !end.is_alphanumeric());
        let (file, line) = word.rsplit('/').next()?.split_once(':')?;
        (file.contains('.') && line.starts_with(|digit: char| digit.is_ascii_digit()))
            .then(|| format!("{file}:{line}"))
    });
    match place {
        Some(place) => format!("{what} ({place})"),
        None => what,
    }
}

fn header_limits(config: &GatewayConfig) -> HeaderLimits {
    HeaderLimits {
        fields: config.limits.max_header_fields,
        bytes: usize::try_from(config.limits.max_header_bytes.bytes()).unwrap_or(usize::MAX),
    }
}

fn restart_needed(old: &GatewayConfig, new: &GatewayConfig) -> Vec<&'static str> {
    let workspaces =
        |config: &GatewayConfig| config.listeners.iter().any(|door| door.authentication.workspaces);
    let files = |config: &GatewayConfig| {
        let upstream = &config.upstream;
        let shards = upstream.shards.clone();
        (upstream.certificate.clone(), upstream.private_key.clone(), upstream.server_ca.clone(), shards)
    };
    let index = |config: &GatewayConfig| {
        let miss_wait = GatewayConfig::default().index.miss_wait;
        IndexConfig { miss_wait, ..config.index.clone() }
    };
    let mut needed = Vec::new();
    if old.acme != new.acme {
        needed.push("acme");
    }
    if files(old) != files(new) {
        needed.push("upstream");
    }
    if index(old) != index(new) {
        needed.push("index");
    }
    if workspaces(new) && !workspaces(old) {
        needed.push("authentication.workspaces");
    }
    if old.upstream.ping_interval != new.upstream.ping_interval {
        needed.push("upstream.pingInterval of the index");
    }
    if old.paths.mapping_file != new.paths.mapping_file {
        needed.push("paths.mappingFile");
    }
    let reads_once = |config: &GatewayConfig| config.as_kcp.contains(&KcpBehaviour::Reloads);
    if reads_once(old) != reads_once(new) {
        needed.push("asKcp: reloads");
    }
    if old.log != new.log {
        needed.push("log");
    }
    if old.state_file != new.state_file {
        needed.push("stateFile");
    }
    needed
}

fn warn_of_holes(config: &GatewayConfig) {
    for (switch, hole) in config.as_kcp.iter().filter_map(|switch| Some((switch, switch.hole()?))) {
        tracing::warn!(?switch, "asKcp opens a hole: {hole}");
    }
}

fn upstream_options(config: &GatewayConfig) -> UpstreamOptions {
    UpstreamOptions {
        connect_timeout: config.upstream.connect_timeout.get(),
        read_timeout: config.upstream.response_timeout.get() + Duration::from_secs(5),
        ping_interval: config.upstream.ping_interval.get(),
        pings: !config.as_kcp.contains(&KcpBehaviour::Pings),
        idle_timeout: config.upstream.idle_timeout.get(),
        max_age: config.upstream.connection_age.get(),
        unreachable: if config.as_kcp.contains(&KcpBehaviour::Unreachable) {
            Unreachable::BadGateway
        } else {
            Unreachable::ServiceUnavailable
        },
        repeat: !config.as_kcp.contains(&KcpBehaviour::Retries),
        admission: AdmissionOptions::new(&config.upstream.concurrency),
        health: HealthOptions::new(&config.upstream.health),
        breaker: BreakerOptions::new(&config.upstream.breaker),
    }
}

/// Which paths lead where, and who the gateway is towards shards: both from the mapping file, if there is one.
fn paths(
    config: &GatewayConfig,
    as_kcp: &Arc<ArcSwap<Vec<KcpBehaviour>>>,
    root_shard: &Endpoint,
    reloads: &Reloads,
) -> Result<(Arc<LivePaths>, Arc<Reloadable<UpstreamCredential>>), LoadError> {
    let paths = Arc::new(LivePaths::built_in(config.paths.services));
    let reads_once = config.as_kcp.contains(&KcpBehaviour::Reloads);
    let credential = match &config.paths.mapping_file {
        None => {
            let files = CredentialFiles {
                certificate: config.upstream.certificate.to_path_buf(),
                private_key: config.upstream.private_key.to_path_buf(),
                authorities: config.upstream.server_ca.to_path_buf(),
                server_name: None,
            };
            let watched = if reads_once { Vec::new() } else { files.files().into() };
            reloads.register("credential for shards", watched, move || files.load())?
        }
        Some(file) => {
            let (read_by, file): (_, PathBuf) = (Arc::clone(&paths), file.to_path_buf());
            let watched = if reads_once { Vec::new() } else { vec![file.clone()] };
            let (root_shard, as_kcp) = (root_shard.clone(), Arc::clone(as_kcp));
            reloads.register_naming("mapping file", watched, move || {
                let is_alone = as_kcp.load().contains(&KcpBehaviour::RootPath);
                let read = read_by.read(&file, if is_alone { RootPath::Alone } else { RootPath::Beside });
                if read.is_ok() && read_by.load().leads_services_to(&root_shard) {
                    tracing::warn!(
                        "the mapping file leads /services/ to the root shard, which serves the virtual workspaces of no \
                         other shard; without a mapping file each shard serves its own (paths.services)"
                    );
                }
                read.map(|(credential, named)| (credential, if reads_once { Vec::new() } else { named }))
            })?
        }
    };
    Ok((paths, credential))
}

/// By which headers the doors believe front proxies, where those are not the usual ones, and by which some believe where a
/// client is: at the others nobody may say it, or the server behind might take it for what a door has believed.
fn believed_at_doors(config: &GatewayConfig) -> Believed {
    let mut believed = Believed::default();
    for door in &config.listeners {
        let headers = &door.authentication.request_header;
        let names = [&headers.username_headers, &headers.uid_headers, &headers.group_headers];
        names.into_iter().flatten().for_each(|name| believed.name(name));
        headers.extra_header_prefixes.iter().for_each(|prefix| believed.prefix(prefix));
        let address = door.peers.client_address_header.as_ref();
        // Of that one a server is told by the gateway, which appends to what came.
        if let Some(name) = address.filter(|name| !name.eq_ignore_ascii_case(X_FORWARDED_FOR.as_str())) {
            believed.name(name);
        }
    }
    believed
}

/// Who the gateway is towards shards that are spoken to in a way of their own, and whom it takes them for.
fn own_credentials(config: &GatewayConfig, reloads: &Reloads) -> Result<OwnCredentials, LoadError> {
    let usual = &config.upstream;
    let reads_once = config.as_kcp.contains(&KcpBehaviour::Reloads);
    let mut own = OwnCredentials::default();
    for shard in &usual.shards {
        if shard.certificate.is_none() && shard.server_ca.is_none() && shard.server_name.is_none() {
            continue;
        }
        let files = CredentialFiles {
            certificate: shard.certificate.as_ref().unwrap_or(&usual.certificate).to_path_buf(),
            private_key: shard.private_key.as_ref().unwrap_or(&usual.private_key).to_path_buf(),
            authorities: shard.server_ca.as_ref().unwrap_or(&usual.server_ca).to_path_buf(),
            server_name: shard.server_name.clone(),
        };
        let what = format!("credential for shard {}", shard.name);
        let watched = if reads_once { Vec::new() } else { files.files().into() };
        own.insert(shard.name.as_str().into(), reloads.register(&what, watched, move || files.load())?);
    }
    Ok(own)
}

fn mount_rules(config: &GatewayConfig) -> MountRules {
    MountRules { hosts: config.paths.mount_hosts.clone(), hops: config.paths.mount_hops }
}

fn behind_mounts(config: &GatewayConfig) -> LabelsBehindMounts {
    if config.as_kcp.contains(&KcpBehaviour::MountLabels) {
        LabelsBehindMounts::Ignored
    } else {
        LabelsBehindMounts::Refused
    }
}

/// The index of the workspaces' own authenticators, if a door asks for it.
fn workspace_authentication(config: &GatewayConfig) -> Option<Arc<WorkspaceAuthentication>> {
    let is_wanted = config.listeners.iter().any(|door| door.authentication.workspaces);
    is_wanted.then(|| Arc::new(WorkspaceAuthentication::new()))
}

fn index_options(config: &GatewayConfig) -> IndexOptions {
    let index = &config.index;
    IndexOptions {
        selection: ShardSelection::new(index.shards.clone(), index.shard_selector.clone()),
        snapshot: index.snapshot.as_ref().map(|path| path.to_path_buf()),
        ..IndexOptions::default()
    }
}
