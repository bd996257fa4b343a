//! What happened between two looks, as tables for people. Pure.

use super::figures::Labels;
use super::{BusyWorkspace, Moment, Shard};
use crate::output::{aligned, harmless};

const ALL: &str = "proxy_request_duration_seconds";
const REQUESTS: &str = "fairlead_gateway_request_duration_seconds";
const PHASE: &str = "fairlead_gateway_phase_duration_seconds";
const PHASES: [&str; 6] = ["accept", "tls", "auth", "route", "queue", "upstream_connect"];
/// Workspaces that are shown.
const SHOWN: usize = 10;

/// Two moments.
pub(super) struct Between<'b> {
    pub(super) before: &'b Moment,
    pub(super) now: &'b Moment,
}

/// Everything, most important first.
pub(super) fn table(between: &Between<'_>) -> String {
    let tables = [between.phases(), between.doors(), between.shards(), between.workspaces()];
    let tables: Vec<String> = tables.iter().map(|rows| aligned(rows)).collect();
    format!("{}\n{}", between.head(), tables.join("\n"))
}

impl Between<'_> {
    fn head(&self) -> String {
        let Moment { status, figures, .. } = self.now;
        let synced = if status.synced { "" } else { ", not everything has been read yet" };
        let draining = if status.draining { ", draining" } else { "" };
        let failed = |from, until| {
            let count =
                |moment: &Moment| moment.figures.total_where(ALL, &[], |code| (from..until).contains(&code));
            rate(self.per_second(count(self.now) - count(self.before)))
        };
        let watches = figures.total("fairlead_gateway_requests_open", &[("class", "watch")]);
        format!(
            "Fairlead gateway {}, up for {}{synced}{draining}\n{} requests/s, {} of them 4xx, {} 5xx, {} limited; {watches} watches open\n",
            harmless(&status.version),
            uptime(status.uptime_seconds),
            self.counted(ALL, &[]),
            failed(400, 500),
            failed(500, 600),
            self.counted("fairlead_gateway_limited_total", &[]),
        )
    }

    fn phases(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["PHASE", "PER S", "P50", "P99"])];
        rows.extend(PHASES.iter().map(|phase| self.timed(phase, PHASE, &[("phase", phase)])));
        rows.push(self.timed("total", REQUESTS, &[("class", "read")]));
        rows
    }

    fn doors(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["LISTENER", "PER S", "P50", "P99", "CONNECTIONS", "LIMITED/S"])];
        for door in &self.now.status.doors {
            let name = &*door.name;
            let mut cells = self.timed(name, REQUESTS, &[("listener", name)]);
            let open = self.now.figures.total("fairlead_connections_open", &[("listener", name)]);
            cells.push(open.to_string());
            cells.push(self.counted("fairlead_gateway_limited_total", &[("listener", name)]));
            rows.push(cells);
        }
        rows
    }

    fn shards(&self) -> Vec<Vec<String>> {
        let mut rows =
            vec![row(["SHARD", "PER S", "P50", "P99", "IN WORK", "WAITING", "WORKSPACES", "STATE"])];
        for shard in &self.now.status.shards {
            let mut cells = self.timed(&shard.name, REQUESTS, &[("shard", &shard.name)]);
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
                harmless(one.path.as_ref().unwrap_or(&one.cluster)),
                rate(measure(&busy.requests).per_second),
                rate(measure(&busy.bytes).per_second),
                rate(measure(&busy.errors).per_second),
                measure(&busy.watches).open.to_string(),
            ]);
        }
        rows
    }

    /// A name with how often and how long.
    fn timed(&self, name: &str, family: &str, labels: Labels<'_>) -> Vec<String> {
        let times = self.now.figures.times_since(&self.before.figures, family, labels);
        let quantile = |share| times.quantile(share).map_or("-".to_owned(), time);
        vec![harmless(name), rate(self.per_second(times.count)), quantile(0.5), quantile(0.99)]
    }

    fn counted(&self, family: &str, labels: Labels<'_>) -> String {
        rate(
            self.per_second(
                self.now.figures.total(family, labels) - self.before.figures.total(family, labels),
            ),
        )
    }

    fn per_second(&self, count: f64) -> f64 {
        let seconds = self.now.figures.time - self.before.figures.time;
        if seconds > 0.0 { (count / seconds).max(0.0) } else { 0.0 }
    }
}

fn state(shard: &Shard) -> String {
    let health = match (shard.left_alone, shard.watching) {
        (true, _) => "cannot be reached",
        (false, true) => "watched",
        (false, false) => "not watched",
    };
    let marks = [(shard.unschedulable, ", cordoned"), (shard.draining, ", draining")];
    let marks = marks.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word);
    let mut state: String = std::iter::once(health).chain(marks).collect();
    if !shard.left_alone_by.is_empty() {
        state += &format!(", cannot be reached by {}", shard.left_alone_by.join(", "));
    }
    state
}

/// As many digits as mean something.
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

    fn moment(time: f64, requests: u64) -> Moment {
        let labels = json!({"listener": "internal", "shard": "alpha", "class": "read"});
        let buckets = json!([[0.001, requests / 2], [0.01, requests]]);
        Moment {
            status: serde_json::from_value(json!({
                "version": "0.1.0", "uptimeSeconds": 3723, "synced": true, "doors": [{"name": "internal"}],
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
            figures: serde_json::from_value(json!({"time": time, "families": {
                ALL: [
                    {"labels": {"method": "GET", "code": "200"}, "count": requests},
                    {"labels": {"method": "GET", "code": "503"}, "count": requests / 10},
                ],
                REQUESTS: [{"labels": labels, "count": requests, "buckets": buckets}],
                PHASE: [{"labels": {"listener": "internal", "phase": "auth"}, "count": requests, "buckets": [[0.0001, requests]]}],
                "fairlead_gateway_requests_open": [{"labels": {"class": "watch"}, "value": 3}],
                "fairlead_connections_open": [{"labels": {"listener": "internal"}, "value": 5}],
            }}))
            .unwrap(),
        }
    }

    #[test]
    fn it_shows_what_happened_in_between() {
        let between = Between { before: &moment(10.0, 1000), now: &moment(12.0, 1200) };
        expect![[r#"
            Fairlead gateway 0.1.0, up for 1h2m
            110 requests/s, 0 of them 4xx, 10.0 5xx, 0 limited; 3 watches open

            PHASE             PER S  P50     P99
            accept            0      -       -
            tls               0      -       -
            auth              100    50 us   99 us
            route             0      -       -
            queue             0      -       -
            upstream_connect  0      -       -
            total             100    1.0 ms  9.8 ms

            LISTENER  PER S  P50     P99     CONNECTIONS  LIMITED/S
            internal  100    1.0 ms  9.8 ms  5            0

            SHARD          PER S  P50     P99     IN WORK   WAITING  WORKSPACES  STATE
            alpha          100    1.0 ms  9.8 ms  3 of 100  0        12          watched
            beta\u{1b}[2J  0      -       -       -         -        0           not watched, cordoned

            WORKSPACE           PER S  BYTES/S  ERRORS/S  WATCHES
            root:org            12.5   1000     0         2
            root:quiet\u{202e}  0      0        0         1
        "#]]
        .assert_eq(&table(&between));
    }

    #[test]
    fn a_gateway_that_began_anew_has_no_negative_rates() {
        let between = Between { before: &moment(10.0, 1000), now: &moment(12.0, 10) };
        assert!(!table(&between).contains("-4"), "{}", table(&between));
    }
}
