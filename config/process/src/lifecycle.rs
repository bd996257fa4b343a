//! Lifecycle of a process: shutdown, drain, supervised tasks.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_config::{DrainConfig, Timespan};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{FatalError, chain};

/// Extra time after the drain window for tasks to return before they are aborted.
const GRACE: Duration = Duration::from_secs(5);

/// The shutdown of a process in steps: running, announced (not ready any more but still accepting), draining (no new
/// connections, open requests finish), over (remaining work is aborted). It never goes back a step.
#[derive(Clone, Debug)]
pub struct Shutdown {
    inner: Arc<Steps>,
}

#[derive(Debug)]
struct Steps {
    settings: Mutex<DrainConfig>,
    announced: CancellationToken,
    draining: CancellationToken,
    over: CancellationToken,
    /// Time at which the drain is over, and the length of the drain window.
    deadline: Mutex<Option<(Instant, Duration)>>,
    /// The shutdown of the process, if this is the shutdown of a part of it.
    parent: Option<Shutdown>,
}

impl Shutdown {
    /// A shutdown that has not begun.
    pub fn new(drain: &DrainConfig) -> Self {
        let steps = Steps {
            settings: Mutex::new(drain.clone()),
            announced: CancellationToken::new(),
            draining: CancellationToken::new(),
            over: CancellationToken::new(),
            deadline: Mutex::new(None),
            parent: None,
        };
        Self { inner: Arc::new(steps) }
    }

    /// The shutdown of a part of the process, such as a listener. The part shuts down with the process, or earlier by
    /// [`Shutdown::run_now`].
    #[must_use]
    pub fn part(&self) -> Self {
        let steps = Steps {
            settings: Mutex::new(self.inner.settings.lock().clone()),
            announced: self.inner.announced.child_token(),
            draining: self.inner.draining.child_token(),
            over: self.inner.over.child_token(),
            deadline: Mutex::new(None),
            parent: Some(self.clone()),
        };
        Self { inner: Arc::new(steps) }
    }

    /// Changes the settings of a shutdown that has not begun.
    pub fn configure(&self, drain: &DrainConfig) {
        drain.clone_into(&mut self.inner.settings.lock());
    }

    /// Time that open requests have to finish once draining has begun.
    pub fn window(&self) -> Duration {
        match &self.inner.parent {
            Some(parent) => parent.window(),
            None => self.inner.settings.lock().window.get(),
        }
    }

    /// Announces the shutdown. The process is no longer ready; [`Shutdown::run`] performs the other steps.
    pub fn begin(&self) {
        self.inner.announced.cancel();
    }

    /// The same without the delay for load balancers, for when another process serves already.
    pub fn begin_now(&self) {
        self.inner.settings.lock().delay = Timespan::from_millis(0);
        self.begin();
    }

    /// Returns when the shutdown is announced.
    pub async fn announced(&self) {
        self.inner.announced.cancelled().await;
    }

    /// Whether the shutdown has been announced.
    pub fn is_announced(&self) -> bool {
        self.inner.announced.is_cancelled()
    }

    /// Whether new work is rejected.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.is_cancelled()
    }

    /// Returns when draining begins.
    pub async fn draining(&self) {
        self.inner.draining.cancelled().await;
    }

    /// Returns when the drain window has ended and open work is aborted.
    pub async fn over(&self) {
        self.inner.over.cancelled().await;
    }

    /// The view of a long-running request on the shutdown.
    pub fn drain(&self) -> Drain {
        Drain { shutdown: self.clone() }
    }

    /// Performs the steps once [`Shutdown::begin`] has been called, and returns after the last one. Run it once per process;
    /// [`Tasks::supervise`] does.
    pub async fn run(&self) {
        self.inner.announced.cancelled().await;
        let delay = self.inner.settings.lock().delay.get();
        tokio::time::sleep(delay).await;
        self.run_now().await;
    }

    /// Drains now, without an announcement, and returns when the window is over.
    pub async fn run_now(&self) {
        let window = self.window();
        *self.inner.deadline.lock() = Some((Instant::now() + window, window));
        self.inner.draining.cancel();
        tokio::time::sleep(window).await;
        self.inner.over.cancel();
    }

    /// Begins to drain now and returns at once. For a part of the process whose end is awaited by [`Tasks::end`].
    pub fn drain_now(&self) {
        self.inner.draining.cancel();
    }

    fn deadline(&self) -> Option<(Instant, Duration)> {
        let own = *self.inner.deadline.lock();
        own.or_else(|| self.inner.parent.as_ref()?.deadline())
    }
}

/// Notifies a watch or another endless response when it has to end cleanly.
#[derive(Clone, Debug)]
pub struct Drain {
    shutdown: Shutdown,
}

impl Drain {
    /// Whether draining has begun.
    pub fn has_begun(&self) -> bool {
        self.shutdown.is_draining()
    }

    /// Time that open requests have to finish once draining has begun.
    pub fn window(&self) -> Duration {
        self.shutdown.window()
    }

    /// Returns when this stream should end. The streams of a process end spread evenly over the first four fifths of
    /// the window, by `stream` (any number that differs between streams), so that their clients do not all reconnect
    /// at once.
    pub async fn end_of_stream(&self, stream: u64) {
        self.shutdown.draining().await;
        if let Some((deadline, window)) = self.shutdown.deadline() {
            let (now, at) = (Instant::now(), deadline - before_deadline(stream, window));
            // A stream that begins while others end gets its share of the remaining time, at least a fifth of it.
            let left = deadline.saturating_duration_since(now);
            let at = if at < now { deadline - before_deadline(stream, left).mul_f64(0.8) } else { at };
            tokio::time::sleep_until(at).await;
        }
    }
}

fn before_deadline(stream: u64, window: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(stream);
    let share = (hasher.finish() >> 40) as f64 / f64::from(1_u32 << 24);
    window.mul_f64(1.0 - share * 0.8)
}

/// The background tasks of a process: each is awaited, and each failure is reported. Cloning gives another handle.
#[derive(Clone)]
pub struct Tasks {
    shutdown: Shutdown,
    tracker: TaskTracker,
    abort: CancellationToken,
    failures: mpsc::UnboundedSender<TaskFailed>,
    failed: Arc<Mutex<Option<mpsc::UnboundedReceiver<TaskFailed>>>>,
    running: Arc<Mutex<BTreeMap<u64, &'static str>>>,
    next: Arc<AtomicU64>,
    grace: Duration,
}

/// A background task ended with an error or a panic, which ends the process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{task} failed: {reason}")]
pub struct TaskFailed {
    /// The task's name.
    pub task: &'static str,
    /// Its error on one line.
    pub reason: String,
}

impl FatalError for TaskFailed {}

impl Tasks {
    /// An empty set. A task that fails begins `shutdown`.
    pub fn new(shutdown: Shutdown) -> Self {
        // Unbounded, but at most one message per task.
        let (failures, failed) = mpsc::unbounded_channel();
        Self {
            shutdown,
            tracker: TaskTracker::new(),
            abort: CancellationToken::new(),
            failures,
            failed: Arc::new(Mutex::new(Some(failed))),
            running: Arc::default(),
            next: Arc::default(),
            grace: GRACE,
        }
    }

    /// An empty set for a part of the process, which can end earlier. A task that fails begins the shutdown of the process, and
    /// is reported by its supervisor. The caller awaits [`Tasks::end`].
    #[must_use]
    pub fn part(&self) -> Self {
        Self { tracker: TaskTracker::new(), abort: self.abort.child_token(), ..self.clone() }
    }

    /// Waits until all tasks of a part have ended, whose shutdown has begun before; aborts those that still run after `limit`.
    pub async fn end(&self, limit: Duration) {
        self.tracker.close();
        if tokio::time::timeout(limit, self.tracker.wait()).await.is_err() {
            self.abort.cancel();
            self.tracker.wait().await;
        }
    }

    /// Runs a task that cannot fail. It must end when the process drains.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, task.map(Ok::<(), std::convert::Infallible>));
    }

    /// Runs a task whose error ends the process. It must end when the process drains.
    pub fn spawn_fallible<E>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: std::error::Error + Send + 'static,
    {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.running.lock().insert(id, name);
        let (abort, failures, running) =
            (self.abort.clone(), self.failures.clone(), Arc::clone(&self.running));
        self.tracker.spawn(async move {
            let outcome = tokio::select! {
                outcome = AssertUnwindSafe(task).catch_unwind() => outcome,
                () = abort.cancelled() => Ok(Ok(())),
            };
            running.lock().remove(&id);
            let reason = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(error)) => chain(&error),
                Err(_) => "it panicked".to_owned(),
            };
            // Without a supervisor the process is about to end.
            let _ = failures.send(TaskFailed { task: name, reason });
        });
    }

    /// Runs until shutdown, performs its steps and waits for all tasks; aborts tasks that still run some time after the
    /// window. The first failure of a task begins the shutdown and is returned.
    pub async fn supervise(&self) -> Result<(), TaskFailed> {
        let Some(mut failed) = self.failed.lock().take() else {
            // Only the first supervisor reports failures.
            self.tracker.wait().await;
            return Ok(());
        };
        let steps = self.shutdown.run();
        tokio::pin!(steps);
        let mut first_failure = None;
        loop {
            tokio::select! {
                Some(failure) = failed.recv() => {
                    tracing::error!(task = failure.task, reason = failure.reason, "a background task failed");
                    self.shutdown.begin();
                    first_failure.get_or_insert(failure);
                }
                () = self.shutdown.draining() => break,
                () = &mut steps => break,
            }
        }
        self.tracker.close();
        tokio::select! {
            // All tasks have ended before the end of the window.
            () = self.tracker.wait() => {}
            () = async { steps.await; tokio::time::sleep(self.grace).await } => {
                let names: Vec<_> = self.running.lock().values().copied().collect();
                tracing::warn!(tasks = ?names, "aborting tasks that did not end in time");
                self.abort.cancel();
                self.tracker.wait().await;
            }
        }
        while let Ok(failure) = failed.try_recv() {
            first_failure.get_or_insert(failure);
        }
        first_failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn shutdown(delay: &str, window: &str) -> Shutdown {
        Shutdown::new(&DrainConfig { delay: delay.parse().unwrap(), window: window.parse().unwrap() })
    }

    #[tokio::test]
    async fn a_shutdown_has_steps() {
        let shutdown = shutdown("1ms", "1ms");
        let steps = shutdown.clone();
        let steps = tokio::spawn(async move { steps.run().await });
        assert!(!shutdown.is_announced());
        shutdown.begin();
        assert!(shutdown.is_announced() && !shutdown.is_draining(), "still accepting");
        shutdown.draining().await;
        shutdown.drain().end_of_stream(7).await;
        shutdown.over().await;
        steps.await.unwrap();
    }

    #[tokio::test]
    async fn a_partial_shutdown_ends_before_or_with_the_whole() {
        let whole = shutdown("0s", "1ms");
        let (earlier, with_it) = (whole.part(), whole.part());
        earlier.run_now().await;
        assert!(earlier.is_draining() && !whole.is_draining() && !with_it.is_draining());
        earlier.drain().end_of_stream(1).await;
        whole.begin();
        whole.run().await;
        assert!(with_it.is_draining() && with_it.is_announced());
        with_it.drain().end_of_stream(1).await;
        with_it.over().await;
    }

    #[tokio::test]
    async fn settings_can_change_until_the_shutdown_begins() {
        let whole = shutdown("1h", "1h");
        let part = whole.part();
        whole.configure(&DrainConfig { delay: "0s".parse().unwrap(), window: "2ms".parse().unwrap() });
        assert_eq!((whole.window(), part.window()), (Duration::from_millis(2), Duration::from_millis(2)));
        whole.begin();
        whole.run().await;
    }

    #[test]
    fn streams_end_spread_over_the_window() {
        let window = Duration::from_secs(10);
        let ends: Vec<u64> =
            (0..1000).map(|stream| (window - before_deadline(stream, window)).as_secs()).collect();
        assert!(ends.iter().all(|end| *end < 8), "{ends:?}");
        for second in 0..8 {
            let share = ends.iter().filter(|end| **end == second).count();
            assert!((90..=160).contains(&share), "{share} of 1000 in second {second}");
        }
    }

    #[tokio::test]
    async fn supervision_ends_as_soon_as_all_tasks_have() {
        let shutdown = shutdown("0s", "1h");
        let tasks = Tasks::new(shutdown.clone());
        let seen = shutdown.clone();
        tasks.spawn("waits", async move { seen.draining().await });
        shutdown.begin();
        assert_eq!(tasks.supervise().await, Ok(()));
    }

    #[tokio::test]
    async fn a_part_of_the_tasks_ends_before_the_process() {
        let shutdown = shutdown("0s", "1h");
        let tasks = Tasks::new(shutdown.clone());
        let (ended, mut endings) = mpsc::unbounded_channel();
        let part_of_shutdown = shutdown.part();
        let part = tasks.part();
        let drains = part_of_shutdown.clone();
        part.spawn("drains", async move {
            drains.draining().await;
            let _ = ended.send("drained");
        });
        part.spawn("stuck", std::future::pending());
        part_of_shutdown.drain_now();
        part.end(Duration::from_millis(10)).await;
        assert_eq!(endings.recv().await, Some("drained"));
        assert!(!shutdown.is_announced() && !shutdown.is_draining());
        let next = tasks.part();
        next.spawn("of the next part", async {});
        next.end(Duration::from_secs(3600)).await;
        next.spawn_fallible("store", async { Err(std::io::Error::other("disk full")) });
        assert_eq!(
            tasks.supervise().await.unwrap_err().task,
            "store",
            "the process ends with a failure of a part"
        );
    }

    #[tokio::test]
    async fn a_failed_or_panicked_task_ends_the_process_and_is_named() {
        let fails =
            |tasks: &Tasks| tasks.spawn_fallible("store", async { Err(std::io::Error::other("disk full")) });
        let panics = |tasks: &Tasks| tasks.spawn("store", async { panic!("bug") });
        for (start, reason) in [(&fails as &dyn Fn(&Tasks), "disk full"), (&panics, "it panicked")] {
            let shutdown = shutdown("0s", "1h");
            let tasks = Tasks::new(shutdown.clone());
            let seen = shutdown.clone();
            tasks.spawn("server", async move { seen.draining().await });
            start(&tasks);
            let failed = tasks.supervise().await.unwrap_err();
            assert_eq!(failed, TaskFailed { task: "store", reason: reason.to_owned() });
            assert!(shutdown.is_draining());
        }
    }

    #[tokio::test]
    async fn a_failure_is_the_result_although_other_tasks_end_after_the_window() {
        let shutdown = shutdown("0s", "1ms");
        let reloads = crate::Reloads::new(&crate::Metrics::new("test", "0").unwrap()).unwrap();
        let handled = crate::signals(&shutdown, reloads.trigger()).unwrap();
        let tasks = Tasks { grace: Duration::from_millis(1), ..Tasks::new(shutdown.clone()) };
        tasks.spawn("stuck", std::future::pending());
        tasks.spawn_fallible("store", async { Err(std::io::Error::other("disk full")) });
        let outcome = tokio::select! {
            outcome = tasks.supervise() => outcome,
            never = handled => match never {},
        };
        assert_eq!(outcome.unwrap_err().task, "store");
    }

    #[tokio::test]
    async fn a_task_that_does_not_end_is_aborted_after_the_window() {
        let shutdown = shutdown("0s", "1ms");
        let tasks = Tasks { grace: Duration::ZERO, ..Tasks::new(shutdown.clone()) };
        tasks.spawn("stuck", std::future::pending());
        shutdown.begin();
        assert_eq!(tasks.supervise().await, Ok(()));
    }
}
