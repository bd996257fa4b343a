//! `fairlead up` and `fairlead down`: an installation on this machine, each server a process of its own.

mod board;
mod child;
mod detached;
mod journal;
mod logs;
mod prepare;
mod readiness;
mod restarts;
mod rights;
mod run;
mod screen;
mod settings;
mod topology;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::default_directory;
use crate::output::print;
use crate::site::{Site, SiteError};
use board::Announcement;
use detached::Relay;
use prepare::{Prepared, Wishes};
use screen::{Audience, Screen, Stop, Welcome};

pub(crate) use readiness::{ProbeError, client};
pub(crate) use settings::CLIENT_ID;

/// Start a gateway, shards, a cache server and a development issuer on this machine, and keep them running.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpCommand {
    /// How many shards; by default two, or as many as there is data of
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
    /// Where everything is kept
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
    /// Throw away what an earlier run has left, data and certificates included
    #[arg(long)]
    fresh: bool,
    /// The gateway's port
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The port of the door for tokens; by default any, the same at each start if it is free
    #[arg(long, value_name = "PORT")]
    edge_port: Option<u16>,
    /// Return as soon as all is ready; `fairlead down` stops it
    #[arg(long)]
    detach: bool,
    /// We are the background process of another `up --detach`, which reads our announcements.
    #[arg(long, hide = true)]
    relay: bool,
}

/// Stop what `up` has started.
#[derive(Clone, Debug, Args)]
pub(crate) struct DownCommand {
    /// Where everything is kept
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
}

/// Why an installation does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("port {port} is in use by another program")]
    PortInUse { port: u16 },
    #[error("port {port} cannot be listened on: {source}")]
    Port { port: u16, source: io::Error },
    #[error("no free port was found: {0}")]
    NoFreePort(io::Error),
    #[error("the limit of {limit} open files is too low, {needed} are needed at least")]
    OpenFiles { limit: u64, needed: u64 },
    #[error("{program} is not beside this program in {}", folder.display())]
    NoProgram { program: &'static str, folder: PathBuf },
    #[error("it is not known where this program is: {0}")]
    NoOwnPath(io::Error),
    #[error(transparent)]
    Certificates(#[from] fairlead_certs::Error),
    #[error(transparent)]
    Shard(#[from] fairlead_certs::InventoryError),
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("{name} does not start ({how}){}", quoted(last_words))]
    WillNotStart { name: String, how: String, last_words: Vec<String>, log: PathBuf },
    #[error("{names} not ready after {} s", after.as_secs())]
    TooSlow { names: String, after: Duration, logs: PathBuf },
    #[error("cannot prepare to run: {0}")]
    Runtime(io::Error),
    #[error("the process in the background ended without a word")]
    LostRelay { log: PathBuf },
    #[error("{message}")]
    Relayed { message: String, hint: Option<String> },
    #[error("cannot stop process {pid}: {source}")]
    Signal { pid: u32, source: io::Error },
}

impl UpError {
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Site(error) => return error.hint(),
            Self::PortInUse { .. } => {
                "choose another one with --port or --edge-port, or stop that program".to_owned()
            }
            Self::OpenFiles { needed, .. } => format!("raise it with `ulimit -n {needed}`"),
            Self::NoProgram { .. } => "build all programs with `cargo build --release`".to_owned(),
            Self::WillNotStart { log, .. } => format!("its log is {}", log.display()),
            Self::TooSlow { logs, .. } => format!("the logs are in {}", logs.display()),
            Self::LostRelay { log } => format!("see {}", log.display()),
            Self::Relayed { hint, .. } => return hint.clone(),
            _ => return None,
        })
    }
}

fn quoted(last_words: &[String]) -> String {
    last_words.iter().map(|line| format!("\n  | {line}")).collect()
}

impl UpCommand {
    /// Runs until the installation is told to end; detached, until it is ready.
    pub(crate) fn run(&self) -> Result<(), UpError> {
        let site = Site::at(&self.dir)?;
        let mut screen = Screen::new(self.welcome(&site));
        if self.detach {
            return detached::start(&site, &mut screen);
        }
        if !self.relay {
            return self.run_here(&site, &mut screen);
        }
        let mut relay = Relay::of_standard_output();
        self.run_here(&site, &mut relay).inspect_err(|error| {
            relay.hear(&Announcement::Failed { message: error.to_string(), hint: error.hint() });
        })
    }

    fn run_here(&self, site: &Site, audience: &mut dyn Audience) -> Result<(), UpError> {
        let wishes =
            Wishes { shards: self.shards, port: self.port, edge_port: self.edge_port, fresh: self.fresh };
        let prepared = Prepared::in_site(site, &wishes)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(UpError::Runtime)?.block_on(run::run(site, prepared, audience))
    }

    fn welcome(&self, site: &Site) -> Welcome {
        Welcome {
            gateway: format!("https://127.0.0.1:{}", self.port),
            kubeconfig: site.admin_kubeconfig(),
            edge_kubeconfig: site.edge_kubeconfig(),
            logs: site.logs(),
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
    /// Tells a running `up` to end and waits until it has.
    pub(crate) fn run(&self) -> Result<(), UpError> {
        let site = Site::at(&self.dir)?;
        let Some(occupant) = site.occupant()? else {
            print(format_args!("Nothing is running in {}.\n", site.directory().display()));
            return Ok(());
        };
        let pid = occupant.pid;
        let refuse = |source: io::Error| UpError::Signal { pid, source };
        let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let target = target.ok_or_else(|| refuse(io::ErrorKind::InvalidData.into()))?;
        kill_process(target, Signal::TERM).map_err(|error| refuse(error.into()))?;
        occupant.wait().map_err(refuse)?;
        print("Stopped.\n");
        Ok(())
    }
}

/// How people run this program again: by its name if it is on the path, else by its path from here.
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
