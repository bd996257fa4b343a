//! One shard without gateway, cache server and other shards, for tests and measurements of the API server itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_certs::Client as Role;
use fairlead_client::{Client, Credentials};

use super::{HarnessError, Pki, Process, Program, TestStore, free_port, shared_etcd};

/// A root shard of its own. It is killed when dropped.
pub struct Shard {
    /// The process.
    pub process: Process,
    pki: Arc<Pki>,
    port: u16,
    configuration: PathBuf,
}

/// Settings of the shard that differ from the defaults.
#[derive(Debug, Clone)]
pub struct ShardSettings {
    /// Interval of compaction, such as `5m`.
    pub compaction_interval: &'static str,
    /// Whether the store's file is read as a whole at the start.
    pub verify_at_start: bool,
    /// Size of the store's page cache, if it is not the default.
    pub cache_size: Option<&'static str>,
    /// Time for open requests and watches to end when a shard is terminated.
    pub drain_window: &'static str,
    /// The etcd that has the objects in place of the file, which is a local copy then. `None`: the store that
    /// [`TestStore::of_shards`] chooses, on etcd with a prefix of its own.
    pub etcd: Option<EtcdSettings>,
    /// The folder of the shards' program, if it is not that of this build.
    pub build: Option<PathBuf>,
}

/// The place of a shard's objects in etcd.
#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// URLs of the members.
    pub endpoints: Vec<String>,
    /// The prefix of the shard's keys; replicas of a shard share it.
    pub prefix: String,
}

impl EtcdSettings {
    /// A new prefix of the etcd that all tests of the process share.
    pub fn shared() -> Result<Self, HarnessError> {
        let etcd = shared_etcd()?;
        Ok(Self { endpoints: etcd.endpoints(), prefix: etcd.new_prefix() })
    }
}

impl ShardSettings {
    /// The place of the objects in etcd, for one shard; `None`: they are in a file.
    pub(super) fn place(&self) -> Result<Option<EtcdSettings>, HarnessError> {
        match (&self.etcd, TestStore::of_shards()?) {
            (Some(etcd), _) => Ok(Some(etcd.clone())),
            (None, "etcd") => EtcdSettings::shared().map(Some),
            (None, _) => Ok(None),
        }
    }
}

impl Default for ShardSettings {
    fn default() -> Self {
        Self {
            compaction_interval: "5m",
            verify_at_start: true,
            cache_size: None,
            drain_window: "0s",
            etcd: None,
            build: None,
        }
    }
}

impl Shard {
    /// Starts a shard with an empty store in a directory; returns when it is ready.
    pub async fn start(directory: &Path, settings: &ShardSettings) -> Result<Self, HarnessError> {
        let pki = Arc::new(Pki::new(&directory.join("pki"), &["root"])?);
        Self::start_with(pki, directory, settings).await
    }

    /// Starts another replica of a shard on etcd, with a directory of its own and the same certificates; returns when it is
    /// ready.
    pub async fn start_replica(
        &self,
        directory: &Path,
        settings: &ShardSettings,
    ) -> Result<Self, HarnessError> {
        Self::start_with(self.pki.clone(), directory, settings).await
    }

    /// Starts several replicas of a shard on etcd at once, each in a directory of its own, `replica-0` and so on; returns
    /// when all are ready.
    pub async fn start_replicas(
        directory: &Path,
        count: usize,
        settings: &ShardSettings,
    ) -> Result<Vec<Self>, HarnessError> {
        let pki = Arc::new(Pki::new(&directory.join("pki"), &["root"])?);
        let replicas = (0..count).map(|index| {
            let (pki, directory) = (pki.clone(), directory.join(format!("replica-{index}")));
            async move {
                std::fs::create_dir_all(&directory)
                    .map_err(HarnessError::system(format!("creating {}", directory.display())))?;
                Self::start_with(pki, &directory, settings).await
            }
        });
        futures_util::future::try_join_all(replicas).await
    }

    /// Whether the process leads the controllers of the shard, by its metrics.
    pub async fn leads(&self) -> Result<bool, HarnessError> {
        let response = self.client("")?.get("/metrics").await.map_err(|error| HarnessError::System {
            what: "reading the metrics of a shard".to_owned(),
            source: std::io::Error::other(error.to_string()),
        })?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        Ok(text.lines().any(|line| line == "fairlead_shard_leader{shard=\"root\"} 1"))
    }

    async fn start_with(
        pki: Arc<Pki>,
        directory: &Path,
        settings: &ShardSettings,
    ) -> Result<Self, HarnessError> {
        let port = free_port()?;
        let configuration = directory.join("shard.yaml");
        std::fs::write(&configuration, configuration_text(&pki, port, directory, settings)?)
            .map_err(HarnessError::system("writing the shard's configuration"))?;
        let program = program(directory, &configuration)?;
        let program = settings.build.iter().fold(program, |program, build| program.of_build(build));
        let process = program.start()?;
        let mut shard = Self { process, pki, port, configuration };
        shard.until_ready().await?;
        Ok(shard)
    }

    /// Waits until it is ready.
    pub async fn until_ready(&mut self) -> Result<(), HarnessError> {
        let client = self.client("")?;
        self.process.until_ready(&client).await
    }

    /// A client with connections of its own and all rights, at a path such as `/clusters/root`.
    pub fn client(&self, prefix: &str) -> Result<Client, HarnessError> {
        Ok(self.pki.client(self.port, self.credentials()?)?.with_prefix(prefix))
    }

    /// The credentials of an administrator of all logical clusters.
    pub fn credentials(&self) -> Result<Credentials, HarnessError> {
        self.pki.credentials(&Role::ShardAdmin)
    }

    /// The URL of the shard.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The file of the store.
    pub fn store(&self) -> PathBuf {
        self.configuration.with_file_name("store.redb")
    }

    /// The next start has no limit for the size of a file.
    pub fn lift_file_limit(&mut self) -> Result<(), HarnessError> {
        self.process.set_program(program(&self.directory(), &self.configuration)?);
        Ok(())
    }

    /// The next start has a limit for the size of every file, in blocks of the shell's `ulimit -f` (512 or 1,024 bytes).
    /// A write beyond it fails, as on a full disk. The signal that reports it (setrlimit(2)) is ignored, as a disk has none.
    pub fn limit_files(&mut self, blocks: u64) -> Result<(), HarnessError> {
        let limited = program(&self.directory(), &self.configuration)?.with_file_limit(&blocks.to_string());
        self.process.set_program(limited);
        Ok(())
    }

    /// Lifts the limit of the running process, as if its disk had got room.
    pub fn make_room(&self) -> Result<(), HarnessError> {
        self.process.limit_files(None)
    }

    fn directory(&self) -> PathBuf {
        self.configuration.parent().map(Path::to_owned).unwrap_or_default()
    }
}

fn program(directory: &Path, configuration: &Path) -> Result<Program, HarnessError> {
    Ok(Program::new("fairlead-shard", directory)?
        .named("shard")
        .args(["--config".into(), configuration.to_owned()]))
}

fn configuration_text(
    pki: &Pki,
    port: u16,
    directory: &Path,
    settings: &ShardSettings,
) -> Result<String, HarnessError> {
    let serving = pki.shard("root")?;
    let text = |path: &Path| path.display().to_string();
    let mut configuration = serde_json::json!({
        "name": "root",
        "serving": {
            "address": format!("127.0.0.1:{port}"),
            "certificate": text(&serving.certificate),
            "privateKey": text(&serving.key),
        },
        "shardBaseURL": format!("https://localhost:{port}"),
        "store": {
            "path": text(&directory.join("store.redb")),
            "compactionInterval": settings.compaction_interval,
            "verifyAtStart": settings.verify_at_start,
        },
        "trust": { "clientCA": text(&pki.layout().client_ca()) },
        "drain": { "window": settings.drain_window },
    });
    if let Some(size) = settings.cache_size {
        configuration["store"]["cacheSize"] = size.into();
    }
    if let Some(etcd) = settings.place()? {
        configuration["store"]["etcd"] =
            serde_json::json!({ "endpoints": etcd.endpoints, "prefix": etcd.prefix });
    }
    // JSON is YAML.
    Ok(configuration.to_string())
}
