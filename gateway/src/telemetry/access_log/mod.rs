//! The access log: a line of JSON per request, written by a separate thread.
//!
//! A request formats its line and appends it to a buffer of bounded size, which takes about a microsecond and never
//! blocks: lines that do not fit are dropped and counted. The first line of a batch wakes the thread, which waits a moment for
//! more lines. Only the thread is affected by slow disks and slow readers.

mod line;
mod output;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fairlead_config::{AccessLogConfig, AccessLogTarget, AlwaysLogged};
use fairlead_process::{Metrics, MetricsError};
use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;

use crate::telemetry::random::sample;
#[cfg(test)]
pub(crate) use line::a_line;
pub(crate) use line::{Line, LoggedRequest, truncate, workspace};
use output::{LogFile, Output, Rotation, TornLine};

/// Time that a batch waits for more lines.
const BATCH_DELAY: Duration = Duration::from_millis(50);

/// The log of all listeners.
pub(crate) struct AccessLog {
    /// `None` while the log is off.
    rules: ArcSwapOption<Rules>,
    shared: Arc<Shared>,
    /// The current target; locked while it is changed.
    target: Mutex<Option<Target>>,
}

/// Selects the requests that are logged.
#[derive(Debug)]
struct Rules {
    sample: f64,
    always: Vec<AlwaysLogged>,
    slow: Duration,
}

/// The properties of a request that decide whether it is logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedOutcome {
    pub(crate) code: u16,
    /// `None` if the request's duration is not limited.
    pub(crate) took: Option<Duration>,
    pub(crate) is_write: bool,
    pub(crate) is_local: bool,
    pub(crate) is_traced: bool,
}

/// The target of the thread's writes.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Target {
    Stdout,
    File(PathBuf, Rotation),
}

/// A configuration that can be applied.
pub(crate) struct PreparedLog {
    config: AccessLogConfig,
    target: Option<Target>,
    /// The opened target, if it differs from the current one.
    output: Option<Output>,
}

/// State shared by requests and the thread.
struct Shared {
    state: Mutex<State>,
    /// Signals work for the thread.
    work: Condvar,
    /// Signals completed work.
    done: Condvar,
    written: IntCounter,
    dropped: IntCounter,
    failed: IntCounter,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    /// Maximum size of the buffer.
    max_size: usize,
    /// Commands, each with the number of bytes of the buffer that precede it.
    commands: Vec<(usize, Command)>,
    /// Numbers of batches and commands that the thread has taken and completed.
    taken: u64,
    finished: u64,
    /// True while the thread runs.
    running: bool,
}

enum Command {
    /// Write to this target from now on.
    Switch(Output),
    /// Reopen the file.
    Reopen,
    /// End the thread.
    End,
}

impl AccessLog {
    /// A log that is off, with its metrics.
    ///
    /// # Errors
    /// If it is called twice with the same metrics.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let lines = metrics.counters(
            "fairlead_gateway_access_log_lines_total",
            "Lines of the access log: written, dropped (the buffer was full), failed (the write failed).",
            &["result"],
        )?;
        let counter = |result| lines.with_label_values(&[result]);
        let shared = Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            written: counter("written"),
            dropped: counter("dropped"),
            failed: counter("failed"),
        };
        Ok(Self { rules: ArcSwapOption::empty(), shared: Arc::new(shared), target: Mutex::default() })
    }

    /// Opens the target of a configuration without applying it.
    ///
    /// # Errors
    /// The system's error for the file.
    pub(crate) fn prepare(&self, config: &AccessLogConfig) -> io::Result<PreparedLog> {
        let rotation = Rotation { max_size: config.max_size.bytes(), max_files: config.max_files };
        let target = match config.to {
            AccessLogTarget::Off => None,
            AccessLogTarget::Stdout => Some(Target::Stdout),
            AccessLogTarget::File => Some(Target::File(config.file.to_path_buf(), rotation)),
        };
        let current = self.target.lock();
        let output = match target.as_ref().filter(|target| current.as_ref() != Some(target)) {
            None => None,
            Some(Target::Stdout) => Some(Output::Stdout(TornLine::No)),
            Some(Target::File(path, rotation)) => Some(Output::File(LogFile::open(path, *rotation)?)),
        };
        Ok(PreparedLog { config: config.clone(), target, output })
    }

    /// Applies a prepared configuration.
    ///
    /// # Errors
    /// The thread cannot be started; the configuration is then unchanged.
    pub(crate) fn apply(&self, prepared: PreparedLog) -> io::Result<()> {
        let PreparedLog { config, target, output } = prepared;
        let mut current = self.target.lock();
        if let Some(output) = output {
            self.switch(output)?;
            current.clone_from(&target);
        }
        self.shared.state.lock().max_size = usize::try_from(config.buffer.bytes()).unwrap_or(usize::MAX);
        self.rules.store(target.map(|_| {
            let (always, slow) = (config.always.clone(), config.slow_threshold.get());
            Arc::new(Rules { sample: config.sample.get(), always, slow })
        }));
        Ok(())
    }

    /// Prepares and applies a configuration.
    ///
    /// # Errors
    /// The system's error for the file or the thread; the configuration is then unchanged.
    pub(crate) fn configure(&self, config: &AccessLogConfig) -> io::Result<()> {
        self.apply(self.prepare(config)?)
    }

    /// True if the log is on. Costs an atomic load.
    pub(crate) fn is_on(&self) -> bool {
        self.rules.load().is_some()
    }

    /// True if a request with this outcome is logged.
    pub(crate) fn selects(&self, outcome: LoggedOutcome) -> bool {
        let rules = self.rules.load();
        let Some(rules) = &*rules else { return false };
        let is_always = |rule: &AlwaysLogged| match rule {
            AlwaysLogged::Errors => outcome.code >= 400,
            AlwaysLogged::ServerErrors => outcome.code >= 500,
            AlwaysLogged::Slow => outcome.took.is_some_and(|took| took >= rules.slow),
            AlwaysLogged::LocalResponses => outcome.is_local,
            AlwaysLogged::Writes => outcome.is_write,
        };
        outcome.is_traced || rules.always.iter().any(is_always) || sample(rules.sample)
    }

    /// Queues a line.
    pub(crate) fn log(&self, line: &Line<'_>) {
        thread_local! {
            static LINE: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        LINE.with_borrow_mut(|bytes| {
            bytes.clear();
            line.write_to(bytes);
            self.shared.put(bytes);
        });
    }

    /// Reopens the file after log rotation has moved it.
    pub(crate) fn reopen(&self) {
        if self.target.lock().is_some() {
            self.shared.command(Command::Reopen);
        }
    }

    /// Waits until all queued lines are written, or until the timeout. Blocks.
    pub(crate) fn flush(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        let awaited = state.taken + u64::from(state.is_waiting());
        self.shared.work.notify_one();
        while state.running && state.finished < awaited {
            if self.shared.done.wait_until(&mut state, until).timed_out() {
                return tracing::warn!("the access log could not be flushed in time");
            }
        }
    }

    /// Switches to a target; the first time, starts the thread.
    fn switch(&self, output: Output) -> io::Result<()> {
        if self.shared.state.lock().running {
            self.shared.command(Command::Switch(output));
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        shared.state.lock().running = true;
        let started = thread::Builder::new().name("access log".into()).spawn(move || shared.serve(output));
        if started.is_err() {
            self.shared.state.lock().running = false;
        }
        started.map(drop)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        // The thread is not joined: the reader of its output may never read.
        self.shared.command(Command::End);
    }
}

impl State {
    fn is_waiting(&self) -> bool {
        !self.buffer.is_empty() || !self.commands.is_empty()
    }
}

impl Shared {
    fn put(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.buffer.len() + line.len() > state.max_size {
            drop(state);
            return self.dropped.inc();
        }
        let before = state.buffer.len();
        state.buffer.extend_from_slice(line);
        let half = state.max_size / 2;
        let wakes = before == 0 || (before < half && state.buffer.len() >= half);
        drop(state);
        if wakes {
            self.work.notify_one();
        }
    }

    fn command(&self, command: Command) {
        let mut state = self.state.lock();
        let before = state.buffer.len();
        state.commands.push((before, command));
        drop(state);
        self.work.notify_one();
    }

    /// The main loop of the thread.
    fn serve(&self, mut output: Output) {
        let mut batch = Vec::new();
        let mut failing = false;
        loop {
            let commands = self.next(&mut batch);
            let mut written = 0;
            for (before, command) in commands {
                // Earlier lines belong to the earlier file.
                self.write(&mut output, &batch[written..before], &mut failing);
                written = before;
                match command {
                    Command::Switch(other) => (output, failing) = (other, false),
                    Command::Reopen => match output.reopen() {
                        Ok(()) => tracing::info!("the access log was reopened"),
                        Err(error) => tracing::error!(%error, "the access log cannot be reopened"),
                    },
                    Command::End => return self.finish(|state| state.running = false),
                }
            }
            self.write(&mut output, &batch[written..], &mut failing);
            batch.clear();
            self.finish(|_| {});
        }
    }

    /// The next lines and commands.
    fn next(&self, batch: &mut Vec<u8>) -> Vec<(usize, Command)> {
        let mut state = self.state.lock();
        while !state.is_waiting() {
            self.work.wait(&mut state);
        }
        if state.commands.is_empty() && state.buffer.len() < state.max_size / 2 {
            // Until a command or a full buffer wakes the thread, or for a moment.
            self.work.wait_for(&mut state, BATCH_DELAY);
        }
        state.taken += 1;
        std::mem::swap(batch, &mut state.buffer);
        std::mem::take(&mut state.commands)
    }

    fn finish(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        state.finished = state.taken;
        change(&mut state);
        self.done.notify_all();
    }

    fn write(&self, output: &mut Output, lines: &[u8], failing: &mut bool) {
        if lines.is_empty() {
            return;
        }
        let count = |lines: &[u8]| memchr::memchr_iter(b'\n', lines).count() as u64;
        match output.write(lines) {
            Ok(()) => {
                self.written.inc_by(count(lines));
                if std::mem::take(failing) {
                    tracing::info!("the access log can be written again");
                }
            }
            Err(failed) => {
                self.written.inc_by(count(&lines[..failed.written]));
                self.failed.inc_by(count(&lines[failed.written..]));
                if !std::mem::replace(failing, true) {
                    tracing::warn!(error = %failed.error, "the access log cannot be written; lines are lost");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::path::Path;

    use super::*;

    fn config(file: &Path, more: &str) -> AccessLogConfig {
        let file = serde_json::to_string(file).unwrap();
        serde_json::from_str(&format!("{{\"to\": \"file\", \"file\": {file} {more}}}")).unwrap()
    }

    fn log_to(file: &Path, more: &str) -> AccessLog {
        let log = AccessLog::new(&Metrics::new("gateway", "test").unwrap()).unwrap();
        log.configure(&config(file, more)).unwrap();
        log
    }

    const LONG: Duration = Duration::from_secs(180);

    #[test]
    fn the_configuration_selects_the_logged_requests() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.log");
        let ordinary = LoggedOutcome {
            code: 200,
            took: Some(Duration::from_millis(1)),
            is_write: false,
            is_local: false,
            is_traced: false,
        };
        let rules = r#", "sample": 0, "always": ["#;
        for (more, outcome, expected) in [
            ("", ordinary, true),
            (r#", "sample": 0"#, ordinary, false),
            (r#", "sample": 0"#, LoggedOutcome { code: 404, ..ordinary }, true),
            (r#", "sample": 0"#, LoggedOutcome { took: Some(LONG), ..ordinary }, true),
            (r#", "sample": 0"#, LoggedOutcome { took: None, ..ordinary }, false),
            (r#", "sample": 0"#, LoggedOutcome { is_traced: true, ..ordinary }, true),
            (&format!(r#"{rules}"serverErrors"]"#), LoggedOutcome { code: 404, ..ordinary }, false),
            (&format!(r#"{rules}"serverErrors"]"#), LoggedOutcome { code: 503, ..ordinary }, true),
            (&format!("{rules}]"), LoggedOutcome { code: 503, took: Some(LONG), ..ordinary }, false),
            (&format!(r#"{rules}"localResponses"]"#), LoggedOutcome { is_local: true, ..ordinary }, true),
            (&format!(r#"{rules}"writes"]"#), LoggedOutcome { is_write: true, ..ordinary }, true),
        ] {
            assert_eq!(log_to(&file, more).selects(outcome), expected, "{more} {outcome:?}");
        }
        let log = log_to(&file, r#", "sample": 0.1"#);
        let drawn = (0..10_000).filter(|_| log.selects(ordinary)).count();
        assert!((700..1300).contains(&drawn), "{drawn}");
    }

    #[test]
    fn no_line_is_lost_while_files_are_rotated_and_reopened() {
        const LINES: usize = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.log");
        let log = log_to(&file, r#", "maxSize": "64KiB", "maxFiles": 1000"#);
        thread::scope(|scope| {
            for writer in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for number in (writer..LINES).step_by(4) {
                        log.shared.put(format!("{number}: {}\n", "x".repeat(60)).as_bytes());
                        if number % 500 == 0 {
                            log.reopen();
                            log.flush(LONG);
                        }
                    }
                });
            }
        });
        log.flush(LONG);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(directory.path()).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            assert!(text.len() <= 64 << 10 && text.ends_with('\n'));
            numbers
                .extend(text.lines().map(|line| line.split_once(':').unwrap().0.parse::<usize>().unwrap()));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..LINES).collect::<Vec<_>>());
        assert_eq!((log.shared.written.get(), log.shared.dropped.get()), (LINES as u64, 0));
    }

    #[test]
    #[ignore = "a measurement: make figures"]
    fn cost_per_line() {
        const LINES: u32 = 200_000;
        let log = log_to(Path::new("/dev/null"), r#", "buffer": "64MiB""#);
        let stages = ["auth", "route", "upstream_connect", "first_byte", "total"];
        let stages = stages.map(|stage| (stage, Duration::from_micros(123)));
        let began = Instant::now();
        for number in 0..LINES {
            log.log(&Line {
                time: std::time::SystemTime::now(),
                audit_id: Some(b"9d2f5a5c-8f1c-4d1e-9a53-0c6d1f0b7a11"),
                listener: "internal",
                client: [192, 0, 2, 1].into(),
                connection: u64::from(number),
                request: Some(LoggedRequest {
                    protocol: http::Version::HTTP_2,
                    method: "GET",
                    path: "/clusters/root:org:team/api/v1/namespaces/default/configmaps/one",
                }),
                class: "read",
                code: 200,
                user: Some("oidc:alice@example.com"),
                groups: 3,
                impersonated: None,
                cluster: Some("2hzqkbz7v4xk1d0q"),
                shard: Some("alpha"),
                reason: None,
                request_bytes: 0,
                response_bytes: 1024,
                stages: &stages,
                trace_id: None,
            });
        }
        println!("{} ns per line", (began.elapsed() / LINES).as_nanos());
    }

    #[test]
    fn a_full_disk_loses_lines_until_there_is_space() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.log");
        let log = log_to(Path::new("/dev/full"), "");
        log.shared.put(b"1\n2\n");
        log.flush(LONG);
        assert_eq!((log.shared.written.get(), log.shared.failed.get()), (0, 2));
        log.configure(&config(&file, "")).unwrap();
        log.shared.put(b"3\n");
        log.flush(LONG);
        assert_eq!((log.shared.written.get(), fs::read_to_string(&file).unwrap()), (1, "3\n".to_owned()));
        let nowhere = directory.path().join("none/a.log");
        assert!(log.configure(&config(&nowhere, "")).is_err());
        log.shared.put(b"4\n");
        log.flush(LONG);
        assert_eq!(fs::read_to_string(&file).unwrap(), "3\n4\n");
    }

    #[test]
    fn a_full_buffer_drops_lines_without_blocking() {
        // The pipe is not read: the thread blocks in its first write.
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let log = log_to(&pipe, r#", "buffer": "64KiB""#);
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        // More than pipe, batch and buffer can hold together.
        for _ in 0..1000 {
            log.shared.put(&line);
        }
        assert!(log.shared.dropped.get() > 0);
        drop(log);
        drop(reader);
    }
}
