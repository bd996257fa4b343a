//! The number of objects that wait for replication, read from the queue at each scrape: at the end of a reconciliation the
//! queue still has its key, and at the end of a term it is dropped with whatever is in it.

use std::sync::{Arc, Weak};

use fairlead_process::{Metrics, MetricsError};
use parking_lot::Mutex;
use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::Key;
use crate::controller_runtime::Queue;

/// The gauge `fairlead_replication_pending`. Clones are one gauge.
#[derive(Clone)]
pub(super) struct PendingGauge {
    gauge: IntGauge,
    queue: Arc<Mutex<Weak<Queue<Key>>>>,
}

impl PendingGauge {
    /// Registers the gauge.
    ///
    /// # Errors
    /// If it is registered already.
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let name = "fairlead_replication_pending";
        let help = "Objects that are queued for a comparison or a write, or wait for another attempt.";
        let pending = Self { gauge: IntGauge::new(name, help)?, queue: Arc::default() };
        metrics.registry().register(Box::new(pending.clone()))?;
        Ok(pending)
    }

    /// Counts this queue from now on, until it is dropped.
    pub(super) fn follow(&self, queue: &Arc<Queue<Key>>) {
        *self.queue.lock() = Arc::downgrade(queue);
    }
}

impl Collector for PendingGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let queue = self.queue.lock().upgrade();
        self.gauge.set(queue.map_or(0, |queue| i64::try_from(queue.len()).unwrap_or(i64::MAX)));
        self.gauge.collect()
    }
}
