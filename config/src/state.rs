//! The state file of a process, for commands and scripts.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The state of a process. Versions may differ: unknown fields are ignored, and missing ones have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProcessState {
    /// Process ID.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Current phase.
    pub phase: ProcessPhase,
    /// Requested reloads that have begun, since the start of the process.
    pub reloads_begun: u64,
    /// Requested reloads that have ended.
    pub reloads_done: u64,
    /// Objects whose last good value is in effect, with the reason.
    pub not_reloaded: Vec<String>,
    /// Failed upgrades since the start of the process.
    pub upgrades_failed: u64,
    /// Reason of the last failed upgrade.
    pub upgrade_failure: Option<String>,
    /// The process from which this one took over.
    pub predecessor: Option<u32>,
}

/// Phase of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessPhase {
    /// The process starts.
    #[default]
    Starting,
    /// The process serves requests.
    Ready,
    /// The process reads its files again.
    Reloading,
    /// The process starts its successor.
    Upgrading,
    /// The process waits for open requests to end.
    Draining,
    /// A phase of a later version.
    #[serde(other)]
    Other,
}

impl ProcessState {
    /// Reads a state file.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = std::fs::read(file)?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    /// Writes the state file atomically.
    ///
    /// # Errors
    /// The error of the system.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let mut new = file.as_os_str().to_owned();
        new.push(format!(".{}", self.pid));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(&new, file)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn state_files_of_other_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        let state = ProcessState { pid: 7, phase: ProcessPhase::Upgrading, ..ProcessState::default() };
        state.write(&file).unwrap();
        assert_eq!(ProcessState::read(&file).unwrap(), state);
        std::fs::write(&file, r#"{"pid":8,"phase":"dancing","mood":"good"}"#).unwrap();
        let state = ProcessState::read(&file).unwrap();
        assert_eq!((state.pid, state.phase), (8, ProcessPhase::Other));
    }
}
