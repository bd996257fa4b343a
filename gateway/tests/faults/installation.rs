//! A root shard, three more, the gateway before them, and the load on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairlead_client::NameResolver;
use fairlead_config::{GatewayConfig, InputFile, SecretFile, Timespan};
use futures_util::FutureExt as _;
use http::Method;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::clients::{Clients, Connection, Credentials, Identity, Protocol, TOKENS};
use crate::load::{Load, Pace};
use crate::party::Party;
use crate::pki::{Authority, Leaf};
use crate::program;
use crate::relay::Relay;
use crate::shard::Shard;
use crate::world::{Choices, Http2, World, connect, logical_cluster, request};
use crate::{LIMIT, SECOND, WATCHES};

/// Time between two checks of a state without notification.
const LOOK: Duration = Duration::from_millis(20);

pub struct Installation {
    pub world: World,
    pub beta: Shard,
    /// The one that suffers. Whatever the gateway says to it goes through `relays`, one for each of its addresses.
    pub gamma: Shard,
    pub relays: Vec<Relay>,
    pub parties: Vec<Arc<Party>>,
    pub load: Load,
    gateway: Running,
    address: SocketAddr,
    probes: std::sync::atomic::AtomicUsize,
}

/// The gateway.
enum Running {
    /// A process of its own.
    Process { program: Box<program::Gateway>, log: Arc<Mutex<Vec<String>>> },
    /// In the test's process, so that a name can have several addresses.
    Within,
}

impl Installation {
    /// With its own settings, one address per shard, and the gateway as a process.
    pub async fn ours() -> Self {
        let (mut world, beta, gamma) = shards().await;
        let relay = Relay::to(gamma.address).await;
        world.register("gamma", &format!("https://{}", relay.address));
        let directory = world.directory.path().to_owned();
        let authentication = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": "https://localhost:1", "audiences": ["kcp"]},
                "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
            }],
        });
        std::fs::write(directory.join("authentication.yaml"), authentication.to_string()).unwrap();
        let listener = &mut world.config.listeners[0].authentication;
        listener.configuration = Some(InputFile::from(directory.join("authentication.yaml")));
        let file = directory.join("gateway.yaml");
        // JSON is YAML.
        std::fs::write(&file, serde_json::to_string(&world.config).unwrap()).unwrap();
        let mut program = program::Gateway::start(&file);
        let address = program.address().await;
        program.says("the index is synced").await;
        let log = program.collect_log();
        Self::begin(
            world,
            beta,
            gamma,
            vec![relay],
            Running::Process { program: Box::new(program), log },
            address,
        )
        .await
    }

    /// As in place of kcp's front proxy: a mapping file, an issuer by flags, the list of shards from a peer; and a shard
    /// with two addresses.
    pub async fn with_kcp_compatibility() -> Self {
        let (mut world, beta, gamma) = shards().await;
        let relays = vec![Relay::to(gamma.address).await, Relay::to(gamma.address).await];
        let addresses = [relays[0].address, relays[1].address];
        let several = "https://localhost:6443";
        world.register("gamma", several);
        let directory = world.directory.path().to_owned();
        let file = |name: &str| directory.join(name);
        let clusters = json!([{
            "path": "/clusters/", "backend": "https://ignored.invalid",
            "backend_server_ca": file("serving-ca.crt"),
            "proxy_client_cert": file("front-proxy.crt"), "proxy_client_key": file("front-proxy.key"),
        }]);
        std::fs::write(file("mapping.yaml"), clusters.to_string()).unwrap();
        std::fs::write(file("issuer-ca.crt"), &world.serving_ca.pem).unwrap();
        let issuer = json!({
            "issuerURL": "https://localhost:1", "clientID": "kcp", "caFile": file("issuer-ca.crt"),
        });
        let peer = world.kubeconfig_of(&world.alpha);
        for shard in [&world.root, &world.alpha, &beta] {
            put_shard(&world.alpha, shard, &shard.url());
        }
        put_shard(&world.alpha, &gamma, several);
        let config = &mut world.config;
        config.paths.mapping_file = Some(InputFile::from(file("mapping.yaml")));
        config.listeners[0].authentication.oidc = Some(serde_json::from_value(issuer).unwrap());
        config.index.shard_peer_kubeconfigs = vec![SecretFile::from(peer)];
        world.environment.names =
            NameResolver::from_fn(move |_, _| async move { Ok(addresses.into()) }.boxed());
        world.start().await;
        let address = world.address;
        Self::begin(world, beta, gamma, relays, Running::Within, address).await
    }

    async fn begin(
        world: World,
        beta: Shard,
        gamma: Shard,
        relays: Vec<Relay>,
        gateway: Running,
        address: SocketAddr,
    ) -> Self {
        let parties: Vec<_> = [&world.root, &world.alpha, &beta, &gamma]
            .into_iter()
            .map(|shard| Arc::new(Party::new(shard)))
            .collect();
        for party in &parties {
            place(&world, party, &party.id, &party.workspace());
        }
        let credentials = Credentials::new(&[&world.serving_ca], &world.client_ca);
        let clients = Arc::new(Clients::new(address, credentials));
        for party in &parties {
            until_served(&clients, &party.workspace()).await;
        }
        let spread = until_spread(&clients, &gamma, relays.len());
        timeout(LIMIT, spread).await.expect("gamma is not connected to at all its addresses");
        let load = Load::start(clients, &parties, Pace { second: SECOND, watches: WATCHES }).await;
        let probes = std::sync::atomic::AtomicUsize::new(0);
        Self { world, beta, gamma, relays, parties, load, gateway, address, probes }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.world.directory.path().join(name)
    }

    pub fn party(&self, name: &str) -> &Arc<Party> {
        self.parties.iter().find(|party| party.name == name).unwrap()
    }

    pub fn shards(&self) -> [&Shard; 4] {
        [&self.world.root, &self.world.alpha, &self.beta, &self.gamma]
    }

    pub fn has_mapping_file(&self) -> bool {
        self.world.config.paths.mapping_file.is_some()
    }

    /// The gateway's identity towards shards, as a reloadable object.
    pub fn upstream_credential(&self) -> &'static str {
        if self.has_mapping_file() { "mapping file" } else { "credential for shards" }
    }

    /// Cuts the connections by which the index follows shards, and waits until it has new ones.
    pub async fn cut_the_index(&self) {
        for shard in self.shards() {
            let before = *shard.state.followed.borrow();
            shard.state.cut_connections_of("shard-admin");
            // Logical clusters and workspaces.
            crate::world::until(&shard.state.followed, |count| *count >= before + 2).await;
        }
    }

    /// Has the gateway look at its files, and waits until one of its values was loaded from them.
    pub async fn reload(&self, what: &str) {
        let World { client_ca, serving_ca, .. } = &self.world;
        self.reloaded(client_ca, serving_ca, what, "success").await;
    }

    /// The same for one that cannot be loaded.
    pub async fn fail_to_reload(&self, what: &str) {
        let World { client_ca, serving_ca, .. } = &self.world;
        self.reloaded(client_ca, serving_ca, what, "failure").await;
    }

    /// The same while clients are of this authority.
    pub async fn reload_by(&self, users: &Authority, what: &str) {
        self.reloaded(users, &self.world.serving_ca, what, "success").await;
    }

    /// The same while the gateway's certificate is of this authority.
    pub async fn reload_as_seen_by(&self, believed: &Authority, what: &str) {
        self.reloaded(&self.world.client_ca, believed, what, "success").await;
    }

    async fn reloaded(&self, users: &Authority, believed: &Authority, what: &str, result: &str) {
        let operator =
            self.client(&users.client("kcp-admin", &["system:kcp:admin"]), believed).await.unwrap();
        let count = async || {
            let metrics = operator.get("/metrics").await.text;
            let start = format!("fairlead_reload_total{{object={what:?},result={result:?}}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).unwrap_or(0)
        };
        let before = count().await;
        match &self.gateway {
            Running::Process { program, .. } => program.signal(Signal::HUP),
            Running::Within => {
                let reloads = self.world.environment.reloads.clone();
                tokio::task::spawn_blocking(move || reloads.check_now()).await.unwrap();
            }
        }
        let counted = async {
            while count().await == before {
                tokio::time::sleep(LOOK).await;
            }
        };
        timeout(LIMIT, counted).await.unwrap_or_else(|_| panic!("{what}: no reload is a {result}"));
    }

    /// The body of `/readyz?verbose`; the gateway must be ready.
    pub async fn readiness(&self) -> String {
        let world = &self.world;
        let client = self.client(&world.user(), &world.serving_ca).await.unwrap();
        let answer = client.get("/readyz?verbose").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    }

    /// A connection of its own; an error if the gateway's certificate is not of that authority.
    pub async fn client(&self, user: &Leaf, believed: &Authority) -> std::io::Result<Http2> {
        Ok(Http2::over(connect(self.address, believed, Some(user), b"h2").await?).await)
    }

    /// The request as the shard received it, with the identity of its sender.
    pub async fn echo(&self, party: &Party) -> Value {
        let path = format!("/clusters/{}/api", party.workspace());
        self.client(&self.world.user(), &self.world.serving_ca).await.unwrap().get(&path).await.json()
    }

    /// Waits until every shard serves and the index follows each of them.
    pub async fn recovers(&self) {
        for party in &self.parties {
            until_served(&self.load.clients, &party.workspace()).await;
            let number = self.probes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let workspace = format!("root:probe-{number}");
            place(&self.world, party, &format!("probe{number:0>11}"), &workspace);
            until_served(&self.load.clients, &workspace).await;
        }
    }

    /// The gateway runs, and no thread has panicked.
    pub fn assert_alive(&mut self) {
        if let Running::Process { program, log } = &mut self.gateway {
            assert!(program.child.try_wait().unwrap().is_none(), "the gateway has ended");
            let log = log.lock();
            let panics: Vec<_> = log.iter().filter(|line| line.contains("panicked")).collect();
            assert!(panics.is_empty(), "{panics:?}");
        }
    }
}

/// Files as both installations have them, and all shards but the way to gamma.
pub async fn shards() -> (World, Shard, Shard) {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let (beta, gamma) = (world.unregistered_shard("beta").await, world.unregistered_shard("gamma").await);
    world.register("beta", &beta.url());
    let directory = world.directory.path().to_owned();
    write_listener_files(&world, &directory);
    settle_config(&mut world.config, &directory);
    (world, beta, gamma)
}

fn write_listener_files(world: &World, directory: &Path) {
    let shards = std::fs::read_to_string(directory.join("shards.kubeconfig")).unwrap();
    std::fs::write(directory.join("root-shard.kubeconfig"), &shards).unwrap();
    let webhook = shards.replace(&world.root.url(), "https://localhost:1");
    std::fs::write(directory.join("webhook.kubeconfig"), webhook).unwrap();
    std::fs::write(directory.join("proxies-ca.crt"), &world.front_proxy_ca.pem).unwrap();
    std::fs::write(directory.join("tokens.csv"), TOKENS).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(directory.join("accounts.pub"), key.public_key_pem()).unwrap();
}

fn settle_config(config: &mut GatewayConfig, directory: &Path) {
    let file = |name: &str| directory.join(name);
    config.index.root_shard_kubeconfig = SecretFile::from(file("root-shard.kubeconfig"));
    // A shard that hangs is noticed after one interval and five seconds.
    config.upstream.ping_interval = Timespan::from_millis(200);
    config.upstream.connect_timeout = Timespan::from_secs(1);
    let listener = &mut config.listeners[0].authentication;
    listener.request_header.client_ca = Some(InputFile::from(file("proxies-ca.crt")));
    listener.request_header.allowed_names = vec!["another-front-proxy".to_owned()];
    listener.token_file = Some(SecretFile::from(file("tokens.csv")));
    listener.service_accounts.key_files = vec![InputFile::from(file("accounts.pub"))];
    let webhook = json!({"kubeconfig": file("webhook.kubeconfig"), "version": "v1"});
    listener.webhook = Some(serde_json::from_value(webhook).unwrap());
}

fn put_shard(at: &Shard, shard: &Shard, url: &str) {
    let name = &shard.state.name;
    let object = json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": {"baseURL": url}});
    at.state.put("shards", name, object);
}

/// A workspace of root, on this shard.
pub fn place(world: &World, party: &Party, id: &str, workspace: &str) {
    let name = workspace.strip_prefix("root:").unwrap();
    party.state.put("logicalclusters", id, logical_cluster(id, Some(name)));
    world.put_workspace("root", name, json!({"cluster": id}), "Ready");
}

/// Waits until every lane of the gateway has a connection to every address of the shard: watches are spread over whatever is
/// open when they begin.
async fn until_spread(clients: &Clients, shard: &Shard, addresses: usize) {
    let lanes = std::thread::available_parallelism().unwrap().get();
    let mut held = Vec::new();
    while shard.state.open_connections_of("kcp-front-proxy") < lanes * addresses {
        // Each on the lane with the fewest connections.
        let question = request(Method::GET, "/clusters/root:at-gamma/api", &[], "");
        held.push(clients.send(Identity::Bob, Protocol::Http2, Connection::Own, question).await);
        tokio::time::sleep(LOOK).await;
    }
}

pub async fn until_served(clients: &Clients, workspace: &str) {
    let path = format!("/clusters/{workspace}/api");
    let mut last = String::new();
    let served = async {
        loop {
            let question = request(Method::GET, &path, &[], "");
            match clients.send(Identity::Bob, Protocol::Http2, Connection::Reused, question).await {
                Ok((answer, _)) if answer.status() == 200 => return,
                other => last = format!("{:?}", other.map(|(answer, _)| answer.status())),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if timeout(LIMIT, served).await.is_err() {
        panic!("{workspace} is not served: {last}");
    }
}
