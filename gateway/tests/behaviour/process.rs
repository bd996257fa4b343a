//! The gateway program: start from a configuration file or from flags, signals, and messages about errors.

use http::Method;
use rustix::process::Signal;

pub use crate::program::Gateway;
use crate::world::{Choices, Http2, World, connect, eventually, request, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_serves_reloads_and_drains() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    let write = |config: &fairlead_config::GatewayConfig| {
        // JSON is YAML.
        std::fs::write(&file, serde_json::to_string(config).unwrap()).unwrap();
    };
    write(&world.config);
    let mut gateway = Gateway::start(&file);
    let address = gateway.address().await;
    gateway.says("the index is synced").await;
    let user = world.user();
    let client = Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
    assert_eq!(client.get("/clusters/root:org/api").await.json()["shard"], "alpha");

    // SIGHUP reloads the configuration. An invalid configuration is logged and has no effect.
    let mut changed = world.config.clone();
    changed.index.miss_wait = "100ms".parse().unwrap();
    changed.log.level = "debug".to_owned();
    changed.state_file = Some("other-state".into());
    write(&changed);
    gateway.signal(Signal::HUP);
    assert!(gateway.says("needs a restart").await.contains("log"));
    assert!(gateway.says("needs a restart").await.contains("stateFile"));
    std::fs::write(&file, "listeners: 7\n").unwrap();
    gateway.signal(Signal::HUP);
    gateway.says("configuration").await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);

    // An invalid kubeconfig is logged with the path of its file.
    let kubeconfig = world.directory.path().join("shards.kubeconfig");
    std::fs::copy(without_context(&world), &kubeconfig).unwrap();
    gateway.signal(Signal::HUP);
    let line = gateway.says("has no context").await;
    assert!(line.contains(&format!("{}: the kubeconfig has no context", kubeconfig.display())), "{line}");

    let watch = client
        .open(request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], ""))
        .await
        .unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    gateway.signal(Signal::TERM);
    drop(watch);
    assert!(gateway.child.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_errors_are_one_sentence() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    let mut taken = world.config.clone();
    taken.listeners[0].serving.address = world.address;
    let mut missing = world.config.clone();
    missing.upstream.certificate = "/nowhere/x.crt".into();
    let no_context = without_context(&world);
    let mut single = world.config.clone();
    single.upstream.shards.push(fairlead_config::ShardUpstreamConfig {
        name: "alpha".to_owned(),
        kubeconfig: Some(no_context.as_str().into()),
        ..Default::default()
    });
    let kubeconfig_error = format!("{no_context}: the kubeconfig has no context named \"missing\"");
    for (config, sentence) in [
        (serde_json::to_string(&single).unwrap(), kubeconfig_error.as_str()),
        ("index: {shardSelector: \"a in (\"}".to_owned(), "gateway.yaml:1:24: \"a in (\" is not a term"),
        (serde_json::to_string(&taken).unwrap(), "cannot listen on 127.0.0.1"),
        (serde_json::to_string(&missing).unwrap(), "credential for shards cannot be loaded"),
        ("nonsense: true".to_owned(), "nonsense"),
    ] {
        std::fs::write(&file, config).unwrap();
        let mut gateway = Gateway::start(&file);
        let line = gateway.says("fairlead-gateway: ").await;
        assert!(line.contains(sentence), "{line}");
        assert_eq!(gateway.child.wait().await.unwrap().code(), Some(1));
    }
}

/// A kubeconfig whose current context does not exist.
fn without_context(world: &World) -> String {
    let directory = world.directory.path();
    let good = std::fs::read_to_string(directory.join("shards.kubeconfig")).unwrap();
    let file = directory.join("no-context.kubeconfig");
    std::fs::write(&file, good.replace(r#""current-context":"c""#, r#""current-context":"missing""#))
        .unwrap();
    file.display().to_string()
}

/// The arguments with which a launcher of kcp starts kcp-front-proxy. Writes the mapping file and a kubeconfig that they name.
fn front_proxy_arguments(world: &World) -> Vec<String> {
    let directory = world.directory.path();
    let path = |file: &str| directory.join(file).display().to_string();
    let mapping = format!(
        "- path: /clusters/\n  backend: https://localhost:1\n  backend_server_ca: {}\n  \
         proxy_client_cert: {}\n  proxy_client_key: {}\n",
        path("serving-ca.crt"),
        path("front-proxy.crt"),
        path("front-proxy.key"),
    );
    std::fs::write(directory.join("mapping.yaml"), mapping).unwrap();
    // A kubeconfig with an empty server, as client-go writes it for credentials that are valid at all shards.
    let root = std::fs::read_to_string(directory.join("shards.kubeconfig")).unwrap();
    let all_shards = root.replace(&world.root.url(), "");
    std::fs::write(directory.join("all-shards.kubeconfig"), all_shards).unwrap();
    [
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--root-directory={}", path("front-proxy")),
        format!("--mapping-file={}", path("mapping.yaml")),
        format!("--root-kubeconfig={}", path("shards.kubeconfig")),
        format!("--shards-kubeconfig={}", path("all-shards.kubeconfig")),
        format!("--client-ca-file={}", path("client-ca.crt")),
        format!("--tls-cert-file={}", path("tls.crt")),
        format!("--tls-private-key-file={}", path("tls.key")),
        // kcp-operator writes quotes around the whole list.
        "--authentication-drop-groups=\"system:masters,system:kcp:logical-cluster-admin\"".to_owned(),
        "--v=4".to_owned(),
        "--profiler-address=localhost:1".to_owned(),
        "--feature-gates=WorkspaceMounts=true,NoSuchGate=false".to_owned(),
    ]
    .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_understands_the_command_line_of_kcp_front_proxy() {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let mut gateway = Gateway::with(front_proxy_arguments(&world));
    gateway.says("accepted and without effect here: --profiler-address").await;
    let address = gateway.address().await;
    gateway.says("the index is synced").await;
    let connect = async |certificate| {
        Http2::over(connect(address, &world.serving_ca, certificate, b"h2").await.unwrap()).await
    };
    let user = world.user();
    let answer = connect(Some(&user)).await.get("/clusters/root:org/api").await;
    assert_eq!(answer.json()["shard"], "alpha");
    // system:masters is dropped.
    let groups = ["x-remote-group: system:authenticated", "x-remote-group: team"];
    assert_eq!(answer.echoed("x-remote-group"), groups);
    assert_eq!(connect(None).await.get("/services/x").await.status, 404);
    assert_eq!(connect(None).await.get("/readyz").await.status, 200);

    // During the shutdown delay the gateway is not ready, but accepts connections and serves them, for load balancers.
    gateway.signal(Signal::TERM);
    eventually("the gateway is not ready any more", async || {
        connect(None).await.get("/readyz").await.status != 200
    })
    .await;
    assert_eq!(connect(Some(&user)).await.get("/clusters/root:org/api").await.status, 200);
    // The directory of --root-directory does not exist: only the snapshot is not written.
    gateway.says("the snapshot of the index cannot be written").await;
    assert!(gateway.child.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_flags_the_index_snapshot_is_kept_in_the_root_directory() {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let arguments = front_proxy_arguments(&world);
    let root = world.directory.path().join("front-proxy");
    std::fs::create_dir(&root).unwrap();
    let mut gateway = Gateway::with(arguments.clone());
    gateway.says("the index is synced").await;
    gateway.signal(Signal::TERM);
    assert!(gateway.child.wait().await.unwrap().success());
    assert!(root.join("index.snapshot").exists());
    Gateway::with(arguments).says("the index was restored from its snapshot").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_in_a_command_line_or_mapping_file_are_one_sentence() {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let good = front_proxy_arguments(&world);
    let mapping = world.directory.path().join("mapping.yaml");
    let text = std::fs::read_to_string(&mapping).unwrap();
    let no_context = without_context(&world);
    let kubeconfig_error = format!("{no_context}: the kubeconfig has no context named \"missing\"");
    let with = |extra: &str| good.iter().cloned().chain([extra.to_owned()]).collect::<Vec<_>>();
    for (arguments, mapping_text, sentence) in [
        (with("--no-such-flag"), text.clone(), "unexpected argument '--no-such-flag'"),
        (with("--secure-port=x"), text.clone(), r#"--secure-port: "x" is no whole number"#),
        (with("--log-flush-frequency=5"), text.clone(), r#"--log-flush-frequency: "5" is no duration"#),
        (with("--config=x"), text.clone(), "beside --config"),
        (vec!["--config".to_owned()], text.clone(), "a value is required for '--config <FILE>'"),
        (vec!["--config=".to_owned()], text.clone(), "--config names no file"),
        (
            with("--cors-allowed-origins=["),
            text.clone(),
            r#"--cors-allowed-origins: "[" is not a regular expression"#,
        ),
        (with(&format!("--root-kubeconfig={no_context}")), text.clone(), kubeconfig_error.as_str()),
        (with(&format!("--shards-kubeconfig={no_context}")), text.clone(), kubeconfig_error.as_str()),
        (with(&format!("--shard-peer-kubeconfig={no_context}")), text.clone(), kubeconfig_error.as_str()),
        (good.clone(), text.replace("/clusters/", "clusters/"), "mapping.yaml:1:9: the path \"clusters/\""),
        (good.clone(), text.replace("front-proxy.key", "none.key"), "mapping.yaml:1:9: the private key"),
        (with("--client-ca-file=/nowhere"), text.clone(), "/nowhere cannot be read"),
    ] {
        std::fs::write(&mapping, mapping_text).unwrap();
        let mut gateway = Gateway::with(arguments);
        let line = gateway.says("fairlead-gateway: ").await;
        assert!(line.contains(sentence), "{line}");
        assert_eq!(gateway.child.wait().await.unwrap().code(), Some(1));
    }
}
