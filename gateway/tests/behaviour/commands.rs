//! `fairlead gateway` check, reload, drain and upgrade report their outcome correctly.

use std::path::Path;
use std::process::Output;

use fairlead_config::{GatewayConfig, ProcessState};
use tokio::process::Command;

use crate::program::Gateway;
use crate::world::{World, eventually, write_config};

/// Runs the `fairlead` binary next to the gateway's. Returns whether it succeeded, and its output.
async fn fairlead(arguments: &[&str]) -> (bool, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_fairlead-gateway")).with_file_name("fairlead");
    let mut command = Command::new(&program);
    command.arg("gateway").args(arguments);
    let result = command.output().await;
    let Output { status, stdout, stderr } = result.unwrap_or_else(|error| {
        panic!("{} (built with `cargo build --release --workspace --bins`): {error}", program.display())
    });
    let output = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&output).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_upgrade_and_drain_report_their_outcome() {
    let world = World::new().await;
    let (file, state) = (world.directory.path().join("gateway.yaml"), world.directory.path().join("state"));
    let mut config = world.config.clone();
    config.drain.window = "200ms".parse().unwrap();
    config.state_file = Some("state".into());
    write_config(&file, &config);
    let mut gateway = Gateway::start(&file);
    gateway.says("the index is synced").await;
    eventually("there is a state file", async || state.exists()).await;
    let (first, by_file) = (gateway.pid().to_string(), state.display().to_string());

    // The process is found by its PID and its configuration, or by its state file.
    let (good, output) = fairlead(&["reload", "--pid", &first]).await;
    assert!(good && output.contains("all files are in effect"), "{output}");
    let mut broken = config.clone();
    broken.listeners[0].client_ca = Some("/nowhere.crt".into());
    write_config(&file, &broken);
    let (good, output) = fairlead(&["reload", "--pid-file", &by_file]).await;
    assert!(!good && output.contains("gateway.yaml:1:") && output.contains("listeners[0]"), "{output}");
    // A successor could not use this configuration either; the running process continues.
    let (good, output) = fairlead(&["upgrade", "--pid-file", &by_file]).await;
    assert!(!good && output.contains(&format!("process {first} was not upgraded")), "{output}");
    write_config(&file, &config);
    assert!(fairlead(&["reload", "--pid-file", &by_file]).await.0);

    let (good, output) = fairlead(&["upgrade", "--pid-file", &by_file]).await;
    let second = ProcessState::read(&state).unwrap().pid.to_string();
    assert!(good && output.contains(&format!("process {second} ")) && second != first, "{output}");
    gateway.ends_well().await;
    let (good, output) = fairlead(&["reload", "--pid", &first]).await;
    assert!(!good && output.contains(&format!("there is no process {first}")), "{output}");
    let (good, output) = fairlead(&["drain", "--pid", &second]).await;
    assert!(good && output.contains(&format!("process {second}: ended")), "{output}");
    let (good, output) = fairlead(&["drain", "--pid-file", &by_file]).await;
    assert!(!good && output.contains("cannot be read"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_state_file_a_reload_reports_an_unknown_result() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    write_config(&file, &world.config);
    let mut gateway = Gateway::start(&file);
    gateway.says("the index is synced").await;
    let pid = gateway.pid().to_string();
    let (good, output) = fairlead(&["reload", "--pid", &pid]).await;
    assert!(!good && output.contains("the result is unknown") && output.contains("stateFile"), "{output}");
    let (good, _) = fairlead(&["drain", "--pid", &pid]).await;
    assert!(good);
    gateway.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_is_checked_as_the_gateway_would_use_it() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    let path = file.display().to_string();
    // The listener's address is in use; the check does not bind it.
    let mut good = world.config.clone();
    good.listeners[0].serving.address = world.address;
    write_config(&file, &good);
    assert_eq!(
        fairlead(&["check", &path]).await,
        (true, format!("{path}: this configuration can be used\n"))
    );
    let with = |change: fn(&mut GatewayConfig)| {
        let mut config = good.clone();
        change(&mut config);
        serde_json::to_string(&config).unwrap()
    };
    for (text, expected) in [
        ("listeners: 7\n".to_owned(), "gateway.yaml:1:12: "),
        (
            with(|config| config.listeners[0].serving.certificate = "/nowhere.crt".into()),
            "listeners[0].serving: ",
        ),
        (with(|config| config.index.root_shard_kubeconfig = "/nowhere".into()), ": index: "),
        (with(|config| config.upstream.private_key = "/nowhere.key".into()), ": upstream: "),
        (with(|config| config.cors_allowed_origins = vec!["[".to_owned()]), "corsAllowedOrigins: "),
    ] {
        std::fs::write(&file, text).unwrap();
        let (is_good, output) = fairlead(&["check", &path]).await;
        assert!(!is_good && output.contains(expected) && output.contains("gateway.yaml:1:"), "{output}");
    }
}
