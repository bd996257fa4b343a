//! An installation with Prometheus that produces the data of all dashboards and alerts: traffic of all kinds, rejections,
//! reached limits, good and bad reloads, and outages of a shard and of the cache server.

mod device_login;
mod events;
mod prometheus;
mod site;
mod traffic;

use std::path::Path;
use std::time::Duration;

use fairlead_client::{ClientError, CredentialsError};

use crate::harness::HarnessError;
pub use prometheus::{Prometheus, Sample, Series};
pub use site::Site;
use traffic::Traffic;

/// A failure to set up or run the scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// A process, file or program is not available.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A request failed that has to succeed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The credentials are invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// An expected event did not happen.
    #[error("{what}: {last}")]
    Missing {
        /// The expected event.
        what: String,
        /// The last state.
        last: String,
    },
}

impl ScenarioError {
    pub(crate) fn missing(what: impl Into<String>, last: impl ToString) -> Self {
        Self::Missing { what: what.into(), last: last.to_string() }
    }
}

/// The running scenario. Dropping it stops everything.
pub struct Scenario {
    /// The Prometheus that scrapes the installation.
    pub prometheus: Prometheus,
    site: Site,
    traffic: Traffic,
}

impl Scenario {
    /// Starts an installation, Prometheus with this scrape interval, and traffic.
    pub async fn start(folder: &Path, interval: Duration, rules: &Path) -> Result<Self, ScenarioError> {
        let mut site = Site::start(folder).await?;
        site.enable_observability().await?;
        let prometheus = Prometheus::start(folder, &site, interval, rules).await?;
        events::make_workspaces(&site).await?;
        let traffic = Traffic::start(&site).await?;
        Ok(Self { prometheus, site, traffic })
    }

    /// Triggers everything that does not happen by itself. Outages last for `outage`.
    pub async fn run_events(&mut self, outage: Duration) -> Result<(), ScenarioError> {
        events::run_all(&mut self.site, &self.prometheus, outage).await
    }

    /// Stops the traffic.
    pub fn stop_traffic(&mut self) {
        self.traffic.stop();
    }
}

/// Repeats a check after short pauses until it succeeds. For states that no event announces.
pub(crate) async fn until<T, E: ToString, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut check: impl FnMut() -> F,
) -> Result<T, ScenarioError> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(last) if tokio::time::Instant::now() > deadline => {
                return Err(ScenarioError::missing(what, last));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
