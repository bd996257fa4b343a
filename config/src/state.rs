//! What a process tells of itself in a file, for commands and scripts beside it.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How a process is. Versions differ: what is not known is ignored, and what is not there has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProcessState {
    /// Its number.
    pub pid: u32,
    /// Of the program.
    pub version: String,
    /// What it does.
    pub phase: ProcessPhase,
    /// Reloads that were asked for and have begun, since the process began.
    pub reloads_begun: u64,
    /// Those that are over.
    pub reloads_done: u64,
    /// Of what the last good one is in effect, and why.
    pub not_reloaded: Vec<String>,
    /// Upgrades that have come to nothing, since the process began.
    pub upgrades_failed: u64,
    /// Why the last one has.
    pub upgrade_failure: Option<String>,
    /// The process from which this one took over.
    pub predecessor: Option<u32>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessPhase {
    /// It gets ready.
    #[default]
    Starting,
    /// It serves.
    Ready,
    /// It reads its files.
    Reloading,
    /// It starts its successor.
    Upgrading,
    /// It lets what is open come to its end.
    Draining,
    /// A later version does something else.
    #[serde(other)]
    Other,
}

impl ProcessState {
    /// Reads it.
    ///
    /// # Errors
    /// The file is not there, or is none.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = std::fs::read(file)?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    /// Writes it, at once and whole.
    ///
    /// # Errors
    /// What the system says.
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
    fn versions_understand_one_another() {
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
