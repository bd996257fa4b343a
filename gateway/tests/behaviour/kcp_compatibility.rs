//! The `kcpCompatibility` switches for behaviour of kcp that is a vulnerability, a crash or an outage. Each test compares a
//! gateway with the switch and one without it, to show that the switch changes nothing else.

use std::time::Duration;

use fairlead_config::{InputFile, KcpBehaviour};
use fairlead_gateway::Gateway;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::mapping::clusters;
use crate::shard::Shard;
use crate::world::{
    Choices, Http2, ORG, SecondGateway, World, connect, environment, eventually, logical_cluster, request,
};

/// Timeout that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(20);

const PATH: &str = "/clusters/root:org/api";

/// A gateway with one switch, and a client that is connected to it.
async fn switched(world: &World, switch: KcpBehaviour) -> (SecondGateway, Http2) {
    let gateway = world.start_second_gateway(|config| config.kcp_compatibility = vec![switch]);
    gateway.gateway.ready().await;
    let client = world.client_of(&gateway).await;
    (gateway, client)
}

async fn becomes(client: &Http2, path: &str, status: u16) {
    let reached = async { while client.get(path).await.status != status {} };
    timeout(LIMIT, reached).await.unwrap_or_else(|_| panic!("{path} does not become {status}"));
}

/// Creates workspace `root:org:child`: the parent is on the shard `parents`, the child on the root shard.
fn put_child(world: &World, parents: &Shard) {
    let child = json!({
        "metadata": {"name": "child", "annotations": {"kcp.io/cluster": ORG}},
        "spec": {"cluster": "ch1ld00000000001"}, "status": {"phase": "Ready"},
    });
    parents.state.put("logicalclusters", ORG, logical_cluster(ORG, Some("org")));
    parents.state.put("workspaces", "org/child", child);
    let id = "ch1ld00000000001";
    world.root.state.put("logicalclusters", id, logical_cluster(id, Some("child")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn base_urls_loses_a_shard_with_a_new_url_until_the_gateway_restarts() {
    const CHILD: &str = "/clusters/root:org:child/api";
    let world = World::new().await;
    let (mut kcp, kcp_compatibility) = switched(&world, KcpBehaviour::BaseUrls).await;
    let here = world.http2(Some(&world.user())).await;
    put_child(&world, &world.alpha);
    becomes(&kcp_compatibility, CHILD, 200).await;
    assert_eq!(kcp_compatibility.get(PATH).await.json()["shard"], "alpha");
    let moved = world.unregistered_shard("moved").await;
    put_child(&world, &moved);
    world.register("alpha", &moved.url());
    becomes(&kcp_compatibility, PATH, 403).await;
    assert_eq!(kcp_compatibility.get("/clusters/root/api").await.status, 200, "the others stay");
    becomes(&kcp_compatibility, CHILD, 200).await;
    eventually("the workspace is served from the new URL of its shard", async || {
        here.get(PATH).await.json()["shard"] == "moved"
    })
    .await;
    // Registering the old URL again does not restore the shard; a new gateway process or a new Shard object does.
    world.register("alpha", &world.alpha.url());
    world.create_workspace("root", "marker", "root", "marker0000000001");
    becomes(&kcp_compatibility, "/clusters/root:marker/api", 200).await;
    assert_eq!(kcp_compatibility.get(PATH).await.status, 403);
    let (_kcp, again) = switched(&world, KcpBehaviour::BaseUrls).await;
    assert_eq!(again.get(PATH).await.json()["shard"], "alpha");
    world.root.state.delete("shards", "alpha");
    becomes(&again, PATH, 403).await;
    world.register("alpha", &moved.url());
    becomes(&kcp_compatibility, PATH, 200).await;
    becomes(&again, PATH, 200).await;

    // Without the switch the next update of the Shard object takes effect.
    world.register("alpha", &world.alpha.url());
    becomes(&kcp_compatibility, PATH, 403).await;
    kcp.gateway.reconfigure(world.config.clone()).unwrap();
    world.register("alpha", &moved.url());
    becomes(&kcp_compatibility, PATH, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleared_mounts_keeps_a_removed_mount_in_effect() {
    let world = World::new().await;
    let (_kcp, kcp_compatibility) = switched(&world, KcpBehaviour::ClearedMounts).await;
    let here = world.http2(Some(&world.user())).await;
    let mounted = world.unregistered_shard("mounted").await;
    let spec = json!({"mount": {"ref": {}}, "URL": format!("{}/clusters/there", mounted.url())});
    let paths = ["/clusters/root:cleared/api", "/clusters/root:emptied/api"];
    for name in ["cleared", "emptied"] {
        world.put_workspace("root", name, spec.clone(), "Ready");
    }
    for (client, path) in
        [(&here, paths[0]), (&here, paths[1]), (&kcp_compatibility, paths[0]), (&kcp_compatibility, paths[1])]
    {
        becomes(client, path, 200).await;
        assert_eq!(client.get(path).await.json()["shard"], "mounted");
    }
    world.put_workspace("root", "cleared", json!({}), "Ready");
    world.put_workspace("root", "emptied", json!({"mount": {"ref": {}}, "URL": ""}), "Ready");
    // A mount without a URL resolves to nothing in kcp as well.
    becomes(&kcp_compatibility, paths[1], 403).await;
    becomes(&here, paths[0], 403).await;
    assert_eq!(kcp_compatibility.get(paths[0]).await.json()["shard"], "mounted");
    // The workspace's phase still applies.
    for (phase, status) in [("Unavailable", 503), ("Ready", 200)] {
        world.put_workspace("root", "cleared", json!({}), phase);
        becomes(&kcp_compatibility, paths[0], status).await;
    }
    // The mount also stays in effect after a new list.
    world.root.state.compact();
    world.root.state.cut_connections();
    world.create_workspace("root", "marker", "root", "marker0000000001");
    becomes(&kcp_compatibility, "/clusters/root:marker/api", 200).await;
    assert_eq!(kcp_compatibility.get(paths[0]).await.json()["shard"], "mounted");
    world.root.state.delete("workspaces", "root/cleared");
    becomes(&kcp_compatibility, paths[0], 403).await;
}

/// Sends a request with the header lines `fields`, and returns the X-Remote-* headers that the shard received.
async fn identity_headers(world: &World, gateway: &SecondGateway, fields: &str) -> Vec<String> {
    let alice = world.user();
    let mut stream = connect(gateway.address, &world.serving_ca, Some(&alice), b"http/1.1").await.unwrap();
    let text = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (start, end) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
    let echo: Value = serde_json::from_str(&answer[start..=end]).unwrap();
    let lines = echo["headers"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    let mut lines: Vec<String> =
        lines.filter(|line| line.starts_with("x-remote-") && !line.contains("credential-id")).collect();
    lines.sort();
    lines
}

const ALICE: [&str; 3] =
    ["x-remote-group: system:authenticated", "x-remote-group: team", "x-remote-user: alice"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_headers_first_lets_a_client_remove_its_identity_headers() {
    let world = World::new().await;
    let nothing = world.start_second_gateway(|_| {});
    let (stamping, over_http2) = switched(&world, KcpBehaviour::IdentityHeadersFirst).await;
    nothing.gateway.ready().await;
    let fields = "Connection: X-Remote-Group\r\nX-Remote-User: root\r\nX-Remote-Uid: 0\r\n";
    assert_eq!(identity_headers(&world, &nothing, fields).await, ALICE);
    assert_eq!(identity_headers(&world, &stamping, fields).await, ["x-remote-user: alice"]);
    // The client can add no identity header. Over HTTP/2, which has no Connection header, it can remove none either.
    assert_eq!(
        identity_headers(&world, &stamping, "X-Remote-User: root\r\nX-Remote-Uid: 0\r\n").await,
        ALICE
    );
    let get = request(Method::GET, PATH, &[("x-remote-user", "root")], "");
    let mut groups = over_http2.send(get).await.echoed("x-remote-group");
    groups.sort();
    assert_eq!(groups, ALICE[..2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_uid_lets_a_client_set_its_uid() {
    let world = World::new().await;
    let (kcp, kcp_compatibility) = switched(&world, KcpBehaviour::RemoteUid).await;
    let fields = "X-Remote-User: root\r\nX-Remote-Uid: 0\r\nX-Remote-Other: x\r\n";
    assert_eq!(
        identity_headers(&world, &kcp, fields).await,
        [&ALICE[..2], &["x-remote-uid: 0"], &ALICE[2..]].concat()
    );
    let get = || request(Method::GET, PATH, &[("x-remote-uid", "0")], "");
    assert_eq!(kcp_compatibility.send(get()).await.echoed("x-remote-uid"), ["x-remote-uid: 0"]);
    let here = world.http2(Some(&world.user())).await;
    assert_eq!(here.send(get()).await.echoed("x-remote-uid"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_path_refuses_a_mapping_of_the_root_path_beside_clusters() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let rest = json!({"path": "/", "backend": world.root.url()});
    let mapping = |entries| world.write_mapping("mapping.yaml", entries);
    let file = mapping(vec![clusters(), rest.clone()]);
    world.config.paths.mapping_file = Some(InputFile::from(file.clone()));
    world.start_second_gateway(|_| {}).end().await;
    let mut config = world.config.clone();
    config.kcp_compatibility = vec![KcpBehaviour::RootPath];
    let error = Gateway::start(config, &environment()).err().expect("it starts");
    let sources = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let text = sources.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(text.contains(&format!("{}:", file.display())) && text.contains("/ beside /clusters/"), "{text}");

    // The mapping of / alone is accepted. A reload with both mappings is refused, and the previous mapping stays in effect.
    let mapping = |entries| world.write_mapping("mapping.yaml", entries);
    mapping(vec![rest.clone()]);
    let (kcp, client) = switched(&world, KcpBehaviour::RootPath).await;
    assert_eq!(client.get("/version").await.status, 200);
    mapping(vec![clusters(), rest]);
    kcp.environment.reloads.check_now();
    assert_eq!(kcp.environment.reloads.failures().len(), 1);
    assert_eq!(client.get("/version").await.status, 200);

    // If the switch is set while both mappings are in effect, the files that the mappings name are still reloaded.
    let mut both = world.start_second_gateway(|_| {});
    let mut config = world.config.clone();
    config.kcp_compatibility = vec![KcpBehaviour::RootPath];
    both.gateway.reconfigure(config).unwrap();
    world.front_proxy_ca.client("kcp-front-proxy", &["again"]).write(world.directory.path(), "front-proxy");
    both.environment.reloads.check_now();
    assert_eq!(both.environment.reloads.failures(), []);
}
