//! `fairlead up` and `fairlead down`: an installation on this machine, each server a process of its own.

mod background;
mod development_rights;
mod etcd_process;
mod log_file;
mod prepare;
mod process_table;
mod readiness;
mod restart_backoff;
mod run;
mod settings;
mod supervisor;
mod terminal;
mod topology;
mod up_log;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::installation::{Installation, InstallationError, default_directory};
use crate::output::print;
use background::Relay;
use prepare::{PreparedInstallation, UpOptions};
use process_table::Event;
use terminal::{EventSink, Stop, TerminalView, Welcome};
use topology::{StoreKind, WantedPorts};

pub(crate) use etcd_process::EtcdProcess;
pub(crate) use readiness::{ProbeError, client, readiness_path};
pub(crate) use settings::CLIENT_ID;

/// Start a gateway, shards, a cache server and a development issuer on this machine, and keep them running
#[derive(Clone, Debug, Args)]
pub(crate) struct UpCommand {
    /// Number of shards; by default two, or as many as have data
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
    /// Directory of the installation
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
    /// Delete the installation first, data and certificates included
    #[arg(long)]
    fresh: bool,
    /// Port of the gateway
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// Port of the listener for tokens; by default any free port, the same at each start if possible
    #[arg(long, value_name = "PORT")]
    edge_port: Option<u16>,
    /// Store of the shards; by default that of the existing data, or files. etcd needs the program `etcd`
    #[arg(long, value_enum, value_name = "KIND")]
    store: Option<StoreKind>,
    /// Port of etcd; by default any free port, the same at each start if possible
    #[arg(long, value_name = "PORT")]
    etcd_port: Option<u16>,
    /// Return as soon as all processes are ready; `fairlead down` stops them
    #[arg(long)]
    detach: bool,
    /// Run as the background process of another `up --detach`, which reads the events.
    #[arg(long, hide = true)]
    relay: bool,
}

/// Stop the processes that `up` has started
#[derive(Clone, Debug, Args)]
pub(crate) struct DownCommand {
    /// Directory of the installation
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
}

/// Reasons why an installation does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpError {
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error("port {port} is in use by another program")]
    PortInUse { port: u16 },
    #[error("cannot listen on port {port}: {source}")]
    Port { port: u16, source: io::Error },
    #[error("no free port was found: {0}")]
    NoFreePort(io::Error),
    #[error("the limit of {limit} open files is too low, at least {needed} are needed")]
    OpenFiles { limit: u64, needed: u64 },
    #[error("{program} is missing in {}, the folder of this program", folder.display())]
    NoProgram { program: &'static str, folder: PathBuf },
    #[error("the program etcd is neither on the PATH nor in {}", folder.display())]
    NoEtcd { folder: PathBuf },
    #[error("etcd cannot be started: {0}")]
    Etcd(io::Error),
    #[error("the data in {} is in {found}, not in {wanted}", directory.display())]
    OtherStore { directory: PathBuf, found: &'static str, wanted: &'static str },
    #[error("the path of this program is unknown: {0}")]
    NoOwnPath(io::Error),
    #[error(transparent)]
    Certificates(#[from] fairlead_certs::Error),
    #[error(transparent)]
    Shard(#[from] fairlead_certs::InventoryError),
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("{name} does not start ({exit}){}", quoted(last_log_lines))]
    FailedToStart { name: String, exit: String, last_log_lines: Vec<String>, log: PathBuf },
    #[error("{names} not ready after {} s", after.as_secs())]
    NotReadyInTime { names: String, after: Duration, logs: PathBuf },
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error("the background process ended without a result")]
    BackgroundProcessLost { log: PathBuf },
    #[error("{message}")]
    BackgroundProcessFailed { message: String, hint: Option<String> },
    #[error("cannot stop process {pid}: {source}")]
    Signal { pid: u32, source: io::Error },
}

impl UpError {
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Installation(error) => return error.hint(),
            Self::PortInUse { .. } => {
                "choose another one with --port, --edge-port or --etcd-port, or stop that program".to_owned()
            }
            Self::OpenFiles { needed, .. } => format!("raise it with `ulimit -n {needed}`"),
            Self::NoProgram { .. } => "build all programs with `cargo build --release`".to_owned(),
            Self::NoEtcd { .. } => "install etcd: the package of Debian is etcd-server".to_owned(),
            Self::OtherStore { .. } => {
                "leave out --store, or name another directory with --dir; `fairlead store copy` carries a store over".to_owned()
            }
            Self::FailedToStart { log, .. } => format!("its log is {}", log.display()),
            Self::NotReadyInTime { logs, .. } => format!("the logs are in {}", logs.display()),
            Self::BackgroundProcessLost { log } => format!("see {}", log.display()),
            Self::BackgroundProcessFailed { hint, .. } => return hint.clone(),
            _ => return None,
        })
    }
}

fn quoted(last_log_lines: &[String]) -> String {
    last_log_lines.iter().map(|line| format!("\n  | {line}")).collect()
}

impl UpCommand {
    /// Runs until a signal ends the installation; with `--detach`, until it is ready.
    pub(crate) fn run(&self) -> Result<(), UpError> {
        let installation = Installation::at(&self.dir)?;
        let mut terminal = TerminalView::new(self.welcome(&installation));
        if self.detach {
            return background::start(&installation, &mut terminal);
        }
        if !self.relay {
            return self.run_here(&installation, &mut terminal);
        }
        let mut relay = Relay::of_standard_output();
        self.run_here(&installation, &mut relay).inspect_err(|error| {
            relay.send(&Event::Failed { message: error.to_string(), hint: error.hint() });
        })
    }

    fn run_here(&self, installation: &Installation, events: &mut dyn EventSink) -> Result<(), UpError> {
        let ports = WantedPorts { gateway: self.port, edge: self.edge_port, etcd: self.etcd_port };
        let options = UpOptions { shards: self.shards, ports, store: self.store, fresh: self.fresh };
        let prepared = PreparedInstallation::prepare(installation, &options)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(UpError::Runtime)?.block_on(run::run(installation, prepared, events))
    }

    fn welcome(&self, installation: &Installation) -> Welcome {
        Welcome {
            gateway: format!("https://127.0.0.1:{}", self.port),
            kubeconfig: installation.admin_kubeconfig(),
            edge_kubeconfig: installation.edge_kubeconfig(),
            logs: installation.logs(),
            program: own_name(),
            stop: match (self.detach, self.dir == default_directory()) {
                (false, _) => Stop::ControlC,
                (true, true) => Stop::Down { directory: None },
                (true, false) => Stop::Down { directory: Some(self.dir.clone()) },
            },
        }
    }
}

impl DownCommand {
    /// Ends a running `up` with SIGTERM and waits until it has ended.
    pub(crate) fn run(&self) -> Result<(), UpError> {
        let installation = Installation::at(&self.dir)?;
        let Some(running) = installation.running_up()? else {
            print(format_args!("Nothing is running in {}.\n", installation.directory().display()));
            return Ok(());
        };
        let pid = running.pid;
        let refuse = |source: io::Error| UpError::Signal { pid, source };
        let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let target = target.ok_or_else(|| refuse(io::ErrorKind::InvalidData.into()))?;
        kill_process(target, Signal::TERM).map_err(|error| refuse(error.into()))?;
        running.wait().map_err(refuse)?;
        print("Stopped.\n");
        Ok(())
    }
}

/// The command that runs this program: its name if it is on the `PATH`, else its path relative to the working directory.
fn own_name() -> String {
    let Ok(program) = std::env::current_exe() else {
        return "fairlead".to_owned();
    };
    let on_path = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| program.parent() == Some(folder.as_path()))
    });
    let here = std::env::current_dir().unwrap_or_default();
    match program.strip_prefix(here) {
        _ if on_path => "fairlead".to_owned(),
        Ok(relative) if relative.components().count() == 1 => format!("./{}", relative.display()),
        Ok(relative) => relative.display().to_string(),
        Err(_) => program.display().to_string(),
    }
}
