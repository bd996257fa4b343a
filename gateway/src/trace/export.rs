//! Spans on their way to a collector: in batches, by a task of its own, with a bounded number of tries.

use std::path::PathBuf;
use std::time::Duration;

use fairlead_client::{
    Backoff, Client, ClientError, ClientOptions, Credentials, CredentialsError, Endpoint, EndpointError,
    Names, Request, TrustRoots,
};
use fairlead_config::{CollectorUrl, TracingConfig};
use fairlead_process::{Metrics, MetricsError, Shutdown};
use http::Method;
use prometheus::IntCounter;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::otlp::{Traced, encode};

/// Requests whose spans are sent together.
const MAX_BATCH: usize = 512;
/// How often a batch is sent at most.
const MAX_TRIES: usize = 3;
/// How long the collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What becomes of spans.
#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) exported: IntCounter,
    pub(super) dropped: IntCounter,
    pub(super) failed: IntCounter,
}

impl Results {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let spans = metrics.counters(
            "fairlead_gateway_spans_total",
            "Spans of traced requests: exported, dropped (no room in the queue), failed (the collector did not take them).",
            &["result"],
        )?;
        let counter = |result| spans.with_label_values(&[result]);
        Ok(Self { exported: counter("exported"), dropped: counter("dropped"), failed: counter("failed") })
    }
}

/// A collector cannot be spoken to; the operator has to mend the settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    /// Its authorities.
    #[error("{0} cannot be read")]
    Read(PathBuf, #[source] std::io::Error),
    /// Its authorities are none.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Its address.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Where spans go.
pub(super) struct Collector {
    client: Client,
    path: String,
    service: String,
    interval: Duration,
    results: Results,
}

impl Collector {
    pub(super) fn new(
        url: &CollectorUrl,
        config: &TracingConfig,
        names: &Names,
        results: Results,
    ) -> Result<Self, CollectorError> {
        let endpoint = Endpoint::parse(url.server())?;
        let roots = match &config.server_ca {
            Some(file) => {
                let pem =
                    std::fs::read(file).map_err(|error| CollectorError::Read(file.to_path_buf(), error))?;
                TrustRoots::Pem(pem)
            }
            None if endpoint.is_tls() => TrustRoots::System,
            None => TrustRoots::Nothing,
        };
        let options =
            ClientOptions { request_timeout: PATIENCE, names: names.clone(), ..ClientOptions::default() };
        Ok(Self {
            client: Client::new(endpoint, Credentials::new(roots)?, options),
            path: url.path().to_owned(),
            service: config.service_name.clone(),
            interval: config.interval.get(),
            results,
        })
    }

    /// Sends what comes until nobody has anything to tell any more.
    pub(super) async fn run(self, mut spans: mpsc::Receiver<Box<Traced>>, shutdown: Shutdown) {
        let mut batch = Vec::new();
        let mut failing = false;
        while spans.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let until = Instant::now() + self.interval;
            while batch.len() < MAX_BATCH {
                let room = MAX_BATCH - batch.len();
                // Time is up, or there is nobody left.
                if !matches!(timeout_at(until, spans.recv_many(&mut batch, room)).await, Ok(1..)) {
                    break;
                }
            }
            let (body, count) = encode(&self.service, &batch);
            batch.clear();
            match self.send(body, &shutdown).await {
                Ok(()) => {
                    self.results.exported.inc_by(count);
                    if std::mem::take(&mut failing) {
                        tracing::info!("the collector takes spans again");
                    }
                }
                Err(error) => {
                    self.results.failed.inc_by(count);
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "the collector does not take spans; they are lost");
                    }
                }
            }
        }
    }

    async fn send(&self, body: Vec<u8>, shutdown: &Shutdown) -> Result<(), ClientError> {
        let body = bytes::Bytes::from(body);
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
        let mut tries = 1;
        loop {
            let request = Request::new(Method::POST, self.path.as_str());
            let request = request.with_body("application/json", body.clone());
            let Err(error) = self.client.request(request).await else { return Ok(()) };
            if tries >= MAX_TRIES || !error.is_retryable() || shutdown.is_draining() {
                return Err(error);
            }
            tries += 1;
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = shutdown.draining() => {}
            }
        }
    }
}
