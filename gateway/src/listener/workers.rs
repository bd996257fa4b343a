//! Workers: threads that serve connections, each with a runtime of its own.
//!
//! A client's connection stays on the lane that it was given when it was accepted, and so does whatever is done for its
//! requests; towards servers, each lane prefers connections of its own. So a request crosses no thread, and wakes none:
//! on a runtime that shares its tasks between threads, wake-ups and contended locks were a fifth of a request's cost
//! (`make bench-gateway`). The price is that one connection cannot use more than one core.
//!
//! What is not a connection (index, reloads, accepting) runs on the process's own runtime. Clients that all lanes share (of
//! issuers, for look-ups of service accounts) run where they were first used.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::upstream::worker::WorkerId;

/// All lanes of a process. They end when nobody holds this any more.
#[derive(Debug)]
pub(crate) struct Workers {
    lanes: Box<[Worker]>,
    _end: watch::Sender<()>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// A place for one connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct WorkerAssignment {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts one lane per core that the process may use.
    ///
    /// # Errors
    /// The system has no room for another thread, or for what it waits on.
    pub(crate) fn start() -> io::Result<Self> {
        let (end, ended) = watch::channel(());
        let count = thread::available_parallelism().map_or(1, usize::from);
        let lanes = (0..count).map(|number| start_lane(WorkerId::new(number), ended.clone()));
        Ok(Self { lanes: lanes.collect::<io::Result<_>>()?, _end: end })
    }

    /// Returns when every lane has done something: they are alive.
    pub(crate) async fn answer(&self) {
        for lane in &self.lanes {
            // It ends with its lane, and then the process does not answer.
            if lane.runtime.spawn(std::future::ready(())).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A place on the lane with the fewest connections.
    pub(crate) fn place(&self) -> WorkerAssignment {
        let load = |lane: &&Worker| lane.connections.load(Ordering::Relaxed);
        match self.lanes.iter().min_by_key(load) {
            Some(Worker { runtime, connections }) => {
                connections.fetch_add(1, Ordering::Relaxed);
                WorkerAssignment { runtime: runtime.clone(), connections: Arc::clone(connections) }
            }
            // There is always one.
            None => WorkerAssignment { runtime: Handle::current(), connections: Arc::default() },
        }
    }
}

impl WorkerAssignment {
    /// Where tasks of the connection run.
    pub(crate) fn handle(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for WorkerAssignment {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start_lane(lane: WorkerId, mut ended: watch::Receiver<()>) -> io::Result<Worker> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("lane {}", lane.number())).spawn(move || {
        lane.enter();
        runtime.block_on(async {
            // Nothing is ever sent; it ends with its sender.
            while ended.changed().await.is_ok() {}
        });
        // Without waiting for what a task may have left to other threads.
        runtime.shutdown_background();
    })?;
    Ok(Worker { runtime: handle, connections: Arc::default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn connections_are_spread_and_stay_where_they_are() {
        let lanes = Workers::start().unwrap();
        let count = lanes.lanes.len();
        let places: Vec<_> = (0..2 * count).map(|_| lanes.place()).collect();
        let loads = |lanes: &Workers| -> Vec<_> {
            lanes.lanes.iter().map(|lane| lane.connections.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(loads(&lanes), vec![2; count]);
        for place in &places {
            let (sender, receiver) = std::sync::mpsc::channel();
            place.handle().spawn(async move {
                let here = WorkerId::current();
                // What it spawns stays beside it.
                let beside = tokio::spawn(async { WorkerId::current() }).await.unwrap();
                sender.send((here, beside)).unwrap();
            });
            let (here, beside) = receiver.recv().unwrap();
            assert!(here.is_some() && here == beside, "{here:?}, {beside:?}");
        }
        assert_eq!(WorkerId::current(), None);
        drop(places);
        assert_eq!(loads(&lanes), vec![0; count]);
    }

    #[test]
    fn lanes_end_when_nobody_holds_them() {
        let lanes = Workers::start().unwrap();
        let place = lanes.place();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        place.handle().spawn(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        });
        drop(lanes);
        // The task is dropped with its lane, and its sender with it.
        assert!(receiver.recv().is_err());
    }
}
