//! What a process and its children have used: CPU time and memory, from `/proc`.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlead_tests::load::{Sample, ObservedProcess};

use crate::error::BenchError;

/// A process and its descendants, as they were when it was ready.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    members: Vec<ObservedProcess>,
}

impl Tree {
    pub(crate) fn of(name: &str, root: u32) -> Result<Self, BenchError> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let processes = std::fs::read_dir("/proc").map_err(BenchError::system("reading /proc"))?;
        for entry in processes.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Others may end meanwhile.
            let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            let parent = stat
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
            children.entry(parent.unwrap_or_default()).or_default().push(pid);
        }
        let mut members = vec![root];
        let mut next = 0;
        while let Some(pid) = members.get(next).copied() {
            members.extend(children.remove(&pid).unwrap_or_default());
            next += 1;
        }
        let watched = |pid| ObservedProcess { name: name.to_owned(), pid };
        Ok(Self { members: members.into_iter().map(watched).collect() })
    }

    /// User and system time.
    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        let mut sum = Duration::ZERO;
        for member in &self.members {
            sum += member.sample()?.cpu;
        }
        Ok(sum)
    }

    /// Proportional set size in bytes: memory that several of them share counts once.
    pub(crate) fn memory(&self) -> Result<u64, BenchError> {
        let mut sum = 0;
        for member in &self.members {
            let path = format!("/proc/{}/smaps_rollup", member.pid);
            let text = std::fs::read_to_string(path).map_err(BenchError::system("reading memory"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
            sum += kibibytes.ok_or_else(|| BenchError::answer("the kernel tells no Pss"))? << 10;
        }
        Ok(sum)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64, BenchError> {
        self.sum(|sample| sample.resident)
    }

    /// The most resident memory since `forget_peak`, in bytes.
    pub(crate) fn peak(&self) -> Result<u64, BenchError> {
        self.sum(|sample| sample.peak)
    }

    /// Lets the peak begin again at what is resident now.
    pub(crate) fn forget_peak(&self) -> Result<(), BenchError> {
        for member in &self.members {
            let path = format!("/proc/{}/clear_refs", member.pid);
            std::fs::write(path, "5").map_err(BenchError::system("resetting the peak of memory"))?;
        }
        Ok(())
    }

    fn sum(&self, value: fn(&Sample) -> u64) -> Result<u64, BenchError> {
        let mut sum = 0;
        for member in &self.members {
            sum += value(&member.sample()?);
        }
        Ok(sum)
    }
}
