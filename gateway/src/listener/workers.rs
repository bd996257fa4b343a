//! Worker threads that serve connections, each with a current-thread runtime of its own (pingora's `NoStealRuntime`).
//!
//! A connection stays on the worker that it was assigned to when it was accepted, and so does all processing of its
//! requests; for upstream servers, each worker prefers its own connections. A request therefore crosses no thread and wakes
//! none: on a work-stealing runtime, wake-ups and contended locks were a fifth of a request's cost (`make bench-gateway`). The
//! cost is that one connection cannot use more than one core.
//!
//! All other tasks (index, reloads, accepting) run on the runtime of the gateway's pingora service. Clients that all
//! workers share (for OIDC issuers, for look-ups of service accounts) run where they were first used.
//!
//! Tasks are spawned on a worker by its handle only. A task that pingora spawns on a `NoStealRuntime` runs on a random
//! worker, which would undo the assignment; so no other code of pingora may spawn here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use pingora_runtime::{BlockingPoolOpts, NoStealRuntime, RuntimeOpts};
use tokio::runtime::Handle;

use crate::upstream::worker::WorkerId;

/// The workers of a process. They end when this is dropped.
pub(crate) struct Workers {
    workers: Box<[Worker]>,
    /// Ends the threads when it is dropped.
    _runtime: NoStealRuntime,
}

struct Worker {
    handle: Handle,
    load: Arc<Load>,
}

struct Load {
    connections: AtomicUsize,
    /// True while the thread runs.
    is_alive: AtomicBool,
}

/// The worker of one connection. Dropping it reduces the worker's count of connections.
pub(crate) struct WorkerAssignment {
    handle: Handle,
    load: Arc<Load>,
}

impl Workers {
    /// Starts one worker per core that the process may use. Panics, as pingora does, if a thread cannot be started.
    pub(crate) fn start() -> Self {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let (blocking, options) = (BlockingPoolOpts::default(), RuntimeOpts::default());
        let runtime = NoStealRuntime::new(count, "worker", blocking, options);
        let workers = (0..count).map(|number| {
            let handle = runtime.get_runtime_at(number).clone();
            let load = Arc::new(Load { connections: AtomicUsize::new(0), is_alive: AtomicBool::new(true) });
            let alive = WorkerAliveGuard(Arc::clone(&load));
            // The first task of the thread, so that all later tasks know their worker. It ends with the runtime.
            handle.spawn(async move {
                WorkerId::new(number).enter();
                let _alive = alive;
                std::future::pending::<()>().await;
            });
            Worker { handle, load }
        });
        Self { workers: workers.collect(), _runtime: runtime }
    }

    /// Returns when every worker has run a task. If a worker has ended, it never returns, so that the liveness check fails.
    pub(crate) async fn probe(&self) {
        for worker in &self.workers {
            if worker.handle.spawn(std::future::ready(())).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Assigns a connection to the live worker with the fewest.
    pub(crate) fn assign(&self) -> WorkerAssignment {
        let order = |worker: &&Worker| {
            let load = &worker.load;
            (!load.is_alive.load(Ordering::Relaxed), load.connections.load(Ordering::Relaxed))
        };
        match self.workers.iter().min_by_key(order) {
            Some(Worker { handle, load }) => WorkerAssignment::new(handle.clone(), Arc::clone(load)),
            // There is always at least one worker.
            None => {
                let load = Load { connections: AtomicUsize::new(0), is_alive: AtomicBool::new(true) };
                WorkerAssignment::new(Handle::current(), Arc::new(load))
            }
        }
    }
}

impl WorkerAssignment {
    fn new(handle: Handle, load: Arc<Load>) -> Self {
        load.connections.fetch_add(1, Ordering::Relaxed);
        Self { handle, load }
    }

    /// The runtime of the worker.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for WorkerAssignment {
    fn drop(&mut self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Dropped with the runtime of its worker.
struct WorkerAliveGuard(Arc<Load>);

impl Drop for WorkerAliveGuard {
    fn drop(&mut self) {
        self.0.is_alive.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn loads(workers: &Workers) -> Vec<usize> {
        workers.workers.iter().map(|worker| worker.load.connections.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn connections_are_spread_and_stay_on_their_worker() {
        let workers = Workers::start();
        let count = workers.workers.len();
        let assignments: Vec<_> = (0..2 * count).map(|_| workers.assign()).collect();
        assert_eq!(loads(&workers), vec![2; count]);
        for assignment in &assignments {
            let (sender, receiver) = std::sync::mpsc::channel();
            assignment.handle().spawn(async move {
                let here = WorkerId::current();
                // A task that it spawns runs on the same worker.
                let beside = tokio::spawn(async { WorkerId::current() }).await.unwrap();
                sender.send((here, beside)).unwrap();
            });
            let (here, beside) = receiver.recv().unwrap();
            assert!(here.is_some() && here == beside, "{here:?}, {beside:?}");
        }
        assert_eq!(WorkerId::current(), None);
        drop(assignments);
        assert_eq!(loads(&workers), vec![0; count]);
    }

    #[test]
    fn a_dead_worker_gets_no_connections() {
        let workers = Workers::start();
        workers.workers[0].load.is_alive.store(false, Ordering::Relaxed);
        let assignments: Vec<_> = (1..workers.workers.len()).map(|_| workers.assign()).collect();
        assert_eq!(loads(&workers)[0], 0);
        drop(assignments);
    }

    #[test]
    fn workers_end_when_they_are_dropped() {
        let workers = Workers::start();
        let assignment = workers.assign();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        assignment.handle().spawn(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        });
        drop(workers);
        // The task is dropped with its worker, and its sender with it.
        assert!(receiver.recv().is_err());
    }
}
