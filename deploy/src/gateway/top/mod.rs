//! `fairlead gateway top`: what the gateway is doing, drawn anew every second.

mod figures;
mod show;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use fairlead_client::Client;
use serde::Deserialize;
use tokio::time::sleep;

use super::ask::AskError;
use super::reach::Reach;
use crate::output::{is_printed, print};
use figures::Figures;
use show::{Between, table};

const STATUS: &str = "/services/fairlead/v1/status";
const TOP: &str = "/services/fairlead/v1/top";
const FIGURES: &str = "/services/fairlead/v1/figures";

/// Show what the gateway is doing, anew every second until Ctrl-C: rates, latency, listeners, shards, the busiest workspaces.
#[derive(Clone, Debug, Args)]
pub(crate) struct TopCommand {
    /// Print it once, about one interval, and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    #[command(flatten)]
    reach: Reach,
}

/// Everything at one moment.
#[derive(Debug)]
struct Moment {
    status: Status,
    busy: Busy,
    figures: Figures,
}

/// What the gateway says of itself, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    version: String,
    uptime_seconds: u64,
    synced: bool,
    draining: bool,
    doors: Vec<Door>,
    shards: Vec<Shard>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Door {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shard {
    name: String,
    watching: bool,
    left_alone: bool,
    /// Doors that do not get through to it.
    left_alone_by: Vec<String>,
    unschedulable: bool,
    draining: bool,
    workspaces: u64,
    open: Option<u32>,
    waiting: Option<u32>,
    limit: Option<u32>,
}

/// The busiest workspaces, by each measure.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Busy {
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
    pub(super) async fn run(&self) -> Result<(), AskError> {
        let client = self.reach.client()?;
        let mut before = Moment::now(&client).await?;
        let is_terminal = io::stdout().is_terminal();
        loop {
            sleep(Duration::from_secs(self.interval)).await;
            let now = Moment::now(&client).await?;
            let text = table(&Between { before: &before, now: &now });
            if self.once {
                print(text);
                return Ok(());
            }
            let drawn = if is_terminal { redrawn(&text) } else { format!("{text}\n") };
            if !is_printed(drawn) {
                return Ok(());
            }
            before = now;
        }
    }
}

impl Moment {
    async fn now(client: &Client) -> Result<Self, AskError> {
        let (status, busy, figures) =
            tokio::try_join!(client.get_json(STATUS), client.get_json(TOP), client.get_json(FIGURES))?;
        Ok(Self { status, busy, figures })
    }
}

/// The text at the top of the screen, in place of what was there: each line to its end, then all that is below.
fn redrawn(text: &str) -> String {
    let rows =
        rustix::termios::tcgetwinsize(io::stdout()).map_or(usize::MAX, |size| usize::from(size.ws_row));
    let lines = text.lines().take(rows.saturating_sub(1)).map(|line| format!("{line}\x1b[K\n"));
    format!("\x1b[H{}\x1b[J", lines.collect::<String>())
}
