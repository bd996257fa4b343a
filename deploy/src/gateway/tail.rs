//! `fairlead gateway tail`: prints requests as they complete.

use std::io::{self, IsTerminal};

use clap::Args;
use fairlead_client::Request;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::address::GatewayAddress;
use super::admin_client::AdminClientError;
use crate::output::{Format, escape_control_characters, try_print};

/// Endpoint of the gateway.
const PATH: &str = "/services/fairlead/v1/tail";

/// Print requests as they complete, until Ctrl-C. A slow reader gets the number of requests that it has missed.
#[derive(Clone, Debug, Args)]
pub(crate) struct TailCommand {
    /// Only requests of this workspace, by its path or logical cluster name
    #[arg(short, long)]
    workspace: Option<String>,
    /// Only requests of this user
    #[arg(short, long)]
    user: Option<String>,
    /// Only requests with this status: a code such as 404, or a class such as 5xx
    #[arg(short, long)]
    status: Option<String>,
    /// Only requests with a status of 400 or above
    #[arg(short, long)]
    errors: bool,
    /// Only requests of this listener
    #[arg(short, long)]
    listener: Option<String>,
    /// Only requests to this shard
    #[arg(long)]
    shard: Option<String>,
    /// End after this number of requests
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Output format; json is one object per line
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    gateway: GatewayAddress,
}

/// A request, or the number of missed ones.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    lost: Option<u64>,
    time: String,
    listener: String,
    client: String,
    method: String,
    path: String,
    code: u16,
    user: String,
    impersonated: Option<String>,
    shard: Option<String>,
    reason: Option<String>,
    response_bytes: u64,
    stages: Stages,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stages {
    /// Total duration in microseconds.
    total: u64,
}

/// Whether status codes are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colours {
    On,
    Off,
}

impl TailCommand {
    pub(super) async fn run(&self) -> Result<(), AdminClientError> {
        let colours = if io::stdout().is_terminal() { Colours::On } else { Colours::Off };
        let request = Request::new(Method::GET, format!("{PATH}?{}", self.query()));
        let mut body = self.gateway.client()?.stream(request).await?.body;
        let (mut rest, mut left) = (Vec::new(), self.count.unwrap_or(u64::MAX));
        while let Some(chunk) = body.chunk().await {
            rest.extend_from_slice(&chunk?);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let entry: Entry = serde_json::from_slice(&line)?;
                let text = match self.output {
                    Format::Text => format_entry(&entry, colours),
                    Format::Json => String::from_utf8_lossy(&line).into_owned(),
                };
                if !try_print(text) {
                    return Ok(());
                }
                left = left.saturating_sub(u64::from(entry.lost.is_none()));
                if left == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn query(&self) -> String {
        let filters = [
            ("workspace", self.workspace.as_deref()),
            ("user", self.user.as_deref()),
            ("status", self.status.as_deref()),
            ("errors", self.errors.then_some("1")),
            ("listener", self.listener.as_deref()),
            ("shard", self.shard.as_deref()),
        ];
        let pairs = filters.into_iter().filter_map(|(name, value)| {
            Some(format!("&{name}={}", utf8_percent_encode(value?, NON_ALPHANUMERIC)))
        });
        format!("watch=1{}", pairs.collect::<String>())
    }
}

/// One request as one line.
fn format_entry(entry: &Entry, colours: Colours) -> String {
    if let Some(lost) = entry.lost {
        return format!("... {lost} requests missed, because they were not read in time\n");
    }
    let colour = match (colours, entry.code) {
        (Colours::Off, _) => None,
        (Colours::On, 500..) => Some(31),
        (Colours::On, 400..) => Some(33),
        (Colours::On, _) => Some(32),
    };
    let code = match colour {
        Some(colour) => format!("\x1b[{colour}m{}\x1b[0m", entry.code),
        None => entry.code.to_string(),
    };
    let clock = entry.time.get(11..23).unwrap_or(&entry.time);
    let user = match (&*entry.user, &entry.impersonated) {
        ("", None) => "-".to_owned(),
        (user, None) => user.to_owned(),
        (user, Some(other)) => format!("{user} as {other}"),
    };
    let by = match (&entry.shard, &entry.reason) {
        (Some(shard), None) => shard.clone(),
        (Some(shard), Some(reason)) => format!("{shard} ({reason})"),
        (None, reason) => format!("({})", reason.as_deref().unwrap_or("-")),
    };
    let (listener, client, method, path) = (&entry.listener, &entry.client, &entry.method, &entry.path);
    let (took, bytes) = (milliseconds(entry.stages.total), entry.response_bytes);
    // Everything but the colour codes is escaped.
    let before = escape_control_characters(clock);
    let after = escape_control_characters(&format!(
        "{took:>9} ms {bytes:>8} B  {listener} {by} {user} {client}  {method} {path}"
    ));
    format!("{before} {code} {after}\n")
}

fn milliseconds(micros: u64) -> String {
    format!("{}.{}", micros / 1000, micros % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_one_line_and_control_characters_are_escaped() {
        let entries = [
            json!({"time": "2026-11-18T11:06:40.007Z", "listener": "internal", "client": "192.0.2.1", "method": "GET",
                "path": "/clusters/root:org/api", "code": 200, "user": "alice", "shard": "alpha", "responseBytes": 1024,
                "stages": {"total": 1234}}),
            json!({"time": "2026-11-18T11:06:40.007Z", "listener": "edge", "client": "192.0.2.1", "method": "GET",
                "path": "/x\u{1b}[2J", "code": 404, "user": "eve\u{202e}", "impersonated": "bob", "reason": "unmapped",
                "stages": {"total": 99}}),
            json!({"time": "?", "listener": "edge", "client": "192.0.2.1", "code": 400, "reason": "bad_request"}),
            json!({"lost": 7}),
        ];
        let text = |colours| -> String {
            let entries = entries.iter().cloned();
            entries
                .filter_map(|entry| Some(format_entry(&serde_json::from_value(entry).ok()?, colours)))
                .collect()
        };
        expect![[r#"
            11:06:40.007 200       1.2 ms     1024 B  internal alpha alice 192.0.2.1  GET /clusters/root:org/api
            11:06:40.007 404       0.0 ms        0 B  edge (unmapped) eve\u{202e} as bob 192.0.2.1  GET /x\u{1b}[2J
            ? 400       0.0 ms        0 B  edge (bad_request) - 192.0.2.1   
            ... 7 requests missed, because they were not read in time
        "#]]
        .assert_eq(&text(Colours::Off));
        let coloured = text(Colours::On);
        assert!(
            coloured.contains(" \x1b[32m200\x1b[0m ") && coloured.contains(" \x1b[33m404\x1b[0m "),
            "{coloured}"
        );
        assert_eq!(coloured.matches('\x1b').count(), 6, "colours only");
    }
}
