//! Replacement of certificates, CA bundles and settings while requests and watches are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use fairlead_config::TokenPolicy;
use http::Method;
use http_body_util::BodyExt;

use crate::pki::Authority;
use crate::world::{Http2, World, connect, eventually, request, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_rotate_under_load_without_a_failed_request() {
    let world = Arc::new(World::new().await);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let watch = world.http2(Some(&world.user())).await;
    let mut events = watch
        .open(request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], ""))
        .await
        .unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let load: Vec<_> = (0..4)
        .map(|number| {
            let (world, stop, done) = (Arc::clone(&world), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let user = world.user();
                let persistent = world.http2(Some(&user)).await;
                while !stop.load(Ordering::Relaxed) {
                    // Half of the tasks use one connection, half a new one for each request.
                    let client =
                        if number % 2 == 0 { persistent.clone() } else { world.http2(Some(&user)).await };
                    let method = if number < 2 { Method::GET } else { Method::POST };
                    let answer = client.send(request(method, "/clusters/root:org/api", &[], "body")).await;
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let shard_connections = || world.alpha.state.connections.load(Ordering::SeqCst);
    let before = shard_connections();
    for _ in 0..5 {
        let target = done.load(Ordering::Relaxed) + 100;
        world.serving_ca.server().write(world.directory.path(), "tls");
        world.front_proxy_ca.client("kcp-front-proxy", &[]).write(world.directory.path(), "front-proxy");
        world
            .client_ca
            .client("shard-admin", &["system:masters"])
            .write(world.directory.path(), "shard-admin");
        std::fs::write(world.directory.path().join("client-ca.crt"), &world.client_ca.pem).unwrap();
        let reloads = world.environment.reloads.clone();
        tokio::task::spawn_blocking(move || reloads.check_now()).await.unwrap();
        eventually("more requests succeed", async || done.load(Ordering::Relaxed) >= target).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    // Each new credential has its own connection on each worker; there is one worker per core. The pool sometimes opens one more.
    let workers = std::thread::available_parallelism().unwrap().get();
    let opened = shard_connections() - before;
    assert!((5..=5 * (workers + 1)).contains(&opened), "{opened} connections on {workers} workers");
    // The watch is still open.
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    assert_eq!(events.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "{}\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_authority_is_no_longer_trusted_even_on_open_connections() {
    let world = World::new().await;
    let user = world.user();
    let open = world.http2(Some(&user)).await;
    assert_eq!(open.get("/clusters/root:org/api").await.status, 200);
    let successor = Authority::new("successor");
    std::fs::write(world.directory.path().join("client-ca.crt"), &successor.pem).unwrap();
    world.environment.reloads.check_now();
    assert_eq!(open.get("/clusters/root:org/api").await.status, 401);
    // A new connection with the same certificate is not authenticated, either.
    assert_eq!(world.get(Some(&user), "/clusters/root:org/api").await.status, 401);
    let bob = successor.client("bob", &[]);
    let answer = world.get(Some(&bob), "/clusters/root:org/api").await;
    assert!(answer.echoed("x-remote-user").contains(&"x-remote-user: bob".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_file_keeps_the_last_valid_policy() {
    let world = World::new().await;
    let user = world.user();
    for file in ["tls.crt", "client-ca.crt", "front-proxy.key", "serving-ca.crt"] {
        std::fs::write(world.directory.path().join(file), "not PEM").unwrap();
    }
    world.environment.reloads.check_now();
    assert_eq!(world.get(Some(&user), "/clusters/root:org/api").await.status, 200);
    let metrics = world.environment.metrics.text().unwrap();
    let metrics = std::str::from_utf8(&metrics).unwrap();
    assert!(
        metrics.contains("fairlead_reload_total{object=\"credential for shards\",result=\"failure\"} 1"),
        "{metrics}"
    );
    // The reason of each failure names the file and the line.
    let failures = world.environment.reloads.failures();
    for (object, file) in [
        ("serving certificate of listener internal", "tls.crt"),
        ("credentials of listener internal", "client-ca.crt"),
        ("credential for shards", "serving-ca.crt"),
    ] {
        let position = format!("{file}:1: ");
        let is_named = failures.iter().any(|(failed, reason)| failed == object && reason.contains(&position));
        assert!(is_named, "{object}: {failures:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_get_a_new_serving_certificate() {
    let world = World::new().await;
    let old = world.http2(None).await;
    let other = Authority::new("another serving authority");
    other.server().write(world.directory.path(), "tls");
    world.environment.reloads.check_now();
    assert!(connect(world.address, &world.serving_ca, None, b"h2").await.is_err());
    let new = Http2::over(connect(world.address, &other, None, b"h2").await.unwrap()).await;
    assert_eq!(new.get("/livez").await.status, 200);
    assert_eq!(old.get("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_during_an_open_watch() {
    let mut world = World::new().await;
    let client = world.http2(None).await;
    let token = [("authorization", "Bearer t")];
    let watch = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &token, "");
    let mut events = client.open(watch).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let mut changed = world.config.clone();
    changed.listeners[0].tokens = TokenPolicy::Refuse;
    changed.listeners[0].placement_endpoint = false;
    world.gateway.as_mut().unwrap().reconfigure(changed).unwrap();
    let refused = client.send(request(Method::GET, "/clusters/root:org/api", &token, "")).await;
    assert_eq!(refused.status, 401);
    // Browsers send the token of a WebSocket as one of the offered protocols.
    for (protocols, expected) in [
        ("v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dA", 401),
        ("base64url.bearer.authorization.k8s.io.dA", 401),
        ("v5.channel.k8s.io", 101),
    ] {
        let fields = [
            ("host", "localhost"),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", protocols),
        ];
        let get = request(Method::GET, "/clusters/root:org/upgrade", &fields, "");
        let answer = world.http1(None).await.send_request(get).await.unwrap();
        assert_eq!(answer.status(), expected, "{protocols}");
    }
    let shard = world.client_ca.client("s", &["system:fairlead:shard"]);
    let shard_client = world.http2(Some(&shard)).await;
    let answer =
        shard_client.send(request(Method::POST, "/services/fairlead/v1/shard-picks", &[], "{}")).await;
    assert_eq!(answer.status, 404);
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    assert_eq!(events.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "{}\n");
}

/// A pool whose key has only the serial number of the certificate, or lacks the trusted authorities, would reuse a connection of
/// another credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_used_only_with_the_credential_and_authorities_it_was_opened_with() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let directory = world.directory.path();
    for name in ["first", "second"] {
        // The serial number of both is the same.
        world.front_proxy_ca.client_with_serial(name, 7).write(directory, "front-proxy");
        world.environment.reloads.check_now();
        for path in ["/clusters/root:org/api", "/clusters/root/api"] {
            assert_eq!(client.get(path).await.json()["peer"], name);
        }
    }
    // The connections to shards are open, but the authority of the shards is not trusted any more.
    std::fs::write(directory.join("serving-ca.crt"), &Authority::new("other serving authority").pem).unwrap();
    world.environment.reloads.check_now();
    let answer = client.get("/clusters/root:org/api").await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    std::fs::write(directory.join("serving-ca.crt"), &world.serving_ca.pem).unwrap();
    world.environment.reloads.check_now();
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
}
