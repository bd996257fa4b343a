//! `fairlead gateway top`: rates, latency and busy workspaces, redrawn every second.

mod counters;
mod table;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use fairlead_client::Client;
use serde::Deserialize;
use tokio::time::sleep;

use super::address::GatewayAddress;
use super::admin_client::AdminClientError;
use crate::output::{print, try_print};
use counters::Counters;
use table::{Interval, table};

const STATUS: &str = "/services/fairlead/v1/status";
const TOP: &str = "/services/fairlead/v1/top";
const STATS: &str = "/services/fairlead/v1/stats";

/// Show rates, latency, listeners, shards and busy workspaces, redrawn every second until Ctrl-C
#[derive(Clone, Debug, Args)]
pub(crate) struct TopCommand {
    /// Print one interval and end
    #[arg(long)]
    once: bool,
    /// Length of an interval in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    #[command(flatten)]
    gateway: GatewayAddress,
}

/// Status, busy workspaces and counters at one time.
#[derive(Debug)]
struct Snapshot {
    status: Status,
    busy: TopDocument,
    counters: Counters,
}

/// The parts of the status that are printed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    version: String,
    uptime_seconds: u64,
    synced: bool,
    draining: bool,
    listeners: Vec<Listener>,
    shards: Vec<Shard>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Listener {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shard {
    name: String,
    watching: bool,
    circuit_open: bool,
    /// Listeners with an own client certificate that cannot reach the shard.
    circuit_open_for: Vec<String>,
    unschedulable: bool,
    draining: bool,
    workspaces: u64,
    open: Option<u32>,
    waiting: Option<u32>,
    limit: Option<u32>,
}

/// The busiest workspaces by each measure.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TopDocument {
    requests: Vec<BusyWorkspace>,
    bytes: Vec<BusyWorkspace>,
    errors: Vec<BusyWorkspace>,
    watches: Vec<BusyWorkspace>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BusyWorkspace {
    cluster: String,
    path: Option<String>,
    per_second: f64,
    open: u64,
}

impl TopCommand {
    pub(super) async fn run(&self) -> Result<(), AdminClientError> {
        let client = self.gateway.client()?;
        let mut before = Snapshot::take(&client).await?;
        let is_terminal = io::stdout().is_terminal();
        loop {
            sleep(Duration::from_secs(self.interval)).await;
            let now = Snapshot::take(&client).await?;
            let text = table(&Interval { before: &before, now: &now });
            if self.once {
                print(text);
                return Ok(());
            }
            let drawn = if is_terminal { redrawn(&text) } else { format!("{text}\n") };
            if !try_print(drawn) {
                return Ok(());
            }
            before = now;
        }
    }
}

impl Snapshot {
    async fn take(client: &Client) -> Result<Self, AdminClientError> {
        let (status, busy, counters) =
            tokio::try_join!(client.get_json(STATUS), client.get_json(TOP), client.get_json(STATS))?;
        Ok(Self { status, busy, counters })
    }
}

/// Control sequences that replace the screen with the text: each line is cleared to its end, then everything below.
fn redrawn(text: &str) -> String {
    let rows =
        rustix::termios::tcgetwinsize(io::stdout()).map_or(usize::MAX, |size| usize::from(size.ws_row));
    let lines = text.lines().take(rows.saturating_sub(1)).map(|line| format!("{line}\x1b[K\n"));
    format!("\x1b[H{}\x1b[J", lines.collect::<String>())
}
