//! `fairlead status`: processes, listeners, shards and workspaces of an installation on this machine.

mod store;
mod table;
mod usage;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fairlead_certs::Client as Identity;
use fairlead_client::ClientError;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::installation::{Installation, InstallationError, SavedProcess, SavedState, default_directory};
use crate::output::{Format, print};
use crate::up::{ProbeError, client, readiness_path};
use store::StoreStatus;
use usage::Usage;

/// Timeout of `/readyz` and of `/metrics`.
const READYZ_TIMEOUT: Duration = Duration::from_secs(2);
/// Status endpoint of the gateway.
const GATEWAY_STATUS: &str = "/services/fairlead/v1/status";

/// Show processes, listeners, shards and workspaces
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusCommand {
    /// Directory of the installation
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Errors of `fairlead status`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error("cannot print: {0}")]
    Print(#[from] serde_json::Error),
}

impl StatusError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Installation(error) => error.hint(),
            Self::NotRunning(_) => Some("`fairlead up` starts an installation".to_owned()),
            Self::Runtime(_) | Self::Print(_) => None,
        }
    }
}

/// The status of an installation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// Directory of the installation.
    directory: PathBuf,
    /// Process id of `up`.
    pid: u32,
    /// Start time, RFC 3339.
    started: String,
    processes: Vec<ProcessStatus>,
    /// Status of the gateway; `None` if the request has failed.
    gateway: Option<GatewayStatus>,
    /// Error of the request to the gateway.
    gateway_error: Option<String>,
}

/// A server process.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessStatus {
    name: String,
    url: String,
    /// `starting`, `ready`, `waiting`, `stopping`, `stopped`; `silent` if the process was ready and `/readyz` fails now.
    condition: String,
    pid: Option<u32>,
    /// Start time of the running process, RFC 3339.
    since: Option<String>,
    restarts: u32,
    last_exit: Option<String>,
    /// Status of its store; `None` if the process has none, or does not tell.
    store: Option<StoreStatus>,
    #[serde(flatten)]
    usage: Option<Usage>,
}

/// Status of the gateway and of its shards.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GatewayStatus {
    version: String,
    uptime_seconds: u64,
    /// Whether the routing table is complete.
    synced: bool,
    listeners: Vec<ListenerStatus>,
    shards: Vec<ShardStatus>,
}

/// A listener of the gateway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListenerStatus {
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
    /// Age of the gateway's index of the shard.
    age_seconds: Option<f64>,
    /// Logical clusters of workspaces on the shard.
    workspaces: u64,
    /// Number of its addresses; each is a replica.
    addresses: u64,
    /// The addresses that fail.
    ejected: Vec<EjectedAddress>,
    unschedulable: bool,
    draining: bool,
    /// Maximum number of workspaces.
    capacity: Option<u64>,
    last_error: Option<String>,
}

/// An address of a shard that fails.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EjectedAddress {
    address: String,
    reason: String,
}

impl StatusCommand {
    /// Prints the status.
    pub(crate) fn run(&self) -> Result<(), StatusError> {
        let installation = Installation::at(&self.dir)?;
        let running = installation.running_up()?.is_some();
        let state = installation.read_state().filter(|_| running);
        let mut state = state.ok_or_else(|| StatusError::NotRunning(installation.directory().to_owned()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (gateway, stores) = runtime.map_err(StatusError::Runtime)?.block_on(async {
            let stores = join_all(state.processes.iter().map(|process| store_status(&installation, process)));
            let ready = join_all(state.processes.iter().map(|process| is_ready(&installation, process)));
            let (gateway, ready, stores) = tokio::join!(gateway_status(&installation, &state), ready, stores);
            for (process, ready) in state.processes.iter_mut().zip(ready) {
                if !ready && process.condition == "ready" {
                    process.condition = "silent".to_owned();
                }
            }
            (gateway, stores)
        });
        let status = Status::of(&installation, state, stores, gateway);
        match self.output {
            Format::Text => print(table::table(&status, jiff::Timestamp::now())),
            Format::Json => print(format_args!("{}\n", serde_json::to_string_pretty(&status)?)),
        }
        Ok(())
    }
}

/// Errors of the request to the gateway.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum GatewayStatusError {
    Client(#[from] ProbeError),
    Request(#[from] ClientError),
}

async fn gateway_status(
    installation: &Installation,
    state: &SavedState,
) -> Result<GatewayStatus, GatewayStatusError> {
    let gateway = client(&state.gateway, &Identity::Admin, &installation.certificates())?;
    Ok(gateway.get_json(GATEWAY_STATUS).await?)
}

/// Whether a process has a store: shards and the cache server.
fn has_store(process: &SavedProcess) -> bool {
    !matches!(process.name.as_str(), "gateway" | "issuer")
}

/// Whether a server is ready now.
async fn is_ready(installation: &Installation, process: &SavedProcess) -> bool {
    let identity = if has_store(process) { Identity::ShardAdmin } else { Identity::Admin };
    let Ok(server) = client(&process.url, &identity, &installation.certificates()) else { return false };
    matches!(timeout(READYZ_TIMEOUT, server.get(readiness_path(&process.name))).await, Ok(Ok(_)))
}

/// The status of the store of a process, from its metrics.
async fn store_status(installation: &Installation, process: &SavedProcess) -> Option<StoreStatus> {
    if !has_store(process) {
        return None;
    }
    let server = client(&process.url, &Identity::ShardAdmin, &installation.certificates()).ok()?;
    let response = timeout(READYZ_TIMEOUT, server.get("/metrics")).await.ok()?.ok()?;
    StoreStatus::of_metrics(&String::from_utf8_lossy(&response.body))
}

impl Status {
    fn of(
        installation: &Installation,
        state: SavedState,
        stores: Vec<Option<StoreStatus>>,
        gateway: Result<GatewayStatus, GatewayStatusError>,
    ) -> Self {
        let processes = state.processes.into_iter().zip(stores).map(|(process, store)| ProcessStatus {
            store,
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
            directory: installation.directory().to_owned(),
            pid: state.pid,
            started: state.started,
            processes,
            gateway,
            gateway_error,
        }
    }
}
