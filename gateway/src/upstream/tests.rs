#![allow(clippy::unwrap_used, reason = "tests")]

use fairlead_config::{CircuitBreakerConfig, ConcurrencyConfig, HealthConfig};
use fairlead_process::Metrics;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use tokio::net::TcpListener;
use tokio::time::sleep;

use std::net::SocketAddr;

use fairlead_client::NameResolver;
use fairlead_process::Reloadable;
use tokio::time::Instant;

use super::*;
use crate::routing::placement::UpstreamSignals;
use crate::telemetry::metrics::{GatewayMetrics, shard_metrics};
use crate::upstream::server::UNUSED_AFTER;

const MOMENT: Duration = Duration::from_secs(1);

/// A credential without special properties.
fn credential() -> Arc<Reloadable<UpstreamCredential>> {
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let tls = Arc::new(tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    Arc::new(Reloadable::new(UpstreamCredential {
        group_key: 1,
        stream_tls: Arc::clone(&tls),
        tunnel_tls: tls,
        server_name: None,
    }))
}

fn upstreams() -> Upstreams {
    let options = UpstreamOptions {
        connect_timeout: MOMENT,
        read_timeout: MOMENT,
        idle_timeout: MOMENT,
        ping_interval: MOMENT,
        pings: false,
        max_age: MOMENT,
        stream_window: 64 << 10,
        unreachable: Unreachable::ServiceUnavailable,
        retries: false,
        admission: AdmissionOptions::new(&ConcurrencyConfig::default()),
        breaker: BreakerOptions::new(&CircuitBreakerConfig::default()),
        health: HealthOptions::new(&HealthConfig::default()),
    };
    let metrics = Arc::new(GatewayMetrics::new(&Metrics::new("gateway", "test").unwrap()).unwrap());
    let names = NameResolver::system();
    Upstreams::new(credential(), OwnCredentials::default(), options, shard_metrics(&metrics), names)
}

fn backend(upstreams: &Upstreams, url: &str) -> Arc<Upstream> {
    upstreams.backend(&BackendSpec { name: url.into(), url: url.into(), credential: None }).unwrap()
}

/// The server's only address, after it was looked up and ejected.
async fn eject(server: &Upstream) -> SocketAddr {
    let options = server.options.load().health;
    let (host, port) = (server.endpoint.host(), server.endpoint.port());
    let address = server.addresses.in_order(host, port, |_| 0, &options).await[0];
    server.record_address_failure(address, Fault::Connect);
    assert!(server.addresses.ejected_until(address).is_some());
    address
}

#[tokio::test(start_paused = true)]
async fn an_unused_backend_is_neither_probed_nor_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstreams = upstreams();
    let server = backend(&upstreams, &url);
    let address = eject(&server).await;
    sleep(UNUSED_AFTER / 2).await;
    assert!(server.addresses.ejected_until(address).is_some(), "a probe would have found it");
    let known = Arc::downgrade(&server);
    sleep(UNUSED_AFTER).await;
    assert!(server.addresses.ejected_until(address).is_none(), "a task still holds it");
    backend(&upstreams, "http://127.0.0.1:2");
    assert!(upstreams.backends.load().contains_key(&*url), "a reference exists");
    drop(server);
    backend(&upstreams, "http://127.0.0.1:3");
    assert!(known.upgrade().is_none(), "it is dropped");
    assert!(upstreams.backends.load().contains_key("http://127.0.0.1:2"), "that one is new");
}

#[tokio::test(start_paused = true)]
async fn an_unused_shard_is_removed_unless_it_fails() {
    let upstreams = upstreams();
    let get = |name: &str| upstreams.get(&name.into(), &"https://127.0.0.1:1".into()).unwrap();
    let names = || {
        let shards = upstreams.shards.load();
        let mut names: Vec<_> = shards.keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    drop(get("alpha"));
    *get("beta").last_failure.lock() = Some(Instant::now());
    sleep(UNUSED_AFTER - MOMENT).await;
    drop(get("gamma"));
    assert_eq!(names(), ["alpha", "beta", "gamma"]);
    sleep(2 * MOMENT).await;
    *get("beta").last_failure.lock() = Some(Instant::now());
    drop(get("delta"));
    assert_eq!(names(), ["beta", "delta", "gamma"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_shard_is_kept_only_by_its_users() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Arc<str> = format!("http://{}", listener.local_addr().unwrap()).into();
    let upstreams = upstreams();
    let server = upstreams.get(&"alpha".into(), &url).unwrap();
    eject(&server).await;
    upstreams.remove_shard("alpha");
    upstreams.remove_shard("never-asked");
    assert!(upstreams.shards().is_empty(), "it is still listed");
    let known = Arc::downgrade(&server);
    drop(server);
    assert!(known.upgrade().is_none(), "a task still holds it");
    assert!(!upstreams.get(&"alpha".into(), &url).unwrap().is_failing(), "another one of its name");
}

#[tokio::test(start_paused = true)]
async fn a_failing_shard_is_probed_because_it_gets_no_workspaces() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = upstreams().get(&"alpha".into(), &url.into()).unwrap();
    let address = eject(&server).await;
    assert!(server.is_failing());
    let back = async {
        while server.addresses.ejected_until(address).is_some() {
            sleep(MOMENT).await;
        }
    };
    tokio::time::timeout(UNUSED_AFTER / 2, back).await.unwrap();
    assert!(!server.is_failing());
}

#[tokio::test]
async fn deleted_shards_do_not_count_for_the_panic_threshold() {
    let upstreams = upstreams();
    let names = ["gone-1", "gone-2", "gone-3", "alpha", "beta", "gamma"];
    for name in names {
        let shard = upstreams.get(&name.into(), &"https://127.0.0.1:1".into()).unwrap();
        *shard.last_failure.lock() = (name != "beta" && name != "gamma").then(Instant::now);
    }
    let panics =
        |names: &[&str]| UpstreamSignals::is_panic_threshold_exceeded(&upstreams, &mut names.iter().copied());
    assert!(panics(&names), "four of six");
    assert!(!panics(&names[3..]), "one of three");
    assert!(!panics(&["alpha", "gone-1"]), "too few to say");
    assert!(!panics(&["alpha", "never-asked-1", "never-asked-2"]), "of these nothing is known");
}

#[tokio::test]
async fn a_rejected_listener_certificate_does_not_affect_other_listeners() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Closes every connection before TLS.
    let sends_away = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let upstreams = upstreams();
    let breaker = upstreams.options().breaker;
    let server = upstreams.get(&"alpha".into(), &format!("https://{address}").into()).unwrap();
    let listener = Arc::new(server.with_credential(credential()));
    while !listener.breaker.is_open(breaker) {
        assert!(upstreams.dial_http1(&listener).await.is_err());
    }
    assert!(upstreams.stream(&listener, None).await.is_err());
    assert!(!server.breaker.is_open(breaker) && !server.is_failing(), "the others are none the worse");
    assert!(server.addresses.status().ejected.is_empty());

    assert!(upstreams.dial_http1(&server).await.is_err());
    assert_eq!(server.addresses.status().ejected.len(), 1, "the address counts as failing");
    server.addresses.end_ejection(address, &upstreams.options().health);

    sends_away.abort();
    assert!(sends_away.await.is_err());
    let listener = Arc::new(server.with_credential(credential()));
    assert!(upstreams.dial_http1(&listener).await.is_err());
    assert_eq!(server.addresses.status().ejected.len(), 1, "nothing listens, for any identity");
}
