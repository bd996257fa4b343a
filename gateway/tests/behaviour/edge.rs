//! A listener behind a CDN: only the CDN's addresses may connect, the CDN's certificate is no identity, and only the CDN's header
//! gives the client's address.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use fairlead_config::{ListenerConfig, SecretFile, UpgradeProtocol};
use http::Method;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cdn::{Options, cdn_before};
use crate::pki::{Authority, Leaf, client_config};
use crate::world::{Answer, Choices, Http2, SecondGateway, World, connect, request};

const PATH: &str = "/clusters/root:org/api";
const UNKNOWN: &str = "/clusters/root:nope/api";

/// A gateway with one listener that accepts tokens only: `good` is bob's, `admin` system:admin's, and `lead` belongs to a user in
/// the group system:kcp:leads.
async fn edge(change: impl FnOnce(&World, &mut ListenerConfig)) -> (World, SecondGateway) {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let file = world.directory.path().join("tokens.csv");
    fs::write(&file, "good,bob,7,\"team\"\nadmin,system:admin,8\nlead,lea,9,\"system:kcp:leads\"\n").unwrap();
    let gateway = world.start_second_gateway(|config| {
        let listener = &mut config.listeners[0];
        listener.client_ca = None;
        listener.authentication.token_file = Some(SecretFile::from(file));
        listener.authentication.drop_groups = Vec::new();
        listener.placement_endpoint = false;
        change(&world, listener);
    });
    gateway.gateway.ready().await;
    (world, gateway)
}

async fn client(
    world: &World,
    gateway: &SecondGateway,
    certificate: Option<&Leaf>,
) -> std::io::Result<Http2> {
    let mut stream = connect(gateway.address, &world.serving_ca, certificate, b"h2").await?;
    // In TLS 1.3 the server verifies the client's certificate after the handshake has ended for the client.
    stream.write_all(b"").await?;
    Ok(Http2::over(stream).await)
}

async fn ask(client: &Http2, path: &str, token: &str, fields: &[(&str, &str)]) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut fields = fields.to_vec();
    if !token.is_empty() {
        fields.push(("authorization", &bearer));
    }
    client.send(request(Method::GET, path, &fields, "")).await
}

fn code(answer: &Answer) -> (u16, String) {
    let reason = answer.json()["reason"].as_str().unwrap_or_default().to_owned();
    (answer.status, reason)
}

/// Whether a client with this certificate gets a response.
async fn is_served(world: &World, address: SocketAddr, certificate: Option<&Leaf>) -> bool {
    let Ok(mut stream) = connect(address, &world.serving_ca, certificate, b"http/1.1").await else {
        return false;
    };
    let asked = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answer = Vec::new();
    stream.write_all(asked.as_bytes()).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_providers_networks_may_connect() {
    let (world, gateway) = edge(|world, listener| {
        let file = world.directory.path().join("ranges");
        fs::write(&file, "# of the provider\n192.0.2.0/24\n2001:db8::/32\n").unwrap();
        listener.peers.allow = Some(file.into());
    })
    .await;
    assert!(!is_served(&world, gateway.address, None).await);
    let file = world.directory.path().join("ranges");
    fs::write(&file, "127.0.0.0/8\n").unwrap();
    gateway.environment.reloads.check_now();
    assert!(is_served(&world, gateway.address, None).await);
    // A file that cannot be parsed changes nothing.
    fs::write(&file, "127.0.0.0/8\nlocalhost\n").unwrap();
    gateway.environment.reloads.check_now();
    assert!(is_served(&world, gateway.address, None).await);
    let metrics = String::from_utf8(gateway.environment.metrics.text().unwrap().into()).unwrap();
    for line in [
        "fairlead_gateway_peers_refused_total{listener=\"internal\"} 1",
        "fairlead_reload_last_success_timestamp_seconds{object=\"peers of listener internal\"}",
        "fairlead_reload_total{object=\"peers of listener internal\",result=\"failure\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_providers_certificate_is_required_and_is_no_identity() {
    let provider = Authority::new("provider");
    let (authority, place) = (&provider, std::sync::OnceLock::new());
    let (world, gateway) = edge(|world, listener| {
        let file = world.directory.path().join("origin-pull-ca.crt");
        fs::write(&file, &authority.pem).unwrap();
        listener.tls.transport_client_ca = Some(file.clone().into());
        place.set(file).unwrap();
    })
    .await;
    let pull = provider.client("origin-pull", &["system:masters"]);
    let stranger = Authority::new("provider").client("origin-pull", &["system:masters"]);
    for (certificate, expected) in
        [(None, false), (Some(&world.user()), false), (Some(&stranger), false), (Some(&pull), true)]
    {
        assert_eq!(is_served(&world, gateway.address, certificate).await, expected);
    }
    let client = client(&world, &gateway, Some(&pull)).await.unwrap();
    let answer = ask(&client, PATH, "good", &[]).await;
    assert_eq!(answer.echoed("x-remote-user"), ["x-remote-user: bob"]);
    assert_eq!(answer.echoed("x-remote-group").len(), 2);
    assert_eq!(code(&ask(&client, PATH, "", &[]).await), (401, "Unauthorized".into()));
    // After the reload the new authority replaces the old one.
    let next = Authority::new("next");
    fs::write(place.get().unwrap(), &next.pem).unwrap();
    gateway.environment.reloads.check_now();
    assert!(!is_served(&world, gateway.address, Some(&pull)).await);
    assert!(is_served(&world, gateway.address, Some(&next.client("origin-pull", &[]))).await);
    assert_eq!(ask(&client, PATH, "good", &[]).await.status, 200, "open connections are kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_providers_header_gives_the_clients_address() {
    let (world, gateway) = edge(|world, listener| {
        let file = world.directory.path().join("ranges");
        fs::write(&file, "127.0.0.1\n").unwrap();
        listener.peers.allow = Some(file.into());
        listener.peers.client_address_header = Some("CF-Connecting-IP".to_owned());
    })
    .await;
    let client = client(&world, &gateway, None).await.unwrap();
    for (fields, expected) in [
        (&[("cf-connecting-ip", "203.0.113.9")][..], "203.0.113.9"),
        (&[("cf-connecting-ip", "2001:db8::9"), ("x-forwarded-for", "10.0.0.1, 127.0.0.1")], "2001:db8::9"),
        (&[("x-forwarded-for", "10.0.0.1")], "127.0.0.1"),
    ] {
        let answer = ask(&client, PATH, "good", fields).await;
        assert_eq!(answer.echoed("x-forwarded-for"), [format!("x-forwarded-for: {expected}")], "{fields:?}");
        assert_eq!(answer.echoed("cf-connecting-ip"), [""; 0], "{fields:?}");
    }
    for said in [&["203.0.113.9", "203.0.113.9"][..], &["unknown"], &[""]] {
        let fields: Vec<_> = said.iter().map(|said| ("cf-connecting-ip", *said)).collect();
        assert_eq!(code(&ask(&client, PATH, "good", &fields).await), (400, "BadRequest".into()), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_protocol_header_gives_the_clients_address() {
    let (world, gateway) = edge(|world, listener| {
        let file = world.directory.path().join("ranges");
        fs::write(&file, "127.0.0.1\n").unwrap();
        listener.peers.allow = Some(file.into());
        listener.peers.proxy_protocol = true;
    })
    .await;
    let v2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\xc0\0\x02\x01\x12\x34\x01\xbb";
    for (header, expected) in [
        (&b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n"[..], Some("203.0.113.9")),
        (v2, Some("203.0.113.9")),
        (b"PROXY UNKNOWN\r\n", Some("127.0.0.1")),
        (b"PROXY TCP4 203.0.113.9\r\n", None),
        (b"", None),
    ] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(header).await.unwrap();
        let connector = TlsConnector::from(client_config(&world.serving_ca, None, b"h2"));
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await;
        let Some(expected) = expected else {
            assert!(stream.is_err(), "{}", header.escape_ascii());
            continue;
        };
        let client = Http2::over(stream.unwrap()).await;
        let answer = ask(&client, PATH, "good", &[]).await;
        assert_eq!(answer.echoed("x-forwarded-for"), [format!("x-forwarded-for: {expected}")]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_serves_its_host_names_only() {
    let (world, gateway) = edge(|_, listener| listener.hosts = vec!["api.example.com".to_owned()]).await;
    // The client sends the host `localhost`.
    let client = client(&world, &gateway, None).await.unwrap();
    assert_eq!(ask(&client, PATH, "good", &[]).await.status, 421);
    assert_eq!(client.get("/readyz").await.status, 200, "probes use the address as host");
    assert_eq!(client.get("/metrics").await.status, 421);
    let named = world.start_second_gateway(|config| config.listeners[0].hosts = vec!["LOCALHOST".to_owned()]);
    named.gateway.ready().await;
    let known = world.client_of(&named).await;
    assert_eq!(known.get(PATH).await.status, 200);
    let stream = connect(named.address, &world.serving_ca, Some(&world.user()), b"http/1.1").await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for (host, expected) in [("localhost", 200), ("localhost:6443", 200), ("origin.example.com", 421)] {
        sender.ready().await.unwrap();
        let get = http::Request::get(PATH).header("host", host).body(Empty::<bytes::Bytes>::new()).unwrap();
        assert_eq!(Answer::of(sender.send_request(get).await.unwrap()).await.status, expected, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_clients_cannot_find_out_which_workspaces_exist() {
    let (world, gateway) = edge(|_, listener| listener.authenticate_before_routing = true).await;
    let first = client(&world, &gateway, None).await.unwrap();
    for path in [PATH, UNKNOWN, "/clusters/*/api", "/services/x/root:org/api", "/nowhere"] {
        for token in ["", "bad"] {
            let answer = ask(&first, path, token, &[]).await;
            assert_eq!(code(&answer), (401, "Unauthorized".into()), "{path} {token:?}");
        }
    }
    assert_eq!(ask(&first, PATH, "good", &[]).await.echoed("x-remote-user"), ["x-remote-user: bob"]);
    assert_eq!(code(&ask(&first, UNKNOWN, "good", &[]).await), (403, "Forbidden".into()));
    // A token that only a shard could verify is no credential at this listener.
    let first = world.start_second_gateway(|config| config.listeners[0].authenticate_before_routing = true);
    first.gateway.ready().await;
    assert_eq!(world.client_of(&first).await.get(PATH).await.status, 200);
    let nobody = client(&world, &first, None).await.unwrap();
    for (path, token) in [(PATH, ""), (PATH, "of the shard"), (UNKNOWN, ""), (UNKNOWN, "of the shard")] {
        assert_eq!(ask(&nobody, path, token, &[]).await.status, 401, "{path} {token}");
    }
    // Unauthenticated clients do not see failed checks either, because the details name shards and files.
    fs::write(world.directory.path().join("tls.crt"), "not PEM").unwrap();
    first.environment.reloads.check_now();
    let known = world.client_of(&first).await;
    for path in ["/readyz?verbose", "/livez?verbose", "/readyz/informer-sync", "/readyz?verbose&exclude=ping"]
    {
        for token in ["", "of the shard"] {
            let answer = ask(&nobody, path, token, &[]).await;
            assert_eq!((answer.status, answer.text.as_str()), (200, "ok"), "{path}");
        }
        let response = known.get(path).await;
        assert_eq!(response.status, 200, "{path}");
        assert!(response.text.contains("[+]") || path.contains("informer"), "{path}: {}", response.text);
    }
    assert!(known.get("/readyz?verbose").await.text.contains("tls.crt:1"));
    // By default, as in kcp, the response shows whether the workspace exists.
    let (world, gateway) = edge(|_, _| {}).await;
    let usual = client(&world, &gateway, None).await.unwrap();
    assert_eq!(ask(&usual, PATH, "", &[]).await.status, 401);
    assert_eq!(ask(&usual, UNKNOWN, "", &[]).await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_clients_see_that_a_gateway_is_not_ready_but_not_why() {
    let mut world = World::with(Choices { unsynced: true, stopped: true, ..Choices::default() }).await;
    world.config.listeners[0].authenticate_before_routing = true;
    let gateway = world.start_second_gateway(|_| ());
    let nobody = client(&world, &gateway, None).await.unwrap();
    let known = world.client_of(&gateway).await;
    for path in ["/readyz", "/readyz?verbose", "/readyz/informer-sync"] {
        let answer = nobody.get(path).await;
        assert_eq!((answer.status, answer.text.as_str()), (500, "not ready"), "{path}");
        let answer = known.get(path).await;
        assert_eq!(answer.status, 500, "{path}");
        assert_ne!(answer.text, "not ready", "{path}");
    }
    assert_eq!(nobody.get("/livez").await.text, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_users_groups_and_protocols_are_refused_with_a_valid_credential() {
    let (world, gateway) = edge(|_, listener| {
        listener.deny.users = vec!["system:*".to_owned()];
        listener.deny.groups = vec!["system:kcp:*".to_owned()];
        listener.deny.impersonation = true;
        listener.upgrades = vec![UpgradeProtocol::Websocket];
        listener.cache_control_no_store = true;
    })
    .await;
    let client = client(&world, &gateway, None).await.unwrap();
    for (token, fields, expected) in [
        ("good", &[][..], 200),
        ("admin", &[], 403),
        ("lead", &[], 403),
        ("good", &[("impersonate-user", "ann")], 403),
        ("good", &[("impersonate_group", "team")], 403),
        ("good", &[("impersonate-extra-a", "b")], 403),
        ("", &[], 401),
    ] {
        let answer = ask(&client, PATH, token, fields).await;
        assert_eq!(answer.status, expected, "{token} {fields:?}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{token} {fields:?}");
    }
    // The gateway's own endpoints are refused to them as well.
    assert_eq!(ask(&client, "/metrics", "admin", &[]).await.status, 403);
    for (protocol, expected) in [("SPDY/3.1", 403), ("websocket", 101)] {
        let answer = upgrade(gateway.address, &world.serving_ca, protocol).await;
        assert_eq!(answer.status(), expected, "{protocol}");
    }
}

/// Requests an upgrade with the token `good`.
async fn upgrade(
    address: SocketAddr,
    authority: &Authority,
    protocol: &str,
) -> http::Response<hyper::body::Incoming> {
    let stream = connect(address, authority, None, b"http/1.1").await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let get = http::Request::get("/clusters/root:org/upgrade")
        .header("host", "localhost")
        .header("authorization", "Bearer good")
        .header("connection", "Upgrade")
        .header("upgrade", protocol)
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    sender.send_request(get).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cdn_carries_websockets_and_opens_connections_as_its_limit_says() {
    let (world, gateway) = edge(|_, _| {}).await;
    let options = Options {
        origin: gateway.address,
        certificate: None,
        idle: Duration::from_millis(1_200),
        streams: 2,
    };
    let (cdn, public) = cdn_before(&world, options).await;
    let stream = connect(cdn.address(), &public, None, b"h2").await.unwrap();
    let client = Http2::over(stream).await;
    let bearer = [("authorization", "Bearer good")];
    let asked = futures_util::future::join_all(
        (0..5).map(|_| client.open(request(Method::GET, "/clusters/root:org/wait", &bearer, ""))),
    );
    // All requests wait until the CDN gives up with 524.
    assert!(asked.await.into_iter().all(|answer| answer.unwrap().status() == 524));
    assert_eq!(cdn.opened(), 3);

    let answer = upgrade(cdn.address(), &public, "websocket").await;
    assert_eq!(answer.status(), 101);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    tunnel.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    tunnel.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"HELLO");
}

/// Reads a watch until `enough` holds (Ok), or until the stream ends (Err). Returns the text that was read.
async fn read_until(
    body: &mut hyper::body::Incoming,
    enough: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let mut text = String::new();
    while !enough(&text) {
        match body.frame().await {
            Some(Ok(frame)) => text.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap())),
            _ => return Err(text),
        }
    }
    Ok(text)
}

/// Cloudflare gives up on a response that pauses for 100 s, and kubectl requests no bookmarks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_keep_alive_keeps_an_idle_watch_open_through_a_cdn() {
    const WATCH: &str = "/clusters/root:org/api/v1/numbers?watch=true&resourceVersion=0";
    let (world, gateway) =
        edge(|_, listener| listener.watch_keep_alive = Some("100ms".parse().unwrap())).await;
    let usual = world.start_second_gateway(|config| config.listeners[0].client_ca = None);
    usual.gateway.ready().await;
    world.alpha.state.put("numbers", "one", json!({"n": 1}));
    for protocol in [&b"h2"[..], b"http/1.1"] {
        for (origin, survives) in [(gateway.address, true), (usual.address, false)] {
            let options =
                Options { origin, certificate: None, idle: Duration::from_millis(1_200), streams: 100 };
            let (cdn, public) = cdn_before(&world, options).await;
            let stream = connect(cdn.address(), &public, None, protocol).await.unwrap();
            let watch = http::Request::get(format!("https://localhost{WATCH}"))
                .header("host", "localhost")
                .header("authorization", "Bearer good");
            let mut body = if protocol == b"h2" {
                let get = request(Method::GET, WATCH, &[("authorization", "Bearer good")], "");
                Http2::over(stream).await.open(get).await.unwrap().into_body()
            } else {
                let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                sender
                    .send_request(watch.body(Empty::<bytes::Bytes>::new()).unwrap())
                    .await
                    .unwrap()
                    .into_body()
            };
            // Reads for twice as long as the CDN's idle timeout.
            let quiet = read_until(&mut body, |text| text.ends_with(&" ".repeat(24))).await;
            assert_eq!(quiet.is_ok(), survives, "{quiet:?}");
            let response = quiet.unwrap_or_else(|response| response);
            assert!(response.contains("\"n\":1"), "{response}");
            if survives {
                let name = String::from_utf8_lossy(protocol).replace('/', "-");
                world.alpha.state.put("numbers", &name, json!({"n": name}));
                let event = read_until(&mut body, |text| text.contains(&name)).await.unwrap();
                let event: serde_json::Value = serde_json::from_str(event.trim()).unwrap();
                assert_eq!(event["object"]["n"], name);
            }
        }
    }
}

/// A browser presents its user's certificate with the requests of any page. It names the page's site in Sec-Fetch-Site or Origin,
/// which other clients do not send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_site_cannot_use_the_browsers_certificate() {
    let world = World::new().await;
    let admin = world.http2(Some(&world.operator())).await;
    const STATUS: &str = "/services/fairlead/v1/status";
    const OBJECTS: &str = "/clusters/root:org/api/v1/configmaps";
    for (method, path, site, impersonated, expected) in [
        (Method::POST, OBJECTS, None, "", 200),
        (Method::POST, OBJECTS, Some("same-origin"), "", 200),
        (Method::POST, OBJECTS, Some("cross-site"), "", 403),
        (Method::DELETE, OBJECTS, Some("same-site"), "", 403),
        (Method::GET, OBJECTS, Some("cross-site"), "", 200),
        (Method::GET, STATUS, None, "", 200),
        (Method::GET, STATUS, Some("cross-site"), "", 403),
        (Method::GET, "/readyz", Some("cross-site"), "", 200),
        // Shards would decide by the audience of the token, so the gateway itself refuses the user.
        (Method::GET, STATUS, None, "bob", 403),
        (Method::GET, OBJECTS, None, "bob", 200),
    ] {
        let mut headers: Vec<(&str, &str)> = site.map(|site| ("sec-fetch-site", site)).into_iter().collect();
        if !impersonated.is_empty() {
            headers.push(("impersonate-user", impersonated));
        }
        let answer = admin.send(request(method.clone(), path, &headers, "")).await;
        assert_eq!(answer.status, expected, "{method} {path} {site:?} {impersonated}: {answer:?}");
    }
    // Some browsers send only Origin.
    for (method, path, origin, expected) in [
        (Method::POST, OBJECTS, "https://localhost", 200),
        (Method::POST, OBJECTS, "https://evil.example", 403),
        (Method::POST, OBJECTS, "null", 403),
        (Method::GET, OBJECTS, "https://evil.example", 200),
        (Method::GET, STATUS, "https://evil.example", 403),
    ] {
        let headers = [("origin", origin), ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)")];
        let answer = admin.send(request(method.clone(), path, &headers, "")).await;
        assert_eq!(answer.status, expected, "{method} {path} {origin}");
    }
    // WebSocket libraries have to send an Origin, although they are no browser.
    let headers = [("origin", "http://localhost"), ("user-agent", "Go-http-client/2.0")];
    assert_eq!(admin.send(request(Method::POST, OBJECTS, &headers, "")).await.status, 200);
    // Without a client certificate the browser adds no credential.
    let nobody = world.http2(None).await;
    let headers = [("sec-fetch-site", "cross-site"), ("authorization", "Bearer good")];
    let answer = nobody.send(request(Method::POST, OBJECTS, &headers, "")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
