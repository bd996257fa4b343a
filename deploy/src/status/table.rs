//! The status as tables. Pure.

use jiff::{Timestamp, Unit};

use super::store::StoreStatus;
use super::{GatewayStatus, ProcessStatus, ShardStatus, Status};
use crate::output::aligned;

/// Tables of processes, stores, listeners and shards.
pub(super) fn table(status: &Status, now: Timestamp) -> String {
    let mut text =
        format!("Fairlead in {}, up for {}\n\n", status.directory.display(), age(&status.started, now));
    let mut processes = vec![row(["PROCESS", "STATE", "PID", "UP FOR", "RESTARTS", "MEMORY", "CPU", "URL"])];
    processes.extend(status.processes.iter().map(|process| process_row(process, now)));
    text.push_str(&aligned(&processes));
    let stores = status.processes.iter().filter_map(|process| Some((process, process.store.as_ref()?)));
    let mut rows = vec![row(["STORE", "KIND", "STATE", "SIZE", "REVISION", "BEHIND", "LEADER", "AT"])];
    rows.extend(stores.map(|(process, store)| store_row(process, store)));
    if rows.len() > 1 {
        text.push_str(&format!("\n{}", aligned(&rows)));
    }
    match (&status.gateway, &status.gateway_error) {
        (Some(gateway), _) => text.push_str(&gateway_tables(gateway)),
        (None, Some(error)) => text.push_str(&format!("\nThe status of the gateway is unknown: {error}\n")),
        (None, None) => {}
    }
    text
}

fn process_row(process: &ProcessStatus, now: Timestamp) -> Vec<String> {
    let state = match &process.last_exit {
        Some(exit) if process.condition != "ready" => format!("{} ({exit})", process.condition),
        _ => process.condition.clone(),
    };
    vec![
        process.name.clone(),
        state,
        or_dash(process.pid),
        process.since.as_deref().map_or_else(dash, |since| age(since, now)),
        process.restarts.to_string(),
        process.usage.map_or_else(dash, |usage| format!("{} MiB", usage.rss_bytes >> 20)),
        process.usage.map_or_else(dash, |usage| format!("{:.1} s", usage.cpu_seconds)),
        process.url.clone(),
    ]
}

fn store_row(process: &ProcessStatus, store: &StoreStatus) -> Vec<String> {
    let is_on_etcd = store.endpoints.is_some();
    let state = match (store.failed, store.disconnected_seconds) {
        (true, _) => "failed".to_owned(),
        (false, _) if store.full => "disk full".to_owned(),
        (false, Some(seconds)) if store.endpoint.is_none() && is_on_etcd => {
            format!("etcd lost {seconds:.0} s ago")
        }
        _ => "ok".to_owned(),
    };
    let behind = match (store.revisions_behind, store.view_age_seconds) {
        (Some(revisions), Some(age)) if is_on_etcd => format!("{revisions}, {age:.0} s"),
        _ => dash(),
    };
    vec![
        process.name.clone(),
        store.backend.clone(),
        state,
        or_dash(store.size_bytes.map(|bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))),
        store.revision.to_string(),
        behind,
        match store.leader {
            Some(true) => "leads".to_owned(),
            Some(false) => "follows".to_owned(),
            None => dash(),
        },
        store
            .endpoint
            .clone()
            .or_else(|| store.endpoints.as_ref().map(|all| all.join(",")))
            .unwrap_or_else(dash),
    ]
}

fn gateway_tables(gateway: &GatewayStatus) -> String {
    let mut listeners = vec![row(["LISTENER", "ADDRESS"])];
    listeners.extend(
        gateway.listeners.iter().map(|listener| vec![listener.name.clone(), listener.address.clone()]),
    );
    let mut shards = vec![row(["SHARD", "STATE", "WORKSPACES", "REPLICAS", "INDEX AGE", "URL"])];
    shards.extend(gateway.shards.iter().map(shard_row));
    let workspaces: u64 = gateway.shards.iter().map(|shard| shard.workspaces).sum();
    let noun = if workspaces == 1 { "workspace" } else { "workspaces" };
    format!("\n{}\n{}\n{workspaces} {noun}\n", aligned(&listeners), aligned(&shards))
}

fn shard_row(shard: &ShardStatus) -> Vec<String> {
    let mut state = match (shard.synced, shard.watching) {
        (false, _) => "not synced".to_owned(),
        (true, true) => "watched".to_owned(),
        (true, false) => "unreachable".to_owned(),
    };
    if shard.unschedulable {
        state.push_str(", cordoned");
    }
    if shard.draining {
        state.push_str(", draining");
    }
    if let Some(error) = shard.last_error.as_ref().filter(|_| !shard.watching) {
        state.push_str(&format!(" ({error})"));
    }
    vec![
        shard.name.clone(),
        state,
        match shard.capacity {
            Some(capacity) => format!("{} of {capacity}", shard.workspaces),
            None => shard.workspaces.to_string(),
        },
        match shard.ejected.len() as u64 {
            _ if shard.addresses == 0 => dash(),
            0 => shard.addresses.to_string(),
            failing => format!("{} of {}", shard.addresses.saturating_sub(failing), shard.addresses),
        },
        shard.age_seconds.map_or_else(dash, |age| format!("{age:.1} s")),
        shard.url.clone(),
    ]
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn dash() -> String {
    "-".to_owned()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

/// Age of an RFC 3339 time in its two largest units.
fn age(since: &str, now: Timestamp) -> String {
    let Ok(since) = since.parse::<Timestamp>() else {
        return dash();
    };
    let seconds = now.since((Unit::Second, since)).map_or(0, |span| span.get_seconds()).max(0);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::status::usage::Usage;

    fn status() -> Status {
        let process = |name: &str, condition: &str, pid: Option<u32>| ProcessStatus {
            name: name.to_owned(),
            url: "https://127.0.0.1:1".to_owned(),
            condition: condition.to_owned(),
            pid,
            since: pid.map(|_| "2026-01-01T00:00:00Z".to_owned()),
            restarts: 2,
            last_exit: Some("signal 9".to_owned()),
            store: None,
            usage: pid.map(|_| Usage { rss_bytes: 33 << 20, cpu_seconds: 1.26 }),
        };
        Status {
            directory: "/x".into(),
            pid: 1,
            started: "2025-12-31T00:00:00Z".to_owned(),
            processes: vec![process("gateway", "ready", Some(12)), process("root", "waiting", None)],
            gateway: None,
            gateway_error: Some("out of order".to_owned()),
        }
    }

    #[test]
    fn processes_are_shown_also_without_a_gateway() {
        let now = "2026-01-01T00:01:05Z".parse().unwrap();
        expect![[r#"
            Fairlead in /x, up for 1d0h

            PROCESS  STATE               PID  UP FOR  RESTARTS  MEMORY  CPU    URL
            gateway  ready               12   1m5s    2         33 MiB  1.3 s  https://127.0.0.1:1
            root     waiting (signal 9)  -    -       2         -       -      https://127.0.0.1:1

            The status of the gateway is unknown: out of order
        "#]]
        .assert_eq(&table(&status(), now));
    }

    #[test]
    fn stores_are_shown_with_their_kind_and_their_lag() {
        let store = |name: &str, store: StoreStatus| ProcessStatus {
            name: name.to_owned(),
            store: Some(store),
            ..status().processes.remove(0)
        };
        let file = StoreStatus {
            backend: "file".to_owned(),
            revision: 1234,
            size_bytes: Some(13 << 19),
            revisions_behind: Some(0),
            view_age_seconds: Some(0.0),
            ..StoreStatus::default()
        };
        let endpoints = vec!["http://a:2379".to_owned(), "http://b:2379".to_owned()];
        let etcd = StoreStatus {
            backend: "etcd".to_owned(),
            revisions_behind: Some(7),
            view_age_seconds: Some(1.4),
            endpoint: Some("http://b:2379".to_owned()),
            endpoints: Some(endpoints),
            disconnected_seconds: Some(0.0),
            leader: Some(true),
            ..file
        };
        let lost = StoreStatus {
            endpoint: None,
            disconnected_seconds: Some(12.3),
            view_age_seconds: Some(14.0),
            leader: Some(false),
            size_bytes: None,
            ..etcd.clone()
        };
        let failed = StoreStatus { failed: true, ..file.clone() };
        let full = StoreStatus { full: true, ..file.clone() };
        let processes = vec![
            store("cache", file),
            store("root", etcd),
            store("shard-1", lost),
            store("shard-2", failed),
            store("shard-3", full),
        ];
        let shown = table(&Status { processes, gateway_error: None, ..status() }, Timestamp::UNIX_EPOCH);
        let (_, stores) = shown.split_once("\n\nSTORE").unwrap();
        expect![[r#"
                KIND  STATE               SIZE     REVISION  BEHIND   LEADER   AT
            cache    file  ok                  6.5 MiB  1234      -        -        -
            root     etcd  ok                  6.5 MiB  1234      7, 1 s   leads    http://b:2379
            shard-1  etcd  etcd lost 12 s ago  -        1234      7, 14 s  follows  http://a:2379,http://b:2379
            shard-2  file  failed              6.5 MiB  1234      -        -        -
            shard-3  file  disk full           6.5 MiB  1234      -        -        -
        "#]]
        .assert_eq(stores);
    }

    #[test]
    fn shards_are_shown_as_the_gateway_sees_them() {
        let gateway: GatewayStatus = serde_json::from_value(json!({
            "synced": true,
            "listeners": [{ "name": "internal", "address": "127.0.0.1:6443" }],
            "shards": [
                { "name": "root", "synced": true, "watching": true, "ageSeconds": 0.04, "workspaces": 3, "addresses": 1, "url": "https://a" },
                {
                    "name": "shard-1", "synced": true, "watching": false, "ageSeconds": 12.5, "workspaces": 4,
                    "addresses": 3, "ejected": [{ "address": "10.0.0.2:6444", "reason": "connect", "failures": 2 }],
                    "unschedulable": true, "lastError": "connection refused", "url": "https://b", "later": 1,
                },
                { "name": "shard-2", "synced": false, "draining": true, "capacity": 10 },
            ],
        }))
        .unwrap();
        expect![[r#"

            LISTENER  ADDRESS
            internal  127.0.0.1:6443

            SHARD    STATE                                       WORKSPACES  REPLICAS  INDEX AGE  URL
            root     watched                                     3           1         0.0 s      https://a
            shard-1  unreachable, cordoned (connection refused)  4           2 of 3    12.5 s     https://b
            shard-2  not synced, draining                        0 of 10     -         -

            7 workspaces
        "#]]
        .assert_eq(&gateway_tables(&gateway));
    }

    #[test]
    fn ages_have_two_units() {
        let now: Timestamp = "2026-01-03T01:01:01Z".parse().unwrap();
        for (since, text) in [
            ("2026-01-03T01:01:01Z", "0s"),
            ("2026-01-03T01:01:02Z", "0s"),
            ("2026-01-03T01:00:00Z", "1m1s"),
            ("2026-01-03T00:00:00Z", "1h1m"),
            ("2026-01-01T00:00:00Z", "2d1h"),
            ("soon", "-"),
        ] {
            assert_eq!(age(since, now), text, "{since}");
        }
    }
}
