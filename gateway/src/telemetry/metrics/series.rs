//! The maximum number of series, and a test of it. docs/gateway-observability.md has the same formula in words.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::io::Write as _;
use std::sync::Arc;

use fairlead_client::NameResolver;
use fairlead_config::DrainConfig;
use fairlead_process::{Reloads, Shutdown, Tasks};
use rcgen::BasicConstraints;

use super::gauges::{GatewayState, IndexedShard, UpstreamState};
use super::*;
use crate::listener::acme::AcmeMetrics;
use crate::policy::quota::{LimitKind, LimitScope, RequestKind};
use crate::routing::placement::PlacementMetrics;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::top::TopWorkspaces;
use crate::telemetry::trace::Tracing;

/// A histogram has a series per bucket, and `+Inf`, sum and count.
const fn histogram(buckets: &[f64]) -> usize {
    buckets.len() + 3
}

/// Quotas by scope and limit; the headers and the frames of a connection; connections, failures and probes of addresses.
const QUOTAS: usize = 3 * 5 + 2 + 3;

/// Number of series with so many listeners, servers (shards and mapped backends) and objects reloaded from files.
fn series(listeners: usize, servers: usize, reloaded: usize) -> usize {
    let stages = listeners * RequestStage::ALL.len() * histogram(STAGE_BUCKETS);
    let by_server =
        listeners * servers * CLASSES.len() * (histogram(FIRST_BYTE_BUCKETS) + histogram(TOTAL_BUCKETS));
    let of_kcp = (MAX_OUTCOMES + 1) * histogram(REQUEST_BUCKETS);
    let local_responses = MAX_LOCAL_RESPONSES + 1;
    // Bytes per direction, failed handshakes, workspaces by parent and by shard, three of the index, four of admission,
    // five of its health, three of placement.
    let of_servers = servers * (2 + TLS_ERRORS.len() + 2 + 3 + 4 + 5 + 3);
    // Connections, handshakes by result, refused peers, quotas, ACME certificates.
    let of_listeners = listeners * (1 + 4 + 1 + QUOTAS + 4);
    // Loaded, failed, failing, time of the failure, age, the expiry of two kinds of certificates.
    let of_files = reloaded * 7;
    // The process 8, open requests 4, forged headers, the limit of connections, the table, stalled streams and the index 4,
    // the access log 3, spans 3, slow clients 2, placements by policy and outcome 18.
    let others = 8 + CLASSES.len() + 2 + 4 + 3 + 3 + 2 + 18;
    let top = (Measure::ALL.len() + 1) * TOP;
    top + stages + by_server + of_kcp + local_responses + of_servers + of_listeners + of_files + others
}

fn shard(number: usize) -> String {
    format!("shard-{number}")
}

fn certificate(is_ca: rcgen::IsCa) -> String {
    let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.is_ca = is_ca;
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
}

/// The metrics after every event that can occur.
fn metrics_after_all_events(listeners: &[&str], servers: usize, reloaded: usize) -> String {
    let registry = Metrics::new("gateway", "test").unwrap();
    let reloads = Reloads::new(&registry).unwrap();
    let certificates =
        certificate(rcgen::IsCa::NoCa) + &certificate(rcgen::IsCa::Ca(BasicConstraints::Unconstrained));
    for number in 0..reloaded {
        let object = format!("file {number}");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(certificates.as_bytes()).unwrap();
        let path = file.path().to_owned();
        let read = move || std::fs::read(&path).map(drop);
        reloads.register(&object, [file.path().to_owned()], read).unwrap();
        drop(file);
    }
    reloads.check_now();
    let metrics = GatewayMetrics::new(&registry).unwrap();
    let series: Vec<_> =
        listeners.iter().map(|listener| metrics.listener_series(listener).unwrap()).collect();
    AccessLog::new(&registry).unwrap();
    let (shutdown, names) = (Shutdown::new(&DrainConfig::default()), NameResolver::system());
    Tracing::new(&registry, &Tasks::new(shutdown.clone()), &shutdown, &names).unwrap();
    PlacementMetrics::new(&registry).unwrap().create_all_series((0..servers).map(shard));
    let moment = Duration::from_micros(1);
    for number in 0..servers {
        let name = shard(number);
        let server = metrics.server(&name, UpstreamKind::Shard);
        for (listener, class) in series.iter().flat_map(|listener| CLASSES.map(|class| (listener, class))) {
            server.first_byte(listener, class, moment);
            server.total(listener, class, moment);
        }
        server.body_bytes(1, 1);
        server.ejected();
        TLS_ERRORS.iter().for_each(|(kind, _)| server.tls_error(*kind));
    }
    let acme = AcmeMetrics::new(&registry).unwrap();
    for (series, listener) in series.iter().zip(listeners) {
        acme.create_all_series(listener);
        metrics.listener(listener);
        for scope in [LimitScope::All, LimitScope::Identity, LimitScope::Workspace] {
            let open = [RequestKind::Request, RequestKind::Watch, RequestKind::Upgrade].map(LimitKind::Open);
            for object in [LimitKind::Rate, LimitKind::Bytes].into_iter().chain(open) {
                metrics.limited(listener, scope.as_str(), object.as_str());
            }
        }
        metrics.header_budget_exceeded(listener);
        metrics.frame_budget_exceeded(listener);
        for object in [LimitKind::Connections, LimitKind::Failures, LimitKind::Rate] {
            metrics.limited(listener, LimitScope::Address.as_str(), object.as_str());
        }
        RequestStage::ALL.iter().for_each(|stage| series.stage(*stage, moment));
    }
    let odd = Method::from_bytes(b"BREW").unwrap();
    for code in 100..1000 {
        for method in METHODS.iter().map(|(method, _)| method).chain([&odd]) {
            metrics.finished(method, code, moment);
        }
        metrics.local_response(code, "probe");
    }
    metrics.stripped(1);
    let top = TopWorkspaces::new(std::time::Instant::now());
    let workspaces = (0..10_000).map(|number| Arc::from(format!("c{number}")));
    let watches: Vec<_> = workspaces
        .map(|cluster| {
            top.ended(&cluster, 500, 1, std::time::Instant::now());
            top.watch(&cluster)
        })
        .collect();
    let indexed_shards = (0..servers).map(|number| IndexedShard {
        name: shard(number).into(),
        child_workspaces: 1,
        workspaces: 1,
        age: None,
        restarts: 1,
        relists: 1,
    });
    let upstreams = (0..servers).map(|number| UpstreamState {
        name: shard(number).into(),
        open: 1,
        waiting: 1,
        limit: 1,
        is_circuit_open: false,
        is_healthy: true,
        addresses: 1,
        ejected: 0,
        excluded: 0,
    });
    let state = GatewayState {
        indexed_shards: indexed_shards.collect(),
        upstreams: upstreams.collect(),
        ..GatewayState::default()
    };
    let text = metrics.text(&state, &top).unwrap();
    drop(watches);
    String::from_utf8(text.to_vec()).unwrap()
}

fn count(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn there_are_as_many_series_as_the_formula_says_and_not_more() {
    let names = ["internal", "edge", "operators"];
    for (listeners, servers, reloaded) in [(1, 1, 0), (1, 2, 3), (3, 1, 1), (3, 10, 20)] {
        let text = metrics_after_all_events(&names[..listeners], servers, reloaded);
        assert_eq!(
            count(&text),
            series(listeners, servers, reloaded),
            "{listeners} {servers} {reloaded}\n{text}"
        );
    }
    assert!(series(3, 10, 20) <= 8000, "{}", series(3, 10, 20));
}
