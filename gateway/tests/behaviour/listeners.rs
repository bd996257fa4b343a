//! Listeners are opened, changed, moved and closed while others serve; or nothing of it happens.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fairlead_config::{GatewayConfig, KcpBehaviour, ListenerConfig, SocketConfig, TlsVersion, WebhookConfig};
use fairlead_gateway::Gateway;
use http::Method;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::pki::client_config;
use crate::program;
use crate::world::{
    Http2, World, connect, eventually, free_address, listener, request, until, until_refused,
};

const API: &str = "/clusters/root:org/api";
const WATCH: &str = "/clusters/root:org/api/v1/stream?watch=true";

/// A mistake in a configuration.
type Mistake = Box<dyn Fn(&mut GatewayConfig)>;

fn address_of(gateway: &Gateway, name: &str) -> SocketAddr {
    gateway.listeners.iter().find(|(listener, _)| listener == name).unwrap().1
}

async fn client(world: &World, address: SocketAddr) -> Http2 {
    Http2::over(connect(address, &world.serving_ca, Some(&world.user()), b"h2").await.unwrap()).await
}

/// Lines of metrics about a listener.
async fn series(world: &World, listener: &str) -> usize {
    let label = format!("listener=\"{listener}\"");
    let text = world.get(Some(&world.operator()), "/metrics").await.text;
    text.lines().filter(|line| line.contains(&label)).count()
}

async fn listed(world: &World) -> Vec<String> {
    let status = world.get(Some(&world.operator()), "/services/fairlead/v1/status").await.json();
    let listeners = status["listeners"].as_array().unwrap();
    listeners.iter().map(|listener| listener["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_is_added_and_removed_while_another_serves() {
    let mut world = World::new().await;
    let kept = client(&world, world.address).await;
    let kept_watch = kept.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let mut config = world.config.clone();
    config.drain.window = "200ms".parse().unwrap();
    let alone = config.clone();
    config.listeners.push(listener(&config, "guests"));
    let gateway = world.gateway.as_mut().unwrap();
    gateway.reconfigure(config).unwrap();
    let address = address_of(gateway, "guests");
    assert_eq!(listed(&world).await, ["internal", "guests"]);
    let guest = client(&world, address).await;
    assert_eq!(guest.get(API).await.status, 200);
    assert!(series(&world, "guests").await > 100);
    let mut watch = guest.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 2).await;

    world.gateway.as_mut().unwrap().reconfigure(alone).unwrap();
    assert_eq!(listed(&world).await, ["internal"]);
    until_refused(address).await;
    // The watch ends between two events, and no other listener is affected.
    while let Some(frame) = watch.body_mut().frame().await {
        frame.unwrap();
    }
    until(&world.alpha.state.streams, |open| *open == 1).await;
    assert_eq!(kept.get(API).await.status, 200);
    drop((kept_watch, guest));
    eventually("its series are gone", async || series(&world, "guests").await == 0).await;
    assert!(series(&world, "internal").await > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_that_swap_addresses_refuse_no_connection() {
    let mut world = World::new().await;
    let (one, two) = (free_address().await, free_address().await);
    let mut config = world.config.clone();
    config.drain.window = "1s".parse().unwrap();
    for (name, address) in [("one", one), ("two", two)] {
        let mut listener = listener(&config, name);
        listener.serving.address = address;
        listener.cache_control_no_store = name == "two";
        config.listeners.push(listener);
    }
    let gateway = world.gateway.as_mut().unwrap();
    gateway.reconfigure(config.clone()).unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let served = [one, two].map(|address| {
        let tls = client_config(&world.serving_ca, Some(&world.user()), b"h2");
        let stopped = stopped.clone();
        tokio::spawn(async move {
            let mut count = 0;
            while !*stopped.borrow() || count < 20 {
                let stream = TcpStream::connect(address).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.unwrap();
                match Http2::over(stream).await.open(request(Method::GET, API, &[], "")).await {
                    Ok(response) => {
                        assert_eq!(response.status(), 200);
                        count += 1;
                    }
                    // A connection that a listener accepted before it is replaced ends without an error before its first
                    // request, which clients repeat (RFC 9113, 6.8).
                    Err(error) => assert!(format!("{error:?}").contains("NO_ERROR"), "{error:?}"),
                }
            }
        })
    });
    for _ in 0..10 {
        let addresses = [1, 2].map(|listener| config.listeners[listener].serving.address);
        config.listeners[1].serving.address = addresses[1];
        config.listeners[2].serving.address = addresses[0];
        let gateway = world.gateway.as_mut().unwrap();
        gateway.reconfigure(config.clone()).unwrap();
        // The first to answer may still be the one that was there before.
        for (name, address) in [("one", addresses[1]), ("two", addresses[0])] {
            let is_there = async || {
                let answer = client(&world, address).await.get(API).await;
                answer.headers.contains_key("cache-control") == (name == "two")
            };
            eventually("each is where the other was", is_there).await;
        }
    }
    stop.send_replace(true);
    for task in served {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_settings_change_nothing() {
    let mut world = World::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = |name: &str| world.directory.path().join(name);
    std::fs::write(file("peers"), "192.0.2.0/33\n").unwrap();
    std::fs::write(file("socket"), "precious").unwrap();
    let cases: [(&str, Mistake, &str); 9] = [
        (
            "a port in use",
            {
                let address = taken.local_addr().unwrap();
                Box::new(move |config| config.listeners[1].serving.address = address)
            },
            "listeners[1].serving.address: cannot listen on 127.0.0.1",
        ),
        (
            "no certificate",
            Box::new(|config| config.listeners[0].serving.certificate = "/nowhere.crt".into()),
            "listeners[0].serving: serving certificate of listener internal cannot be loaded",
        ),
        (
            "no authority",
            Box::new(|config| config.listeners[1].client_ca = Some("/nowhere.crt".into())),
            "listeners[1].serving: serving certificate of listener more cannot be loaded",
        ),
        (
            "no origin pull authority",
            Box::new(|config| {
                config.listeners[0].client_ca = None;
                config.listeners[0].placement_endpoint = false;
                config.listeners[0].tls.transport_client_ca = Some("/nowhere.crt".into());
            }),
            "listeners[0].serving: ",
        ),
        (
            "no tokens",
            Box::new(|config| config.listeners[0].authentication.token_file = Some("/nowhere.csv".into())),
            "listeners[0].authentication: credentials of listener internal: ",
        ),
        (
            "peers that are none",
            {
                let peers = file("peers");
                Box::new(move |config| config.listeners[1].peers.allow = Some(peers.clone().into()))
            },
            "peers:1: \"192.0.2.0/33\" is not a network",
        ),
        (
            "a file where a socket is to be",
            {
                let socket = file("socket");
                Box::new(move |config| {
                    config.listeners[1].socket =
                        Some(SocketConfig { path: socket.clone().into(), ..SocketConfig::default() });
                })
            },
            "listeners[1].socket: cannot listen on unix:",
        ),
        (
            "no origins",
            Box::new(|config| config.cors_allowed_origins = vec!["[".to_owned()]),
            "corsAllowedOrigins: ",
        ),
        (
            "no access log",
            Box::new(|config| {
                config.access_log.to = fairlead_config::AccessLogTarget::File;
                config.access_log.file = "/nowhere/at/all".into();
            }),
            "accessLog.file: ",
        ),
    ];
    for (what, choice, expected) in &cases {
        let free = free_address().await;
        let mut config = world.config.clone();
        config.listeners.push(listener(&config, "more"));
        // The valid part of it must not come into force either.
        config.listeners[0].cache_control_no_store = true;
        config.listeners.push(ListenerConfig { name: "good".to_owned(), ..listener(&config, "good") });
        config.listeners[2].serving.address = free;
        choice(&mut config);
        let refused = world.gateway.as_mut().unwrap().reconfigure(config).unwrap_err().to_string();
        assert!(refused.contains(expected), "{what}: {refused}");
        let answer = client(&world, world.address).await.get(API).await;
        assert!(answer.status == 200 && !answer.headers.contains_key("cache-control"), "{what}: {answer:?}");
        assert_eq!(listed(&world).await, ["internal"], "{what}");
        until_refused(free).await;
        assert_eq!(world.environment.reloads.failures(), [], "{what}");
    }
    assert_eq!(std::fs::read_to_string(file("socket")).unwrap(), "precious");
    drop(taken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_policies_change_for_new_connections() {
    let mut world = World::new().await;
    let before = client(&world, world.address).await;
    let mut config = world.config.clone();
    config.listeners[0].tls.minimum_version = TlsVersion::Tls13;
    config.limits.max_header_fields = 16;
    world.gateway.as_mut().unwrap().reconfigure(config.clone()).unwrap();
    let mut old = rustls::ClientConfig::clone(&client_config(&world.serving_ca, Some(&world.user()), b"h2"));
    let versions: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let provider = old.crypto_provider().clone();
    old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let stream = TcpStream::connect(world.address).await.unwrap();
    let name = || ServerName::try_from("localhost").unwrap();
    let error = TlsConnector::from(std::sync::Arc::new(old)).connect(name(), stream).await.unwrap_err();
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    let many: Vec<(String, String)> = (0..20).map(|n| (format!("x-{n}"), "v".to_owned())).collect();
    let many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(before.send(request(Method::GET, API, &many, "")).await.status, 431);

    // A load balancer comes before the listener: on new connections it says whose they are.
    std::fs::write(world.directory.path().join("peers"), "127.0.0.0/8\n").unwrap();
    config.listeners[0].peers.allow = Some(world.directory.path().join("peers").into());
    config.listeners[0].peers.proxy_protocol = true;
    world.gateway.as_mut().unwrap().reconfigure(config.clone()).unwrap();
    assert_eq!(before.get(API).await.status, 200);
    assert!(connect(world.address, &world.serving_ca, None, b"h2").await.is_err());
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(b"PROXY TCP4 203.0.113.9 192.0.2.1 1 443\r\n").await.unwrap();
    let tls = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    let stream = TlsConnector::from(tls).connect(name(), stream).await.unwrap();
    let answer = Http2::over(stream).await.get(API).await;
    assert_eq!(answer.echoed("x-forwarded-for"), ["x-forwarded-for: 203.0.113.9"]);

    // A peer that its list does not name any more is refused; the list is read again without a reload, too.
    std::fs::write(world.directory.path().join("peers"), "192.0.2.0/24\n").unwrap();
    world.environment.reloads.check_now();
    let refused = async {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let _ = stream.write_all(b"PROXY TCP4 203.0.113.9 192.0.2.1 1 443\r\n").await;
        let tls = client_config(&world.serving_ca, None, b"h2");
        TlsConnector::from(tls).connect(name(), stream).await.is_err()
    };
    assert!(refused.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_listener_uses_the_settings_of_its_own_reload() {
    let mut world = World::new().await;
    let mut config = world.config.clone();
    config.kcp_compatibility = vec![KcpBehaviour::AuthenticationMethods];
    let gateway = world.gateway.as_mut().unwrap();
    gateway.reconfigure(config.clone()).unwrap();
    // In one step: methods that kcp forgets count, and there is a listener that has none but such.
    config.kcp_compatibility = Vec::new();
    let mut guests = listener(&config, "guests");
    let kubeconfig = world.directory.path().join("shards.kubeconfig").into();
    guests.authentication.webhook = Some(WebhookConfig { kubeconfig, ..WebhookConfig::default() });
    config.listeners.push(guests);
    gateway.reconfigure(config).unwrap();
    let address = address_of(gateway, "guests");
    let stranger = connect(address, &world.serving_ca, None, b"h2").await.unwrap();
    assert_eq!(Http2::over(stranger).await.get(API).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_older_than_the_trust_in_its_peer_is_not_trusted() {
    let mut world = World::new().await;
    let before = client(&world, world.address).await;
    let mut config = world.config.clone();
    let networks = world.directory.path().join("peers");
    std::fs::write(&networks, "127.0.0.0/8\n").unwrap();
    config.listeners[0].peers.allow = Some(networks.into());
    config.listeners[0].peers.client_address_header = Some("CF-Connecting-IP".to_owned());
    world.gateway.as_mut().unwrap().reconfigure(config).unwrap();
    let after = client(&world, world.address).await;
    for (client, expected) in [(&before, "127.0.0.1"), (&after, "203.0.113.9")] {
        let answer = client.send(request(Method::GET, API, &[("cf-connecting-ip", "203.0.113.9")], "")).await;
        assert_eq!(answer.echoed("x-forwarded-for"), [format!("x-forwarded-for: {expected}")]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_replaced_policy_are_not_watched_for_open_connections() {
    let mut world = World::new().await;
    let mut config = world.config.clone();
    let now = config.clone();
    let old = world.directory.path().join("old-ca.crt");
    std::fs::write(&old, &world.client_ca.pem).unwrap();
    config.listeners[0].client_ca = Some(old.clone().into());
    world.gateway.as_mut().unwrap().reconfigure(config).unwrap();
    let open = client(&world, world.address).await;
    assert_eq!(open.get(API).await.status, 200);
    world.gateway.as_mut().unwrap().reconfigure(now).unwrap();
    std::fs::remove_file(old).unwrap();
    world.environment.reloads.check_now();
    assert_eq!(world.environment.reloads.failures(), []);
    assert_eq!(open.get(API).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_on_connections_grows_and_shrinks() {
    let mut world = World::new().await;
    let mut config = world.config.clone();
    config.limits.max_connections = 1;
    config.listeners.push(listener(&config, "small"));
    let gateway = world.gateway.as_mut().unwrap();
    gateway.reconfigure(config.clone()).unwrap();
    let address = address_of(gateway, "small");
    let first = client(&world, address).await;
    let tls = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    let second = tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        Http2::over(TlsConnector::from(tls).connect(name, stream).await.unwrap()).await.get(API).await.status
    });
    assert_eq!(first.get(API).await.status, 200);
    assert!(!second.is_finished());
    config.limits.max_connections = 2;
    world.gateway.as_mut().unwrap().reconfigure(config).unwrap();
    assert_eq!(second.await.unwrap(), 200);
    assert_eq!(first.get(API).await.status, 200);
}

async fn over_unix(world: &World, path: &Path) -> std::io::Result<Http2> {
    let stream = UnixStream::connect(path).await?;
    let tls = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Ok(Http2::from(sender))
}

fn at(path: &Path, mode: &str) -> Option<SocketConfig> {
    Some(SocketConfig { path: path.into(), mode: mode.to_owned() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_may_be_a_unix_socket() {
    let mut world = World::new().await;
    let path: PathBuf = world.directory.path().join("listener.sock");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // The state after a killed process.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut config = world.config.clone();
    config.drain.window = "100ms".parse().unwrap();
    let alone = config.clone();
    config.listeners.push(ListenerConfig { socket: at(&path, "0660"), ..listener(&config, "local") });
    world.gateway.as_mut().unwrap().reconfigure(config.clone()).unwrap();
    assert_eq!(mode(&path), 0o660);
    let answer = over_unix(&world, &path).await.unwrap().get(API).await;
    assert_eq!(answer.echoed("x-forwarded-for"), ["x-forwarded-for: 127.0.0.1"]);
    assert_eq!(answer.echoed("x-remote-user"), ["x-remote-user: alice"]);

    // Another gateway finds it alive, and leaves it where it is.
    let theft = Gateway::start(config.clone(), &crate::world::environment());
    assert!(theft.err().unwrap().to_string().contains("cannot listen on unix:"));
    assert_eq!(over_unix(&world, &path).await.unwrap().get(API).await.status, 200);

    // The same socket with another mode, and under another listener's name.
    config.listeners[1].socket = at(&path, "0600");
    config.listeners[1].name = "renamed".to_owned();
    world.gateway.as_mut().unwrap().reconfigure(config.clone()).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(over_unix(&world, &path).await.unwrap().get(API).await.status, 200);

    // The socket file is removed with its listener, unless another file has its name by then.
    world.gateway.as_mut().unwrap().reconfigure(alone.clone()).unwrap();
    eventually("the file is gone", async || !path.exists()).await;
    world.gateway.as_mut().unwrap().reconfigure(config).unwrap();
    std::fs::remove_file(&path).unwrap();
    let successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
    world.gateway.as_mut().unwrap().reconfigure(alone).unwrap();
    eventually("the listener is gone", async || listed(&world).await.len() == 1).await;
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    drop(successor);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_file_is_reported_with_its_line() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let write = |config: &GatewayConfig, more: &str| {
        let text = serde_json::to_string(&config.listeners[0]).unwrap();
        let rest = serde_json::to_value(config).unwrap();
        let text =
            format!("index: {}\nupstream: {}\nlisteners:\n- {text}\n{more}", rest["index"], rest["upstream"]);
        std::fs::write(&file, text).unwrap();
    };
    write(&world.config, "");
    let mut gateway = program::Gateway::start(&file);
    let address = gateway.address().await;
    gateway.says("the index is synced").await;
    let second = |address: SocketAddr| {
        let mut second = listener(&world.config, "second");
        second.serving.address = address;
        format!("- {}\n", serde_json::to_string(&second).unwrap())
    };
    write(&world.config, &second(taken.local_addr().unwrap()));
    gateway.signal(Signal::HUP);
    let line = gateway.says("the last good value stays in effect").await;
    assert!(line.contains("gateway.yaml:5:") && line.contains("listeners[1].serving.address"), "{line}");
    assert!(line.contains("cannot listen on 127.0.0.1"), "{line}");
    let client = client(&world, address).await;
    // The log line comes a moment before the state.
    let mut ready = client.get("/readyz?verbose").await;
    eventually("it is said where whoever may ask looks", async || {
        ready = client.get("/readyz?verbose").await;
        ready.text.contains("configuration (gateway.yaml:5:")
    })
    .await;
    assert!(ready.status == 200 && !ready.text.contains(&world.directory.path().display().to_string()));
    // The fault passes without a change of the file.
    drop(taken);
    gateway.signal(Signal::HUP);
    gateway.says("listening listener=second").await;
    let is_over = async || !client.get("/readyz?verbose").await.text.contains("configuration");
    eventually("the fault is over", is_over).await;
}
