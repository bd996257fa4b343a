//! Routing by path with kcp's mapping file, mounted workspaces, and CORS.

use std::net::SocketAddr;

use http::Method;
use serde_json::{Value, json};

use crate::pki::Leaf;
use crate::shard::Shard;
use crate::world::{Answer, Choices, Http2, World, connect, request};

async fn client(world: &World, address: SocketAddr, certificate: Option<&Leaf>) -> Http2 {
    Http2::over(connect(address, &world.serving_ca, certificate, b"h2").await.unwrap()).await
}

/// An entry of a mapping file with the certificates of the world, extended by the fields of `extra`.
fn entry(world: &World, path: &str, backend: &str, extra: &Value) -> Value {
    let file = |name: &str| world.directory.path().join(name);
    let mut entry = json!({
        "path": path, "backend": backend,
        "backend_server_ca": file("serving-ca.crt"),
        "proxy_client_cert": file("front-proxy.crt"), "proxy_client_key": file("front-proxy.key"),
    });
    entry.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    entry
}

/// The server that responded with the path and the identity headers that it got; the status code if it is not 200.
fn outcome(answer: &Answer) -> String {
    if answer.status != 200 {
        return answer.status.to_string();
    }
    let echo = answer.json();
    let mut identity = answer.echoed("x-remote-");
    identity.extend(answer.echoed("x-custom-"));
    identity.extend(answer.echoed("x-custom_"));
    identity.extend(answer.echoed("x_custom"));
    identity.retain(|line| !line.contains("credential-id"));
    format!("{} {} {}", echo["shard"].as_str().unwrap(), echo["path"].as_str().unwrap(), identity.join(", "))
}

const USUAL: &str = "x-remote-group: system:authenticated, x-remote-group: team, x-remote-user: alice";
const CUSTOM: &str = "x-custom-group: system:authenticated, x-custom-group: team, x-custom-user: alice";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapping_file_sets_backends_and_identity_headers_of_paths() {
    let world = World::new().await;
    let (virtual_workspaces, own, rest) = (
        world.unregistered_shard("vw").await,
        world.unregistered_shard("own").await,
        world.unregistered_shard("rest").await,
    );
    let names = json!({"user_header": "X-Custom-User", "group_header": "X-Custom-Group", "extra_header_prefix": "X-Custom-Extra-"});
    let file = world.directory.path().join("mapping.yaml");
    let write = |entries: &[Value]| std::fs::write(&file, json!(entries).to_string()).unwrap();
    let clusters = entry(&world, "/clusters/", "https://ignored", &json!({}));
    let entries = [
        clusters.clone(),
        entry(&world, "/services/", &virtual_workspaces.url(), &json!({})),
        entry(&world, "/e2e/clusters/{cluster}/", &format!("{}/base?a=b", own.url()), &names),
        entry(&world, "/", &rest.url(), &json!({"later": "ignored"})),
    ];
    write(&entries);
    let mut config = world.config.clone();
    config.paths.mapping_file = Some(file.as_path().into());
    let (_gateway, environment, address) = world.gateway_with(config).await;
    let user = world.user();
    let authenticated = client(&world, address, Some(&user)).await;
    let forged = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-custom-user", "root"),
        ("x_custom_user", "root"),
        ("x-custom-extra-scopes", "*"),
        ("x-custom_extra_scopes", "*"),
    ];
    for (path, expected) in [
        ("/clusters/root:org/api", format!("alpha /clusters/0rg0000000000001/api {USUAL}")),
        ("/clusters/nope/api", "403".into()),
        ("/clusters/*/api", "403".into()),
        ("/services/x/api?y=z", format!("vw /services/x/api?y=z {USUAL}")),
        ("/services/x/clusters/*/a%2fb/", format!("vw /services/x/clusters/*/a%2fb/ {USUAL}")),
        ("/services/x/clusters/root:org/api", format!("vw /services/x/clusters/root:org/api {USUAL}")),
        ("/services/x/clusters/nope/api", "403".into()),
        ("/e2e/clusters/root:org/x?c=d", format!("own /base/e2e/clusters/root:org/x?a=b&c=d {CUSTOM}")),
        ("/e2e/clusters/*", format!("own /base/e2e/clusters/*?a=b {CUSTOM}")),
        ("/e2e/clusters/nope/x", "403".into()),
        ("/e2e/clusters/Nope/x", "403".into()),
        ("/e2e", format!("rest /e2e {USUAL}")),
        ("/version", format!("rest /version {USUAL}")),
        ("/", format!("rest / {USUAL}")),
        ("/e2e//clusters/x", "307".into()),
        ("/e2e/%2e%2e/clusters/root/api", "307".into()),
    ] {
        let answer = authenticated.send(request(Method::GET, path, &forged, "")).await;
        let mut lines: Vec<&str> = expected.split(", ").collect();
        let got = outcome(&answer);
        let mut got: Vec<&str> = got.split(", ").collect();
        lines.sort_unstable();
        got.sort_unstable();
        // The first header is in the same part as the server and the path.
        assert_eq!(got.join(", ").replace("  ", " "), lines.join(", "), "{path}");
    }
    // A request of an unauthenticated client is forwarded without identity headers, the forged ones included.
    let unauthenticated = client(&world, address, None).await;
    let answer = unauthenticated.send(request(Method::GET, "/e2e/clusters/root:org/x", &forged, "")).await;
    assert_eq!(outcome(&answer), "own /base/e2e/clusters/root:org/x?a=b ");

    // Identity headers are removed from trailers, too.
    let (mut sender, connection) =
        h2::client::handshake(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap())
            .await
            .unwrap();
    let driver = tokio::spawn(connection);
    let post = request(Method::POST, "/e2e/clusters/root:org/x", &[], "").map(|_| ());
    let (response, mut body) = sender.send_request(post, false).unwrap();
    let trailers = ["x-custom-user", "x_custom_group", "x-remote-user", "checksum"];
    let trailers =
        trailers.map(|name| (http::HeaderName::from_static(name), http::HeaderValue::from_static("root")));
    body.send_trailers(trailers.into_iter().collect()).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut echo = Vec::new();
    while let Some(chunk) = body.data().await {
        echo.extend_from_slice(&chunk.unwrap());
    }
    let echo: Value = serde_json::from_slice(&echo).unwrap();
    assert_eq!(echo["trailers"], json!(["checksum: root"]));
    driver.abort();

    // Without an entry for /, a path without an entry is not found.
    write(&entries[..3]);
    environment.reloads.check_now();
    let answer = authenticated.get("/version").await;
    assert_eq!((answer.status, answer.text.as_str()), (404, "404 page not found\n"));
    assert_eq!(authenticated.get("/services/x/api").await.json()["shard"], "vw");
    // An invalid file has no effect and counts as a failed reload.
    std::fs::write(&file, "- path: relative\n  backend: x\n").unwrap();
    environment.reloads.check_now();
    assert_eq!(authenticated.get("/services/x/api").await.json()["shard"], "vw");
    let metrics = environment.metrics.text().unwrap();
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("fairlead_reload_total{") && line.contains("result=\"failure\"")),
        "{metrics}"
    );
    // Without an entry for /clusters/, such a path is forwarded unchanged, like any other.
    write(&[entry(&world, "/", &rest.url(), &json!({}))]);
    environment.reloads.check_now();
    assert_eq!(authenticated.get("/clusters/root:org/api").await.json()["path"], "/clusters/root:org/api");
}

/// Requests for mounted workspaces at the first gateway: the server that gets them, or the refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mounted_workspaces() {
    let world = World::new().await;
    let mounted = world.unregistered_shard("mounted").await;
    let user = world.user();
    let authenticated = world.http2(Some(&user)).await;
    let url = mounted.url();
    let put = |name: &str, url: &str, phase: &str| {
        world.put_workspace("root", name, json!({"mount": {"ref": {}}, "URL": url}), phase);
    };
    put("ready", &format!("{url}/clusters/there"), "Ready");
    put("slash", &format!("{url}/clusters/there/"), "Ready");
    put("away", &format!("{url}/clusters/there"), "Unavailable");
    put("empty", "", "Ready");
    put("nowhere", &format!("{url}/elsewhere/there"), "Ready");
    put(
        "plain",
        &url.replace("https", "http").replace("127.0.0.1", "localhost/clusters/x@127.0.0.1"),
        "Ready",
    );
    put("unclean", &format!("{url}/clusters/../services/there"), "Ready");
    put("encoded", &format!("{url}/clusters/x%2f..%2f..%2fservices/there"), "Ready");
    put("user", &url.replace("https://", "https://evil@"), "Ready");
    put("odd", "not a URL", "Ready");
    put("cleared", &format!("{url}/clusters/there"), "Ready");
    world.put_workspace("root", "cleared", json!({}), "Ready");
    world.create_workspace("root", "marker", "root", "marker0000000001");
    assert_eq!(authenticated.get("/clusters/root:marker/api").await.status, 200);
    for (path, expected) in [
        ("/clusters/root:ready/api/v1?a=b", format!("mounted /clusters/there/api/v1?a=b {USUAL}")),
        ("/clusters/root:ready", format!("mounted /clusters/there {USUAL}")),
        ("/clusters/root:slash/api", format!("mounted /clusters/there/api {USUAL}")),
        ("/clusters/root:away/api", "503".into()),
        ("/clusters/root:empty/api", "403".into()),
        ("/clusters/root:nowhere/api", "404".into()),
        ("/clusters/root:unclean/api", "403".into()),
        ("/clusters/root:encoded/api", "403".into()),
        ("/clusters/root:user/api", "403".into()),
        ("/clusters/root:odd/api", "403".into()),
        ("/clusters/root:cleared/api", "403".into()),
        // kcp ignores labels behind a mount; here they name an unknown workspace.
        ("/clusters/root:ready:below/api", "403".into()),
    ] {
        assert_eq!(outcome(&authenticated.get(path).await), expected, "{path}");
    }
    let echo = authenticated.get("/clusters/root:ready/api").await.json();
    assert_eq!((&echo["peer"], &echo["authority"]), (&"kcp-front-proxy".into(), &"localhost".into()));
    // Too many hops are a loop. A client can only lower the number of hops that are left to its own request.
    for (hops, expected) in
        [("0", 200), ("x", 200), ("-1", 200), ("8", 508), ("4294967295", 508), ("99999999999", 200)]
    {
        let fields = [("x-fairlead-mount-hops", hops)];
        let answer = authenticated.send(request(Method::GET, "/clusters/root:ready/api", &fields, "")).await;
        assert_eq!(answer.status, expected, "{hops}");
        if expected == 200 {
            assert_eq!(answer.echoed("x-fairlead-mount-hops"), ["x-fairlead-mount-hops: 1"], "{hops}");
        }
    }
    // Requests that are not for a mount are forwarded without the header.
    let fields = [("x-fairlead-mount-hops", "3")];
    let answer = authenticated.send(request(Method::GET, "/clusters/root:org/api", &fields, "")).await;
    assert_eq!(answer.echoed("x-fairlead-mount-hops"), [""; 0]);
    // The request of a client without a certificate is forwarded without identity headers.
    let unauthenticated = world.http2(None).await;
    assert_eq!(
        outcome(&unauthenticated.get("/clusters/root:ready/api").await),
        "mounted /clusters/there/api "
    );
    Shard::stop(mounted).await;
    assert_eq!(outcome(&authenticated.get("/clusters/root:ready/api").await), "503");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_pages_of_allowed_origins_may_use_the_api() {
    let set_origins: fn(&mut fairlead_config::GatewayConfig) = |config| {
        config.cors_allowed_origins = vec!["^https://console\\.example$".to_owned()];
    };
    let world = World::with(Choices { config: Some(set_origins), ..Choices::default() }).await;
    let client = world.http2(Some(&world.user())).await;
    let send = async |method: Method, path: &str, origin: &str| {
        client.send(request(method, path, &[("origin", origin)], "")).await
    };
    let allowed = "https://console.example";
    let preflight = send(Method::OPTIONS, "/clusters/root:org/api", allowed).await;
    assert_eq!((preflight.status, preflight.text.as_str()), (204, ""));
    let responses = [
        preflight,
        send(Method::GET, "/clusters/root:org/api", allowed).await,
        send(Method::GET, "/clusters/root:nope/api", allowed).await,
    ];
    for (number, answer) in responses.iter().enumerate() {
        for (name, value) in [
            ("access-control-allow-origin", allowed),
            ("access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", "Date"),
        ] {
            let values: Vec<_> = answer.headers.get_all(name).iter().collect();
            assert_eq!(values, [value], "{number}: {name}");
        }
    }
    for origin in ["https://console.example.evil", "https://evil", "null", ""] {
        // Requests of other origins are served without CORS headers; browsers withhold such responses from the page.
        let answer = send(Method::OPTIONS, "/clusters/root:org/api", origin).await;
        assert_eq!((answer.status, answer.json()["method"].as_str()), (200, Some("OPTIONS")), "{origin}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{origin}");
    }
}
