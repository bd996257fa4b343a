//! Upgrades: a process passes its sockets to its successor and notifies the service manager.

mod listeners;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use command_fds::{CommandFdExt, FdMapping};
use fairlead_config::{GatewayConfig, ListenerConfig, ProcessPhase, SocketConfig};
use http::Method;
use http_body_util::BodyExt;
use rustix::process::{Signal, kill_process};
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, UnixDatagram, UnixStream};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::pki::client_config;
use crate::program::{Gateway, StateFile, process, until_gone};
use crate::world::{
    Http2, PATIENCE, World, connect, eventually, free_address, listener, request, until, until_refused,
    write_config,
};

const API: &str = "/clusters/root:org/api";

/// A gateway process and its successors.
struct ProcessChain {
    world: World,
    config: GatewayConfig,
    file: PathBuf,
    state: StateFile,
    gateway: Gateway,
    address: SocketAddr,
}

impl ProcessChain {
    async fn begin(choice: impl FnOnce(&mut GatewayConfig, &Path)) -> Self {
        Self::begin_as(choice, |_| {}).await
    }

    async fn begin_as(
        choice: impl FnOnce(&mut GatewayConfig, &Path),
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let world = World::new().await;
        let directory = world.directory.path().to_owned();
        let (file, state) = (directory.join("gateway.yaml"), directory.join("state"));
        let mut config = world.config.clone();
        config.drain.window = "500ms".parse().unwrap();
        config.state_file = Some(state.clone().into());
        choice(&mut config, &directory);
        write_config(&file, &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead-gateway"));
        command.arg("--config").arg(&file);
        prepare(&mut command);
        let mut gateway = Gateway::of_command(command);
        let address = gateway.address().await;
        let chain = Self { world, config, file, state: StateFile(state), gateway, address };
        chain.state.until(|state| state.phase == ProcessPhase::Ready).await;
        chain
    }

    fn write(&self, config: &GatewayConfig) {
        write_config(&self.file, config);
    }

    async fn client(&self) -> Http2 {
        self.client_at(self.address).await
    }

    async fn client_at(&self, address: SocketAddr) -> Http2 {
        let user = self.world.user();
        Http2::over(connect(address, &self.world.serving_ca, Some(&user), b"h2").await.unwrap()).await
    }

    /// The TLS settings of its clients, for connections that are already open.
    fn tls(&self) -> Arc<rustls::ClientConfig> {
        client_config(&self.world.serving_ca, Some(&self.world.user()), b"h2")
    }

    /// Upgrades to a successor and returns its PID.
    async fn upgrade(&self) -> u32 {
        let before = self.state.read().pid;
        self.state.signal(Signal::QUIT);
        self.taken_over_from(before).await
    }

    async fn taken_over_from(&self, before: u32) -> u32 {
        let taken_over =
            self.state.until(|state| state.pid != before && state.phase == ProcessPhase::Ready).await;
        assert_eq!(taken_over.predecessor, Some(before));
        taken_over.pid
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.directory.path().join(name)
    }

    /// Starts the successor that [`waiting`] has written, and returns its PID.
    async fn successor_that_waits(&self) -> u32 {
        self.state.signal(Signal::QUIT);
        let file = self.path("successor");
        let mut number = None;
        eventually("a successor is started", async || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            // The PID is complete when the newline is there.
            number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
            number.is_some()
        })
        .await;
        number.unwrap()
    }

    /// Lets the waiting successor continue.
    fn go(&self) {
        std::fs::write(self.path("go"), "").unwrap();
    }
}

/// A client on an open connection.
async fn over(tls: Arc<rustls::ClientConfig>, stream: TcpStream) -> Http2 {
    let name = ServerName::try_from("localhost").unwrap();
    Http2::over(TlsConnector::from(tls).connect(name, stream).await.unwrap()).await
}

/// Writes a successor that waits for `go` and then runs the shell command `then`.
fn waiting(directory: &Path, then: &str) -> PathBuf {
    let (successor, go) = (directory.join("successor"), directory.join("go"));
    let text = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.01; done; {then}",
        successor.display(),
        go.display()
    );
    script(directory, "waits", &text)
}

/// The shell command that runs the gateway, for [`waiting`].
fn gateway_command() -> String {
    format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_fairlead-gateway"))
}

/// Requests, each on a connection of its own, until `end` is called; none may fail.
struct BackgroundRequests {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl BackgroundRequests {
    fn at(chain: &ProcessChain, address: SocketAddr) -> Self {
        let tls = chain.tls();
        let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let stream = TcpStream::connect(address).await.unwrap();
                assert_eq!(over(tls.clone(), stream).await.get(API).await.status, 200);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, count, task }
    }

    async fn some_more(&self) {
        let target = self.count.load(Ordering::Relaxed) + 20;
        let some_more = async || self.count.load(Ordering::Relaxed) >= target || self.task.is_finished();
        eventually("some more requests are answered", some_more).await;
    }

    async fn end(self) {
        self.some_more().await;
        self.stop.store(true, Ordering::Relaxed);
        timeout(PATIENCE, self.task).await.expect("a request is not answered").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_over_and_no_connection_is_refused() {
    let mut chain = ProcessChain::begin(|config, directory| {
        let socket = SocketConfig { path: directory.join("listener.sock").into(), ..SocketConfig::default() };
        config.listeners.push(ListenerConfig { socket: Some(socket), ..listener(config, "local") });
    })
    .await;
    let socket = chain.world.directory.path().join("listener.sock");
    let background = BackgroundRequests::at(&chain, chain.address);
    let old = chain.client().await;
    let question = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], "");
    let mut watch = old.open(question).await.unwrap();
    until(&chain.world.alpha.state.streams, |open| *open == 1).await;
    let first = chain.state.read().pid;
    let second = chain.upgrade().await;
    // The old process ends after its open requests.
    timeout(PATIENCE, watch.body_mut().collect()).await.expect("the watch does not end").unwrap();
    chain.gateway.ends_well().await;
    until_gone(first).await;
    UnixStream::connect(&socket).await.unwrap();
    // The successor can be upgraded as well.
    let third = chain.upgrade().await;
    until_gone(second).await;
    background.end().await;
    UnixStream::connect(&socket).await.unwrap();
    chain.state.signal(Signal::TERM);
    until_gone(third).await;
    assert!(!socket.exists() && !chain.state.0.exists());
    assert!(TcpStream::connect(chain.address).await.is_err());
}

fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_does_not_get_ready_changes_nothing() {
    let mut chain = ProcessChain::begin(|_, _| {}).await;
    let directory = chain.world.directory.path().to_owned();
    let program = env!("CARGO_BIN_EXE_fairlead-gateway");
    let plain = script(&directory, "plain", "");
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o600)).unwrap();
    let background = BackgroundRequests::at(&chain, chain.address);
    let first = chain.state.read().pid;
    let broken = format!("{}.broken", chain.file.display());
    std::fs::write(&broken, "listeners: 7\n").unwrap();
    for (what, program, expected) in [
        ("a program that is not there", directory.join("nowhere"), "cannot be started: No such file"),
        ("one that is not executable", plain, "cannot be started: Permission denied"),
        ("one that ends", script(&directory, "ends", "exit 3"), "ended before it was ready (exit status: 3)"),
        ("one that is killed", script(&directory, "dies", "kill -9 $$"), "signal: 9"),
        (
            "one that is killed while it starts",
            script(&directory, "dies-later", &format!("{program} \"$@\" & kill -9 $! $$")),
            "signal: 9",
        ),
        ("one that waits", script(&directory, "waits", "exec sleep 100"), "not ready within"),
        (
            "one that says it is ready and ends",
            // The listener is file descriptor 3, the connection to the predecessor is 4.
            script(&directory, "lies", "echo READY=1 >&4; exit 4"),
            "exit status: 4",
        ),
        (
            "one that does not speak",
            script(&directory, "mute", "exec 4>&-; exec sleep 100"),
            "closed the connection to its predecessor",
        ),
        (
            "one with settings that are none",
            script(&directory, "misled", &format!("exec {program} --config {broken}")),
            "exit status: 1",
        ),
    ] {
        let before = chain.state.read();
        let mut config = chain.config.clone();
        config.upgrade.program = Some(program.into());
        config.upgrade.ready_timeout =
            if what == "one that waits" { "200ms" } else { "30s" }.parse().unwrap();
        chain.write(&config);
        chain.state.signal(Signal::HUP);
        chain.state.until(|state| state.reloads_done > before.reloads_done).await;
        // A second signal has no effect.
        chain.state.signal(Signal::QUIT);
        chain.state.signal(Signal::QUIT);
        let state = chain.state.until(|state| state.upgrades_failed > before.upgrades_failed).await;
        let why = state.upgrade_failure.unwrap();
        assert!(why.contains(expected), "{what}: {why}");
        assert_eq!((state.pid, state.phase), (first, ProcessPhase::Ready), "{what}");
        assert!(chain.gateway.says("the upgrade failed").await.contains("this process continues"), "{what}");
        background.some_more().await;
    }
    chain.write(&chain.config);
    let reloads = chain.state.read().reloads_done;
    chain.state.signal(Signal::HUP);
    chain.state.until(|state| state.reloads_done > reloads).await;
    chain.upgrade().await;
    background.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predecessor_and_successor_may_differ_in_messages_and_listeners() {
    let (stays, goes, comes) = (free_address().await, free_address().await, free_address().await);
    let program = env!("CARGO_BIN_EXE_fairlead-gateway");
    let chain = ProcessChain::begin(|config, directory| {
        for (name, address) in [("stays", stays), ("goes", goes)] {
            let mut listener = listener(config, name);
            listener.serving.address = address;
            config.listeners.push(listener);
        }
        // Acts like another version: sends an unknown message, and has its own names for the sockets.
        let text = format!(
            "echo MOOD=good >&6; export LISTEN_FDNAMES=a:b:c:fairlead-handover; exec {program} \"$@\""
        );
        config.upgrade.program = Some(script(directory, "newer", &text).into());
    })
    .await;
    let mut config = chain.config.clone();
    config.listeners.remove(2);
    config.listeners[1].name = "stays under another name".to_owned();
    let mut new = listener(&config, "comes");
    new.serving.address = comes;
    config.listeners.push(new);
    // Only the successor reads the new configuration.
    chain.write(&config);
    let background = BackgroundRequests::at(&chain, stays);
    chain.upgrade().await;
    assert_eq!(chain.client_at(comes).await.get(API).await.status, 200);
    until_refused(goes).await;
    background.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_a_process_that_waits_for_its_successor() {
    let mut chain = ProcessChain::begin(|config, directory| {
        config.upgrade.program = Some(waiting(directory, "").into());
    })
    .await;
    let successor = chain.successor_that_waits().await;
    chain.state.signal(Signal::TERM);
    chain.gateway.ends_well().await;
    until_gone(successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_whose_predecessor_is_killed_serves() {
    let mut chain = ProcessChain::begin(|config, directory| {
        config.upgrade.program = Some(waiting(directory, &gateway_command()).into());
        let socket = SocketConfig { path: directory.join("listener.sock").into(), ..SocketConfig::default() };
        config.listeners.push(ListenerConfig { socket: Some(socket), ..listener(config, "local") });
    })
    .await;
    let first = chain.state.read().pid;
    let successor = chain.successor_that_waits().await;
    chain.state.signal(Signal::KILL);
    timeout(PATIENCE, chain.gateway.child.wait()).await.unwrap().unwrap();
    // Connections wait meanwhile; none is refused.
    let waiting = TcpStream::connect(chain.address).await.unwrap();
    chain.go();
    chain.state.until(|state| state.pid != first && state.phase == ProcessPhase::Ready).await;
    assert_eq!(chain.client().await.get(API).await.status, 200);
    drop(waiting);
    // The successor removes the file that its predecessor created, although the predecessor could not confirm the handover.
    chain.state.signal(Signal::TERM);
    until_gone(successor).await;
    assert!(!chain.path("listener.sock").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_ends_before_it_is_ready_costs_no_request() {
    let mut chain = ProcessChain::begin(|config, directory| {
        config.upgrade.program = Some(waiting(directory, &gateway_command()).into());
    })
    .await;
    chain.gateway.says("the index is synced").await;
    let successor = chain.successor_that_waits().await;
    let (before, mut config) = (chain.state.read(), chain.config.clone());
    // The successor cannot connect to any shard, so it does not become ready.
    let kubeconfig = chain.path("shards.kubeconfig");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let nowhere = chain.path("nowhere.kubeconfig");
    std::fs::write(&nowhere, text.replace(&chain.world.root.url(), "https://127.0.0.1:1")).unwrap();
    config.index.root_shard_kubeconfig = nowhere.clone().into();
    config.index.shards_kubeconfig = nowhere.into();
    chain.write(&config);
    chain.go();
    chain.gateway.says("listening").await;
    eventually("the successor handles SIGTERM", async || handles(successor, Signal::TERM)).await;
    // The old process is stopped while a client connects and the successor ends.
    chain.state.signal(Signal::STOP);
    let stream = TcpStream::connect(chain.address).await.unwrap();
    let tls = chain.tls();
    let asked = tokio::spawn(async move { over(tls, stream).await.get(API).await.status });
    kill_process(process(successor), Signal::TERM).unwrap();
    until_gone(successor).await;
    chain.state.signal(Signal::CONT);
    assert_eq!(timeout(PATIENCE, asked).await.unwrap().unwrap(), 200);
    let state = chain.state.until(|state| state.upgrades_failed > before.upgrades_failed).await;
    assert_eq!((state.pid, state.phase), (before.pid, ProcessPhase::Ready));
}

fn handles(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(caught, 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

/// Starts a successor that is ready while its stopped predecessor does not know it yet. Returns the successor's PID.
async fn ready_but_not_in_charge(chain: &mut ProcessChain) -> u32 {
    chain.gateway.says("the index is synced").await;
    let successor = chain.successor_that_waits().await;
    chain.state.signal(Signal::STOP);
    chain.go();
    chain.gateway.says("the index is synced").await;
    successor
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_has_not_taken_over_ignores_an_upgrade_signal() {
    let mut chain = ProcessChain::begin(|config, directory| {
        config.upgrade.program = Some(waiting(directory, &gateway_command()).into());
    })
    .await;
    let first = chain.state.read().pid;
    let successor = ready_but_not_in_charge(&mut chain).await;
    kill_process(process(successor), Signal::QUIT).unwrap();
    chain.gateway.says("SIGQUIT is ignored").await;
    chain.state.signal(Signal::CONT);
    assert_eq!(chain.taken_over_from(first).await, successor);
    until_gone(first).await;
    // After the takeover it can be upgraded.
    let third = chain.upgrade().await;
    until_gone(successor).await;
    assert_eq!(chain.client().await.get(API).await.status, 200);
    assert_eq!(chain.state.read().pid, third);
}

/// A service manager in place of systemd.
struct Manager(UnixDatagram);

impl Manager {
    /// Waits for the next message with a line that starts with `word`.
    async fn receives(&self, word: &str) -> String {
        let received = async {
            loop {
                let mut message = vec![0; 4096];
                let length = self.0.recv(&mut message).await.unwrap();
                let message = String::from_utf8_lossy(&message[..length]).into_owned();
                if message.lines().any(|line| line.starts_with(word)) {
                    return message;
                }
            }
        };
        timeout(PATIENCE, received).await.unwrap_or_else(|_| panic!("{word} was never sent"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_manager_is_notified_of_every_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let chain = ProcessChain::begin_as(
        |_, _| {},
        |command| {
            command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
        },
    )
    .await;
    manager.receives("READY=1").await;
    manager.receives("WATCHDOG=1").await;
    chain.state.signal(Signal::HUP);
    let message = manager.receives("RELOADING=1").await;
    assert!(message.contains("MONOTONIC_USEC="), "{message}");
    manager.receives("READY=1").await;
    std::fs::write(&chain.file, "listeners: 7\n").unwrap();
    chain.state.signal(Signal::HUP);
    let message = manager.receives("READY=1").await;
    assert!(message.contains("STATUS=serving; the last good one is in effect: configuration"), "{message}");
    chain.write(&chain.config);
    chain.state.signal(Signal::HUP);
    manager.receives("READY=1").await;

    let second = chain.upgrade().await;
    manager.receives(&format!("MAINPID={second}")).await;
    // The service does not end with the old process.
    manager.receives("READY=1").await;
    manager.receives("WATCHDOG=1").await;
    chain.state.signal(Signal::TERM);
    manager.receives("STOPPING=1").await;
    until_gone(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_a_service_manager_are_matched_by_address_and_name() {
    let world = World::new().await;
    let directory = world.directory.path().to_owned();
    let file = directory.join("gateway.yaml");
    let (named, path) =
        (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), directory.join("listener.sock"));
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, other) = (named.local_addr().unwrap(), foreign.local_addr().unwrap());
    let mut config = world.config.clone();
    config.drain.window = "100ms".parse().unwrap();
    config.listeners[0].serving.address = address;
    let socket = SocketConfig { path: path.clone().into(), ..SocketConfig::default() };
    config.listeners.push(ListenerConfig { socket: Some(socket), ..listener(&config, "local") });
    write_config(&file, &config);
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "LISTEN_PID=$$ exec \"$0\" --config \"$1\"", env!("CARGO_BIN_EXE_fairlead-gateway")])
        .arg(&file)
        .env("LISTEN_FDS", "3")
        .env("LISTEN_FDNAMES", "foreign:local:internal")
        .stdin(Stdio::null());
    let sockets: [OwnedFd; 3] = [foreign.into(), unix.into(), named.into()];
    let mappings = (3..).zip(sockets).map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.collect()).unwrap();
    let mut gateway = Gateway::of_command(Command::from(command));
    assert!(gateway.says("no listener uses this inherited socket").await.contains("foreign"));
    gateway.says("the index is synced").await;
    let user = world.user();
    let client = Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
    assert_eq!(client.get(API).await.status, 200);
    assert!(TcpStream::connect(other).await.is_err());
    UnixStream::connect(&path).await.unwrap();
    // The sockets belong to the service manager, and so does the file.
    gateway.signal(Signal::TERM);
    gateway.ends_well().await;
    assert!(path.exists());
}
