//! CPU time and memory of processes, read from `/proc`.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{LoadError, Table};

/// An observed process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProcess {
    /// The name in the tables.
    pub name: String,
    /// The process ID.
    pub pid: u32,
}

/// The resources that a process has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Peak resident memory in bytes.
    pub peak: u64,
}

impl ObservedProcess {
    /// Parses `name=pid`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, pid) = text.split_once('=').ok_or("expected name=pid")?;
        let pid = pid.parse().map_err(|_| format!("{pid:?} is not a process id"))?;
        Ok(Self { name: name.to_owned(), pid })
    }

    /// The current values.
    pub fn sample(&self) -> Result<Sample, LoadError> {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.pid);
            std::fs::read_to_string(&path)
                .map_err(|source| LoadError::Process { name: self.name.clone(), source })
        };
        let malformed = || LoadError::Process {
            name: self.name.clone(),
            source: std::io::Error::from(std::io::ErrorKind::InvalidData),
        };
        let cpu = cpu_time(&read("stat")?).ok_or_else(malformed)?;
        let status = read("status")?;
        let memory = |field: &str| memory(&status, field).ok_or_else(malformed);
        Ok(Sample { cpu, resident: memory("VmRSS:")?, peak: memory("VmHWM:")? })
    }
}

impl ObservedProcess {
    /// CPU time of the threads that exist now, from the scheduler (`/proc/<pid>/task/<tid>/schedstat`): exact where
    /// [`Sample::cpu`] has units of 10 ms. Without the time of threads that have ended.
    pub(super) fn thread_time(&self) -> Result<Duration, LoadError> {
        let failed = |source| LoadError::Process { name: self.name.clone(), source };
        let mut total = Duration::ZERO;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid)).map_err(failed)? {
            // A thread may end meanwhile.
            let Ok(stat) = std::fs::read_to_string(thread.map_err(failed)?.path().join("schedstat")) else {
                continue;
            };
            total += run_time(&stat).ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        }
        Ok(total)
    }

    /// Sets the peak of the resident memory to its current size (proc(5), `clear_refs`).
    pub(super) fn reset_peak(&self) -> Result<(), LoadError> {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5")
            .map_err(|source| LoadError::Process { name: self.name.clone(), source })
    }
}

/// Samples of several processes.
pub(super) fn sample_all(processes: &[ObservedProcess]) -> Result<Vec<Sample>, LoadError> {
    processes.iter().map(ObservedProcess::sample).collect()
}

/// Rows with the CPU time per operation between two samples.
pub(super) fn cpu_rows(
    table: &mut Table,
    what: &str,
    processes: &[ObservedProcess],
    before: &[Sample],
    count: u64,
    note: &str,
) {
    let Ok(after) = sample_all(processes) else {
        return table.push(format!("CPU per {what}"), "-", "a process ended during the run");
    };
    for ((process, before), after) in processes.iter().zip(before).zip(after) {
        let spent = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6;
        table.push(
            format!("{} CPU per {what}", process.name),
            format!("{:.1} µs", spent / count.max(1) as f64),
            note,
        );
    }
}

/// Rows with the memory per item between two samples.
pub(super) fn memory_rows(
    table: &mut Table,
    what: &str,
    processes: &[ObservedProcess],
    before: &[Sample],
    count: u64,
    note: &str,
) {
    let Ok(after) = sample_all(processes) else {
        return table.push(format!("memory per {what}"), "-", "a process ended during the run");
    };
    for ((process, before), after) in processes.iter().zip(before).zip(after) {
        let grown = after.resident as f64 - before.resident as f64;
        let each = grown / count.max(1) as f64 / 1024.0;
        let note = format!("{note}; RSS {} to {}", mebibytes(before.resident), mebibytes(after.resident));
        table.push(format!("{} memory per {what}", process.name), format!("{each:.2} KiB"), note);
    }
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Raises the soft limit of open files to the hard limit, for runs with a connection per watch. Returns the new limit.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let effective = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    effective.unwrap_or(u64::MAX)
}

/// Fields 14 and 15 of `/proc/<pid>/stat` (proc(5)). The second field, the name, may contain any character, so the fields
/// are counted from the end of the name.
fn cpu_time(stat: &str) -> Option<Duration> {
    // USER_HZ is 100 on all supported architectures.
    const TICK: Duration = Duration::from_millis(10);
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

/// The first field of `schedstat`: nanoseconds on a CPU.
fn run_time(stat: &str) -> Option<Duration> {
    stat.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// A field of `/proc/<pid>/status` in kB, as bytes.
fn memory(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 1 1 1";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_time("garbage"), None);
        assert_eq!(run_time("643327 0 1"), Some(Duration::from_nanos(643_327)));
        assert_eq!(run_time(""), None);
    }

    #[test]
    fn this_process_can_be_observed() {
        let pid = std::process::id();
        let own = ObservedProcess::parse(&format!("me={pid}")).unwrap();
        let sample = own.sample().unwrap();
        assert!(sample.resident > 0 && sample.peak >= sample.resident / 2);
        assert!(own.thread_time().unwrap() > Duration::ZERO);
        assert!(ObservedProcess::parse("me").is_err() && ObservedProcess::parse("me=x").is_err());
        assert!(ObservedProcess { name: "nobody".into(), pid: u32::MAX }.sample().is_err());
    }
}
