//! A process hands its sockets to its successor, and a service manager hears of it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use fairlead_config::{DoorConfig, GatewayConfig, ProcessPhase, ProcessState, SocketConfig};
use http::Method;
use http_body_util::BodyExt;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::net::{TcpListener, TcpStream, UnixDatagram, UnixStream};
use tokio::process::Command;
use tokio::time::timeout;

use crate::program::Gateway;
use crate::world::{Http2, World, connect, request, until};

const API: &str = "/clusters/root:org/api";
/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(5);

/// A gateway as a process, and whoever comes after it.
struct Line {
    world: World,
    config: GatewayConfig,
    file: PathBuf,
    state: PathBuf,
    gateway: Gateway,
    address: SocketAddr,
}

impl Line {
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
        write(&file, &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead-gateway"));
        command.arg("--config").arg(&file);
        prepare(&mut command);
        let mut gateway = Gateway::by(command);
        let address = gateway.address().await;
        let line = Self { world, config, file, state, gateway, address };
        line.until(|state| state.phase == ProcessPhase::Ready).await;
        line
    }

    fn write(&self, config: &GatewayConfig) {
        write(&self.file, config);
    }

    fn state(&self) -> ProcessState {
        ProcessState::read(&self.state).unwrap_or_default()
    }

    async fn until(&self, condition: impl Fn(&ProcessState) -> bool) -> ProcessState {
        let reached = async {
            while !condition(&self.state()) {
                tokio::time::sleep(MOMENT).await;
            }
        };
        timeout(LIMIT, reached).await.unwrap_or_else(|_| panic!("{:?}", self.state()));
        self.state()
    }

    async fn client(&self) -> Http2 {
        self.client_at(self.address).await
    }

    async fn client_at(&self, address: SocketAddr) -> Http2 {
        let user = self.world.user();
        Http2::over(connect(address, &self.world.serving_ca, Some(&user), b"h2").await.unwrap()).await
    }

    /// Has a successor take over; returns its number.
    async fn upgrade(&self) -> u32 {
        let before = self.state().pid;
        self.gateway_signal(Signal::QUIT);
        let state = self.until(|state| state.pid != before && state.phase == ProcessPhase::Ready).await;
        assert_eq!(state.predecessor, Some(before));
        state.pid
    }

    /// To whoever is in charge.
    fn gateway_signal(&self, signal: Signal) {
        let pid = i32::try_from(self.state().pid).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let pid = i32::try_from(self.state().pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn write(file: &Path, config: &GatewayConfig) {
    // JSON is YAML.
    std::fs::write(file, serde_json::to_string(config).unwrap()).unwrap();
}

fn door(config: &GatewayConfig, name: &str) -> DoorConfig {
    DoorConfig { name: name.to_owned(), ..config.listeners[0].clone() }
}

fn is_alive(pid: u32) -> bool {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // One that nobody has waited for yet has ended, too.
    test_kill_process(pid).is_ok()
        && std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .is_ok_and(|stat| !stat.contains(") Z "))
}

/// Requests, each on a connection of its own, until dropped; none may fail.
struct Knocking {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Knocking {
    fn at(line: &Line, address: SocketAddr) -> Self {
        let tls = crate::pki::client_config(&line.world.serving_ca, Some(&line.world.user()), b"h2");
        let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let stream = TcpStream::connect(address).await.unwrap();
                let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
                let stream =
                    tokio_rustls::TlsConnector::from(tls.clone()).connect(name, stream).await.unwrap();
                assert_eq!(Http2::over(stream).await.get(API).await.status, 200);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, count, task }
    }

    async fn some_more(&self) {
        let target = self.count.load(Ordering::Relaxed) + 20;
        while self.count.load(Ordering::Relaxed) < target && !self.task.is_finished() {
            tokio::time::sleep(MOMENT).await;
        }
    }

    async fn end(self) {
        self.some_more().await;
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_over_and_nobody_is_refused() {
    let mut line = Line::begin(|config, directory| {
        let socket = SocketConfig { path: directory.join("door.sock").into(), ..SocketConfig::default() };
        config.listeners.push(DoorConfig { socket: Some(socket), ..door(config, "local") });
    })
    .await;
    let socket = line.world.directory.path().join("door.sock");
    let knocking = Knocking::at(&line, line.address);
    let old = line.client().await;
    let question = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], "");
    let mut watch = old.open(question).await.unwrap();
    until(&line.world.alpha.state.streams, |open| *open == 1).await;
    let first = line.state().pid;
    let second = line.upgrade().await;
    // What was open comes to its end, and the old process with it.
    while let Some(frame) = watch.body_mut().frame().await {
        frame.unwrap();
    }
    assert!(line.gateway.child.wait().await.unwrap().success());
    assert!(!is_alive(first) && is_alive(second));
    UnixStream::connect(&socket).await.unwrap();
    // Its successor can do the same.
    let third = line.upgrade().await;
    while is_alive(second) {
        tokio::time::sleep(MOMENT).await;
    }
    knocking.end().await;
    UnixStream::connect(&socket).await.unwrap();
    line.gateway_signal(Signal::TERM);
    while is_alive(third) {
        tokio::time::sleep(MOMENT).await;
    }
    assert!(!socket.exists() && !line.state.exists());
    assert!(TcpStream::connect(line.address).await.is_err());
}

fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_does_not_get_ready_changes_nothing() {
    let mut line = Line::begin(|_, _| {}).await;
    let directory = line.world.directory.path().to_owned();
    let program = env!("CARGO_BIN_EXE_fairlead-gateway");
    let plain = script(&directory, "plain", "");
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o600)).unwrap();
    let knocking = Knocking::at(&line, line.address);
    let first = line.state().pid;
    let broken = format!("{}.broken", line.file.display());
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
            // The one door is 3, the line 4.
            script(&directory, "lies", "echo READY=1 >&4; exit 4"),
            "exit status: 4",
        ),
        (
            "one that does not speak",
            script(&directory, "mute", "exec 4>&-; exec sleep 100"),
            "does not speak to its predecessor",
        ),
        (
            "one with settings that are none",
            script(&directory, "misled", &format!("exec {program} --config {broken}")),
            "exit status: 1",
        ),
    ] {
        let before = line.state();
        let mut config = line.config.clone();
        config.upgrade.program = Some(program.into());
        config.upgrade.limit = if what == "one that waits" { "200ms" } else { "30s" }.parse().unwrap();
        line.write(&config);
        line.gateway_signal(Signal::HUP);
        line.until(|state| state.reloads_done > before.reloads_done).await;
        // Whoever is impatient gets no second one.
        line.gateway_signal(Signal::QUIT);
        line.gateway_signal(Signal::QUIT);
        let state = line.until(|state| state.upgrades_failed > before.upgrades_failed).await;
        let why = state.upgrade_failure.unwrap();
        assert!(why.contains(expected), "{what}: {why}");
        assert_eq!((state.pid, state.phase), (first, ProcessPhase::Ready), "{what}");
        assert!(line.gateway.says("there is no upgrade").await.contains("this process goes on"), "{what}");
        knocking.some_more().await;
    }
    line.write(&line.config);
    let reloads = line.state().reloads_done;
    line.gateway_signal(Signal::HUP);
    line.until(|state| state.reloads_done > reloads).await;
    line.upgrade().await;
    knocking.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_may_differ_in_words_and_doors() {
    let (stays, goes, comes) = (free_address().await, free_address().await, free_address().await);
    let program = env!("CARGO_BIN_EXE_fairlead-gateway");
    let line = Line::begin(|config, directory| {
        for (name, address) in [("stays", stays), ("goes", goes)] {
            let mut door = door(config, name);
            door.serving.address = address;
            config.listeners.push(door);
        }
        // Of another version: says what nobody knows, and calls its sockets as it likes.
        let text = format!(
            "echo MOOD=good >&6; export LISTEN_FDNAMES=a:b:c:fairlead-handover; exec {program} \"$@\""
        );
        config.upgrade.program = Some(script(directory, "newer", &text).into());
    })
    .await;
    let mut config = line.config.clone();
    config.listeners.remove(2);
    config.listeners[1].name = "stays under another name".to_owned();
    let mut new = door(&config, "comes");
    new.serving.address = comes;
    config.listeners.push(new);
    // Read by the successor only.
    line.write(&config);
    let knocking = Knocking::at(&line, stays);
    line.upgrade().await;
    assert_eq!(line.client_at(comes).await.get(API).await.status, 200);
    while TcpStream::connect(goes).await.is_ok() {
        tokio::time::sleep(MOMENT).await;
    }
    knocking.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_to_end_waits_for_no_successor() {
    let mut line = Line::begin(|config, directory| {
        let text = format!("echo $$ > {}; exec sleep 100", directory.join("successor").display());
        config.upgrade.program = Some(script(directory, "waits", &text).into());
    })
    .await;
    line.gateway_signal(Signal::QUIT);
    let file = line.world.directory.path().join("successor");
    let successor = loop {
        match std::fs::read_to_string(&file).unwrap_or_default().trim().parse::<u32>() {
            Ok(successor) => break successor,
            Err(_) => tokio::time::sleep(MOMENT).await,
        }
    };
    line.gateway_signal(Signal::TERM);
    assert!(timeout(LIMIT, line.gateway.child.wait()).await.unwrap().unwrap().success());
    while is_alive(successor) {
        tokio::time::sleep(MOMENT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_whose_predecessor_is_killed_serves() {
    let program = env!("CARGO_BIN_EXE_fairlead-gateway");
    let mut line = Line::begin(|config, directory| {
        let go = directory.join("go");
        let text = format!(
            "echo $$ > {}; while [ ! -e {} ]; do sleep 0.01; done; exec {program} \"$@\"",
            directory.join("successor").display(),
            go.display()
        );
        config.upgrade.program = Some(script(directory, "slow", &text).into());
    })
    .await;
    let directory = line.world.directory.path().to_owned();
    line.gateway_signal(Signal::QUIT);
    while !directory.join("successor").exists() {
        tokio::time::sleep(MOMENT).await;
    }
    line.gateway_signal(Signal::KILL);
    line.gateway.child.wait().await.unwrap();
    // Nobody is refused meanwhile, only kept waiting.
    let waiting = TcpStream::connect(line.address).await.unwrap();
    let first = line.state().pid;
    std::fs::write(directory.join("go"), "").unwrap();
    line.until(|state| state.pid != first && state.phase == ProcessPhase::Ready).await;
    assert_eq!(line.client().await.get(API).await.status, 200);
    drop(waiting);
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// In systemd's place.
struct Manager(UnixDatagram);

impl Manager {
    /// The next message that says this.
    async fn hears(&self, word: &str) -> String {
        let heard = async {
            loop {
                let mut message = vec![0; 4096];
                let length = self.0.recv(&mut message).await.unwrap();
                let message = String::from_utf8_lossy(&message[..length]).into_owned();
                if message.lines().any(|line| line.starts_with(word)) {
                    return message;
                }
            }
        };
        timeout(LIMIT, heard).await.unwrap_or_else(|_| panic!("{word} was never said"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_manager_hears_of_the_whole_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let line = Line::begin_as(
        |_, _| {},
        |command| {
            command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
        },
    )
    .await;
    manager.hears("READY=1").await;
    manager.hears("WATCHDOG=1").await;
    line.gateway_signal(Signal::HUP);
    let message = manager.hears("RELOADING=1").await;
    assert!(message.contains("MONOTONIC_USEC="), "{message}");
    manager.hears("READY=1").await;
    std::fs::write(&line.file, "listeners: 7\n").unwrap();
    line.gateway_signal(Signal::HUP);
    let message = manager.hears("READY=1").await;
    assert!(message.contains("STATUS=serving; the last good one is in effect: configuration"), "{message}");
    line.write(&line.config);
    line.gateway_signal(Signal::HUP);
    manager.hears("READY=1").await;

    let second = line.upgrade().await;
    manager.hears(&format!("MAINPID={second}")).await;
    // The end of the old process is not that of the service.
    manager.hears("READY=1").await;
    manager.hears("WATCHDOG=1").await;
    line.gateway_signal(Signal::TERM);
    manager.hears("STOPPING=1").await;
    while is_alive(second) {
        tokio::time::sleep(MOMENT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_a_service_manager_are_taken_by_address_and_name() {
    let world = World::new().await;
    let directory = world.directory.path().to_owned();
    let file = directory.join("gateway.yaml");
    let (named, path) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), directory.join("door.sock"));
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, other) = (named.local_addr().unwrap(), foreign.local_addr().unwrap());
    let mut config = world.config.clone();
    config.drain.window = "100ms".parse().unwrap();
    config.listeners[0].serving.address = address;
    let socket = SocketConfig { path: path.clone().into(), ..SocketConfig::default() };
    config.listeners.push(DoorConfig { socket: Some(socket), ..door(&config, "local") });
    write(&file, &config);
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
    let mut gateway = Gateway::by(Command::from(command));
    assert!(gateway.says("no door listens where").await.contains("foreign"));
    gateway.says("the index is synced").await;
    let user = world.user();
    let client = Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
    assert_eq!(client.get(API).await.status, 200);
    assert!(TcpStream::connect(other).await.is_err());
    UnixStream::connect(&path).await.unwrap();
    // They are the service manager's, and so is the file.
    gateway.signal(Signal::TERM);
    assert!(gateway.child.wait().await.unwrap().success());
    assert!(path.exists());
}
