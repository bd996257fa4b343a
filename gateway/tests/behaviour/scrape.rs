//! `/metrics` beside that of kcp's front proxy: its own metrics have the same names, types, labels and buckets, and what
//! it has besides is here, too, or in the list below.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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

/// What a recorded name may begin with that has no counterpart here, and why.
const WITHOUT: [(&str, &str); 18] = [
    ("go_", "the runtime of another language"),
    ("process_network_", "of the host's interfaces, not of this process"),
    ("process_virtual_memory_max_bytes", "a limit that no container sets"),
    ("aggregator_", "registered by a library that the proxy links and does not use"),
    ("apiextensions_", "registered by a library that the proxy links and does not use"),
    ("apiserver_audit_", "the proxy audits nothing"),
    ("apiserver_cel_", "of admission, which the proxy has none of"),
    ("apiserver_delegated_authz_", "only questions about /metrics itself"),
    ("apiserver_", "registered by a library that the proxy links and does not use"),
    ("authenticated_user_requests", "only requests for /metrics itself"),
    ("authentication_", "only requests for /metrics itself"),
    ("authorization_", "only requests for /metrics itself"),
    ("cardinality_", "of the metrics library"),
    ("disabled_metrics_total", "of the metrics library"),
    ("hidden_metrics_total", "of the metrics library"),
    ("registered_metrics_total", "of the metrics library"),
    ("workqueue_", "there are no work queues"),
    ("apiserver_client_certificate_expiration_seconds", "only requests for /metrics itself"),
];

/// Families by name: their type, and the names of the labels of their first series.
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

/// What there is once everything that is counted has happened.
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
async fn the_metrics_of_kcp_are_here_under_their_names() {
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

    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/metrics/front-proxy.tsv");
    let Ok(recorded) = std::fs::read_to_string(recorded) else {
        return eprintln!("the rest is skipped: there are no recordings here");
    };
    let mut unused: BTreeSet<&str> = WITHOUT.iter().map(|(prefix, _)| *prefix).collect();
    for line in recorded.lines().skip(1) {
        let mut columns = line.split('\t');
        let (name, kind) = (columns.next().unwrap(), columns.next().unwrap());
        let labels: Vec<String> = columns
            .next()
            .unwrap_or_default()
            .split(',')
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect();
        match ours.get(name) {
            Some(family) => assert_eq!(*family, (kind.to_owned(), labels), "{name}"),
            None => {
                let reasons: Vec<_> = WITHOUT.iter().filter(|(prefix, _)| name.starts_with(prefix)).collect();
                assert!(!reasons.is_empty(), "{name} is recorded, and neither here nor excused");
                for (prefix, _) in reasons {
                    unused.remove(prefix);
                }
            }
        }
    }
    assert!(unused.is_empty(), "excused, but not recorded: {unused:?}");
}
