//! `upstreamIdentity`: connections to shards belong to the identity of a listener and are never shared with another identity.

use std::collections::BTreeSet;
use std::fs;

use fairlead_config::{InputFile, ShardUpstreamConfig, UpstreamIdentityConfig};
use http::Method;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;

use crate::pki::Authority;
use crate::shard::Shard;
use crate::world::{Choices, Http2, SecondGateway, World, connect, eventually, logical_cluster, request};

const PATH: &str = "/clusters/root:org/api";
const LISTENERS: [&str; 3] = ["internal", "edge", "operators"];

/// A gateway with three listeners; `operators` and `internal` have the same identity towards shards.
async fn three_listeners(world: &mut World) -> SecondGateway {
    write_identity(world, "kcp-front-proxy-edge");
    let directory = world.directory.path().to_owned();
    let path = |name: &str| directory.join(name);
    let usual = world.config.listeners[0].clone();
    for name in &LISTENERS[1..] {
        let mut listener = usual.clone();
        listener.name = (*name).to_owned();
        listener.upstream_identity = (*name == "edge").then(|| UpstreamIdentityConfig {
            certificate: path("edge-sender.crt").into(),
            private_key: path("edge-sender.key").into(),
        });
        world.config.listeners.push(listener);
    }
    let gateway = world.start_second_gateway(|_| ());
    gateway.gateway.ready().await;
    gateway
}

fn write_identity(world: &World, name: &str) {
    world.front_proxy_ca.client(name, &[]).write(world.directory.path(), "edge-sender");
}

/// Opens a connection to each listener.
async fn clients(world: &World, gateway: &SecondGateway) -> Vec<Http2> {
    let mut clients = Vec::new();
    for (name, address) in &gateway.gateway.listeners {
        assert!(LISTENERS.contains(&name.as_str()));
        let user = world.user();
        let stream = connect(*address, &world.serving_ca, Some(&user), b"h2").await.unwrap();
        clients.push(Http2::over(stream).await);
    }
    clients
}

/// The gateway's identity, as the shard sees it.
async fn peer(client: &Http2, path: &str) -> String {
    let answer = client.send(request(Method::GET, path, &[], "")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.json()["peer"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_see_the_listener_of_a_request() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let gateway = three_listeners(&mut world).await;
    let clients = clients(&world, &gateway).await;
    let round = async |expected: &str| {
        // Concurrent requests in any order, so that all open connections are used.
        let requests = (0..60).map(|number| {
            let client = &clients[number % 3];
            async move { (number % 3, peer(client, PATH).await) }
        });
        for (listener, peer) in futures_util::future::join_all(requests).await {
            assert_eq!(
                peer,
                if listener == 1 { expected } else { "kcp-front-proxy" },
                "{}",
                LISTENERS[listener]
            );
        }
    };
    round("kcp-front-proxy-edge").await;
    let metrics = || String::from_utf8(gateway.environment.metrics.text().unwrap().into()).unwrap();
    // After the rotation only this listener has another identity.
    write_identity(&world, "kcp-front-proxy-edge-2");
    gateway.environment.reloads.check_now();
    round("kcp-front-proxy-edge-2").await;
    // A certificate that does not match its key changes nothing.
    fs::copy(world.directory.path().join("front-proxy.key"), world.directory.path().join("edge-sender.key"))
        .unwrap();
    gateway.environment.reloads.check_now();
    round("kcp-front-proxy-edge-2").await;
    let failure =
        "fairlead_reload_total{object=\"credential of listener edge for shards\",result=\"failure\"} 1";
    assert!(metrics().contains(failure), "{}", metrics());
    // The default identity is rotated, too.
    world.front_proxy_ca.client("kcp-front-proxy", &["again"]).write(world.directory.path(), "front-proxy");
    write_identity(&world, "kcp-front-proxy-edge-3");
    gateway.environment.reloads.check_now();
    round("kcp-front-proxy-edge-3").await;
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_behaves_the_same_for_every_protocol_and_target() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    // A shard with a server name of its own, one that supports HTTP/1.1 only, and a mount.
    let serving = Authority::new("own serving");
    let tls = serving.server_named("own.shards").server_config(&[&world.front_proxy_ca, &world.client_ca]);
    let own = Shard::start("own", tls).await;
    let authorities = world.directory.path().join("own-serving-ca.crt");
    fs::write(&authorities, format!("{}{}", serving.pem, world.serving_ca.pem)).unwrap();
    let kubeconfig = world.kubeconfig_of(&own);
    let text = fs::read_to_string(&kubeconfig).unwrap();
    let text = text.replace("serving-ca.crt\"", "own-serving-ca.crt\",\"tls-server-name\":\"own.shards\"");
    fs::write(&kubeconfig, text).unwrap();
    world.config.upstream.shards = vec![ShardUpstreamConfig {
        name: "own".to_owned(),
        server_ca: Some(InputFile::from(authorities)),
        server_name: Some("own.shards".to_owned()),
        kubeconfig: Some(kubeconfig.into()),
        ..ShardUpstreamConfig::default()
    }];
    let old = world.shard_with_http1("old").await;
    for shard in [&own, &old] {
        let name = shard.state.name.as_str();
        let id = format!("id-{name}");
        shard.state.put("logicalclusters", &id, logical_cluster(&id, Some(name)));
        world.register(name, &shard.url());
        world.put_workspace("root", name, json!({"cluster": id}), "Ready");
    }
    let mounted = world.unregistered_shard("mounted").await;
    let url = format!("{}/clusters/there", mounted.url());
    world.put_workspace("root", "mount", json!({"mount": {"ref": {}}, "URL": url}), "Ready");
    let gateway = three_listeners(&mut world).await;
    let clients = clients(&world, &gateway).await;
    for path in [
        "/clusters/root:own/api",
        "/clusters/root:old/api",
        "/clusters/root:mount/api",
        "/services/x/clusters/root:org/api",
    ] {
        let mut seen = Vec::new();
        for _ in 0..3 {
            for client in &clients {
                seen.push(peer(client, path).await);
            }
        }
        let edge: BTreeSet<_> = seen.iter().skip(1).step_by(3).map(String::as_str).collect();
        let others: BTreeSet<_> =
            seen.iter().enumerate().filter(|(at, _)| at % 3 != 1).map(|(_, peer)| peer.as_str()).collect();
        assert_eq!((edge, others), (["kcp-front-proxy-edge"].into(), ["kcp-front-proxy"].into()), "{path}");
    }
    // A tunnel uses its own connection with the listener's identity.
    let stream =
        connect(gateway.gateway.listeners[1].1, &world.serving_ca, Some(&world.user()), b"http/1.1").await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream.unwrap())).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let get = http::Request::get("/clusters/root:org/upgrade")
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = sender.send_request(get).await.unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.headers()["x-peer"], "kcp-front-proxy-edge");
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_upstream_identity_is_rejected_is_named_in_the_status() {
    let mut world = World::new().await;
    world.config.upstream.circuit_breaker.open_duration = "60s".parse().unwrap();
    let gateway = three_listeners(&mut world).await;
    let stranger = Authority::new("nobody's");
    stranger.client("kcp-front-proxy-edge", &[]).write(world.directory.path(), "edge-sender");
    gateway.environment.reloads.check_now();
    let clients = clients(&world, &gateway).await;
    let operator = world.operator();
    let operator = connect(gateway.address, &world.serving_ca, Some(&operator), b"h2").await.unwrap();
    let operator = Http2::over(operator).await;
    let rejected_listeners = async || {
        let status = operator.get("/services/fairlead/v1/status").await.json();
        let shards = status["shards"].as_array().unwrap().clone();
        let alpha = shards.into_iter().find(|shard| shard["name"] == "alpha").unwrap();
        (alpha["circuitOpen"].clone(), alpha["circuitOpenFor"].clone())
    };
    assert_eq!(rejected_listeners().await, (json!(false), json!([])));
    eventually("the status names the listener", async || {
        assert_ne!(clients[1].get(PATH).await.status, 200);
        rejected_listeners().await == (json!(false), json!(["edge"]))
    })
    .await;
    assert_eq!(clients[0].get(PATH).await.status, 200, "other listeners are not affected");
    gateway.end().await;
}
