//! `fairlead-gateway --config <file>`, or with kcp-front-proxy's flags: the gateway as a process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_certs::write_self_signed;
use fairlead_client::NameResolver;
use fairlead_config::{ConfigError, GatewayConfig};
use fairlead_gateway::{
    Environment, FlagError, FrontProxyFlags, Gateway, Parsed, ServiceNotifier, SharedGateway, StartError,
    follow_configuration, on_upgrade_signal,
};
use fairlead_process::{
    FatalError, InheritedSockets, LoadError, LoggingError, Metrics, MetricsError, Reloads, Shutdown,
    TaskFailed, Tasks, check_open_files, init_logging, on_reopen_signal, run, signals,
};
use parking_lot::Mutex;
use pingora::server::configuration::ServerConf;
use pingora::server::{ListenFds, RunArgs, Server, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::Service;
use tokio::sync::oneshot;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The configuration, and the file to reload it from.
struct Plan {
    config: GatewayConfig,
    followed: Option<PathBuf>,
    warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Flags(#[from] FlagError),
    #[error("no certificate is configured, and a self-signed one cannot be created: {0}")]
    SelfSigned(#[source] fairlead_certs::Error),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("metrics cannot be registered")]
    Metrics(#[from] MetricsError),
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    #[error("signal handlers cannot be installed")]
    Signals(#[source] std::io::Error),
    #[error("the gateway panicked")]
    Panicked,
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl FatalError for Failure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Start(error) => error.hint(),
            Self::Flags(error) => error.hint(),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    // Before any other code reads the environment or opens files.
    let inherited = InheritedSockets::from_environment();
    // Arguments that are not UTF-8 are neither a flag nor an existing file.
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match FrontProxyFlags::parse(arguments) {
        Ok(Parsed::Text(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        parsed => run(|| match parsed? {
            Parsed::Flags(flags) => serve(plan(*flags)?, inherited),
            Parsed::File(file) => {
                let config = fairlead_config::load(&file)?;
                serve(Plan { config, followed: Some(file), warnings: Vec::new() }, inherited)
            }
            Parsed::Check(file) => check(&file),
            Parsed::Text(_) => Ok(()),
        }),
    }
}

/// Checks a configuration and reports the result.
fn check(file: &Path) -> Result<(), Failure> {
    let config: GatewayConfig = fairlead_config::load(file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::Runtime)?.block_on(async {
        let metrics = Metrics::new("gateway", env!("CARGO_PKG_VERSION"))?;
        let environment = environment(&config, metrics, InheritedSockets::default())?;
        Gateway::check(&config, &environment)
            .map_err(|refused| Failure::Config(ConfigError::Faulty(refused.at(file))))
    })?;
    println!("{}: this configuration can be used", file.display());
    Ok(())
}

fn environment(
    config: &GatewayConfig,
    metrics: Metrics,
    inherited: InheritedSockets,
) -> Result<Environment, Failure> {
    let shutdown = Shutdown::new(&config.drain);
    Ok(Environment {
        reloads: Reloads::new(&metrics)?,
        tasks: Tasks::new(shutdown.clone()),
        metrics,
        shutdown,
        names: NameResolver::system(),
        inherited: Arc::new(inherited),
    })
}

fn plan(flags: FrontProxyFlags) -> Result<Plan, Failure> {
    let FrontProxyFlags { config, self_signed, warnings } = flags;
    if let Some(files) = self_signed
        && !(files.certificate.exists() && files.private_key.exists())
    {
        let names = ["localhost", "kubernetes.default.svc", "kubernetes.default", "kubernetes"];
        write_self_signed(&files.certificate, &files.private_key, &names).map_err(Failure::SelfSigned)?;
    }
    Ok(Plan { config, followed: None, warnings })
}

fn serve(plan: Plan, inherited: InheritedSockets) -> Result<(), Failure> {
    init_logging(&plan.config.log)?;
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = check_open_files(plan.config.limits.max_connections as u64 * 2).warning {
        tracing::warn!("{warning}");
    }
    let (sender, outcome) = oneshot::channel();
    let service = GatewayService { start: Some((plan, inherited, sender)) };
    let end = GatewayEnd { outcome: Mutex::new(Some(outcome)), kept: Arc::default() };
    let kept = Arc::clone(&end.kept);
    // Without `bootstrap`: sockets are handed over by Fairlead's own protocol, which ends the old process only after the new one
    // has reported that it serves.
    let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
    server.add_service(service);
    server.run(RunArgs { shutdown_signal: Box::new(end) });
    let outcome = kept.lock().take();
    // The service ended without an outcome only if its task panicked; the panic was printed.
    outcome.unwrap_or(Err(Failure::Panicked))
}

type Outcome = Result<(), Failure>;

/// The gateway as a pingora service: pingora creates its runtime and runs it.
struct GatewayService {
    /// `None` once it has started.
    start: Option<(Plan, InheritedSockets, oneshot::Sender<Outcome>)>,
}

#[async_trait]
impl Service for GatewayService {
    async fn start_service(&mut self, _: Option<ListenFds>, _: ShutdownWatch, _: usize) {
        if let Some((plan, inherited, sender)) = self.start.take() {
            let outcome = run_gateway(plan, inherited).await;
            // The receiver lives until the process ends.
            let _ = sender.send(outcome);
        }
    }

    fn name(&self) -> &str {
        "gateway"
    }

    /// Number of threads of the runtime for all tasks except connections, which have their own workers.
    fn threads(&self) -> Option<usize> {
        Some(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

/// Ends the pingora server once the gateway has ended. pingora installs no signal handlers then: SIGTERM drains, SIGHUP
/// reloads and SIGQUIT hands over as `fairlead_process` defines them.
struct GatewayEnd {
    outcome: Mutex<Option<oneshot::Receiver<Outcome>>>,
    kept: Arc<Mutex<Option<Outcome>>>,
}

#[async_trait]
impl ShutdownSignalWatch for GatewayEnd {
    async fn recv(&self) -> ShutdownSignal {
        let outcome = self.outcome.lock().take();
        if let Some(outcome) = outcome
            && let Ok(outcome) = outcome.await
        {
            *self.kept.lock() = Some(outcome);
        }
        // The drain is over: pingora's grace period would only delay the end.
        ShutdownSignal::FastShutdown
    }
}

/// Runs the gateway until it has drained.
async fn run_gateway(plan: Plan, inherited: InheritedSockets) -> Outcome {
    let Plan { config, followed, .. } = plan;
    let metrics = Metrics::new("gateway", env!("CARGO_PKG_VERSION"))?;
    let environment = environment(&config, metrics, inherited)?;
    let shutdown = environment.shutdown.clone();
    let notifier = ServiceNotifier::new(config.state_file.as_ref().map(|file| file.to_path_buf()));
    let gateway = Gateway::start(config, &environment)?;
    let reopening = on_reopen_signal(&shutdown, gateway.log_reopener()).map_err(Failure::Signals)?;
    environment.tasks.spawn("log files", reopening);
    let gateway: SharedGateway = Arc::new(Mutex::new(gateway));
    if let Some(file) = &followed {
        follow_configuration(&gateway, file, &environment.reloads)?;
    }
    let upgrading = on_upgrade_signal(
        Arc::clone(&gateway),
        notifier.clone(),
        environment.reloads.clone(),
        shutdown.clone(),
    );
    environment.tasks.spawn("upgrade", upgrading.map_err(Failure::Signals)?);
    let handled = signals(&shutdown, environment.reloads.trigger()).map_err(Failure::Signals)?;
    let Environment { tasks, reloads, inherited, .. } = environment;
    tasks.spawn("notifier", notifier.clone().run(gateway, inherited, reloads.clone(), shutdown.clone()));
    tasks.spawn("reloads", reloads.run(shutdown.clone()));
    // Signals are handled until the very end, because a second one still has an effect while the supervisor drains.
    let outcome = tokio::select! {
        outcome = tasks.supervise() => outcome,
        never = handled => match never {},
    };
    notifier.end();
    Ok(outcome?)
}
