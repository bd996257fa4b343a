//! `fairlead gateway tail`: requests as they end.

use std::io::{self, IsTerminal};

use clap::Args;
use fairlead_client::Request;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::ask::AskError;
use super::reach::Reach;
use crate::output::{Format, harmless, is_printed};

/// Where the gateway tells of requests.
const PATH: &str = "/services/fairlead/v1/tail";

/// Show requests as they end, until Ctrl-C. Whoever reads too slowly is told how many were left out.
#[derive(Clone, Debug, Args)]
pub(crate) struct TailCommand {
    /// Of this workspace only, by its path or id
    #[arg(short, long)]
    workspace: Option<String>,
    /// Of this user only
    #[arg(short, long)]
    user: Option<String>,
    /// With this status only: a code such as 404, or a class such as 5xx
    #[arg(short, long)]
    status: Option<String>,
    /// With a status from 400 only
    #[arg(short, long)]
    errors: bool,
    /// Of this listener only
    #[arg(short, long)]
    door: Option<String>,
    /// For this shard only
    #[arg(long)]
    shard: Option<String>,
    /// End after so many
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How to print it; json is one object per line
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

/// A request, or how many were left out.
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
    why: Option<String>,
    response_bytes: u64,
    phases: Phases,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Phases {
    /// In microseconds.
    total: u64,
}

/// Whether codes are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colours {
    On,
    Off,
}

impl TailCommand {
    pub(super) async fn run(&self) -> Result<(), AskError> {
        let colours = if io::stdout().is_terminal() { Colours::On } else { Colours::Off };
        let request = Request::new(Method::GET, format!("{PATH}?{}", self.query()));
        let mut body = self.reach.client()?.stream(request).await?.body;
        let (mut rest, mut left) = (Vec::new(), self.count.unwrap_or(u64::MAX));
        while let Some(chunk) = body.chunk().await {
            rest.extend_from_slice(&chunk?);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let entry: Entry = serde_json::from_slice(&line)?;
                let text = match self.output {
                    Format::Text => shown(&entry, colours),
                    Format::Json => String::from_utf8_lossy(&line).into_owned(),
                };
                if !is_printed(text) {
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
        let said = [
            ("workspace", self.workspace.as_deref()),
            ("user", self.user.as_deref()),
            ("status", self.status.as_deref()),
            ("errors", self.errors.then_some("1")),
            ("door", self.door.as_deref()),
            ("shard", self.shard.as_deref()),
        ];
        let pairs = said.into_iter().filter_map(|(name, value)| {
            Some(format!("&{name}={}", utf8_percent_encode(value?, NON_ALPHANUMERIC)))
        });
        format!("watch=1{}", pairs.collect::<String>())
    }
}

/// One request on one line.
fn shown(entry: &Entry, colours: Colours) -> String {
    if let Some(lost) = entry.lost {
        return format!("... {lost} more that were not read in time\n");
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
    let by = match (&entry.shard, &entry.why) {
        (Some(shard), None) => shard.clone(),
        (Some(shard), Some(why)) => format!("{shard} ({why})"),
        (None, why) => format!("({})", why.as_deref().unwrap_or("-")),
    };
    let (listener, client, method, path) = (&entry.listener, &entry.client, &entry.method, &entry.path);
    let (took, bytes) = (milliseconds(entry.phases.total), entry.response_bytes);
    // The colours are ours, so everything else is made harmless first.
    let before = harmless(clock);
    let after =
        harmless(&format!("{took:>9} ms {bytes:>8} B  {listener} {by} {user} {client}  {method} {path}"));
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
    fn a_request_is_one_line_and_no_name_moves_the_cursor() {
        let entries = [
            json!({"time": "2026-11-18T11:06:40.007Z", "listener": "internal", "client": "192.0.2.1", "method": "GET",
                "path": "/clusters/root:org/api", "code": 200, "user": "alice", "shard": "alpha", "responseBytes": 1024,
                "phases": {"total": 1234}}),
            json!({"time": "2026-11-18T11:06:40.007Z", "listener": "edge", "client": "192.0.2.1", "method": "GET",
                "path": "/x\u{1b}[2J", "code": 404, "user": "eve\u{202e}", "impersonated": "bob", "why": "unmapped",
                "phases": {"total": 99}}),
            json!({"time": "?", "listener": "edge", "client": "192.0.2.1", "code": 400, "why": "bad_request"}),
            json!({"lost": 7}),
        ];
        let text = |colours| -> String {
            let entries = entries.iter().cloned();
            entries.filter_map(|entry| Some(shown(&serde_json::from_value(entry).ok()?, colours))).collect()
        };
        expect![[r#"
            11:06:40.007 200       1.2 ms     1024 B  internal alpha alice 192.0.2.1  GET /clusters/root:org/api
            11:06:40.007 404       0.0 ms        0 B  edge (unmapped) eve\u{202e} as bob 192.0.2.1  GET /x\u{1b}[2J
            ? 400       0.0 ms        0 B  edge (bad_request) - 192.0.2.1   
            ... 7 more that were not read in time
        "#]]
        .assert_eq(&text(Colours::Off));
        let coloured = text(Colours::On);
        assert!(
            coloured.contains(" \x1b[32m200\x1b[0m ") && coloured.contains(" \x1b[33m404\x1b[0m "),
            "{coloured}"
        );
        assert_eq!(coloured.matches('\x1b').count(), 6, "only ours");
    }
}
