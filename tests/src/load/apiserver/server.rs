//! A server with an empty store: a shard of this repository, or a Go kcp.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlead_client::{Client, Endpoint};

use super::super::kcp::{Kcp, KcpUser};
use super::super::{LoadError, ObservedProcess, Sample, Target};
use crate::harness::{HarnessError, Process, Shard, ShardSettings};

/// The program that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `fairlead-shard` of this build.
    Fairlead,
    /// The `kcp` program at this path.
    Kcp(PathBuf),
}

/// A running server.
pub(super) struct Server {
    process: Running,
    target: Target,
}

enum Running {
    Shard(Box<Shard>),
    Kcp(Box<Kcp>),
}

/// Used resources between two samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// User and system time.
    pub(super) cpu: Duration,
    /// Peak of the resident memory above its size before, in bytes.
    pub(super) extra_memory: u64,
}

/// The parent of all workspaces.
pub(super) const ROOT: &str = "/clusters/root";

impl Kind {
    /// The kcp that the environment variable `KCP` names.
    pub fn kcp_from_environment() -> Option<Self> {
        std::env::var_os("KCP").filter(|path| !path.is_empty()).map(|path| Self::Kcp(path.into()))
    }

    /// The name in messages and of folders.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fairlead => "fairlead",
            Self::Kcp(_) => "kcp",
        }
    }
}

impl Server {
    /// Starts a server with its files in a folder, which is emptied first.
    ///
    /// The cache of a shard's store has its default size, or the given one, which a measurement of memory that grows with
    /// the number of objects needs: what it finds is not a cache that fills.
    pub(super) async fn start(
        kind: &Kind,
        folder: &Path,
        cache_size: Option<&'static str>,
    ) -> Result<Self, LoadError> {
        let disk = |source| LoadError::Disk { path: folder.to_owned(), source };
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(disk)?;
        }
        std::fs::create_dir_all(folder).map_err(disk)?;
        let folder = folder.canonicalize().map_err(disk)?;
        match kind {
            Kind::Fairlead => Self::start_shard(&folder, cache_size).await,
            Kind::Kcp(program) => Self::start_kcp(program, &folder).await,
        }
    }

    async fn start_shard(folder: &Path, cache_size: Option<&'static str>) -> Result<Self, LoadError> {
        // No compaction within a measurement.
        let settings = ShardSettings {
            compaction_interval: "24h",
            verify_at_start: false,
            cache_size,
            ..ShardSettings::default()
        };
        let shard = Shard::start(folder, &settings).await?;
        let endpoint =
            Endpoint::parse(&shard.url()).map_err(|error| LoadError::Unexpected(error.to_string()))?;
        let target = Target::new(endpoint, shard.credentials()?, vec![observed("fairlead", &shard.process)]);
        Ok(Self { process: Running::Shard(Box::new(shard)), target })
    }

    async fn start_kcp(program: &Path, folder: &Path) -> Result<Self, LoadError> {
        let kcp = Kcp::start(program, folder).await?;
        let target = kcp.target(KcpUser::ShardAdmin)?;
        Ok(Self { process: Running::Kcp(Box::new(kcp)), target })
    }

    /// Ends the process and starts it again with its data, because processes do not return all freed memory.
    pub(super) async fn restart(&mut self) -> Result<(), LoadError> {
        let client = self.client("");
        let process = match &mut self.process {
            Running::Shard(shard) => &mut shard.process,
            Running::Kcp(kcp) => &mut kcp.process,
        };
        process.terminate().await?;
        process.restart().await?;
        process.until_ready(&client).await?;
        let name = self.target.processes[0].name.clone();
        self.target.processes = vec![observed(&name, process)];
        Ok(())
    }

    /// A client with one connection of its own, at a path such as [`ROOT`].
    pub(super) fn client(&self, prefix: &str) -> Client {
        self.target.connection().with_prefix(prefix)
    }

    /// Some of them.
    pub(super) fn clients(&self, prefix: &str, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.client(prefix)).collect()
    }

    /// The server at a path, for measurements that open connections themselves.
    pub(super) fn target(&self, prefix: &str) -> Target {
        self.target.with_prefix(prefix)
    }

    pub(super) fn sample(&self) -> Result<Sample, LoadError> {
        self.target.processes[0].sample()
    }

    /// CPU time so far, exact enough for some hundred requests; see [`ObservedProcess::thread_time`].
    pub(super) fn thread_time(&self) -> Result<Duration, LoadError> {
        self.target.processes[0].thread_time()
    }

    /// Begins a measurement of the resources.
    pub(super) fn meter(&self) -> Result<Meter<'_>, LoadError> {
        self.target.processes[0].reset_peak()?;
        Ok(Meter { server: self, before: self.sample()? })
    }
}

/// A measurement of the resources that has begun.
pub(super) struct Meter<'a> {
    server: &'a Server,
    before: Sample,
}

impl Meter<'_> {
    pub(super) fn read(&self) -> Result<Usage, LoadError> {
        let after = self.server.sample()?;
        Ok(Usage {
            cpu: after.cpu.saturating_sub(self.before.cpu),
            extra_memory: after.peak.saturating_sub(self.before.resident),
        })
    }
}

fn observed(name: &str, process: &Process) -> ObservedProcess {
    ObservedProcess { name: name.to_owned(), pid: process.id() }
}

impl From<HarnessError> for LoadError {
    fn from(error: HarnessError) -> Self {
        Self::Unexpected(error.to_string())
    }
}
