//! The difference of two snapshots as tables. Pure.

use super::counters::Labels;
use super::{BusyWorkspace, Shard, Snapshot};
use crate::output::{aligned, escape_control_characters};

const ALL: &str = "proxy_request_duration_seconds";
const REQUESTS: &str = "fairlead_gateway_request_duration_seconds";
const STAGE: &str = "fairlead_gateway_stage_duration_seconds";
const STAGES: [&str; 6] = ["accept", "tls", "auth", "route", "queue", "upstream_connect"];
/// Maximum number of workspaces.
const SHOWN: usize = 10;

/// Two consecutive snapshots.
pub(super) struct Interval<'s> {
    pub(super) before: &'s Snapshot,
    pub(super) now: &'s Snapshot,
}

/// The summary, then the tables.
pub(super) fn table(interval: &Interval<'_>) -> String {
    let tables = [interval.stages(), interval.listeners(), interval.shards(), interval.workspaces()];
    let tables: Vec<String> = tables.iter().map(|rows| aligned(rows)).collect();
    format!("{}\n{}", interval.head(), tables.join("\n"))
}

impl Interval<'_> {
    fn head(&self) -> String {
        let Snapshot { status, counters, .. } = self.now;
        let synced = if status.synced { "" } else { ", index not synced" };
        let draining = if status.draining { ", draining" } else { "" };
        let failed = |from, until| {
            let count = |snapshot: &Snapshot| {
                snapshot.counters.total_where(ALL, &[], |code| (from..until).contains(&code))
            };
            rate(self.per_second(count(self.now) - count(self.before)))
        };
        let watches = counters.total("fairlead_gateway_requests_open", &[("class", "watch")]);
        format!(
            "Fairlead gateway {}, up for {}{synced}{draining}\n{} requests/s, {} of them 4xx, {} 5xx, {} limited; {watches} watches open\n",
            escape_control_characters(&status.version),
            uptime(status.uptime_seconds),
            self.rate_of(ALL, &[]),
            failed(400, 500),
            failed(500, 600),
            self.rate_of("fairlead_gateway_limited_total", &[]),
        )
    }

    fn stages(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["STAGE", "PER S", "P50", "P99"])];
        rows.extend(STAGES.iter().map(|stage| self.latency_cells(stage, STAGE, &[("stage", stage)])));
        rows.push(self.latency_cells("total", REQUESTS, &[("class", "read")]));
        rows
    }

    fn listeners(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["LISTENER", "PER S", "P50", "P99", "CONNECTIONS", "LIMITED/S"])];
        for listener in &self.now.status.listeners {
            let name = &*listener.name;
            let mut cells = self.latency_cells(name, REQUESTS, &[("listener", name)]);
            let open = self.now.counters.total("fairlead_connections_open", &[("listener", name)]);
            cells.push(open.to_string());
            cells.push(self.rate_of("fairlead_gateway_limited_total", &[("listener", name)]));
            rows.push(cells);
        }
        rows
    }

    fn shards(&self) -> Vec<Vec<String>> {
        let mut rows =
            vec![row(["SHARD", "PER S", "P50", "P99", "IN FLIGHT", "QUEUED", "WORKSPACES", "STATE"])];
        for shard in &self.now.status.shards {
            let mut cells = self.latency_cells(&shard.name, REQUESTS, &[("shard", &shard.name)]);
            let open = shard.open.map_or("-".to_owned(), |open| open.to_string());
            let of = shard.limit.map_or(String::new(), |limit| format!(" of {limit}"));
            cells.push(format!("{open}{of}"));
            cells.push(shard.waiting.map_or("-".to_owned(), |waiting| waiting.to_string()));
            cells.push(shard.workspaces.to_string());
            cells.push(state(shard));
            rows.push(cells);
        }
        rows
    }

    fn workspaces(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["WORKSPACE", "PER S", "BYTES/S", "ERRORS/S", "WATCHES"])];
        let busy = &self.now.busy;
        let of =
            |all: &[BusyWorkspace], cluster: &str| all.iter().find(|one| one.cluster == cluster).cloned();
        let mut shown: Vec<&BusyWorkspace> = busy.requests.iter().take(SHOWN).collect();
        let quiet = busy.watches.iter().filter(|one| shown.iter().all(|known| known.cluster != one.cluster));
        let quiet: Vec<&BusyWorkspace> = quiet.take(SHOWN - shown.len()).collect();
        shown.extend(quiet);
        for one in shown {
            let measure = |all| of(all, &one.cluster).unwrap_or_default();
            rows.push(vec![
                escape_control_characters(one.path.as_ref().unwrap_or(&one.cluster)),
                rate(measure(&busy.requests).per_second),
                rate(measure(&busy.bytes).per_second),
                rate(measure(&busy.errors).per_second),
                measure(&busy.watches).open.to_string(),
            ]);
        }
        rows
    }

    /// A name with its rate and latency quantiles.
    fn latency_cells(&self, name: &str, family: &str, labels: Labels<'_>) -> Vec<String> {
        let histogram = self.now.counters.histogram_since(&self.before.counters, family, labels);
        let quantile = |share| histogram.quantile(share).map_or("-".to_owned(), time);
        vec![
            escape_control_characters(name),
            rate(self.per_second(histogram.count)),
            quantile(0.5),
            quantile(0.99),
        ]
    }

    fn rate_of(&self, family: &str, labels: Labels<'_>) -> String {
        rate(
            self.per_second(
                self.now.counters.total(family, labels) - self.before.counters.total(family, labels),
            ),
        )
    }

    fn per_second(&self, count: f64) -> f64 {
        let seconds = self.now.counters.time - self.before.counters.time;
        if seconds > 0.0 { (count / seconds).max(0.0) } else { 0.0 }
    }
}

fn state(shard: &Shard) -> String {
    let health = match (shard.circuit_open, shard.watching) {
        (true, _) => "cannot be reached",
        (false, true) => "watched",
        (false, false) => "not watched",
    };
    let marks = [(shard.unschedulable, ", cordoned"), (shard.draining, ", draining")];
    let marks = marks.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word);
    let mut state: String = std::iter::once(health).chain(marks).collect();
    if !shard.circuit_open_for.is_empty() {
        state += &format!(", cannot be reached by {}", shard.circuit_open_for.join(", "));
    }
    state
}

/// A rate with three significant digits.
fn rate(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ if value > 0.0 => format!("{value:.2}"),
        _ => "0".to_owned(),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0} us", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

fn uptime(seconds: u64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn snapshot(time: f64, requests: u64) -> Snapshot {
        let labels = json!({"listener": "internal", "shard": "alpha", "class": "read"});
        let buckets = json!([[0.001, requests / 2], [0.01, requests]]);
        Snapshot {
            status: serde_json::from_value(json!({
                "version": "0.1.0", "uptimeSeconds": 3723, "synced": true, "listeners": [{"name": "internal"}],
                "shards": [
                    {"name": "alpha", "watching": true, "workspaces": 12, "open": 3, "waiting": 0, "limit": 100},
                    {"name": "beta\u{1b}[2J", "unschedulable": true, "workspaces": 0},
                ],
            }))
            .unwrap(),
            busy: serde_json::from_value(json!({
                "requests": [{"cluster": "a", "path": "root:org", "perSecond": 12.5}],
                "bytes": [{"cluster": "a", "perSecond": 1000}],
                "watches": [{"cluster": "a", "open": 2}, {"cluster": "b", "path": "root:quiet\u{202e}", "open": 1}],
            }))
            .unwrap(),
            counters: serde_json::from_value(json!({"time": time, "families": {
                ALL: [
                    {"labels": {"method": "GET", "code": "200"}, "count": requests},
                    {"labels": {"method": "GET", "code": "503"}, "count": requests / 10},
                ],
                REQUESTS: [{"labels": labels, "count": requests, "buckets": buckets}],
                STAGE: [{"labels": {"listener": "internal", "stage": "auth"}, "count": requests, "buckets": [[0.0001, requests]]}],
                "fairlead_gateway_requests_open": [{"labels": {"class": "watch"}, "value": 3}],
                "fairlead_connections_open": [{"labels": {"listener": "internal"}, "value": 5}],
            }}))
            .unwrap(),
        }
    }

    #[test]
    fn tables_show_rates_of_the_interval() {
        let interval = Interval { before: &snapshot(10.0, 1000), now: &snapshot(12.0, 1200) };
        expect![[r#"
            Fairlead gateway 0.1.0, up for 1h2m
            110 requests/s, 0 of them 4xx, 10.0 5xx, 0 limited; 3 watches open

            STAGE             PER S  P50     P99
            accept            0      -       -
            tls               0      -       -
            auth              100    50 us   99 us
            route             0      -       -
            queue             0      -       -
            upstream_connect  0      -       -
            total             100    1.0 ms  9.8 ms

            LISTENER  PER S  P50     P99     CONNECTIONS  LIMITED/S
            internal  100    1.0 ms  9.8 ms  5            0

            SHARD          PER S  P50     P99     IN FLIGHT  QUEUED  WORKSPACES  STATE
            alpha          100    1.0 ms  9.8 ms  3 of 100   0       12          watched
            beta\u{1b}[2J  0      -       -       -          -       0           not watched, cordoned

            WORKSPACE           PER S  BYTES/S  ERRORS/S  WATCHES
            root:org            12.5   1000     0         2
            root:quiet\u{202e}  0      0        0         1
        "#]]
        .assert_eq(&table(&interval));
    }

    #[test]
    fn a_restarted_gateway_has_no_negative_rates() {
        let interval = Interval { before: &snapshot(10.0, 1000), now: &snapshot(12.0, 10) };
        assert!(!table(&interval).contains("-4"), "{}", table(&interval));
    }
}
