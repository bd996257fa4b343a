//! Memory and CPU time of a process.

use serde::Serialize;

/// Unit of times in `/proc/<pid>/stat`: `USER_HZ`, 100 on all common architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resource usage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    /// Memory in use, in bytes.
    pub rss_bytes: u64,
    /// Processor time since its start, in seconds, user and system together.
    pub cpu_seconds: f64,
}

impl Usage {
    /// The usage of a running process.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        Self::parse(&read("status")?, &read("stat")?)
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let rss_kib: u64 = rss.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        // The second field is the program's name in parentheses, which may contain anything; times are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
        let ticks = times.next()?.ok()?.checked_add(times.next()?.ok()?)?;
        #[allow(clippy::cast_precision_loss, reason = "exact for the next million years")]
        let cpu_seconds = ticks as f64 / TICKS_PER_SECOND;
        Some(Self { rss_bytes: rss_kib.checked_mul(1024)?, cpu_seconds })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn memory_and_processor_time_are_read() {
        let status = "Name:\tx\nVmPeak:\t 9 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n";
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0";
        assert_eq!(Usage::parse(status, stat).unwrap(), Usage { rss_bytes: 2 << 20, cpu_seconds: 2.0 });
        assert_eq!(Usage::parse("Name:\tkernel\n", stat), None, "kernel threads have no memory");
        assert_eq!(Usage::parse(status, "7 (a) S 1"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.rss_bytes > 0 && usage.cpu_seconds >= 0.0);
    }
}
