//! Compares `/metrics` with that of kcp-front-proxy: its own metrics have the same names, types, labels and buckets. Its
//! other metrics are served, too, or listed below with a reason.

use std::collections::{BTreeMap, BTreeSet};

use fairlead_tests::recordings::Recordings;
use http::Method;

use crate::pki::Authority;
use crate::world::{World, request};

/// Name, type, labels (without a histogram's `le`).
const OWN: [(&str, &str, &[&str]); 5] = [
    ("proxy_request_duration_seconds", "histogram", &["code", "method"]),
    ("kcp_backend_rq_body_bytes", "counter", &["shard"]),
    ("kcp_backend_rs_body_bytes", "counter", &["shard"]),
    ("kcp_listener_tls_connection_error", "counter", &["error_type", "shard"]),
    ("kcp_indexed_logicalclusters", "gauge", &["shard"]),
];

const BUCKETS: [&str; 22] = [
    "0.05", "0.1", "0.2", "0.4", "0.6", "0.8", "1", "1.25", "1.5", "2", "3", "4", "5", "6", "8", "10", "15",
    "20", "30", "45", "60", "+Inf",
];

/// Metrics of kcp-front-proxy that the gateway does not have: prefix of the name, and the reason.
const OMITTED: [(&str, &str); 18] = [
    ("go_", "the runtime of another language"),
    ("process_network_", "counts traffic of the host, not of the process"),
    ("process_virtual_memory_max_bytes", "a limit that no container sets"),
    ("aggregator_", "registered by a library that the proxy links and does not use"),
    ("apiextensions_", "registered by a library that the proxy links and does not use"),
    ("apiserver_audit_", "the proxy has no audit log"),
    ("apiserver_cel_", "the proxy has no admission"),
    ("apiserver_delegated_authz_", "only requests for /metrics itself"),
    ("apiserver_", "registered by a library that the proxy links and does not use"),
    ("authenticated_user_requests", "only requests for /metrics itself"),
    ("authentication_", "only requests for /metrics itself"),
    ("authorization_", "only requests for /metrics itself"),
    ("cardinality_", "describes the metrics library"),
    ("disabled_metrics_total", "describes the metrics library"),
    ("hidden_metrics_total", "describes the metrics library"),
    ("registered_metrics_total", "describes the metrics library"),
    ("workqueue_", "there are no work queues"),
    ("apiserver_client_certificate_expiration_seconds", "only requests for /metrics itself"),
];

/// Type and label names of each family, by its name. The labels are those of the first series.
fn families(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .map(|(name, kind)| {
            let of_family = |line: &&str| {
                let series = line.split(['{', ' ']).next().unwrap();
                ["", "_count"].iter().any(|suffix| series == format!("{name}{suffix}"))
            };
            let series = text.lines().find(of_family).unwrap_or_default();
            let labels = series.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            let mut labels: Vec<String> =
                labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect();
            labels.sort();
            (name.to_owned(), (kind.to_owned(), labels))
        })
        .collect()
}

/// The metrics after requests that increase every counter.
async fn scrape() -> String {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    for (method, path, body) in [
        (Method::GET, "/clusters/root:org/api", ""),
        (Method::POST, "/clusters/root:org/api", "a body"),
        (Method::from_bytes(b"PROPFIND").unwrap(), "/clusters/root:org/api", ""),
        (Method::GET, "/clusters/root:nope/api", ""),
    ] {
        client.send(request(method, path, &[], body)).await;
    }
    std::fs::write(world.directory.path().join("serving-ca.crt"), Authority::new("other").pem).unwrap();
    world.environment.reloads.check_now();
    assert_eq!(client.get("/clusters/root:org/api").await.status, 503);
    world.get(Some(&world.operator()), "/metrics").await.text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_kcp_front_proxy_are_served_or_listed_as_omitted() {
    let text = scrape().await;
    let ours = families(&text);
    for (name, kind, labels) in OWN {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(ours.get(name), Some(&(kind.to_owned(), labels)), "{name}");
        let help = format!("# HELP {name} [ALPHA] ");
        assert!(text.contains(&help), "{name}");
    }
    let first = "proxy_request_duration_seconds_bucket{code=\"200\",method=\"get\",le=\"";
    let buckets: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix(first)?.split('"').next()).collect();
    assert_eq!(buckets, BUCKETS);
    for line in [
        "proxy_request_duration_seconds_count{code=\"200\",method=\"post\"} 1\n",
        "proxy_request_duration_seconds_count{code=\"200\",method=\"unknown\"} 1\n",
        "proxy_request_duration_seconds_count{code=\"403\",method=\"get\"} 1\n",
        "proxy_request_duration_seconds_count{code=\"503\",method=\"get\"} 1\n",
        "kcp_backend_rq_body_bytes{shard=\"alpha\"} 6\n",
        "kcp_listener_tls_connection_error{error_type=\"unknown_ca\",shard=\"alpha\"} ",
        "kcp_indexed_logicalclusters{shard=\"root\"} 1\n",
        "kcp_indexed_logicalclusters{shard=\"alpha\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }

    let recorded = Recordings::of_the_repository().front_proxy_metrics().unwrap();
    assert!(recorded.len() > 100, "only {} families are recorded", recorded.len());
    let mut unused: BTreeSet<&str> = OMITTED.iter().map(|(prefix, _)| *prefix).collect();
    for (name, kind, labels) in &recorded {
        match ours.get(name) {
            Some(family) => assert_eq!(*family, (kind.clone(), labels.clone()), "{name}"),
            None => {
                let reasons: Vec<_> = OMITTED.iter().filter(|(prefix, _)| name.starts_with(prefix)).collect();
                assert!(!reasons.is_empty(), "{name} is recorded, neither served nor listed as omitted");
                for (prefix, _) in reasons {
                    unused.remove(prefix);
                }
            }
        }
    }
    assert!(unused.is_empty(), "listed as omitted, but not recorded: {unused:?}");
}
