//! Writes the snapshot at an interval, if the table has changed, and once more when the process ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fairlead_process::Shutdown;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::routing::index::snapshot::{Header, SnapshotFile};
use crate::routing::table::RoutingTable;

/// The interval is at least this many times the duration of the last write: 5 % of the time.
const MIN_INTERVAL_FACTOR: u32 = 20;

/// Task that writes the snapshot.
pub(super) struct SnapshotWriter {
    pub(super) file: SnapshotFile,
    pub(super) interval: Duration,
    pub(super) selection: String,
    pub(super) table: Arc<RoutingTable>,
    pub(super) identity: watch::Receiver<Option<Arc<str>>>,
    /// The table is written only once the gateway is ready.
    pub(super) ready: watch::Receiver<bool>,
}

impl SnapshotWriter {
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut written = None;
        let mut took = Duration::ZERO;
        let mut failed = false;
        loop {
            let is_last = tokio::select! {
                () = tokio::time::sleep(self.interval.max(took * MIN_INTERVAL_FACTOR)) => false,
                () = shutdown.draining() => true,
            };
            let table = self.table.load_full();
            let version = table.version();
            if *self.ready.borrow_and_update() && written != Some(version) {
                let identity = self.identity.borrow().clone();
                let header =
                    Header { written_at: SystemTime::now(), identity, selection: self.selection.clone() };
                let file = self.file.clone();
                let began = Instant::now();
                let outcome = tokio::task::spawn_blocking(move || file.write(&header, &table)).await;
                took = began.elapsed();
                match outcome {
                    Ok(Ok(())) => {
                        written = Some(version);
                        failed = false;
                    }
                    // Log the first failure only.
                    Ok(Err(error)) if !failed => {
                        tracing::warn!(file = %self.file.path().display(), %error, "the snapshot of the index cannot be written");
                        failed = true;
                    }
                    Ok(Err(_)) => {}
                    Err(error) => tracing::error!(%error, "writing the snapshot of the index was aborted"),
                }
            }
            if is_last {
                return;
            }
        }
    }
}
