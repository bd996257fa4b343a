//! The program itself: starts from a file, obeys signals, says what is wrong.

use std::process::Stdio;

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use crate::world::{Http2, World, connect, request, until};

pub struct Gateway {
    child: Child,
    log: tokio::io::Lines<BufReader<ChildStderr>>,
}

impl Gateway {
    pub fn start(config: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairlead-gateway"))
            .arg("--config")
            .arg(config)
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log }
    }

    /// The first line of the log that says this.
    pub async fn says(&mut self, what: &str) -> String {
        while let Some(line) = self.log.next_line().await.unwrap() {
            if line.contains(what) {
                return line;
            }
        }
        panic!("it never said {what}");
    }

    /// Where its first door listens.
    pub async fn address(&mut self) -> std::net::SocketAddr {
        let line = self.says("listening").await;
        line.split("address=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
    }
}

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

    // SIGHUP reads the configuration again; a broken one is named and not obeyed.
    let mut changed = world.config.clone();
    changed.index.miss_wait = "100ms".parse().unwrap();
    changed.drain.window = "3s".parse().unwrap();
    write(&changed);
    gateway.signal(Signal::HUP);
    assert!(gateway.says("needs a restart").await.contains("drain"));
    std::fs::write(&file, "listeners: 7\n").unwrap();
    gateway.signal(Signal::HUP);
    gateway.says("configuration").await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);

    let watch =
        client.open(request(Method::GET, "/clusters/root:org/stream?watch=true", &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    gateway.signal(Signal::TERM);
    drop(watch);
    assert!(gateway.child.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_it_from_starting_is_one_sentence() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    let mut taken = world.config.clone();
    taken.listeners[0].serving.address = world.address;
    let mut missing = world.config.clone();
    missing.upstream.certificate = "/nowhere/x.crt".into();
    for (config, sentence) in [
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
