//! The path mapping file of kcp-front-proxy.

use std::fs;

use fairlead_config::InputFile;
use http::Method;
use serde_json::{Value, json};

use crate::shard::Shard;
use crate::world::{Choices, World, request};

/// A gateway with a mapping file, and the server behind its prefixes that lead to no shard.
pub struct Mapped {
    pub world: World,
    backend: Shard,
}

impl Mapped {
    /// `entries` tells the mappings; files are added to each.
    pub async fn new(entries: impl FnOnce(&Shard) -> Vec<Value>) -> Self {
        let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        let backend = world.unregistered_shard("backend").await;
        let mut mapped = Self { world, backend };
        mapped.write(entries(&mapped.backend));
        let file = mapped.world.directory.path().join("mapping.yaml");
        mapped.world.config.paths.mapping_file = Some(InputFile::from(file));
        mapped.world.start().await;
        mapped
    }

    fn write(&self, entries: Vec<Value>) {
        self.world.write_mapping("mapping.yaml", entries);
    }
}

/// The mapping of logical clusters to shards.
pub fn clusters() -> Value {
    json!({"path": "/clusters/", "backend": "https://ignored.invalid"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_specific_prefix_wins_and_the_whole_path_is_forwarded() {
    let mapped = Mapped::new(|backend| {
        vec![
            clusters(),
            json!({"path": "/services/", "backend": format!("{}/base/?own=1", backend.url())}),
            json!({"path": "/e2e/clusters/{cluster}/", "backend": backend.url()}),
            json!({"path": "/", "backend": backend.url()}),
        ]
    })
    .await;
    let client = mapped.world.http2(Some(&mapped.world.user())).await;
    for (path, shard, forwarded) in [
        ("/clusters/root:org/api?a=b", "alpha", "/clusters/0rg0000000000001/api?a=b"),
        ("/services/x/y?a=b", "backend", "/base/services/x/y?own=1&a=b"),
        ("/services/x/clusters/*/a%2Fb", "backend", "/base/services/x/clusters/*/a%2Fb?own=1"),
        ("/services", "backend", "/base/services?own=1"),
        ("/e2e/clusters/root:org/x", "backend", "/e2e/clusters/root:org/x"),
        ("/e2e/clusters/*/x", "backend", "/e2e/clusters/*/x"),
        ("/anything/", "backend", "/anything/"),
        ("/clusters", "backend", "/clusters"),
        ("/", "backend", "/"),
    ] {
        let echo = client.get(path).await.json();
        assert_eq!((echo["shard"].as_str(), echo["path"].as_str()), (Some(shard), Some(forwarded)), "{path}");
        assert_eq!(echo["authority"], "localhost", "{path}");
    }
    for path in ["/e2e/clusters/nope/x", "/e2e/clusters/Root/x", "/services/x/clusters/root:nope/api"] {
        assert_eq!(client.get(path).await.status, 403, "{path}");
    }
    assert_eq!(client.get("/livez").await.text, "ok", "the gateway's own endpoints come first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_mapping_of_clusters_they_are_ordinary_paths() {
    let mapped = Mapped::new(|backend| vec![json!({"path": "/", "backend": backend.url()})]).await;
    let client = mapped.world.http2(Some(&mapped.world.user())).await;
    for path in ["/clusters/root:org/api", "/clusters/*/api", "/clusters/Nope/x"] {
        let echo = client.get(path).await.json();
        assert_eq!((echo["shard"].as_str(), echo["path"].as_str()), (Some("backend"), Some(path)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmapped_paths_are_404_after_authentication() {
    let mapped = Mapped::new(|_| vec![clusters()]).await;
    let world = &mapped.world;
    for path in ["/services/x", "/", "/e2e"] {
        let answer = world.get(Some(&world.user()), path).await;
        assert_eq!((answer.status, answer.text.as_str()), (404, "404 page not found\n"), "{path}");
        let stranger = world.serving_ca.client("stranger", &[]);
        assert_eq!(world.get(Some(&stranger), path).await.status, 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_gets_the_identity_in_its_configured_headers() {
    let mapped = Mapped::new(|backend| {
        vec![
            clusters(),
            json!({"path": "/own/", "backend": backend.url(),
                "user_header": "X-User", "group_header": "X-Team", "extra_header_prefix": "X-More-"}),
        ]
    })
    .await;
    let world = &mapped.world;
    let forged = [
        ("x-user", "root"),
        ("x-team", "system:masters"),
        ("x-more-a", "b"),
        ("x-remote-user", "root"),
        ("x-remote-uid", "0"),
        ("connection", "x-user"),
    ];
    let mut client = world.http1(Some(&world.user())).await;
    let headers: Vec<_> = forged.into_iter().chain([("host", "localhost")]).collect();
    let response = client.send_request(request(Method::GET, "/own/x", &headers, "")).await.unwrap();
    let answer = crate::world::Answer::of(response).await;
    assert_eq!(answer.echoed("x-user"), ["x-user: alice"]);
    assert_eq!(answer.echoed("x-team"), ["x-team: system:authenticated", "x-team: team"]);
    let extras = answer.echoed("x-more-");
    assert!(extras.len() == 1 && extras[0].contains("credential-id"), "{extras:?}");
    assert_eq!(answer.echoed("x-remote-"), [""; 0]);
}

/// A client's own `X-User` must reach neither the backend that trusts it nor another one, because they may be the same server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_headers_of_one_backend_are_removed_for_all() {
    let mapped = Mapped::new(|backend| {
        vec![
            clusters(),
            json!({"path": "/own/", "backend": backend.url(),
                "user_header": "X-User", "group_header": "X-Team", "extra_header_prefix": "X-More-"}),
            json!({"path": "/usual/", "backend": backend.url()}),
        ]
    })
    .await;
    let world = &mapped.world;
    let forged = [
        ("X-User", "root"),
        ("x_team", "system:masters"),
        ("x-more-forged", "b"),
        ("x-remote-anything", "c"),
    ];
    for path in ["/usual/x", "/own/x", "/clusters/root:org/api"] {
        for user in [Some(world.user()), None] {
            let client = world.http2(user.as_ref()).await;
            let headers: Vec<_> =
                forged.iter().map(|(name, value)| (name.to_ascii_lowercase(), *value)).collect();
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let answer = client.send(request(Method::GET, path, &headers, "")).await;
            assert_eq!(answer.status, 200, "{path}");
            for lie in ["\"root", ": root", "system:masters", "forged", "anything"] {
                assert!(!answer.text.contains(lie), "{path}: {lie} in {}", answer.text);
            }
        }
    }
}

/// kcp's metrics know shards only: bytes count for the shard of the logical cluster in the path, if there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_metrics_name_the_shard_of_a_mapped_path() {
    let mapped = Mapped::new(|backend| {
        let entry = |path: &str, backend: &str| json!({"path": path, "backend": backend});
        vec![
            clusters(),
            entry("/of/clusters/{cluster}/", &backend.url()),
            entry("/plain/", &backend.url()),
            entry("/wrong/", &backend.url().replace("127.0.0.1", "localhost.invalid")),
        ]
    })
    .await;
    let world = &mapped.world;
    let client = world.http2(Some(&world.user())).await;
    for (path, body) in [("/of/clusters/root:org/x", "four"), ("/plain/x", "nobody's")] {
        assert_eq!(client.send(request(Method::POST, path, &[], body)).await.status, 200, "{path}");
    }
    assert_eq!(client.get("/wrong/x").await.status, 503);
    let text = world.get(Some(&world.operator()), "/metrics").await.text;
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("kcp_backend_rq_body_bytes{")).collect();
    assert_eq!(lines, ["kcp_backend_rq_body_bytes{shard=\"alpha\"} 4"]);
    assert!(!text.contains("kcp_listener_tls_connection_error{"), "nothing has happened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_mapping_file_applies_and_an_invalid_one_does_not() {
    let entry = |path: &str, backend: &Shard| json!({"path": path, "backend": backend.url()});
    let mapped = Mapped::new(|backend| vec![clusters(), entry("/a/", backend)]).await;
    let world = &mapped.world;
    let client = world.http2(Some(&world.user())).await;
    let status = async |path: &str| client.get(path).await.status;
    assert_eq!((status("/a/x").await, status("/b/x").await), (200, 404));

    mapped.write(vec![clusters(), entry("/b/", &mapped.backend)]);
    world.environment.reloads.check_now();
    assert_eq!((status("/a/x").await, status("/b/x").await), (404, 200));

    fs::write(world.directory.path().join("mapping.yaml"), "- path: nowhere").unwrap();
    world.environment.reloads.check_now();
    assert_eq!((status("/b/x").await, status("/clusters/root:org/api").await), (200, 200));
    let ready = world.get(None, "/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text.contains("[!]reloads the last good one is in effect: mapping file"), "{}", ready.text);
    let metrics = world.get(Some(&world.operator()), "/metrics").await.text;
    assert!(
        metrics.contains("fairlead_reload_total{object=\"mapping file\",result=\"failure\"} 1"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mounts_resolve_to_workspaces_and_mapped_backends_only() {
    let mapped = Mapped::new(|backend| {
        vec![clusters(), json!({"path": "/services/proxy/", "backend": backend.url()})]
    })
    .await;
    let world = &mapped.world;
    let mount = |name: &str, url: &str| {
        world.put_workspace("root", name, json!({"mount": {"ref": {}}, "URL": url}), "Ready");
    };
    mount("sibling", &format!("{}/clusters/0rg0000000000001", world.alpha.url()));
    mount("mapped", "https://elsewhere.invalid/services/proxy/tenant/");
    mount("stray", "https://elsewhere.invalid/admin");
    world.create_workspace("root", "marker", "root", "marker0000000001");
    let client = world.http2(Some(&world.user())).await;
    assert_eq!(client.get("/clusters/root:marker/api").await.status, 200);
    for (path, shard, forwarded) in [
        ("/clusters/root:sibling/api?a=b", "alpha", "/clusters/0rg0000000000001/api?a=b"),
        ("/clusters/root:sibling", "alpha", "/clusters/0rg0000000000001"),
        ("/clusters/root:mapped/api", "backend", "/services/proxy/tenant/api"),
    ] {
        let answer = client.get(path).await;
        let echo = answer.json();
        assert_eq!((echo["shard"].as_str(), echo["path"].as_str()), (Some(shard), Some(forwarded)), "{path}");
        assert_eq!(answer.echoed("x-remote-user"), ["x-remote-user: alice"]);
        assert_eq!(answer.echoed("x-fairlead-mount-hops"), ["x-fairlead-mount-hops: 1"]);
    }
    assert_eq!(client.get("/clusters/root:stray/x").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn circular_mounts_are_508() {
    let mapped = Mapped::new(|_| vec![clusters()]).await;
    let world = &mapped.world;
    let itself = format!("https://localhost:{}/clusters/root:again", world.address.port());
    world.put_workspace("root", "again", json!({"mount": {"ref": {}}, "URL": itself}), "Ready");
    world.create_workspace("root", "marker", "root", "marker0000000001");
    let client = world.http2(Some(&world.user())).await;
    assert_eq!(client.get("/clusters/root:marker/api").await.status, 200);
    // The certificate that the gateway presents to itself identifies no user at this listener, so the request ends one hop later,
    // with or without an identity; the assertion is that it ends.
    let answer = client.get("/clusters/root:again/api").await;
    assert!([401, 508].contains(&answer.status), "{answer:?}");
    let hops = [("x-fairlead-mount-hops", "8")];
    let answer = client.send(request(Method::GET, "/clusters/root:again/api", &hops, "")).await;
    assert_eq!(answer.status, 508);
}
