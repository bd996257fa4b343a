//! Leadership among the cache servers on one etcd.
//!
//! All of them serve reads, watches and writes. The leader compacts etcd: [`Store::compact`](fairlead_store::Store::compact)
//! leaves that to the replica that leads, and only drops the history of the local copy elsewhere. There is no other work of a
//! leader, because a cache server has no controllers, and the definitions that it writes at its start are the same everywhere.

use std::sync::Arc;

use fairlead_process::{Metrics, MetricsError, Shutdown};
use fairlead_store::{Election, Term, TermEnd};
use prometheus::IntGauge;

/// The election of the cache server that leads, and its metric.
pub(crate) struct Leadership {
    election: Option<Arc<dyn Election>>,
    leads: IntGauge,
}

impl Leadership {
    /// Without an election, on a file, this process always leads.
    ///
    /// # Errors
    /// If the metric is registered already.
    pub(crate) fn new(election: Option<Arc<dyn Election>>, metrics: &Metrics) -> Result<Self, MetricsError> {
        let leads = metrics.gauge(
            "fairlead_cache_leader",
            "1 while this process leads the cache servers on one etcd, 0 while another one does.",
        )?;
        leads.set(i64::from(election.is_none()));
        Ok(Self { election, leads })
    }

    /// Campaigns and leads in turns, until the process shuts down; then resigns, so that another one leads at once.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let Self { election: Some(election), leads } = &self else { return shutdown.announced().await };
        loop {
            let term = tokio::select! {
                biased;
                () = shutdown.announced() => return,
                term = election.campaign() => term,
            };
            tracing::info!(term = %term.revision(), "leading the cache servers");
            leads.set(1);
            let end = until_end(&term, &shutdown).await;
            leads.set(0);
            match end {
                TermEnd::Resigned => {
                    election.resign(&term).await;
                    tracing::info!(term = %term.revision(), "resigned from leading the cache servers");
                }
                TermEnd::Lost(reason) => {
                    tracing::warn!(term = %term.revision(), %reason, "no longer leading the cache servers");
                }
            }
        }
    }
}

async fn until_end(term: &Term, shutdown: &Shutdown) -> TermEnd {
    tokio::select! {
        biased;
        () = shutdown.announced() => TermEnd::Resigned,
        end = term.ended() => end,
    }
}
