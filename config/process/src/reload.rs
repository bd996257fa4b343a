//! Values that are made from files and replaced as a whole when the files change.
//!
//! Certificates, CA bundles, kubeconfigs, token files: each is a [`Reloadable`] made by a load function. A change is
//! loaded first and swapped in only if it loads; otherwise the last good value stays, the error is logged once and a
//! metric is set. Files are polled, because Kubernetes replaces mounted secrets by swapping symlinks, which
//! notification APIs report badly; SIGHUP triggers a check at once.

mod hold;
mod status;

use std::error::Error;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use fairlead_config::PemFault;
pub use hold::ReloadHold;
use parking_lot::Mutex;
use status::ReloadMetrics;
use tokio::sync::{Notify, watch};

use crate::error::{FatalError, chain};
use crate::lifecycle::Shutdown;
use crate::metrics::{Metrics, MetricsError};

/// Interval of checks without a signal.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// A value that can be replaced while it is in use. Reading is wait-free; a reader keeps the value it has loaded.
#[derive(Debug)]
pub struct Reloadable<T> {
    current: ArcSwap<T>,
    generation: watch::Sender<u64>,
}

impl<T> Reloadable<T> {
    /// Holds `value`; it changes only by [`Reloadable::replace`].
    pub fn new(value: T) -> Self {
        Self { current: ArcSwap::from_pointee(value), generation: watch::Sender::new(1) }
    }

    /// The value in effect.
    pub fn load(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Number of replacements, beginning with 1. A cache of something derived from the value stores the generation that was
    /// read *before* the value was loaded.
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// A receiver of each new generation.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Puts `value` in place of the current one.
    pub fn replace(&self, value: T) {
        self.current.store(Arc::new(value));
        self.generation.send_modify(|generation| *generation += 1);
    }
}

/// Triggers a check of all files; SIGHUP does this.
#[derive(Clone, Debug, Default)]
pub struct ReloadTrigger(Arc<Notify>);

impl ReloadTrigger {
    /// Triggers a check. Several triggers before the check starts count as one.
    pub fn fire(&self) {
        self.0.notify_one();
    }

    async fn fired(&self) {
        self.0.notified().await;
    }
}

/// Number of triggered checks of all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Checks that have begun.
    pub begun: u64,
    /// Checks that have ended.
    pub done: u64,
}

/// All values of a process that are made from files, and the task that reloads them.
#[derive(Clone)]
pub struct Reloads {
    entries: Arc<Mutex<Vec<Arc<Entry>>>>,
    /// Owner of the values registered by this handle. They are dropped with it.
    owner: Option<Weak<()>>,
    counts: Arc<watch::Sender<ReloadCounts>>,
    trigger: ReloadTrigger,
    metrics: ReloadMetrics,
}

/// Status of one value that is made from files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadStatus {
    /// Name of the value, as registered.
    pub object: String,
    /// Time at which the value in effect was loaded.
    pub loaded: SystemTime,
    /// Reason for which the present content of the files is not in effect.
    pub failure: Option<String>,
}

/// A value could not be made from its files. At start the operator has to act; later the last good value stays.
#[derive(Debug, thiserror::Error)]
#[error("{object} cannot be loaded: {reason}")]
pub struct LoadError {
    /// Name of the value, as registered.
    pub object: String,
    reason: String,
}

impl FatalError for LoadError {}

impl Reloads {
    /// An empty registry with its metrics: `fairlead_reload_…{object}`, `fairlead_file_modified_timestamp_seconds{object}` and
    /// `fairlead_certificate_not_after_timestamp_seconds{object,kind}`.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            entries: Arc::default(),
            owner: None,
            counts: Arc::default(),
            trigger: ReloadTrigger::default(),
            metrics: ReloadMetrics::new(metrics)?,
        })
    }

    /// A handle for values with a limited lifetime: values registered by it are reloaded until `owner` is dropped.
    #[must_use]
    pub fn owned_by(&self, owner: &Arc<()>) -> Self {
        Self { owner: Some(Arc::downgrade(owner)), ..self.clone() }
    }

    /// Makes a value from `files` with `load` now, and again whenever their content changes.
    ///
    /// `object` is a short name for logs and metrics ("serving certificate"). `load` may block; it must not panic and
    /// its errors must not contain secrets.
    pub fn register<T, E, F>(
        &self,
        object: &str,
        files: impl IntoIterator<Item = PathBuf>,
        load: F,
    ) -> Result<Arc<Reloadable<T>>, LoadError>
    where
        T: Send + Sync + 'static,
        E: Error,
        F: Fn() -> Result<T, E> + Send + 'static,
    {
        let files: Vec<PathBuf> = files.into_iter().collect();
        let known = files.clone();
        self.register_naming(object, files, move || Ok::<_, E>((load()?, known.clone())))
    }

    /// The same for a file that names other files: `load` also returns every file that its value was made from, including the
    /// given ones.
    pub fn register_naming<T, E, F>(
        &self,
        object: &str,
        files: impl IntoIterator<Item = PathBuf>,
        load: F,
    ) -> Result<Arc<Reloadable<T>>, LoadError>
    where
        T: Send + Sync + 'static,
        E: Error,
        F: Fn() -> Result<(T, Vec<PathBuf>), E> + Send + 'static,
    {
        let files: Vec<PathBuf> = files.into_iter().collect();
        // The state of the files is read before they are loaded, so the next check finds a change in between.
        let stamps = files.iter().map(stamp).collect();
        let digest = digest(&files);
        let (value, named) = load().map_err(|error| LoadError {
            object: object.to_owned(),
            reason: with_pem_line(chain(&error), &files),
        })?;
        let reloadable = Arc::new(Reloadable::new(value));
        self.metrics.success(object, &named);
        let target = Arc::clone(&reloadable);
        let swap = move || match load() {
            Ok((value, named)) => {
                target.replace(value);
                Ok(named)
            }
            Err(error) => Err(chain(&error)),
        };
        let mut watched = WatchedFiles {
            files,
            stamps,
            digest,
            failure: None,
            loaded: SystemTime::now(),
            holders: 0,
            has_missed_check: false,
            swap: Box::new(swap),
        };
        watched.follow(named);
        let (owner, state) = (self.owner.clone(), Mutex::new(watched));
        self.entries.lock().push(Arc::new(Entry { object: object.to_owned(), owner, state }));
        Ok(reloadable)
    }

    /// Makes the value registered as `object` depend on these files from now on, after it was replaced from other files. New files
    /// are loaded at the next check.
    pub fn follow(&self, object: &str, files: &[PathBuf]) {
        for entry in self.current() {
            // The name is compared first: the caller may be a load function that holds the lock of its own entry.
            if entry.object == object {
                entry.state.lock().follow(files.to_vec());
            }
        }
    }

    /// Names and reasons of the values that could not be reloaded, whose last good value is in effect.
    pub fn failures(&self) -> Vec<(String, String)> {
        let failed = self.current().into_iter().filter_map(|entry| {
            // The result of a load that is running is not known yet.
            let failure = entry.state.try_lock()?.failure.clone()?;
            Some((entry.object.clone(), failure))
        });
        failed.collect()
    }

    /// Status of all values.
    pub fn statuses(&self) -> Vec<ReloadStatus> {
        let statuses = self.current().into_iter().filter_map(|entry| {
            // The result of a load that is running is not known yet.
            let (loaded, failure) =
                entry.state.try_lock().map(|state| (state.loaded, state.failure.clone()))?;
            Some(ReloadStatus { object: entry.object.clone(), loaded, failure })
        });
        statuses.collect()
    }

    /// A receiver of the number of triggered checks.
    pub fn counts(&self) -> watch::Receiver<ReloadCounts> {
        self.counts.subscribe()
    }

    /// The handle by which a signal handler triggers a check.
    pub fn trigger(&self) -> ReloadTrigger {
        self.trigger.clone()
    }

    /// Checks all files periodically and when triggered, until the process drains. Run it once per process.
    pub async fn run(self, shutdown: Shutdown) {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let check = tokio::select! {
                biased;
                () = shutdown.draining() => return,
                () = self.trigger.fired() => Check::Content,
                _ = interval.tick() => Check::Stamps,
            };
            if check == Check::Content {
                self.counts.send_modify(|counts| counts.begun += 1);
            }
            let reloads = self.clone();
            if tokio::task::spawn_blocking(move || reloads.check(check)).await.is_err() {
                tracing::error!("a load function panicked while files were checked");
            }
            if check == Check::Content {
                self.counts.send_modify(|counts| counts.done += 1);
            }
        }
    }

    /// Checks the content of all files now, on this thread. Blocks.
    pub fn check_now(&self) {
        self.check(Check::Content);
    }

    fn check(&self, check: Check) {
        for entry in self.current() {
            self.refresh(&entry, check);
        }
    }

    /// All entries whose owner exists. Other entries are removed with their series.
    fn current(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries.lock();
        let (kept, removed) = std::mem::take(&mut *entries).into_iter().partition(|entry| entry.is_owned());
        *entries = kept;
        let removed: Vec<Arc<Entry>> = removed;
        for removed in
            removed.iter().filter(|removed| entries.iter().all(|entry| entry.object != removed.object))
        {
            self.metrics.remove(&removed.object);
        }
        entries.clone()
    }

    fn refresh(&self, entry: &Entry, check: Check) {
        let (object, mut state) = (entry.object.as_str(), entry.state.lock());
        if state.holders > 0 {
            if check == Check::Content {
                state.has_missed_check = true;
                tracing::info!(object, "reloads are suspended; the files are checked when they resume");
            }
            return;
        }
        let stamps: Vec<_> = state.files.iter().map(stamp).collect();
        let is_unchanged = stamps == state.stamps && check == Check::Stamps;
        if is_unchanged && state.failure.is_none() {
            return;
        }
        let digest = digest(&state.files);
        state.stamps = stamps;
        self.metrics.record_modified(object, &state.files);
        if digest == state.digest && state.failure.is_none() {
            return;
        }
        state.digest = digest;
        match (state.swap)() {
            Ok(named) => {
                state.failure = None;
                state.loaded = SystemTime::now();
                self.metrics.success(object, &named);
                state.follow(named);
                tracing::info!(object, "reloaded");
            }
            Err(reason) => {
                let reason = with_pem_line(reason, &state.files);
                self.metrics.failure(object);
                // Retried at every check, because the fault may disappear without a change of the file. Logged once.
                if state.failure.as_ref() != Some(&reason) {
                    tracing::error!(
                        object,
                        reason,
                        "cannot be reloaded; the last good value stays in effect"
                    );
                    state.failure = Some(reason);
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// Cheap: content is read only where a file's metadata has changed.
    Stamps,
    /// Reads every file.
    Content,
}

struct Entry {
    object: String,
    owner: Option<Weak<()>>,
    state: Mutex<WatchedFiles>,
}

impl Entry {
    fn is_owned(&self) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.strong_count() > 0)
    }
}

struct WatchedFiles {
    files: Vec<PathBuf>,
    stamps: Vec<Option<Stamp>>,
    digest: u64,
    failure: Option<String>,
    loaded: SystemTime,
    /// Number of [`ReloadHold`]s.
    holders: usize,
    /// Whether a check was triggered while reloads were suspended.
    has_missed_check: bool,
    swap: Box<dyn Fn() -> Result<Vec<PathBuf>, String> + Send>,
}

impl WatchedFiles {
    /// Watches these files from now on. If they differ from the previous ones, their state at the time of loading is unknown,
    /// so the next check loads them again.
    fn follow(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.stamps = vec![None; files.len()];
            self.digest = 0;
            self.files = files;
        }
    }
}

/// Metadata of a file that changes with its content: device, inode, length, change time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

fn stamp(path: &PathBuf) -> Option<Stamp> {
    let of = |m: Metadata| Stamp {
        device: m.dev(),
        inode: m.ino(),
        length: m.len(),
        changed: (m.ctime(), m.ctime_nsec()),
    };
    std::fs::metadata(path).ok().map(of)
}

/// A digest of all contents, used only to detect changes.
fn digest(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in files {
        match std::fs::read(path) {
            Ok(content) => {
                hasher.write_usize(content.len());
                hasher.write(&content);
            }
            Err(error) => hasher.write_u8(if error.kind() == io::ErrorKind::NotFound { 1 } else { 2 }),
        }
    }
    hasher.finish()
}

/// The reason, with the line of the fault if a PEM file is faulty and the reason does not name the line.
fn with_pem_line(reason: String, files: &[PathBuf]) -> String {
    let fault = files.iter().find_map(|file| PemFault::first_in(file)).map(|fault| fault.to_string());
    match fault {
        Some(fault) if !reason.contains(&fault) => format!("{reason} ({fault})"),
        _ => reason,
    }
}

#[cfg(test)]
mod tests;
