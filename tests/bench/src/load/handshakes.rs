//! New TLS connections: full handshakes, one after the other.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::error::BenchError;
use crate::wire::connect;

/// Concurrent handshakes.
const MAX_CONCURRENT: usize = 8;

/// Repeats handshakes until it is stopped. Needs a `LocalSet`.
pub(crate) struct Handshakes {
    completed: Rc<Cell<u64>>,
    stop: Rc<Cell<bool>>,
    workers: Vec<JoinHandle<Result<(), BenchError>>>,
}

impl Handshakes {
    pub(crate) fn start(address: SocketAddr, tls: &Arc<rustls::ClientConfig>) -> Self {
        let (completed, stop) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let work = |_| {
            let (tls, completed, stop) = (Arc::clone(tls), Rc::clone(&completed), Rc::clone(&stop));
            tokio::task::spawn_local(async move {
                while !stop.get() {
                    let mut stream = connect(address, &tls).await?;
                    let mut rest = Vec::new();
                    // The server closes the connection. By then it has processed the last message of the handshake.
                    let _ = stream.shutdown().await;
                    let _ = stream.read_to_end(&mut rest).await;
                    completed.set(completed.get() + 1);
                }
                Ok(())
            })
        };
        let workers = (0..MAX_CONCURRENT).map(work).collect();
        Self { completed, stop, workers }
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.get()
    }

    pub(crate) async fn stop(self) -> Result<(), BenchError> {
        self.stop.set(true);
        for worker in self.workers {
            worker.await.map_err(|error| BenchError::unexpected(error.to_string()))??;
        }
        Ok(())
    }
}
