//! `fairlead-gateway --config <file>`, or with kcp-front-proxy's flags: the gateway as a process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fairlead_certs::write_self_signed;
use fairlead_client::Names;
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

/// What does not end by itself when everything else has is left behind after so long: a thread that waits for the system.
const MAX_END: Duration = Duration::from_secs(5);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What to serve, and the file to follow for changes of it.
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
    #[error("no certificate is given, and none can be made: {0}")]
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
    // Before anything else could read the environment or open files.
    let inherited = InheritedSockets::from_environment();
    // What is no text is no flag, and as a file it is not found.
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

/// Says what is wrong with a configuration, or that nothing is.
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
        names: Names::of_the_system(),
        inherited: Arc::new(inherited),
    })
}

fn plan(flags: FrontProxyFlags) -> Result<Plan, Failure> {
    let FrontProxyFlags { config, self_signed, warnings } = flags;
    if let Some((certificate, key)) = self_signed
        && !(certificate.exists() && key.exists())
    {
        let names = ["localhost", "kubernetes.default.svc", "kubernetes.default", "kubernetes"];
        write_self_signed(&certificate, &key, &names).map_err(Failure::SelfSigned)?;
    }
    Ok(Plan { config, followed: None, warnings })
}

fn serve(plan: Plan, inherited: InheritedSockets) -> Result<(), Failure> {
    let Plan { config, followed, warnings } = plan;
    init_logging(&config.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = check_open_files(config.limits.max_connections as u64 * 2).warning {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let outcome = runtime.block_on(async {
        let metrics = Metrics::new("gateway", env!("CARGO_PKG_VERSION"))?;
        let environment = environment(&config, metrics, inherited)?;
        let shutdown = environment.shutdown.clone();
        let life = ServiceNotifier::new(config.state_file.as_ref().map(|file| file.to_path_buf()));
        let gateway = Gateway::start(config, &environment)?;
        let reopening = on_reopen_signal(&shutdown, gateway.log_reopener()).map_err(Failure::Runtime)?;
        environment.tasks.spawn("log files", reopening);
        let gateway: SharedGateway = Arc::new(Mutex::new(gateway));
        if let Some(file) = &followed {
            follow_configuration(&gateway, file, &environment.reloads)?;
        }
        let upgrading = on_upgrade_signal(
            Arc::clone(&gateway),
            life.clone(),
            environment.reloads.clone(),
            shutdown.clone(),
        );
        environment.tasks.spawn("upgrade", upgrading.map_err(Failure::Runtime)?);
        let handled = signals(&shutdown, environment.reloads.trigger()).map_err(Failure::Runtime)?;
        let Environment { tasks, reloads, inherited, .. } = environment;
        tasks.spawn("life", life.clone().run(gateway, inherited, reloads.clone(), shutdown.clone()));
        tasks.spawn("reloads", reloads.run(shutdown.clone()));
        // Beside the supervisor, because a second signal counts until the very end.
        let outcome = tokio::select! {
            outcome = tasks.supervise() => outcome,
            () = handled => tasks.supervise().await,
        };
        life.end();
        Ok(outcome?)
    });
    runtime.shutdown_timeout(MAX_END);
    outcome
}
