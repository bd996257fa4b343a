//! An installation with its Prometheus, in which everything happens that dashboards and alerts are about: traffic of every
//! kind, refusals, limits, reloads good and bad, a shard and a cache server that are gone for a while.

mod events;
mod person;
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

/// A scene could not be set, or something in it did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SceneError {
    /// A process, a file, a program.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A request that has to succeed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Credentials that were made just now.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Something that has to happen did not.
    #[error("{what}: {last}")]
    Missing {
        /// What.
        what: String,
        /// What was there instead.
        last: String,
    },
}

impl SceneError {
    pub(crate) fn missing(what: impl Into<String>, last: impl ToString) -> Self {
        Self::Missing { what: what.into(), last: last.to_string() }
    }
}

/// Everything at once. Dropped, all of it ends.
pub struct Scene {
    /// Who looks at it.
    pub prometheus: Prometheus,
    site: Site,
    traffic: Traffic,
}

impl Scene {
    /// Starts an installation, with Prometheus looking at it as often, and traffic.
    pub async fn begin(folder: &Path, interval: Duration, rules: &Path) -> Result<Self, SceneError> {
        let mut site = Site::start(folder).await?;
        site.open_to_sight().await?;
        let prometheus = Prometheus::start(folder, &site, interval, rules).await?;
        events::make_workspaces(&site).await?;
        let traffic = Traffic::start(&site).await?;
        Ok(Self { prometheus, site, traffic })
    }

    /// Has everything happen that does not happen by itself, each thing lasting so long.
    pub async fn play(&mut self, outage: Duration) -> Result<(), SceneError> {
        events::play(&mut self.site, &self.prometheus, outage).await
    }

    /// Ends the traffic.
    pub fn quiet(&mut self) {
        self.traffic.stop();
    }
}

/// Asks again after a short pause until the answer is yes. Only for what no event tells.
pub(crate) async fn until<T, E: ToString, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut question: impl FnMut() -> F,
) -> Result<T, SceneError> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match question().await {
            Ok(answer) => return Ok(answer),
            Err(last) if tokio::time::Instant::now() > deadline => {
                return Err(SceneError::missing(what, last));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
