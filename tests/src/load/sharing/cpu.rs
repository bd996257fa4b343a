//! CPU time of several processes over intervals.

use std::time::{Duration, Instant};

use super::super::{LoadError, ObservedProcess};

/// CPU time that processes have used in the intervals between [`CpuMeter::begin`] and [`CpuMeter::end`].
pub(super) struct CpuMeter {
    processes: Vec<ObservedProcess>,
    spent: Vec<Duration>,
    elapsed: Duration,
    begun: Option<(Instant, Vec<Duration>)>,
}

impl CpuMeter {
    pub(super) fn new(processes: Vec<ObservedProcess>) -> Self {
        let spent = vec![Duration::ZERO; processes.len()];
        Self { processes, spent, elapsed: Duration::ZERO, begun: None }
    }

    /// A meter of the servers and of this process, which makes the load.
    pub(super) fn with_load(mut processes: Vec<ObservedProcess>) -> Self {
        processes.push(ObservedProcess { name: "bench-sharing".to_owned(), pid: std::process::id() });
        Self::new(processes)
    }

    pub(super) fn begin(&mut self) -> Result<(), LoadError> {
        self.begun = Some((Instant::now(), self.sample()?));
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), LoadError> {
        let Some((begin, before)) = self.begun.take() else { return Ok(()) };
        let after = self.sample()?;
        self.elapsed += begin.elapsed();
        for (spent, (before, after)) in self.spent.iter_mut().zip(before.into_iter().zip(after)) {
            *spent += after.saturating_sub(before);
        }
        Ok(())
    }

    /// The percentages of one core, in the order of the processes.
    pub(super) fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let elapsed = self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let names = self.processes.iter().map(|process| process.name.as_str());
        names.zip(self.spent.iter().map(move |spent| spent.as_secs_f64() / elapsed * 100.0))
    }

    /// The percentages as text.
    pub(super) fn summary(&self) -> String {
        let shares: Vec<_> = self.shares().map(|(name, share)| format!("{name} {share:.0} %")).collect();
        shares.join(", ")
    }

    fn sample(&self) -> Result<Vec<Duration>, LoadError> {
        self.processes.iter().map(ObservedProcess::thread_time).collect()
    }
}
