//! A closed loop: every stream always has exactly one open request.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::ended;
use crate::error::BenchError;
use crate::wire::{Connection, Protocol, RequestSpec};

/// Numbers of connections and of streams per connection.
#[derive(Clone)]
pub(crate) struct ClosedLoad {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    pub(crate) protocol: Protocol,
    pub(crate) connections: usize,
    pub(crate) streams: usize,
    pub(crate) request: RequestSpec,
}

/// A load that runs until it is stopped. Needs a `LocalSet`.
pub(crate) struct Running {
    tally: Rc<Tally>,
    workers: Vec<JoinHandle<Result<(), BenchError>>>,
}

#[derive(Default)]
struct Tally {
    completed: Cell<u64>,
    stop: Cell<bool>,
}

impl ClosedLoad {
    /// Opens all connections, then starts the load.
    pub(crate) async fn start(&self) -> Result<Running, BenchError> {
        let connections = self.connect().await?;
        let tally = Rc::new(Tally::default());
        let work = |connection| tokio::task::spawn_local(repeat(connection, self.streams, Rc::clone(&tally)));
        let workers = connections.into_iter().map(work).collect();
        Ok(Running { tally, workers })
    }

    /// Opens all connections.
    pub(super) async fn connect(&self) -> Result<Vec<Connection>, BenchError> {
        let mut connections = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            connections.push(Connection::open(self.address, &self.tls, self.protocol, &self.request).await?);
        }
        Ok(connections)
    }
}

impl Running {
    /// Number of completed requests so far.
    pub(crate) fn completed(&self) -> u64 {
        self.tally.completed.get()
    }

    /// Waits for the end of the open requests.
    pub(crate) async fn stop(self) -> Result<(), BenchError> {
        self.tally.stop.set(true);
        for worker in self.workers {
            worker.await.map_err(|error| BenchError::unexpected(error.to_string()))??;
        }
        Ok(())
    }
}

async fn repeat(mut connection: Connection, streams: usize, tally: Rc<Tally>) -> Result<(), BenchError> {
    let mut open: Vec<u32> = (0..streams).map(|_| connection.send()).collect();
    let mut events = Vec::new();
    while !open.is_empty() {
        connection.flush().await?;
        connection.receive(&mut events).await?;
        for event in events.drain(..) {
            let Some(stream) = ended(event)? else { continue };
            let Some(position) = open.iter().position(|known| *known == stream) else { continue };
            tally.completed.set(tally.completed.get() + 1);
            if tally.stop.get() {
                open.swap_remove(position);
            } else {
                open[position] = connection.send();
            }
        }
    }
    Ok(())
}
