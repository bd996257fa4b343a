//! `fairlead status`: processes, doors, shards and workspaces of an installation on this machine.

mod process;
mod show;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fairlead_certs::Client as Identity;
use fairlead_client::ClientError;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::command::default_directory;
use crate::output::{Format, print};
use crate::site::{ProcessRecord, Record, Site, SiteError};
use crate::up::{ProbeError, client};
use process::Usage;

/// How long a server may take to say that it is ready.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where the gateway tells how it is.
const GATEWAY_STATUS: &str = "/services/fairlead/v1/status";

/// Show processes, doors, shards and workspaces.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusCommand {
    /// Where everything is kept
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error("cannot prepare to run: {0}")]
    Runtime(io::Error),
    #[error("cannot print: {0}")]
    Print(#[from] serde_json::Error),
}

impl StatusError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Site(error) => error.hint(),
            Self::NotRunning(_) => Some("`fairlead up` starts it".to_owned()),
            Self::Runtime(_) | Self::Print(_) => None,
        }
    }
}

/// All that is known.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// Where everything is kept.
    directory: PathBuf,
    /// Process id of `up`.
    pid: u32,
    /// When it began, RFC 3339.
    started: String,
    processes: Vec<ProcessStatus>,
    /// What the gateway says; nothing if it does not answer.
    gateway: Option<GatewayStatus>,
    /// Why the gateway does not answer.
    gateway_error: Option<String>,
}

/// A server process.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessStatus {
    name: String,
    url: String,
    /// `starting`, `ready`, `waiting`, `stopping`, `stopped`; `silent` if it was ready and does not say so now.
    condition: String,
    pid: Option<u32>,
    /// When the running process was started, RFC 3339.
    since: Option<String>,
    restarts: u32,
    last_exit: Option<String>,
    #[serde(flatten)]
    usage: Option<Usage>,
}

/// What the gateway says of itself and of the shards.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GatewayStatus {
    version: String,
    uptime_seconds: u64,
    /// Whether the routing table is complete.
    synced: bool,
    doors: Vec<DoorStatus>,
    shards: Vec<ShardStatus>,
}

/// Where the gateway listens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DoorStatus {
    name: String,
    address: String,
}

/// A shard as the gateway sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ShardStatus {
    name: String,
    url: String,
    synced: bool,
    watching: bool,
    /// How old the gateway's knowledge of the shard may be.
    age_seconds: Option<f64>,
    /// Logical clusters of workspaces on the shard.
    workspaces: u64,
    unschedulable: bool,
    draining: bool,
    /// The most workspaces that it gets.
    capacity: Option<u64>,
    last_error: Option<String>,
}

impl StatusCommand {
    /// Prints what is known.
    pub(crate) fn run(&self) -> Result<(), StatusError> {
        let site = Site::at(&self.dir)?;
        let running = site.occupant()?.is_some();
        let record = site.read_record().filter(|_| running);
        let mut record = record.ok_or_else(|| StatusError::NotRunning(site.directory().to_owned()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let gateway = runtime.map_err(StatusError::Runtime)?.block_on(async {
            let answers = join_all(record.processes.iter().map(|process| answers(&site, process)));
            let (gateway, answers) = tokio::join!(ask_gateway(&site, &record), answers);
            for (process, answers) in record.processes.iter_mut().zip(answers) {
                if !answers && process.condition == "ready" {
                    process.condition = "silent".to_owned();
                }
            }
            gateway
        });
        let status = Status::of(&site, record, gateway);
        match self.output {
            Format::Text => print(show::table(&status, jiff::Timestamp::now())),
            Format::Json => print(format_args!("{}\n", serde_json::to_string_pretty(&status)?)),
        }
        Ok(())
    }
}

/// The gateway did not tell how it is.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum AskError {
    Client(#[from] ProbeError),
    Request(#[from] ClientError),
}

async fn ask_gateway(site: &Site, record: &Record) -> Result<GatewayStatus, AskError> {
    let gateway = client(&record.gateway, &Identity::Admin, &site.certificates())?;
    Ok(gateway.get_json(GATEWAY_STATUS).await?)
}

/// Whether a server says just now that it is ready.
async fn answers(site: &Site, process: &ProcessRecord) -> bool {
    let identity = if matches!(process.name.as_str(), "gateway" | "issuer") {
        Identity::Admin
    } else {
        Identity::ShardAdmin
    };
    let Ok(server) = client(&process.url, &identity, &site.certificates()) else { return false };
    matches!(timeout(PATIENCE, server.get("/readyz")).await, Ok(Ok(_)))
}

impl Status {
    fn of(site: &Site, record: Record, gateway: Result<GatewayStatus, AskError>) -> Self {
        let processes = record.processes.into_iter().map(|process| ProcessStatus {
            usage: process.pid.and_then(Usage::of),
            name: process.name,
            url: process.url,
            condition: process.condition,
            pid: process.pid,
            since: process.since,
            restarts: process.restarts,
            last_exit: process.last_exit,
        });
        let processes = processes.collect();
        let (gateway, gateway_error) = match gateway {
            Ok(gateway) => (Some(gateway), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            directory: site.directory().to_owned(),
            pid: record.pid,
            started: record.started,
            processes,
            gateway,
            gateway_error,
        }
    }
}
