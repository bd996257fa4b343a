//! The target of the attacks: a gateway as a process of its own, and shards that record the requests that they get.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::frames::RawHttp2;
use crate::generate::framing::NEVER;
use crate::pki::Leaf;
use crate::program::Gateway;
use crate::shard::Shard;
use crate::wire::RawHttp1;
use crate::world::{Choices, Http2, World, connect};

/// Only to fail instead of hanging.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Permitted growth: buffers that are kept for reuse, and the allocator's memory.
const MAX_GROWTH_KIB: u64 = 32 << 10;

/// A gateway as a process, with shards that record their requests.
pub struct Target {
    pub world: World,
    pub old: Shard,
    pub gateway: Gateway,
    pub address: std::net::SocketAddr,
    pub log: Arc<Mutex<Vec<String>>>,
}

/// The requests that shards have received.
pub struct Arrived {
    pub identities: BTreeMap<Vec<String>, String>,
    pub requests: usize,
}

/// Memory and descriptors of an idle gateway.
#[derive(Debug)]
pub struct AtRest {
    pub memory_kib: u64,
    pub descriptors: usize,
}

impl Target {
    pub async fn start() -> Self {
        Self::with(|config| config.index.miss_wait = "1ms".parse().unwrap()).await
    }

    pub async fn with(choice: fn(&mut fairlead_config::GatewayConfig)) -> Self {
        let world = World::with(Choices { config: Some(choice), ..Choices::default() }).await;
        let old = world.old_workspace().await;
        let file = world.directory.path().join("gateway.yaml");
        std::fs::write(&file, serde_json::to_string(&world.config).unwrap()).unwrap();
        let mut gateway = Gateway::start(&file);
        let address = gateway.address().await;
        gateway.says("the index is synced").await;
        let log = gateway.collect_log();
        let target = Self { world, old, gateway, address, log };
        target.forget();
        target
    }

    pub fn shards(&self) -> [&Shard; 3] {
        [&self.world.root, &self.world.alpha, &self.old]
    }

    /// Takes the requests since the last call.
    pub fn forget(&self) -> Arrived {
        let mut arrived = Arrived { identities: BTreeMap::new(), requests: 0 };
        for shard in self.shards() {
            arrived.identities.append(&mut shard.state.identities.lock());
            arrived.requests += shard.state.requests.swap(0, std::sync::atomic::Ordering::SeqCst);
        }
        for request in arrived.identities.values() {
            assert!(!request.contains(NEVER), "what should have been refused has arrived: {request}");
        }
        arrived
    }

    /// The gateway has not crashed, grown or leaked since.
    pub async fn assert_unharmed(&mut self, before: &AtRest) {
        let after = self.at_rest().await;
        println!("{before:?}, then {after:?}");
        let grown = after.memory_kib.saturating_sub(before.memory_kib);
        assert!(grown < MAX_GROWTH_KIB, "memory has grown: {before:?}, then {after:?}");
        assert!(after.descriptors <= before.descriptors + 16, "descriptors leak: {before:?}, then {after:?}");
        assert!(self.gateway.child.try_wait().unwrap().is_none(), "the gateway has ended");
        let panics: Vec<_> =
            self.log.lock().iter().filter(|line| line.contains("panicked")).cloned().collect();
        assert!(panics.is_empty(), "{panics:?}");
    }

    /// An honest client, on a connection of its own.
    pub async fn honest(&self) -> Http2 {
        let alice = self.world.user();
        Http2::over(connect(self.address, &self.world.serving_ca, Some(&alice), b"h2").await.unwrap()).await
    }

    /// An attacker's connection, with a user's certificate if there is one.
    pub async fn http1(&self, certificate: Option<&Leaf>) -> RawHttp1 {
        let stream = connect(self.address, &self.world.serving_ca, certificate, b"http/1.1").await;
        RawHttp1::over(stream.unwrap())
    }

    /// The same over HTTP/2.
    pub async fn http2(&self, certificate: Option<&Leaf>) -> RawHttp2 {
        let stream = connect(self.address, &self.world.serving_ca, certificate, b"h2").await;
        RawHttp2::over(stream.unwrap()).await
    }

    /// Resident memory of the process.
    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.pid())).unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        resident.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Waits until all connections and requests but our own question are over.
    pub async fn at_rest(&self) -> AtRest {
        let operator = self.world.operator();
        let mut open = Vec::new();
        let question = async {
            loop {
                let stream =
                    connect(self.address, &self.world.serving_ca, Some(&operator), b"h2").await.unwrap();
                let metrics = Http2::over(stream).await.get("/metrics").await.text;
                let sum = |name: &str| -> f64 {
                    let lines = metrics.lines().filter(|line| line.starts_with(name));
                    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
                };
                open = metrics.lines().filter(|line| line.contains("_open{")).map(str::to_owned).collect();
                if sum("fairlead_connections_open") <= 1.0 && sum("fairlead_gateway_requests_open") <= 1.0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let given_back = timeout(LIMIT, question).await;
        assert!(given_back.is_ok(), "connections or requests are never given back: {open:#?}");
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.gateway.pid())).unwrap();
        AtRest { memory_kib: self.memory_kib(), descriptors: descriptors.count() }
    }
}
