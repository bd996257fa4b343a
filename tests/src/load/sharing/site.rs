//! The measured servers: an installation of this repository, or a Go kcp.

use std::path::{Path, PathBuf};

use fairlead_client::{Client, Endpoint};

use super::super::apiserver::ServerKind;
use super::super::kcp::{Kcp, KcpUser};
use super::super::run::Size;
use super::super::{LoadError, ObservedProcess, Target};
use crate::harness::{Installation, ShardSettings};

/// The shard of the provider and most consumers. It is not the root shard, which also has the workspaces' parents.
pub(super) const NEAR: &str = "shard-1";
/// The shard of the other consumers.
pub(super) const FAR: &str = "root";
const GATEWAY: &str = "gateway";
const CACHE: &str = "cache";

/// Servers with empty stores.
pub(super) struct Site {
    servers: Servers,
    folder: PathBuf,
}

enum Servers {
    /// A gateway, a cache server and two shards.
    Fairlead(Box<Installation>),
    /// One process that is all of them. It has one shard, whatever the name of a shard.
    Kcp(Box<Kcp>),
}

impl Site {
    /// Starts the servers with their files in a folder, which is emptied first, and with the default size of the stores' caches
    /// or another one, which a kcp does not have.
    pub(super) async fn start(
        kind: &ServerKind,
        folder: &Path,
        cache_size: Option<&'static str>,
    ) -> Result<Self, LoadError> {
        let disk = |source| LoadError::Disk { path: folder.to_owned(), source };
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(disk)?;
        }
        std::fs::create_dir_all(folder).map_err(disk)?;
        let folder = folder.canonicalize().map_err(disk)?;
        let servers = match kind {
            ServerKind::Fairlead => {
                // No compaction within a measurement.
                let settings = ShardSettings {
                    compaction_interval: "24h",
                    verify_at_start: false,
                    cache_size,
                    ..ShardSettings::default()
                };
                let installation = Installation::start(&folder, &[FAR, NEAR], &settings).await?;
                Servers::Fairlead(Box::new(installation))
            }
            ServerKind::Kcp(program) => Servers::Kcp(Box::new(Kcp::start(program, &folder).await?)),
        };
        Ok(Self { servers, folder })
    }

    /// A client with the rights of an administrator and one connection of its own, at a path such as `/clusters/root`; of
    /// the gateway, where there is one.
    pub(super) fn user(&self, prefix: &str) -> Result<Client, LoadError> {
        let target = match &self.servers {
            Servers::Fairlead(installation) => self.at(installation, GATEWAY)?,
            Servers::Kcp(kcp) => kcp.target(KcpUser::Admin)?,
        };
        Ok(target.with_prefix(prefix).connection())
    }

    /// A client of a shard that may do everything, with one connection of its own.
    pub(super) fn direct(&self, shard: &str, prefix: &str) -> Result<Client, LoadError> {
        Ok(self.target(shard, prefix)?.connection())
    }

    /// A shard at a path, for clients that may do everything.
    pub(super) fn target(&self, shard: &str, prefix: &str) -> Result<Target, LoadError> {
        let target = match &self.servers {
            Servers::Fairlead(installation) => self.at(installation, shard)?,
            Servers::Kcp(kcp) => kcp.target(KcpUser::ShardAdmin)?,
        };
        Ok(target.with_prefix(prefix))
    }

    /// The URL of a shard.
    pub(super) fn url(&self, shard: &str) -> Result<String, LoadError> {
        Ok(match &self.servers {
            Servers::Fairlead(installation) => installation.url(shard),
            Servers::Kcp(_) => {
                let client = self.direct(shard, "")?;
                format!("https://{}:{}", client.endpoint().host(), client.endpoint().port())
            }
        })
    }

    /// The provider's view of its export on the shard that most consumers are on, as the URL of an endpoint slice, and a path
    /// below it.
    pub(super) fn view(&self, url: &str, prefix: &str) -> Result<Target, LoadError> {
        self.target(NEAR, &format!("{}{prefix}", endpoint(url)?.prefix()))
    }

    /// The way of the requests of users, for conditions.
    pub(super) fn entry(&self) -> &'static str {
        match self.servers {
            Servers::Fairlead(_) => "through the gateway",
            Servers::Kcp(_) => "without a gateway",
        }
    }

    /// The shards, of which the first one is observed.
    pub(super) fn shards(&self) -> &'static [&'static str] {
        match self.servers {
            Servers::Fairlead(_) => &[NEAR, FAR],
            Servers::Kcp(_) => &[NEAR],
        }
    }

    /// All processes, the observed one first.
    pub(super) fn processes(&self) -> Vec<ObservedProcess> {
        match &self.servers {
            Servers::Fairlead(installation) => {
                let names = [NEAR, FAR, CACHE, GATEWAY];
                names.into_iter().map(|name| process(name, installation.id(name))).collect()
            }
            Servers::Kcp(kcp) => vec![process("kcp", kcp.process.id())],
        }
    }

    /// The observed process: the shard of the provider, or a whole kcp.
    pub(super) fn shard(&self) -> ObservedProcess {
        match &self.servers {
            Servers::Fairlead(installation) => process(NEAR, installation.id(NEAR)),
            Servers::Kcp(kcp) => process("kcp", kcp.process.id()),
        }
    }

    /// The Go kcp, if it is one.
    pub(super) fn kcp(&self) -> Option<&Kcp> {
        match &self.servers {
            Servers::Fairlead(_) => None,
            Servers::Kcp(kcp) => Some(kcp),
        }
    }

    /// The amount at a scale, each for tiny, usual and full amounts. A kcp has its own amounts: a workspace takes it megabytes,
    /// and a binding seconds.
    pub(super) fn amount(&self, size: Size, ours: [usize; 3], kcp: [usize; 3]) -> usize {
        let [smoke, normal, full] = if self.kcp().is_some() { kcp } else { ours };
        size.of(smoke, normal, full)
    }

    /// Ends the processes and removes their files.
    pub(super) fn remove(self) {
        drop(self.servers);
        // A failed removal leaves a folder that the next run replaces.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    fn at(&self, installation: &Installation, name: &str) -> Result<Target, LoadError> {
        let processes = vec![process(name, installation.id(name))];
        Ok(Target::new(endpoint(&installation.url(name))?, installation.credentials(name)?, processes))
    }
}

fn process(name: &str, pid: u32) -> ObservedProcess {
    ObservedProcess { name: name.to_owned(), pid }
}

fn endpoint(url: &str) -> Result<Endpoint, LoadError> {
    Endpoint::parse(url).map_err(|error| LoadError::Unexpected(error.to_string()))
}
