//! A gateway, a cache server and shards, as processes of the test itself: nothing restarts one that was killed but the test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use fairlead_certs::{CertificateFiles, Client as Role, Kubeconfig, Server};
use fairlead_client::{Client, Credentials};
use serde_json::{Value, json};

use super::{Balancer, EtcdSettings, HarnessError, Pki, Process, Program, ShardSettings, free_port};

/// The name of the gateway among the processes.
const GATEWAY: &str = "gateway";
/// The name of the cache server, or the first of several, among the processes.
const CACHE: &str = "cache";
/// The name of the address of the cache server, which is that of a load balancer before several.
const CACHE_ADDRESS: &str = "cache-address";

/// The shard of an installation with replicas, and its first replica.
const ROOT: &str = "root";

/// A running installation, whose processes are killed when it is dropped.
pub struct Installation {
    pki: Pki,
    ports: BTreeMap<String, u16>,
    processes: BTreeMap<String, Process>,
    _balancer: Option<Balancer>,
}

/// Several cache servers, on an etcd.
#[derive(Debug, Clone)]
pub struct CacheServers {
    /// Their number. Shards reach them through a [`Balancer`].
    pub count: usize,
    /// The etcd that has their objects.
    pub etcd: EtcdSettings,
}

impl Installation {
    /// Starts an installation with empty stores in a directory; returns when all servers are ready. The first shard is
    /// `root`.
    pub async fn start(
        directory: &Path,
        shards: &[&'static str],
        settings: &ShardSettings,
    ) -> Result<Self, HarnessError> {
        let names: Vec<_> =
            [CACHE].into_iter().chain(shards.iter().copied()).chain([GATEWAY]).map(str::to_owned).collect();
        let pki = Pki::new(&directory.join("pki"), shards)?;
        Self::start_all(directory, pki, (&names, &[]), settings, None).await
    }

    /// As [`Installation::start`], with several cache servers, which are the processes [`cache_server`]`(0)` and so on.
    pub async fn start_cache_servers(
        directory: &Path,
        shards: &[&'static str],
        settings: &ShardSettings,
        caches: &CacheServers,
    ) -> Result<Self, HarnessError> {
        let servers = (0..caches.count).map(cache_server);
        let names: Vec<_> =
            servers.chain(shards.iter().copied().chain([GATEWAY]).map(str::to_owned)).collect();
        let pki = Pki::new(&directory.join("pki"), shards)?;
        Self::start_all(directory, pki, (&names, &[]), settings, Some(caches)).await
    }

    /// Starts an installation of one shard, `root`, with several replicas on the etcd of the settings. The replicas are the
    /// processes [`replica`]`(0)` and so on. Returns when all servers are ready.
    pub async fn start_replicas(
        directory: &Path,
        replicas: usize,
        settings: &ShardSettings,
    ) -> Result<Self, HarnessError> {
        let names = [CACHE, ROOT, GATEWAY].map(str::to_owned);
        let others: Vec<_> = (1..replicas).map(replica).collect();
        let pki = Pki::new(&directory.join("pki"), &[ROOT])?;
        Self::start_all(directory, pki, (&names, &others), settings, None).await
    }

    /// Starts some servers, and when they are ready `later` ones.
    async fn start_all(
        directory: &Path,
        pki: Pki,
        (names, later): (&[String], &[String]),
        settings: &ShardSettings,
        caches: Option<&CacheServers>,
    ) -> Result<Self, HarnessError> {
        let mut ports = BTreeMap::new();
        for name in names.iter().chain(later) {
            ports.insert(name.clone(), free_port()?);
        }
        let balanced = names.iter().filter(|name| is_cache_server(name)).filter_map(|name| ports.get(name));
        let balancer = match caches {
            Some(_) => Some(Balancer::start(balanced.copied().collect()).await?),
            None => None,
        };
        let cache = balancer.as_ref().map(Balancer::port).or_else(|| ports.get(CACHE).copied());
        ports.insert(CACHE_ADDRESS.to_owned(), cache.unwrap_or_default());
        let mut installation = Self { pki, ports, processes: BTreeMap::new(), _balancer: balancer };
        for names in [names, later] {
            let Self { pki, ports, .. } = &installation;
            let files = Files { pki, ports, directory, settings, replicas: later, caches };
            files.write_kubeconfigs()?;
            let mut started = Vec::new();
            for name in names {
                started.push((name.clone(), files.program(name)?.start()?));
            }
            installation.processes.extend(started);
            installation.until_ready().await?;
        }
        Ok(installation)
    }

    /// Waits until all servers are ready.
    pub async fn until_ready(&mut self) -> Result<(), HarnessError> {
        for (name, process) in &mut self.processes {
            let port = self.ports.get(name).copied().unwrap_or_default();
            let client = self.pki.client(port, self.pki.credentials(&role_at(name))?)?;
            process.until_ready(&client).await?;
        }
        Ok(())
    }

    /// Sends SIGKILL to a server, which stays away.
    pub async fn kill(&mut self, name: &str) -> Result<(), HarnessError> {
        self.process(name)?.kill().await
    }

    /// Sends SIGTERM to a server and waits for its end.
    pub async fn terminate(&mut self, name: &str) -> Result<(), HarnessError> {
        self.process(name)?.terminate().await.map(drop)
    }

    /// Starts a server that was killed; it is not ready yet.
    pub async fn restart(&mut self, name: &str) -> Result<(), HarnessError> {
        self.process(name)?.restart().await
    }

    /// Starts a server whose files have a limit, as [`Program::with_file_limit`]; it is not ready yet. Ends it before, if it runs. The
    /// next restart has no limit.
    pub async fn restart_with_file_limit(&mut self, name: &str, blocks: &str) -> Result<(), HarnessError> {
        let process = self.process(name)?;
        let unlimited = process.program().clone();
        process.set_program(unlimited.clone().with_file_limit(blocks));
        process.restart().await?;
        process.set_program(unlimited);
        Ok(())
    }

    /// Limits the files of a running server, which was started with a limit, to a size in bytes.
    pub fn limit_files(&mut self, name: &str, bytes: u64) -> Result<(), HarnessError> {
        self.process(name)?.limit_files(Some(bytes))
    }

    /// Waits until a server ends by itself.
    pub async fn until_end(&mut self, name: &str) -> Result<ExitStatus, HarnessError> {
        self.process(name)?.until_end().await
    }

    /// The next [`restart`](Self::restart) of a server runs the program of the build in a folder.
    pub fn set_build(&mut self, name: &str, folder: &Path) -> Result<(), HarnessError> {
        let process = self.process(name)?;
        process.set_program(process.program().clone().of_build(folder));
        Ok(())
    }

    /// The process ID of a server.
    pub fn id(&self, name: &str) -> u32 {
        self.processes.get(name).map_or(0, Process::id)
    }

    /// The log of a server.
    pub fn log(&self, name: &str) -> String {
        self.processes.get(name).map(Process::log).unwrap_or_default()
    }

    /// The URL of a server.
    pub fn url(&self, name: &str) -> String {
        url(&self.ports, name)
    }

    /// A client of the gateway with kcp-admin's certificate, at a path such as `/clusters/root`.
    pub fn admin(&self, prefix: &str) -> Result<Client, HarnessError> {
        self.client(GATEWAY, &Role::Admin, prefix)
    }

    /// A client of a shard that may do everything, at a path such as `/clusters/*`.
    pub fn direct(&self, shard: &str, prefix: &str) -> Result<Client, HarnessError> {
        self.client(shard, &Role::ShardAdmin, prefix)
    }

    /// A client of the cache server, at a path such as `/services/cache/shards/*/clusters/*`.
    pub fn cached(&self, prefix: &str) -> Result<Client, HarnessError> {
        self.cached_at(CACHE, prefix)
    }

    /// A client of one of several cache servers.
    pub fn cached_at(&self, server: &str, prefix: &str) -> Result<Client, HarnessError> {
        self.client(server, &Role::Cache, prefix)
    }

    /// The credentials of an administrator of all logical clusters, for shards, or of kcp-admin, for the gateway.
    pub fn credentials(&self, name: &str) -> Result<Credentials, HarnessError> {
        self.pki.credentials(&role_at(name))
    }

    fn client(&self, name: &str, role: &Role, prefix: &str) -> Result<Client, HarnessError> {
        let port = self.ports.get(name).copied().unwrap_or_default();
        Ok(self.pki.client(port, self.pki.credentials(role)?)?.with_prefix(prefix))
    }

    fn process(&mut self, name: &str) -> Result<&mut Process, HarnessError> {
        self.processes.get_mut(name).ok_or_else(|| HarnessError::System {
            what: format!("finding the process {name}"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }
}

/// The role of the clients that the test makes for a server.
fn role_at(name: &str) -> Role {
    match name {
        GATEWAY => Role::Admin,
        cache if is_cache_server(cache) => Role::Cache,
        _ => Role::ShardAdmin,
    }
}

/// The name of one of several cache servers among the processes.
pub fn cache_server(index: usize) -> String {
    if index == 0 { CACHE.to_owned() } else { format!("{CACHE}-{index}") }
}

fn is_cache_server(name: &str) -> bool {
    name == CACHE || name.strip_prefix(CACHE).is_some_and(|rest| rest.starts_with('-'))
}

/// The name of a replica of the root shard among the processes.
pub fn replica(index: usize) -> String {
    if index == 0 { ROOT.to_owned() } else { format!("{ROOT}-replica-{index}") }
}

fn url(ports: &BTreeMap<String, u16>, name: &str) -> String {
    format!("https://localhost:{}", ports.get(name).copied().unwrap_or_default())
}

/// The files of the servers.
struct Files<'a> {
    pki: &'a Pki,
    ports: &'a BTreeMap<String, u16>,
    directory: &'a Path,
    settings: &'a ShardSettings,
    /// The replicas of the root shard besides the first one.
    replicas: &'a [String],
    caches: Option<&'a CacheServers>,
}

impl Files<'_> {
    /// Writes the configuration of a server; returns its program.
    fn program(&self, name: &str) -> Result<Program, HarnessError> {
        let (binary, configuration) = match name {
            GATEWAY => ("fairlead-gateway", self.gateway()),
            cache if is_cache_server(cache) => ("fairlead-cache-server", self.cache(cache)),
            replica if self.replicas.iter().any(|other| other == replica) => {
                ("fairlead-shard", self.shard(ROOT, replica)?)
            }
            shard => ("fairlead-shard", self.shard(shard, shard)?),
        };
        let path = self.directory.join(format!("{name}.yaml"));
        // JSON is YAML.
        std::fs::write(&path, configuration.to_string())
            .map_err(HarnessError::system("writing a configuration"))?;
        let program = Program::new(binary, self.directory)?.named(name).args(["--config".into(), path]);
        Ok(match &self.settings.build {
            Some(build) if binary == "fairlead-shard" => program.of_build(build),
            _ => program,
        })
    }

    fn gateway(&self) -> Value {
        let upstream = self.pki.layout().client_cert(&Role::FrontProxy);
        let mut configuration = json!({
            "listeners": [{
                "name": "internal",
                "serving": self.serving(GATEWAY, &self.pki.layout().serving_cert(&Server::Gateway)),
                "clientCA": self.pki.layout().client_ca(),
                "placementEndpoint": true,
            }],
            "index": {
                "rootShardKubeconfig": self.kubeconfig("root-shard"),
                "shardsKubeconfig": self.kubeconfig("root-shard"),
                "snapshot": self.data(GATEWAY, "index"),
            },
            "upstream": {
                "certificate": upstream.certificate,
                "privateKey": upstream.key,
                "serverCA": self.pki.layout().serving_ca(),
            },
            "drain": { "window": "0s" },
            "stateFile": self.data(GATEWAY, "state"),
        });
        if !self.replicas.is_empty() {
            let address = |name: &str| format!("127.0.0.1:{}", self.port(name));
            let replicas = [ROOT].into_iter().chain(self.replicas.iter().map(String::as_str));
            let host = format!("localhost:{}", self.port(ROOT));
            let addresses: Vec<_> = replicas.map(address).collect();
            configuration["upstream"]["hosts"] = json!({ host: addresses });
        }
        configuration
    }

    fn cache(&self, process: &str) -> Value {
        let mut configuration = json!({
            "serving": self.serving(process, &self.pki.layout().serving_cert(&Server::Cache)),
            "clientCA": self.pki.layout().client_ca(),
            "store": self.store(process),
            "drain": { "window": "0s" },
        });
        if let Some(CacheServers { etcd, .. }) = self.caches {
            configuration["store"]["etcd"] = json!({ "endpoints": etcd.endpoints, "prefix": etcd.prefix });
        }
        configuration
    }

    /// The configuration of a process that serves a shard.
    fn shard(&self, name: &str, process: &str) -> Result<Value, HarnessError> {
        let layout = self.pki.layout();
        let picker = layout.client_cert(&Role::ShardPicker(name.parse()?));
        let keys = layout.service_account_keys();
        let mut configuration = json!({
            "name": name,
            "serving": self.serving(process, &self.pki.shard(name)?),
            "shardBaseURL": url(self.ports, name),
            "externalURL": url(self.ports, GATEWAY),
            "store": self.store(process),
            "trust": {
                "clientCA": layout.client_ca(),
                "requestHeaderCA": layout.requestheader_ca(),
                "requestHeaderAllowedNames": [Role::FrontProxy.user_name()],
            },
            "serviceAccounts": { "signingKey": keys.signing_key, "keyFiles": [keys.verification_keys] },
            "rootCA": layout.serving_ca(),
            "cacheKubeconfig": self.kubeconfig(CACHE),
            "logicalClusterAdminKubeconfig": self.kubeconfig("logical-cluster-admin"),
            "externalLogicalClusterAdminKubeconfig": self.kubeconfig("external-logical-cluster-admin"),
            "placement": {
                "url": url(self.ports, GATEWAY),
                "certificate": picker.certificate,
                "privateKey": picker.key,
                "serverCA": layout.serving_ca(),
            },
            "drain": { "window": self.settings.drain_window },
        });
        if let Some(etcd) = self.settings.place()? {
            configuration["store"]["etcd"] = json!({ "endpoints": etcd.endpoints, "prefix": etcd.prefix });
        }
        if name != "root" {
            configuration["rootShardKubeconfig"] = json!(self.kubeconfig("root-shard"));
        }
        Ok(configuration)
    }

    fn serving(&self, name: &str, files: &CertificateFiles) -> Value {
        json!({
            "address": format!("127.0.0.1:{}", self.port(name)),
            "certificate": files.certificate,
            "privateKey": files.key,
        })
    }

    fn store(&self, name: &str) -> Value {
        let mut store = json!({
            "path": self.data(name, "store.redb"),
            "compactionInterval": self.settings.compaction_interval,
            "verifyAtStart": self.settings.verify_at_start,
        });
        if let Some(size) = self.settings.cache_size {
            store["cacheSize"] = size.into();
        }
        store
    }

    fn port(&self, process: &str) -> u16 {
        self.ports.get(process).copied().unwrap_or_default()
    }

    fn data(&self, process: &str, name: &str) -> PathBuf {
        self.directory.join("data").join(process).join(name)
    }

    fn kubeconfig(&self, name: &str) -> PathBuf {
        self.directory.join("kubeconfigs").join(format!("{name}.kubeconfig"))
    }

    /// The kubeconfigs with which servers connect to each other.
    fn write_kubeconfigs(&self) -> Result<(), HarnessError> {
        for (name, role, server) in [
            ("root-shard", Role::ShardAdmin, "root"),
            (CACHE, Role::Cache, CACHE_ADDRESS),
            ("logical-cluster-admin", Role::LogicalClusterAdmin, "root"),
            ("external-logical-cluster-admin", Role::ExternalLogicalClusterAdmin, GATEWAY),
        ] {
            let authority = std::fs::read_to_string(self.pki.layout().serving_ca())
                .map_err(HarnessError::system("reading an authority"))?;
            let kubeconfig = Kubeconfig::builder()
                .cluster("base", &url(self.ports, server), &authority)
                .client(self.pki.layout(), &role)?
                .context("shard-base", "base", &role.user_name())
                .current("shard-base")
                .build()?;
            kubeconfig.write(&self.kubeconfig(name))?;
        }
        for process in self.ports.keys() {
            let folder = self.directory.join("data").join(process);
            std::fs::create_dir_all(folder).map_err(HarnessError::system("creating a folder"))?;
        }
        Ok(())
    }
}
