//! Deliberate differences from kcp-front-proxy (front-proxy.md 10): the gateway's own behaviour and, with `kcpCompatibility`, kcp's.
//! The differences in the matrix of outcomes are in `matrix.rs`; CONTRACT.md lists all.

use std::fs;
use std::time::Duration;

use fairlead_config::{GatewayConfig, InputFile, KcpBehaviour, SecretFile, Timespan};
use futures_util::FutureExt as _;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::timeout;

use crate::mapping::clusters;
use crate::pki::Authority;
use crate::relay::Relay;
use crate::world::{Choices, Http2, World, eventually, request, until};

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

const KNOWN_SOON: [&str; 3] = ["/clusters/root/api", "/clusters/root:org/api", "/services/x/root:org/api"];

/// A world whose shards are registered but cannot be listed.
async fn unlisted_world(kcp_compatibility: Option<fn(&mut GatewayConfig)>) -> (World, Http2) {
    let world =
        World::with(Choices { config: kcp_compatibility, unsynced: true, ..Choices::default() }).await;
    let client = world.http2(Some(&world.user())).await;
    let listed = async || match client.get("/readyz/informer-sync").await {
        answer if answer.status == 200 => true,
        answer => answer.text.contains("not read yet: alpha, root"),
    };
    eventually("it is listed", async || listed().await).await;
    (world, client)
}

fn serve_shards(world: &World) {
    for shard in [&world.root, &world.alpha] {
        world.register(&shard.state.name, &shard.url());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_needs_all_shards_read_or_with_kcp_compatibility_their_list() {
    let (world, client) = unlisted_world(None).await;
    assert_eq!(client.get("/readyz").await.status, 500);
    serve_shards(&world);
    world.gateway.as_ref().unwrap().ready().await;
    assert_eq!(client.get("/readyz").await.status, 200);

    let (_world, client) =
        unlisted_world(Some(|config| config.kcp_compatibility = vec![KcpBehaviour::Readiness])).await;
    for path in ["/readyz", "/readyz/informer-sync", "/readyz?verbose"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    // Only readiness is as in kcp.
    assert_eq!(client.get("/clusters/root:org/api").await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_was_not_read_yet_is_503_or_with_kcp_compatibility_403() {
    for (kcp_compatibility, code, reason, after) in [
        (None, 503, "ServiceUnavailable", Some("1")),
        (
            Some(
                (|config| config.kcp_compatibility = vec![KcpBehaviour::Unsynced]) as fn(&mut GatewayConfig),
            ),
            403,
            "Forbidden",
            None,
        ),
    ] {
        let (world, client) = unlisted_world(kcp_compatibility).await;
        for path in KNOWN_SOON {
            let answer = client.get(path).await;
            // Without a workspace in the path kcp gives no response of its own.
            let is_service = path.starts_with("/services/");
            let (code, reason) = if is_service { (503, "ServiceUnavailable") } else { (code, reason) };
            assert_eq!((answer.status, answer.json()["reason"].as_str()), (code, Some(reason)), "{path}");
            let retry_after = answer.headers.get("retry-after").map(|value| value.to_str().unwrap());
            assert_eq!(retry_after, if is_service { Some("1") } else { after }, "{path}");
        }
        assert_eq!(client.get("/readyz").await.status, 500, "another switch controls readiness");
        serve_shards(&world);
        world.gateway.as_ref().unwrap().ready().await;
        for path in KNOWN_SOON {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
    }
}

/// The switches apply when the configuration file is reloaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compatibility_switches_apply_without_a_restart() {
    let mut world = World::new().await;
    world.put_workspace("root", "away", json!({"cluster": "away000000000001"}), "Unavailable");
    let mounted = world.unregistered_shard("mounted").await;
    let url = format!("{}/clusters/there", mounted.url());
    world.put_workspace("root", "mount", json!({"mount": {"ref": {}}, "URL": url}), "Ready");
    world.create_workspace("away000000000001", "child", "root", "child00000000001");
    world.create_workspace("root", "away2", "root", "away000000000001");
    let client = world.http2(Some(&world.user())).await;
    eventually("the child is served", async || {
        client.get("/clusters/root:away2:child/api").await.status == 200
    })
    .await;
    eventually("the mount is served", async || client.get("/clusters/root:mount/api").await.status == 200)
        .await;
    let outcomes = async || {
        let away = client.get("/clusters/root:away/api").await;
        let behind = client.get("/clusters/root:mount:x/api").await;
        (away.status, away.text == "Not available.\n", behind.status)
    };
    assert_eq!(outcomes().await, (503, false, 403));
    let mut changed = world.config.clone();
    for (kcp_compatibility, expected) in [
        (vec![KcpBehaviour::UnavailableBody, KcpBehaviour::MountLabels], (503, true, 200)),
        (vec![KcpBehaviour::MountLabels], (503, false, 200)),
        (vec![], (503, false, 403)),
    ] {
        changed.kcp_compatibility = kcp_compatibility;
        world.gateway.as_mut().unwrap().reconfigure(changed.clone()).unwrap();
        assert_eq!(outcomes().await, expected);
    }
}

/// A mapping file with an entry for `/services/` beside that for `/clusters/`.
fn write_mapping(world: &World, name: &str, services: &str) -> std::path::PathBuf {
    world.write_mapping(name, vec![clusters(), json!({"path": "/services/", "backend": services})])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_pinged_or_with_kcp_compatibility_not() {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let relays = [Relay::to(world.alpha.address).await, Relay::to(world.alpha.address).await];
    let mut gateways = Vec::new();
    for (number, kcp_compatibility) in [vec![], vec![KcpBehaviour::Pings]].into_iter().enumerate() {
        let file = write_mapping(&world, &format!("mapping-{number}.yaml"), &relays[number].url());
        let gateway = world.start_second_gateway(|config| {
            config.paths.mapping_file = Some(InputFile::from(file));
            config.upstream.ping_interval = Timespan::from_millis(100);
            config.kcp_compatibility = kcp_compatibility;
        });
        gateway.gateway.ready().await;
        let client = world.client_of(&gateway).await;
        assert_eq!(client.get("/services/x/api").await.status, 200);
        gateways.push((gateway, client));
    }
    // A ping with its TLS record has about forty bytes.
    let pings = async |count: usize| {
        let before = *relays[0].sent.borrow();
        let pinged = until(&relays[0].sent, |sent| *sent >= before + 40 * count - count);
        timeout(LIMIT, pinged).await.expect("no ping is sent");
    };
    pings(3).await;
    let before = *relays[1].sent.borrow();
    pings(10).await;
    assert_eq!(*relays[1].sent.borrow(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_drain_one_by_one_or_with_kcp_compatibility_all_at_the_end() {
    const WATCHES: usize = 20;
    for kcp_compatibility in [
        None,
        Some((|config| config.kcp_compatibility = vec![KcpBehaviour::Drain]) as fn(&mut GatewayConfig)),
    ] {
        let world = World::with(Choices { config: kcp_compatibility, ..Choices::default() }).await;
        let client = world.http2(Some(&world.user())).await;
        let mut ends = Vec::new();
        for _ in 0..WATCHES {
            let get = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], "");
            let watch = client.open(get).await.unwrap();
            let shutdown = world.environment.shutdown.clone();
            ends.push(tokio::spawn(async move {
                let is_clean = watch.into_body().collect().await.is_ok();
                (is_clean, shutdown.over().now_or_never().is_some())
            }));
        }
        until(&world.alpha.state.streams, |open| *open == WATCHES).await;
        world.environment.shutdown.begin();
        assert_eq!(client.get("/readyz").await.status, if kcp_compatibility.is_some() { 200 } else { 500 });
        let tasks = world.environment.tasks.clone();
        let supervised = tokio::spawn(async move { tasks.supervise().await });
        for end in ends {
            let (is_clean, is_over) = timeout(LIMIT, end).await.expect("the watch does not end").unwrap();
            assert_eq!((is_clean, is_over), (kcp_compatibility.is_none(), kcp_compatibility.is_some()));
        }
        timeout(LIMIT, supervised).await.expect("the watch does not end").unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_reloaded_or_with_kcp_compatibility_read_once() {
    for kcp_compatibility in [vec![], vec![KcpBehaviour::Reloads]] {
        let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        let (one, two) = (world.unregistered_shard("one").await, world.unregistered_shard("two").await);
        let file = |name: &str| world.directory.path().join(name);
        let (tokens, clients) = (file("tokens.csv"), file("client-ca.crt"));
        fs::write(&tokens, "good,bob,7\n").unwrap();
        let mapping = write_mapping(&world, "mapping.yaml", &one.url());
        world.config.paths.mapping_file = Some(InputFile::from(mapping));
        world.config.listeners[0].authentication.token_file = Some(SecretFile::from(tokens.clone()));
        world.config.kcp_compatibility = kcp_compatibility.clone();
        world.start().await;
        let client = world.http2(None).await;
        let ask = async |path: &str, token: &str| {
            let bearer = format!("Bearer {token}");
            let answer = client.send(request(Method::GET, path, &[("authorization", &bearer)], "")).await;
            match answer.status {
                200 => {
                    let echo = answer.json();
                    format!("{} for {}", echo["shard"].as_str().unwrap(), echo["peer"].as_str().unwrap())
                }
                code => code.to_string(),
            }
        };
        assert_eq!(ask("/services/x/api", "good").await, "one for kcp-front-proxy");

        fs::write(&tokens, "better,bob,7\n").unwrap();
        write_mapping(&world, "mapping.yaml", &two.url());
        world.front_proxy_ca.client("renewed", &[]).write(world.directory.path(), "front-proxy");
        world.environment.reloads.check_now();
        let found = [
            ask("/services/x/api", "good").await,
            ask("/services/x/api", "better").await,
            ask("/clusters/root:org/api", "good").await,
            ask("/clusters/root:org/api", "better").await,
        ];
        let expected = if kcp_compatibility.is_empty() {
            ["401", "two for renewed", "401", "alpha for renewed"]
        } else {
            ["one for kcp-front-proxy", "401", "alpha for kcp-front-proxy", "401"]
        };
        assert_eq!(found, expected, "{kcp_compatibility:?}");

        // Some files are reloaded by kcp, too.
        let newcomers = Authority::new("newcomers");
        fs::write(&clients, &newcomers.pem).unwrap();
        let certificate = Authority::new("another serving authority");
        certificate.server().write(world.directory.path(), "tls");
        world.environment.reloads.check_now();
        let ann = newcomers.client("ann", &[]);
        let stream = crate::world::connect(world.address, &certificate, Some(&ann), b"h2").await.unwrap();
        let answer = Http2::over(stream).await.get("/clusters/root:org/api").await;
        assert_eq!(answer.echoed("x-remote-user"), ["x-remote-user: ann"], "{kcp_compatibility:?}");
    }
}
