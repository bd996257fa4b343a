//! `fairlead gateway` check, reload, drain and upgrade: they say what came of it, and mean it.

use std::path::Path;
use std::process::Output;

use fairlead_config::{GatewayConfig, ProcessState};
use tokio::process::Command;

use crate::program::Gateway;
use crate::world::{World, eventually, write_config};

/// Runs the command that lies beside the gateway.
async fn fairlead(arguments: &[&str]) -> (bool, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_fairlead-gateway")).with_file_name("fairlead");
    let mut command = Command::new(&program);
    command.arg("gateway").args(arguments);
    let output = command.output().await;
    let Output { status, stdout, stderr } = output.unwrap_or_else(|error| {
        panic!("{} (built with `cargo build --release --workspace --bins`): {error}", program.display())
    });
    let said = [stdout, stderr].concat();
    (status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_a_life_tell_what_came_of_them() {
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

    // Found by its number and its configuration, or by its state file.
    let (good, said) = fairlead(&["reload", "--pid", &first]).await;
    assert!(good && said.contains("all files are in effect"), "{said}");
    let mut broken = config.clone();
    broken.listeners[0].client_ca = Some("/nowhere.crt".into());
    write_config(&file, &broken);
    let (good, said) = fairlead(&["reload", "--pid-file", &by_file]).await;
    assert!(!good && said.contains("gateway.yaml:1:") && said.contains("listeners[0]"), "{said}");
    // A successor could not use it either, and nobody is worse off.
    let (good, said) = fairlead(&["upgrade", "--pid-file", &by_file]).await;
    assert!(!good && said.contains(&format!("process {first} was not upgraded")), "{said}");
    write_config(&file, &config);
    assert!(fairlead(&["reload", "--pid-file", &by_file]).await.0);

    let (good, said) = fairlead(&["upgrade", "--pid-file", &by_file]).await;
    let second = ProcessState::read(&state).unwrap().pid.to_string();
    assert!(good && said.contains(&format!("process {second} ")) && second != first, "{said}");
    gateway.ends_well().await;
    let (good, said) = fairlead(&["reload", "--pid", &first]).await;
    assert!(!good && said.contains(&format!("there is no process {first}")), "{said}");
    let (good, said) = fairlead(&["drain", "--pid", &second]).await;
    assert!(good && said.contains(&format!("process {second}: ended")), "{said}");
    let (good, said) = fairlead(&["drain", "--pid-file", &by_file]).await;
    assert!(!good && said.contains("cannot be read"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_state_file_the_outcome_is_not_made_up() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    write_config(&file, &world.config);
    let mut gateway = Gateway::start(&file);
    gateway.says("the index is synced").await;
    let pid = gateway.pid().to_string();
    let (good, said) = fairlead(&["reload", "--pid", &pid]).await;
    assert!(!good && said.contains("the result is unknown") && said.contains("stateFile"), "{said}");
    let (good, _) = fairlead(&["drain", "--pid", &pid]).await;
    assert!(good);
    gateway.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_is_checked_as_the_gateway_would_use_it() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    let path = file.display().to_string();
    // Its listeners are in use, which is of no account: nothing listens.
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
        let (is_good, said) = fairlead(&["check", &path]).await;
        assert!(!is_good && said.contains(expected) && said.contains("gateway.yaml:1:"), "{said}");
    }
}
