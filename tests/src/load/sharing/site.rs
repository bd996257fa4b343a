//! The measured installation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlead_client::{Client, Endpoint};

use super::super::{LoadError, ObservedProcess, Target};
use crate::harness::{Installation, ShardSettings};

/// The shard of the provider and most consumers. It is not the root shard, which also has the workspaces' parents.
pub(super) const NEAR: &str = "shard-1";
/// The shard of the other consumers.
pub(super) const FAR: &str = "root";

/// A gateway, a cache server and two shards.
pub(super) struct Site {
    installation: Installation,
    folder: PathBuf,
}

impl Site {
    /// Starts it with its files in a folder, which is emptied first, and with the default size of the stores' caches or
    /// another one.
    pub(super) async fn start(folder: &Path, cache_size: Option<&'static str>) -> Result<Self, LoadError> {
        let disk = |source| LoadError::Disk { path: folder.to_owned(), source };
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(disk)?;
        }
        std::fs::create_dir_all(folder).map_err(disk)?;
        let folder = folder.canonicalize().map_err(disk)?;
        // No compaction within a measurement.
        let settings = ShardSettings { compaction_interval: "24h", verify_at_start: false, cache_size };
        let installation = Installation::start(&folder, &[FAR, NEAR], &settings).await?;
        Ok(Self { installation, folder })
    }

    /// A client of the gateway with one connection of its own, at a path such as `/clusters/root`.
    pub(super) fn user(&self, prefix: &str) -> Result<Client, LoadError> {
        Ok(self.at("gateway", &format!("{}{prefix}", self.url("gateway")))?.connection())
    }

    /// A client of a shard that may do everything, with one connection of its own.
    pub(super) fn direct(&self, shard: &str, prefix: &str) -> Result<Client, LoadError> {
        Ok(self.at(shard, &format!("{}{prefix}", self.url(shard)))?.connection())
    }

    /// The URL of a server.
    pub(super) fn url(&self, name: &str) -> String {
        self.installation.url(name)
    }

    /// The provider's view of its export on the shard that most consumers are on, as the URL of an endpoint slice.
    pub(super) fn view(&self, url: &str, prefix: &str) -> Result<Target, LoadError> {
        self.at(NEAR, &format!("{url}{prefix}"))
    }

    /// The observed shard.
    pub(super) fn shard(&self) -> ObservedProcess {
        self.process(NEAR)
    }

    /// The CPU time of a process so far.
    pub(super) fn thread_time(&self, name: &str) -> Result<Duration, LoadError> {
        self.process(name).thread_time()
    }

    /// Ends the processes and removes their files.
    pub(super) fn remove(self) {
        drop(self.installation);
        // A failed removal leaves a folder that the next run replaces.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    fn process(&self, name: &str) -> ObservedProcess {
        ObservedProcess { name: name.to_owned(), pid: self.installation.id(name) }
    }

    fn at(&self, name: &str, url: &str) -> Result<Target, LoadError> {
        let endpoint = Endpoint::parse(url).map_err(|error| LoadError::Unexpected(error.to_string()))?;
        Ok(Target::new(endpoint, self.installation.credentials(name)?, vec![self.process(name)]))
    }
}
