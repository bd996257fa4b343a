//! Assembles the gateway from its parts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_authn::ServiceAccountLookup;
use fairlead_client::NameResolver;
use fairlead_config::{ConfigError, Finding, GatewayConfig, KcpBehaviour};
use fairlead_process::{
    FatalError, Health, InheritedSockets, LoadError, Metrics, MetricsError, Probe, Reloads, Shutdown, Tasks,
    chain,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::admin::status::certificate_files;
use crate::admin::{AdminApi, AdminParts};
use crate::auth::service_accounts::ShardLookup;
use crate::auth::workspaces::WorkspaceAuthenticators;
use crate::forward::Forwarder;
use crate::http::HttpServer;
use crate::listener::acme::{Acme, AddressInUse};
use crate::listener::bound::Sockets;
use crate::listener::listener_manager::{ListenerError, ListenerManager, ListenerParts, PreparedListeners};
use crate::listener::workers::Workers;
use crate::pipeline::RequestPipeline;
use crate::policy::connection_backlog::BacklogBudget;
use crate::policy::cors::{Cors, InvalidOrigin};
use crate::process::settings::{
    behind_mounts, header_limits, index_options, listener_trusted_headers, mount_rules, own_credentials,
    paths, restart_needed, stalled_stream_budget, upstream_options, warn_of_insecure_kcp_behaviours,
    workspace_authentication,
};
use crate::routing::Routing;
use crate::routing::index::{IndexParts, IndexReport, describe_missing_lists};
use crate::routing::placement::{PlacementMetrics, PlacementSettings, Scheduler, UpstreamSignals};
use crate::routing::resolver::{IndexStatus, MissWaitPolicy, WorkspaceResolver};
use crate::routing::shard_credentials::{ShardClientsError, ShardKubeconfigError, shard_clients};
use crate::routing::table::TableWriter;
use crate::telemetry::Telemetry;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::{GatewayMetrics, shard_metrics};
use crate::telemetry::top::TopWorkspaces;
use crate::telemetry::trace::Tracing;
use crate::upstream::{Upstreams, with_host_addresses};

/// Name of the configuration file among the reloaded files.
pub(crate) const CONFIGURATION: &str = "configuration";

/// The dependencies of the gateway from the process.
pub struct Environment {
    /// The registry of metrics.
    pub metrics: Metrics,
    /// Reloads files.
    pub reloads: Reloads,
    /// Signals the drain and the end of the process.
    pub shutdown: Shutdown,
    /// The tasks of the gateway.
    pub tasks: Tasks,
    /// Resolves the names of shards and other servers.
    pub names: NameResolver,
    /// Sockets that were open before the process started.
    pub inherited: Arc<InheritedSockets>,
}

/// A running gateway.
pub struct Gateway {
    /// Its network listeners by name, with the actual ports.
    pub listeners: Vec<(String, SocketAddr)>,
    pipeline: Arc<RequestPipeline>,
    admin: Arc<AdminApi>,
    workers: Arc<Workers>,
    listener_manager: ListenerManager,
    config: GatewayConfig,
    shutdown: Shutdown,
    ready: watch::Receiver<bool>,
}

/// A gateway, shared by configuration reloads and the hand-over to a successor.
pub type SharedGateway = Arc<Mutex<Gateway>>;

/// The gateway cannot start; the operator must act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener cannot be opened.
    #[error("{error}")]
    Listener {
        /// The configuration key.
        key: String,
        /// The cause.
        #[source]
        error: ListenerError,
    },
    /// A required file cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A kubeconfig is invalid.
    #[error(transparent)]
    Kubeconfig(#[from] ShardKubeconfigError),
    /// An expression for origins is invalid.
    #[error("corsAllowedOrigins: {0}")]
    Cors(#[source] InvalidOrigin),
    /// The access log cannot be opened.
    #[error("the access log {file} cannot be opened", file = file.display())]
    AccessLog {
        /// Its file.
        file: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The configuration of the span collector is invalid.
    #[error("tracing.otlpEndpoint: {0}")]
    Collector(String),
    /// A programming error.
    #[error("metrics cannot be registered")]
    Metrics(#[from] MetricsError),
}

impl From<ShardClientsError> for StartError {
    fn from(error: ShardClientsError) -> Self {
        match error {
            ShardClientsError::Kubeconfig(error) => Self::Kubeconfig(error),
            ShardClientsError::Load(error) => Self::Load(error),
            error @ ShardClientsError::NotLoaded(_) => Self::Metrics(MetricsError::Msg(error.to_string())),
        }
    }
}

/// A configuration cannot be applied, and nothing has changed; the operator must act.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct RejectedConfiguration {
    /// The configuration key.
    key: String,
    reason: String,
    hint: Option<String>,
}

impl RejectedConfiguration {
    fn listener((key, error): (String, ListenerError)) -> Self {
        Self { hint: error.hint(), ..Self::of_error(&key, &error) }
    }

    fn of_error(key: &str, error: &dyn std::error::Error) -> Self {
        Self { key: key.to_owned(), reason: chain(error), hint: None }
    }

    /// The same error with its position in the file.
    pub fn at(self, file: &Path) -> Finding {
        fairlead_config::finding(file, &self.key, self.reason, self.hint)
    }
}

impl FatalError for StartError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Listener { error, .. } => error.hint(),
            Self::Load(_)
            | Self::Kubeconfig(_)
            | Self::Cors(_)
            | Self::AccessLog { .. }
            | Self::Collector(_)
            | Self::Metrics(_) => None,
        }
    }
}

impl StartError {
    /// The configuration key.
    fn key(&self) -> &str {
        match self {
            Self::Listener { key, .. } => key,
            Self::Kubeconfig(_) => "index",
            Self::Load(_) => "upstream",
            Self::Cors(_) => "corsAllowedOrigins",
            Self::AccessLog { .. } => "accessLog.file",
            Self::Collector(_) => "tracing.otlpEndpoint",
            Self::Metrics(_) => "",
        }
    }
}

/// The parts made from a configuration before anything runs.
struct GatewayParts {
    pipeline: Arc<RequestPipeline>,
    admin: Arc<AdminApi>,
    workers: Arc<Workers>,
    listeners: ListenerManager,
    acme: Acme,
    prepared: PreparedListeners,
    index: IndexParts,
    ready: watch::Receiver<bool>,
}

impl Gateway {
    /// Checks a configuration: does everything that a start would do, except for listening and running.
    ///
    /// # Errors
    /// [`RejectedConfiguration`]
    pub fn check(config: &GatewayConfig, environment: &Environment) -> Result<(), RejectedConfiguration> {
        match Self::assemble(config, environment, Sockets::Unbound) {
            Ok(_) => Ok(()),
            Err(error) => Err(RejectedConfiguration {
                hint: error.hint(),
                ..RejectedConfiguration::of_error(error.key(), &error)
            }),
        }
    }

    /// Binds the listeners and starts everything as tasks of the environment. It is ready after the first sync of the
    /// index; until then requests for unknown workspaces get 503.
    ///
    /// # Errors
    /// [`StartError`]; all tasks that were started then end with the environment's shutdown.
    pub fn start(config: GatewayConfig, environment: &Environment) -> Result<Self, StartError> {
        let parts = Self::assemble(&config, environment, Sockets::Bound)?;
        let GatewayParts { pipeline, admin, workers, mut listeners, acme, prepared, index, ready } = parts;
        let Environment { tasks, shutdown, inherited, .. } = environment;
        // A predecessor holds the socket until it drains.
        let address_in_use = if inherited.is_successor() { AddressInUse::Wait } else { AddressInUse::Fail };
        let responder = acme.responder(address_in_use).map_err(|(address, source)| StartError::Listener {
            key: "acme.httpAddress".to_owned(),
            error: ListenerError::Bind { address: address.to_string(), source },
        })?;
        if let Some(responder) = responder {
            tasks.spawn("acme", responder.serve(shutdown.clone()));
        }
        let log = pipeline.forwarder.telemetry.access_log.configure(&config.access_log);
        log.map_err(|source| StartError::AccessLog { file: config.access_log.file.to_path_buf(), source })?;
        tasks.spawn("index", crate::routing::index::run(index, shutdown.clone()));
        listeners.apply(prepared);
        for name in inherited.close_rest() {
            tracing::warn!(socket = name, "no listener uses this inherited socket: it is closed");
        }
        let shutdown = shutdown.clone();
        Ok(Self {
            listeners: listeners.addresses(),
            pipeline,
            admin,
            workers,
            listener_manager: listeners,
            config,
            shutdown,
            ready,
        })
    }

    fn assemble(
        config: &GatewayConfig,
        environment: &Environment,
        sockets: Sockets,
    ) -> Result<GatewayParts, StartError> {
        // Before any code of pingora runs, which would install another provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let Environment { metrics, reloads, shutdown, tasks, names, inherited } = environment;
        let names = &with_host_addresses(names, &config.upstream.hosts);
        let gateway_metrics = Arc::new(GatewayMetrics::new(metrics)?);
        gateway_metrics.set_connections_limit(config.limits.max_connections);
        let clients = shard_clients(config, reloads, names)?;
        warn_of_insecure_kcp_behaviours(config);
        let kcp_compatibility = Arc::new(ArcSwap::from_pointee(config.kcp_compatibility.clone()));
        let (paths, credential) = paths(config, &kcp_compatibility, clients.root.endpoint(), reloads)?;

        let writer = TableWriter::new();
        let table = writer.table();
        let miss_policy = MissWaitPolicy { wait: config.index.miss_wait.get(), ..MissWaitPolicy::default() };
        let report: Arc<IndexReport> = Arc::default();
        let index_status = Arc::clone(&report) as Arc<dyn IndexStatus>;
        let resolver =
            Arc::new(WorkspaceResolver::new(Arc::clone(&table), Arc::clone(&index_status), miss_policy));
        let upstreams = Arc::new(Upstreams::new(
            credential,
            own_credentials(config, reloads)?,
            upstream_options(config),
            shard_metrics(&gateway_metrics),
            names.clone(),
        ));
        let scheduler = Arc::new(Scheduler::new(
            Arc::clone(&table),
            index_status,
            Arc::clone(&upstreams) as Arc<dyn UpstreamSignals>,
            PlacementSettings::new(config.placement.clone()),
            PlacementMetrics::new(metrics)?,
        ));
        let health = Health::new();
        health.ping(&[Probe::Live]);
        let ready = watch::Sender::new(false);
        let is_ready = ready.subscribe();
        let (kcp_compatibility_now, shards) = (Arc::clone(&kcp_compatibility), Arc::clone(&table));
        health.check("informer-sync", &[Probe::Ready], move || {
            let is_enough =
                kcp_compatibility_now.load().contains(&KcpBehaviour::Readiness) && shards.load().is_listed();
            if is_enough || *is_ready.borrow() { Ok(()) } else { Err(describe_missing_lists(&shards.load())) }
        });
        if let Some(limit) = config.index.max_age {
            let (report, table) = (Arc::clone(&report), Arc::clone(&table));
            health.check("index-age", &[Probe::Ready], move || report.check_age(limit.get(), &table.load()));
        }
        let when_ready = ready.subscribe();
        let failing = reloads.clone();
        health.note("reloads", &[Probe::Ready], move || {
            let failures: Vec<String> = failing.failures().into_iter().map(public_failure).collect();
            (!failures.is_empty()).then(|| format!("the last good one is in effect: {}", failures.join(", ")))
        });
        let (kcp_compatibility_now, process_shutdown) = (Arc::clone(&kcp_compatibility), shutdown.clone());
        health.check("shutdown", &[Probe::Ready], move || {
            let stays_ready = kcp_compatibility_now.load().contains(&KcpBehaviour::Drain);
            if process_shutdown.is_announced() && !stays_ready {
                Err("process is shutting down".to_owned())
            } else {
                Ok(())
            }
        });
        resolver.set_labels_behind_mounts(behind_mounts(config));
        let authentication = workspace_authentication(config);
        let index = IndexParts {
            writer,
            resolver: Arc::clone(&resolver),
            scheduler: Arc::clone(&scheduler),
            upstreams: Arc::clone(&upstreams),
            clients: clients.clone(),
            options: index_options(config),
            ready,
            report: Arc::clone(&report),
            authentication: authentication.clone(),
            kcp_compatibility: Arc::clone(&kcp_compatibility),
        };

        let telemetry = Arc::new(Telemetry {
            metrics: gateway_metrics,
            top: TopWorkspaces::new(std::time::Instant::now()),
            access_log: Arc::new(AccessLog::new(metrics)?),
            traces: Tracing::new(metrics, tasks, shutdown, names)?,
            tail: Arc::default(),
        });
        let routing =
            Arc::new(Routing { table, resolver, paths, mounts: ArcSwap::from_pointee(mount_rules(config)) });
        routing.paths.set_listener_trusted_headers(listener_trusted_headers(config));
        let traces = telemetry.traces.prepare(&config.tracing);
        telemetry.traces.apply(traces.map_err(|error| StartError::Collector(error.to_string()))?);
        let slow_clients = config.slow_clients.clone();
        let pipeline = Arc::new(RequestPipeline {
            forwarder: Arc::new(Forwarder::new(
                upstreams,
                Arc::clone(&telemetry),
                slow_clients,
                kcp_compatibility,
            )),
            cors: ArcSwap::from_pointee(Cors::new(&config.cors_allowed_origins).map_err(StartError::Cors)?),
            workspaces: authentication.map(WorkspaceAuthenticators::new),
            header_limits: ArcSwap::from_pointee(header_limits(config)),
            routing,
        });
        let backlog_budget = Arc::new(BacklogBudget::new(stalled_stream_budget(config)));
        let admin = Arc::new(AdminApi::new(AdminParts {
            pipeline: Arc::clone(&pipeline),
            scheduler,
            health,
            index: report,
            root: clients.root.clone(),
            reloads: reloads.clone(),
            shutdown: shutdown.clone(),
            certificate_files: certificate_files(config),
            backlog_budget: Arc::clone(&backlog_budget),
        }));
        let app = Arc::new(HttpServer::new(Arc::clone(&pipeline), Arc::clone(&admin)));

        let lookup: Arc<dyn ServiceAccountLookup> =
            Arc::new(ShardLookup::new(Arc::clone(&pipeline.routing.resolver), clients));
        let workers = Arc::new(Workers::start());
        let acme = Acme::of(config, reloads, metrics, names)?;
        let listeners = ListenerManager::new(ListenerParts {
            acme: acme.clone(),
            telemetry,
            backlog_budget,
            admin: Arc::clone(&admin),
            app,
            workers: Arc::clone(&workers),
            lookup,
            reloads: reloads.clone(),
            shutdown: shutdown.clone(),
            tasks: tasks.clone(),
            inherited: Arc::clone(inherited),
            // The predecessor serves until the successor's index is synced.
            may_accept: if inherited.is_successor() { when_ready.clone() } else { watch::channel(true).1 },
        });
        let prepared = listeners.prepare(config, sockets);
        let prepared = prepared.map_err(|(key, error)| StartError::Listener { key, error })?;
        Ok(GatewayParts { pipeline, admin, workers, listeners, acme, prepared, index, ready: when_ready })
    }

    fn telemetry(&self) -> &Telemetry {
        &self.pipeline.forwarder.telemetry
    }

    /// Returns when everything has been read once, as `/readyz` reports.
    pub async fn ready(&self) {
        // The sender lives as long as the index; without it the gateway never becomes ready.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }

    /// The readiness, which becomes true when everything has been read once.
    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.clone()
    }

    /// The workers that serve connections.
    pub(crate) fn workers(&self) -> Arc<Workers> {
        Arc::clone(&self.workers)
    }

    /// The active configuration.
    pub(crate) fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// The listener manager.
    pub(crate) fn open_listeners(&self) -> &ListenerManager {
        &self.listener_manager
    }

    /// A function that reopens log files after log rotation has moved them.
    pub fn log_reopener(&self) -> impl Fn() + Send + Sync + use<> {
        let log = Arc::clone(&self.telemetry().access_log);
        move || log.reopen()
    }

    /// Applies a new configuration: listeners are opened, changed and closed, and all other settings change as far as that is
    /// possible while connections are open. Changes that need a restart are logged and not applied.
    ///
    /// # Errors
    /// [`RejectedConfiguration`] if a part of it is invalid; then nothing has changed.
    pub fn reconfigure(&mut self, config: GatewayConfig) -> Result<(), RejectedConfiguration> {
        // Everything that can fail comes first.
        let prepared = self
            .listener_manager
            .prepare(&config, Sockets::Bound)
            .map_err(RejectedConfiguration::listener)?;
        let cors = Cors::new(&config.cors_allowed_origins)
            .map_err(|error| RejectedConfiguration::of_error("corsAllowedOrigins", &error))?;
        let log = self.telemetry().access_log.prepare(&config.access_log);
        let log = log.map_err(|error| RejectedConfiguration::of_error("accessLog.file", &error))?;
        let traces = self.telemetry().traces.prepare(&config.tracing);
        let traces =
            traces.map_err(|error| RejectedConfiguration::of_error("tracing.otlpEndpoint", &error))?;

        if self.config.kcp_compatibility != config.kcp_compatibility {
            warn_of_insecure_kcp_behaviours(&config);
        }
        self.admin.certificate_files.store(Arc::new(certificate_files(&config)));
        self.pipeline.forwarder.kcp_compatibility.store(Arc::new(config.kcp_compatibility.clone()));
        // Identity headers of the new configuration are stripped from now on; those of the old one until no listener trusts them.
        let trusted = listener_trusted_headers(&config);
        let mut meanwhile = listener_trusted_headers(&self.config);
        meanwhile.extend(&trusted);
        self.pipeline.routing.paths.set_listener_trusted_headers(meanwhile);
        self.listener_manager.apply(prepared);
        self.pipeline.routing.paths.set_listener_trusted_headers(trusted);
        self.listeners = self.listener_manager.addresses();
        let miss_policy = MissWaitPolicy { wait: config.index.miss_wait.get(), ..MissWaitPolicy::default() };
        self.pipeline.routing.resolver.set_miss_wait_policy(miss_policy);
        self.pipeline.forwarder.upstreams.set_options(upstream_options(&config));
        self.pipeline.forwarder.slow_clients.store(Arc::new(config.slow_clients.clone()));
        self.admin.backlog_budget.set_limit(stalled_stream_budget(&config));
        self.pipeline.header_limits.store(Arc::new(header_limits(&config)));
        self.telemetry().metrics.set_connections_limit(config.limits.max_connections);
        self.admin.set_placement(PlacementSettings::new(config.placement.clone()));
        self.pipeline.cors.store(Arc::new(cors));
        if let Err(error) = self.telemetry().access_log.apply(log) {
            tracing::error!(%error, "the access log's thread cannot be started");
        }
        self.telemetry().traces.apply(traces);
        self.pipeline.routing.mounts.store(Arc::new(mount_rules(&config)));
        self.pipeline.routing.resolver.set_labels_behind_mounts(behind_mounts(&config));
        if config.paths.mapping_file.is_none() && self.config.paths.mapping_file.is_none() {
            self.pipeline.routing.paths.set_built_in(config.paths.services);
        }
        self.shutdown.configure(&config.drain);
        for setting in restart_needed(&self.config, &config) {
            tracing::warn!(setting, "this change of the configuration needs a restart");
        }
        self.config = config;
        Ok(())
    }
}

/// Follows the configuration file until the process drains.
///
/// # Errors
/// [`LoadError`] if the file cannot be read now.
pub fn follow_configuration(
    gateway: &SharedGateway,
    file: &Path,
    reloads: &Reloads,
) -> Result<(), LoadError> {
    // A weak reference, because the owner of the gateway ends it.
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

/// The name of a file that could not be reloaded, with the position of the error if there is one. Readiness is public, so it
/// must not reveal folders or contents.
fn public_failure((object, reason): (String, String)) -> String {
    let position = reason.split_whitespace().find_map(|word| {
        let word = word.trim_matches(|end: char| !end.is_alphanumeric());
        let (file, line) = word.rsplit('/').next()?.split_once(':')?;
        (file.contains('.') && line.starts_with(|digit: char| digit.is_ascii_digit()))
            .then(|| format!("{file}:{line}"))
    });
    match position {
        Some(position) => format!("{object} ({position})"),
        None => object,
    }
}
