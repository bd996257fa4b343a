//! Values that come from files and are replaced, whole, when the files change.
//!
//! Certificates, CA bundles, kubeconfigs, token files: each is a [`Reloadable`] made by a load function. A change is
//! loaded first and swapped in only if it loads; otherwise the last good value stays, the error is logged once and a
//! metric says so. Files are polled, because Kubernetes replaces mounted secrets by swapping symlinks, which
//! notification APIs report badly; SIGHUP asks at once.

mod held;
mod told;

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
pub use held::Held;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use told::Told;

use crate::exit::FatalError;
use crate::lifecycle::Shutdown;
use crate::metrics::{Metrics, MetricsError};

/// How often files are looked at without a signal.
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

    /// Counts replacements, beginning with 1. Whoever caches something derived from the value keeps the generation
    /// that he read *before* loading the value beside it.
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Tells of each new generation.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Puts `value` in place of the current one.
    pub fn replace(&self, value: T) {
        self.current.store(Arc::new(value));
        self.generation.send_modify(|generation| *generation += 1);
    }
}

/// Asks for a look at all files now; SIGHUP does.
#[derive(Clone, Debug, Default)]
pub struct ReloadTrigger(Arc<Notify>);

impl ReloadTrigger {
    /// Asks; several asks before the look happens are one.
    pub fn fire(&self) {
        self.0.notify_one();
    }

    async fn fired(&self) {
        self.0.notified().await;
    }
}

/// How often files were looked at because somebody asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Looks that have begun.
    pub begun: u64,
    /// Looks that are over.
    pub done: u64,
}

/// All values of a process that are made from files, and the task that keeps them fresh.
#[derive(Clone)]
pub struct Reloads {
    entries: Arc<Mutex<Vec<Arc<Entry>>>>,
    /// Without whom what is registered here is looked at no more.
    keeper: Option<Weak<()>>,
    looks: Arc<watch::Sender<Looks>>,
    trigger: ReloadTrigger,
    told: Told,
}

/// How one value that is made from files stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadStanding {
    /// As registered.
    pub what: String,
    /// When what is in effect was loaded.
    pub loaded: SystemTime,
    /// Why what the files say now is not in effect.
    pub failure: Option<String>,
}

/// A value could not be made from its files. At start the operator has to act; later the last good value stays.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be loaded: {reason}")]
pub struct LoadError {
    /// What was to be loaded, as registered.
    pub what: String,
    reason: String,
}

impl FatalError for LoadError {}

impl Reloads {
    /// With its metrics: `fairlead_reload_…{what}`, `fairlead_file_modified_timestamp_seconds{what}` and
    /// `fairlead_certificate_not_after_timestamp_seconds{what,kind}`.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            entries: Arc::default(),
            keeper: None,
            looks: Arc::default(),
            trigger: ReloadTrigger::default(),
            told: Told::new(metrics)?,
        })
    }

    /// The same for what comes and goes: what is registered with it is looked at as long as somebody has `keeper`.
    #[must_use]
    pub fn kept_by(&self, keeper: &Arc<()>) -> Self {
        Self { keeper: Some(Arc::downgrade(keeper)), ..self.clone() }
    }

    /// Makes a value from `files` with `load` now, and again whenever their content changes.
    ///
    /// `what` is a short name for logs and metrics ("serving certificate"). `load` may block; it must not panic and
    /// its errors must not show secrets.
    pub fn register<T, E, F>(
        &self,
        what: &str,
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
        self.register_naming(what, files, move || Ok::<_, E>((load()?, known.clone())))
    }

    /// The same for a file that names others: `load` also tells every file that its value was made from, the given ones
    /// among them.
    pub fn register_naming<T, E, F>(
        &self,
        what: &str,
        files: impl IntoIterator<Item = PathBuf>,
        load: F,
    ) -> Result<Arc<Reloadable<T>>, LoadError>
    where
        T: Send + Sync + 'static,
        E: Error,
        F: Fn() -> Result<(T, Vec<PathBuf>), E> + Send + 'static,
    {
        let files: Vec<PathBuf> = files.into_iter().collect();
        // The state of the files is taken before they are loaded: a change in between is found by the next look.
        let stamps = files.iter().map(stamp).collect();
        let digest = digest(&files);
        let (value, named) = load().map_err(|error| LoadError {
            what: what.to_owned(),
            reason: with_place(chain(&error), &files),
        })?;
        let reloadable = Arc::new(Reloadable::new(value));
        self.told.success(what, &named);
        let target = Arc::clone(&reloadable);
        let swap = move || match load() {
            Ok((value, named)) => {
                target.replace(value);
                Ok(named)
            }
            Err(error) => Err(chain(&error)),
        };
        let mut watched = Watched {
            files,
            stamps,
            digest,
            failure: None,
            loaded: SystemTime::now(),
            holders: 0,
            is_missed: false,
            swap: Box::new(swap),
        };
        watched.follow(named);
        let (keeper, state) = (self.keeper.clone(), Mutex::new(watched));
        self.entries.lock().push(Arc::new(Entry { what: what.to_owned(), keeper, state }));
        Ok(reloadable)
    }

    /// Has what was registered as `what` depend on these files from now on, because it was made anew of others. Those that
    /// are new are loaded at the next look.
    pub fn follow(&self, what: &str, files: &[PathBuf]) {
        for entry in self.current() {
            // Compared first: whoever is being loaded right now may be the one that asks.
            if entry.what == what {
                entry.state.lock().follow(files.to_vec());
            }
        }
    }

    /// What could not be reloaded, with the reason: the last good one is in effect instead.
    pub fn failures(&self) -> Vec<(String, String)> {
        let failed = self.current().into_iter().filter_map(|entry| {
            // One that is being loaded right now is neither good nor bad yet.
            let failure = entry.state.try_lock()?.failure.clone()?;
            Some((entry.what.clone(), failure))
        });
        failed.collect()
    }

    /// Everything that is kept fresh, and since when.
    pub fn standings(&self) -> Vec<ReloadStanding> {
        let told = self.current().into_iter().filter_map(|entry| {
            // One that is being loaded right now is neither good nor bad yet.
            let (loaded, failure) =
                entry.state.try_lock().map(|state| (state.loaded, state.failure.clone()))?;
            Some(ReloadStanding { what: entry.what.clone(), loaded, failure })
        });
        told.collect()
    }

    /// Tells of each look that was asked for.
    pub fn looks(&self) -> watch::Receiver<Looks> {
        self.looks.subscribe()
    }

    /// The handle with which a signal handler asks for a look.
    pub fn trigger(&self) -> ReloadTrigger {
        self.trigger.clone()
    }

    /// Keeps everything fresh until the process drains. One per process.
    pub async fn run(self, shutdown: Shutdown) {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let look = tokio::select! {
                biased;
                () = shutdown.draining() => return,
                () = self.trigger.fired() => Look::Content,
                _ = interval.tick() => Look::Stamps,
            };
            if look == Look::Content {
                self.looks.send_modify(|looks| looks.begun += 1);
            }
            let reloads = self.clone();
            if tokio::task::spawn_blocking(move || reloads.look(look)).await.is_err() {
                tracing::error!("a load function panicked while files were checked");
            }
            if look == Look::Content {
                self.looks.send_modify(|looks| looks.done += 1);
            }
        }
    }

    /// Looks at every file's content now, on this thread. Blocks.
    pub fn check_now(&self) {
        self.look(Look::Content);
    }

    fn look(&self, look: Look) {
        for entry in self.current() {
            self.refresh(&entry, look);
        }
    }

    /// All that are still wanted. Series of others go with them.
    fn current(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries.lock();
        let (kept, gone) = std::mem::take(&mut *entries).into_iter().partition(|entry| entry.is_kept());
        *entries = kept;
        let gone: Vec<Arc<Entry>> = gone;
        for gone in gone.iter().filter(|gone| entries.iter().all(|entry| entry.what != gone.what)) {
            self.told.forget(&gone.what);
        }
        entries.clone()
    }

    fn refresh(&self, entry: &Entry, look: Look) {
        let (what, mut state) = (entry.what.as_str(), entry.state.lock());
        if state.holders > 0 {
            if look == Look::Content {
                state.is_missed = true;
                tracing::info!(what, "is not looked at yet");
            }
            return;
        }
        let stamps: Vec<_> = state.files.iter().map(stamp).collect();
        let untouched = stamps == state.stamps && look == Look::Stamps;
        if untouched && state.failure.is_none() {
            return;
        }
        let digest = digest(&state.files);
        state.stamps = stamps;
        self.told.looked_at(what, &state.files);
        if digest == state.digest && state.failure.is_none() {
            return;
        }
        state.digest = digest;
        match (state.swap)() {
            Ok(named) => {
                state.failure = None;
                state.loaded = SystemTime::now();
                self.told.success(what, &named);
                state.follow(named);
                tracing::info!(what, "reloaded");
            }
            Err(reason) => {
                let reason = with_place(reason, &state.files);
                self.told.failure(what);
                // Tried again with every look, for the fault may pass without a change of the file; said once.
                if state.failure.as_ref() != Some(&reason) {
                    tracing::error!(what, reason, "cannot be reloaded; the last good one stays in effect");
                    state.failure = Some(reason);
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Cheap: content is read only where a file's metadata has changed.
    Stamps,
    /// Reads every file.
    Content,
}

struct Entry {
    what: String,
    keeper: Option<Weak<()>>,
    state: Mutex<Watched>,
}

impl Entry {
    fn is_kept(&self) -> bool {
        self.keeper.as_ref().is_none_or(|keeper| keeper.strong_count() > 0)
    }
}

struct Watched {
    files: Vec<PathBuf>,
    stamps: Vec<Option<Stamp>>,
    digest: u64,
    failure: Option<String>,
    loaded: SystemTime,
    /// How many want it to stay as it is.
    holders: usize,
    /// Somebody has asked for a look meanwhile.
    is_missed: bool,
    swap: Box<dyn Fn() -> Result<Vec<PathBuf>, String> + Send>,
}

impl Watched {
    /// Watches these files from now on. Where they are others than before, nothing is known about their state at the
    /// time they were loaded, so the next look loads them again.
    fn follow(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.stamps = vec![None; files.len()];
            self.digest = 0;
            self.files = files;
        }
    }
}

/// What changes in a file's metadata when its content does: device, inode, length, change time.
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

/// A digest of all contents, only good to see that something has changed.
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

/// The reason, and the line of the fault where it is one of a PEM file and does not say so.
fn with_place(reason: String, files: &[PathBuf]) -> String {
    let fault = files.iter().find_map(|file| PemFault::first_in(file)).map(|fault| fault.to_string());
    match fault {
        Some(fault) if !reason.contains(&fault) => format!("{reason} ({fault})"),
        _ => reason,
    }
}

/// An error with its sources on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::num::ParseIntError;
    use std::path::Path;

    use fairlead_config::DrainConfig;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        metrics: Metrics,
        reloads: Reloads,
    }

    impl Fixture {
        fn new() -> Self {
            let metrics = Metrics::new("test", "0").unwrap();
            let reloads = Reloads::new(&metrics).unwrap();
            Self { dir: tempfile::tempdir().unwrap(), metrics, reloads }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("number")
        }

        /// Replaces the file as an atomic writer does, so that its inode changes.
        fn write(&self, text: &str) {
            let new = self.dir.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, self.path()).unwrap();
        }

        fn number(&self) -> Result<Arc<Reloadable<u32>>, LoadError> {
            let path = self.path();
            self.reloads.register("number", [self.path()], move || read_number(&path))
        }

        fn count(&self, result: &str) -> Option<String> {
            let text = String::from_utf8(self.metrics.text().unwrap().to_vec()).unwrap();
            let name = format!("fairlead_reload_total{{result=\"{result}\",what=\"number\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned))
        }
    }

    fn read_number(path: &Path) -> Result<u32, ParseIntError> {
        fs::read_to_string(path).unwrap_or_default().trim().parse()
    }

    #[tokio::test]
    async fn what_is_held_is_looked_at_when_it_is_held_no_more() {
        let fixture = Fixture::new();
        fixture.write("1");
        let number = fixture.number().unwrap();
        let (one, other) = (fixture.reloads.hold("number"), fixture.reloads.hold("number"));
        fixture.write("2");
        fixture.reloads.check_now();
        drop(one);
        fixture.reloads.check_now();
        assert_eq!(*number.load(), 1);
        drop(other);
        // Whoever asked meanwhile is not forgotten.
        fixture.reloads.trigger().fired().await;
        fixture.reloads.look(Look::Stamps);
        assert_eq!(*number.load(), 2);
    }

    #[test]
    fn a_changed_file_replaces_the_value_and_a_bad_one_does_not() {
        let fixture = Fixture::new();
        fixture.write("1");
        let number = fixture.number().unwrap();
        let early = number.load();
        assert_eq!((*early, number.generation()), (1, 1));

        fixture.reloads.look(Look::Stamps);
        assert_eq!(number.generation(), 1, "nothing has changed");

        fixture.write("2");
        fixture.reloads.look(Look::Stamps);
        assert_eq!((*number.load(), number.generation(), *early), (2, 2, 1));

        for bad in ["x", "y"] {
            fixture.write(bad);
            fixture.reloads.look(Look::Stamps);
            assert_eq!((*number.load(), number.generation()), (2, 2));
        }
        fs::remove_file(fixture.path()).unwrap();
        fixture.reloads.check_now();
        assert_eq!(*number.load(), 2);

        fixture.write("3");
        fixture.reloads.check_now();
        assert_eq!((*number.load(), number.generation()), (3, 3));
        assert_eq!(fixture.count("success").as_deref(), Some("3"));
        assert_eq!(fixture.count("failure").as_deref(), Some("3"));
    }

    #[test]
    fn files_that_a_file_names_are_followed() {
        let fixture = Fixture::new();
        let folder = fixture.dir.path().to_owned();
        let (path, first, second) = (fixture.path(), folder.join("first"), folder.join("second"));
        fs::write(&first, "1").unwrap();
        fs::write(&second, "2").unwrap();
        fixture.write("first");
        let load = move || {
            let named = folder.join(fs::read_to_string(&path).unwrap_or_default());
            Ok::<_, ParseIntError>((read_number(&named)?, vec![path.clone(), named]))
        };
        let number = fixture.reloads.register_naming("number", [fixture.path()], load).unwrap();
        assert_eq!(*number.load(), 1);
        fs::write(&first, "11").unwrap();
        fixture.reloads.check_now();
        assert_eq!(*number.load(), 11, "what is named is followed");
        fixture.write("second");
        fixture.reloads.check_now();
        assert_eq!(*number.load(), 2, "another one is named");
        fs::write(&second, "x").unwrap();
        fixture.reloads.check_now();
        let failures = fixture.reloads.failures();
        assert_eq!((*number.load(), failures.len(), failures[0].0.as_str()), (2, 1, "number"));
        fs::write(&second, "22").unwrap();
        fixture.reloads.check_now();
        assert_eq!((*number.load(), fixture.reloads.failures()), (22, Vec::new()));
    }

    #[test]
    fn the_same_content_in_a_new_file_is_no_change() {
        let fixture = Fixture::new();
        fixture.write("1");
        let number = fixture.number().unwrap();
        fixture.write("1");
        fixture.reloads.look(Look::Stamps);
        fixture.reloads.check_now();
        assert_eq!(number.generation(), 1);
    }

    #[test]
    fn a_fault_outside_the_files_is_tried_again() {
        let fixture = Fixture::new();
        fixture.write("1");
        let other = fixture.dir.path().join("other");
        fs::write(&other, "1").unwrap();
        let (first, second) = (fixture.path(), other.clone());
        let load = move || Ok::<_, ParseIntError>(read_number(&first)? + read_number(&second)?);
        let sum = fixture.reloads.register("sum", [fixture.path()], load).unwrap();
        fixture.write("2");
        fs::write(&other, "x").unwrap();
        fixture.reloads.look(Look::Stamps);
        assert_eq!(*sum.load(), 2);
        fs::write(&other, "5").unwrap();
        fixture.reloads.look(Look::Stamps);
        assert_eq!(*sum.load(), 7);
    }

    #[test]
    fn what_nobody_keeps_is_looked_at_no_more_and_has_no_series() {
        let fixture = Fixture::new();
        fixture.write("1");
        let keeper = Arc::new(());
        let path = fixture.path();
        let kept = fixture.reloads.kept_by(&keeper);
        let number = kept.register("number", [fixture.path()], move || read_number(&path)).unwrap();
        fixture.write("x");
        fixture.reloads.check_now();
        assert_eq!((fixture.reloads.failures().len(), fixture.count("failure").as_deref()), (1, Some("1")));
        drop(keeper);
        fixture.write("2");
        fixture.reloads.check_now();
        assert_eq!((*number.load(), fixture.reloads.failures().len()), (1, 0));
        assert_eq!((fixture.count("failure"), fixture.count("success")), (None, None));
    }

    #[test]
    fn whoever_is_loaded_may_register_and_have_others_follow() {
        let fixture = Fixture::new();
        fixture.write("1");
        let (reloads, path, other) = (fixture.reloads.clone(), fixture.path(), fixture.path());
        let load = move || {
            reloads.follow("other", &[]);
            let other = other.clone();
            let _ = reloads.register("other", [], move || read_number(&other));
            read_number(&path)
        };
        let number = fixture.reloads.register("number", [fixture.path()], load).unwrap();
        fixture.write("2");
        fixture.reloads.check_now();
        assert_eq!(*number.load(), 2);
    }

    #[test]
    fn at_the_start_a_bad_file_is_an_error_that_names_it() {
        let fixture = Fixture::new();
        let error = fixture.number().unwrap_err();
        assert_eq!(error.to_string(), "number cannot be loaded: cannot parse integer from empty string");
    }

    #[tokio::test]
    async fn a_trigger_is_heard_and_followers_are_told() {
        let fixture = Fixture::new();
        fixture.write("1");
        let number = fixture.number().unwrap();
        let mut changes = number.changes();
        let shutdown =
            Shutdown::new(&DrainConfig { window: "0s".parse().unwrap(), ..DrainConfig::default() });
        let task = tokio::spawn(fixture.reloads.clone().run(shutdown.clone()));
        fixture.write("2");
        fixture.reloads.trigger().fire();
        changes.changed().await.unwrap();
        assert_eq!(*number.load(), 2);
        shutdown.begin();
        shutdown.run().await;
        task.await.unwrap();
    }
}
