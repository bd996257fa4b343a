//! The process lifecycle under load: reloads that add and remove listeners, upgrades, drains. No request fails; every watch ends
//! between two events and is resumed.
//!
//! Clients connect through a load balancer, which sends new connections to the current gateway.
//! `LIFE_RELOADS`, `LIFE_UPGRADES`, `LIFE_DRAINS`, `LIFE_REQUESTS` (per second), `LIFE_WATCHES` and `LIFE_WINDOW` (seconds per
//! drain) set the extent (`make soak`: 100, 20, 10, 1000, 1000 and 5).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use fairlead_config::{GatewayConfig, ListenerConfig, ProcessPhase, ProcessState, Timespan};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::clients::{Clients, Credentials};
use crate::installation::{place, shards, until_served};
use crate::load::{Load, Pace};
use crate::number;
use crate::party::Party;
use crate::program::{self, StateFile, until_gone};
use crate::shard::Shard;
use crate::tally::Harm;
use crate::world::{World, write_config};

struct Fleet {
    world: World,
    _shards: [Shard; 2],
    parties: Vec<Arc<Party>>,
    load: Load,
    balancer: Balancer,
    serving: Process,
    count: usize,
}

/// A gateway process and its successors.
struct Process {
    config: GatewayConfig,
    file: PathBuf,
    state: StateFile,
    _program: program::Gateway,
    log: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
}

/// Sends new connections to its target.
struct Balancer {
    address: SocketAddr,
    target: watch::Sender<SocketAddr>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_upgrades_and_drains_fail_no_request() {
    let pace = Pace { second: number("LIFE_REQUESTS", 200), watches: number("LIFE_WATCHES", 50) as usize };
    let mut fleet = Fleet::begin(pace).await;
    let mut failures = Vec::new();
    for _ in 0..number("LIFE_RELOADS", 10) {
        fleet.reload().await;
    }
    failures.extend(fleet.tell("reloads").await);
    for _ in 0..number("LIFE_UPGRADES", 3) {
        fleet.upgrade().await;
    }
    failures.extend(fleet.tell("upgrades").await);
    for _ in 0..number("LIFE_DRAINS", 2) {
        fleet.drain().await;
    }
    failures.extend(fleet.tell("drains").await);
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

impl Fleet {
    async fn begin(pace: Pace) -> Self {
        let (mut world, beta, gamma) = shards().await;
        world.register("gamma", &gamma.url());
        world.config.drain.window = Timespan::from_secs(number("LIFE_WINDOW", 1));
        let serving = Process::start(&world, 0).await;
        let parties: Vec<_> = [&world.root, &world.alpha, &beta, &gamma]
            .into_iter()
            .map(|shard| Arc::new(Party::new(shard)))
            .collect();
        for party in &parties {
            place(&world, party, &party.id, &party.workspace());
        }
        let balancer = Balancer::to(serving.address).await;
        let credentials = Credentials::new(&[&world.serving_ca], &world.client_ca);
        let clients = Arc::new(Clients::new(balancer.address, credentials));
        for party in &parties {
            until_served(&clients, &party.workspace()).await;
        }
        let load = Load::start(clients, &parties, pace).await;
        load.goes_on_for(pace.second).await;
        Self { world, _shards: [beta, gamma], parties, load, balancer, serving, count: 0 }
    }

    /// The listener at which everybody is gives way to another one at its address; one more comes or goes; and what cannot be,
    /// is not.
    async fn reload(&mut self) {
        self.count += 1;
        let serving = &mut self.serving;
        serving.config.listeners[0].name = format!("listener-{}", self.count % 4);
        serving.config.limits.max_header_fields = 100 + self.count % 20;
        match serving.config.listeners.len() {
            1 => {
                let mut more =
                    ListenerConfig { name: "more".to_owned(), ..serving.config.listeners[0].clone() };
                more.serving.address.set_port(0);
                serving.config.listeners.push(more);
            }
            _ => drop(serving.config.listeners.pop()),
        }
        if self.count.is_multiple_of(3) {
            let mut broken = serving.config.clone();
            broken.listeners[0].serving.certificate = "/nowhere.crt".into();
            assert!(!serving.reload(&broken).await.is_empty());
        }
        let refused = serving.reload(&serving.config).await;
        assert!(refused.is_empty(), "{refused:?}");
        self.load.goes_on_for(self.load.pace.second / 4).await;
    }

    async fn upgrade(&self) {
        let before = self.serving.state.read().pid;
        self.serving.state.signal(Signal::QUIT);
        self.serving.state.until(|state| state.pid != before && state.phase == ProcessPhase::Ready).await;
        until_gone(before).await;
        self.load.goes_on_for(self.load.pace.second / 4).await;
    }

    /// Another gateway is there, the load balancer hears of it, and the first one ends.
    async fn drain(&mut self) {
        self.count += 1;
        let next = Process::start(&self.world, self.count).await;
        self.load.goes_on_for(self.load.pace.second / 4).await;
        self.balancer.target.send_replace(next.address);
        let before = std::mem::replace(&mut self.serving, next);
        let pid = before.state.read().pid;
        before.state.signal(Signal::TERM);
        until_gone(pid).await;
        assert!(before.panics().is_empty(), "{:?}", before.panics());
        self.load.goes_on_for(self.load.pace.second / 4).await;
    }

    /// Prints the figures of each shard and returns the failures, once no request is open.
    async fn tell(&self, what: &str) -> Vec<String> {
        let pause = self.load.pause().await;
        let mut failures = Vec::new();
        for party in &self.parties {
            let figures = party.tally.figures();
            println!("{what}: {}: {figures:?}", party.name);
            if let Some(complaint) = figures.complaint(Harm::Reopened) {
                failures.push(format!("{what}: {}: {complaint}", party.name));
            }
            party.tally.reset();
        }
        drop(pause);
        failures.extend(self.serving.panics());
        failures
    }
}

impl Process {
    async fn start(world: &World, number: usize) -> Self {
        let file = world.directory.path().join(format!("gateway-{number}.yaml"));
        let state = world.directory.path().join(format!("gateway-{number}.state"));
        let mut config = world.config.clone();
        config.state_file = Some(state.clone().into());
        write_config(&file, &config);
        let mut program = program::Gateway::start(&file);
        let address = program.address().await;
        program.says("the index is synced").await;
        // The successor uses the same address.
        config.listeners[0].serving.address = address;
        let log = program.collect_log();
        let process = Self { config, file, state: StateFile(state), _program: program, log, address };
        process.state.until(|state| state.phase == ProcessPhase::Ready).await;
        let config = process.config.clone();
        let refused = process.reload(&config).await;
        assert!(refused.is_empty(), "{refused:?}");
        process
    }

    /// Puts a configuration in force; returns what of it could not be.
    async fn reload(&self, config: &GatewayConfig) -> Vec<String> {
        let before = self.state.read().reloads_begun;
        write_config(&self.file, config);
        self.state.signal(Signal::HUP);
        let is_over =
            |state: &ProcessState| state.reloads_done > before && state.phase == ProcessPhase::Ready;
        self.state.until(is_over).await.not_reloaded
    }

    fn panics(&self) -> Vec<String> {
        self.log.lock().iter().filter(|line| line.contains("panicked")).cloned().collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log.lock().join("\n"));
        }
    }
}

impl Balancer {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, target) = (listener.local_addr().unwrap(), watch::Sender::new(target));
        let current = target.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let target = *current.borrow();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, target }
    }
}
