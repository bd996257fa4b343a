//! CPU time and memory of a process and its descendants, from `/proc`.

use std::time::Duration;

use fairlead_tests::harness::with_descendants;
use fairlead_tests::load::{ObservedProcess, Sample};

use crate::error::BenchError;

/// A process and its descendants at the time when it was ready.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    members: Vec<ObservedProcess>,
}

impl Tree {
    pub(crate) fn of(name: &str, root: u32) -> Result<Self, BenchError> {
        let members = with_descendants(root).map_err(BenchError::system("reading /proc"))?;
        let observed = |pid| ObservedProcess { name: name.to_owned(), pid };
        Ok(Self { members: members.into_iter().map(observed).collect() })
    }

    /// User and system time.
    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        let mut sum = Duration::ZERO;
        for member in &self.members {
            sum += member.sample()?.cpu;
        }
        Ok(sum)
    }

    /// Proportional set size in bytes: memory that several processes share counts once.
    pub(crate) fn memory(&self) -> Result<u64, BenchError> {
        let mut sum = 0;
        for member in &self.members {
            let path = format!("/proc/{}/smaps_rollup", member.pid);
            let text = std::fs::read_to_string(path).map_err(BenchError::system("reading memory"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
            sum += kibibytes.ok_or_else(|| BenchError::unexpected("the kernel does not report Pss"))? << 10;
        }
        Ok(sum)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64, BenchError> {
        self.sum(|sample| sample.resident)
    }

    /// The peak resident memory since `reset_peak`, in bytes.
    pub(crate) fn peak(&self) -> Result<u64, BenchError> {
        self.sum(|sample| sample.peak)
    }

    /// Resets the peak to the current resident memory.
    pub(crate) fn reset_peak(&self) -> Result<(), BenchError> {
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
