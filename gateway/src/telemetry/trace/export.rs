//! The export of spans to a collector: in batches, by a separate task, with a bounded number of attempts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{
    Backoff, Client, ClientError, ClientOptions, Credentials, CredentialsError, Endpoint, EndpointError,
    NameResolver, Request, TrustRoots,
};
use fairlead_config::{CollectorUrl, TracingConfig};
use fairlead_process::{Metrics, MetricsError, Shutdown};
use http::{Method, StatusCode};
use prometheus::IntCounter;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::telemetry::access_log::truncate;
use crate::telemetry::trace::otlp::{TracedRequest, encode};

/// Maximum number of requests in a batch.
const MAX_BATCH: usize = 512;
/// Maximum number of attempts to send a batch.
const MAX_ATTEMPTS: usize = 3;
/// Time limit for the collector's response.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of the collector's error message in the log.
const MAX_MESSAGE: usize = 256;

/// Counters of spans by result.
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
            "Spans of traced requests: exported, dropped (the queue was full), failed (the collector did not accept them).",
            &["result"],
        )?;
        let counter = |result| spans.with_label_values(&[result]);
        Ok(Self { exported: counter("exported"), dropped: counter("dropped"), failed: counter("failed") })
    }
}

/// The collector's configuration is invalid; the operator must fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    /// The file of certificate authorities cannot be read.
    #[error("{0} cannot be read")]
    Read(PathBuf, #[source] std::io::Error),
    /// The certificate authorities are invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The address is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// The sending side of the queue. Adding a request wakes the task only at the start of a batch and when many are queued.
pub(super) struct Spans {
    // Declared before the wake-up, so that it is dropped first: the task then finds the channel closed.
    sender: mpsc::Sender<Box<TracedRequest>>,
    wakeup: Wakeup,
}

/// Wakes the task when there is work, and when it is dropped.
struct Wakeup(Arc<Notify>);

impl Drop for Wakeup {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Spans {
    /// A queue of at most this many requests, and its receiving side.
    pub(super) fn new(queue: usize) -> (Self, PendingSpans) {
        let (sender, spans) = mpsc::channel(queue);
        let wakeup = Arc::new(Notify::new());
        (Self { sender, wakeup: Wakeup(Arc::clone(&wakeup)) }, PendingSpans { spans, wakeup })
    }

    /// Adds a request. False if the queue is full.
    pub(super) fn enqueue(&self, traced: Box<TracedRequest>) -> bool {
        let count = self.sender.try_send(traced).is_ok();
        let most = self.sender.max_capacity();
        // The task holds the first request of its batch, so the batch is then full; a queue that is half full is drained as well.
        if most - self.sender.capacity() >= (MAX_BATCH - 1).min(most / 2) {
            self.wakeup.0.notify_one();
        }
        count
    }
}

/// The receiving side of the queue.
pub(super) struct PendingSpans {
    spans: mpsc::Receiver<Box<TracedRequest>>,
    wakeup: Arc<Notify>,
}

impl PendingSpans {
    /// Waits for the next batch, until it is full or `interval` after its start. Empty once the sending side is gone.
    #[expect(clippy::vec_box, reason = "the channel carries boxes")]
    async fn next(&mut self, batch: &mut Vec<Box<TracedRequest>>, interval: Duration) {
        // The others stay in the queue, where they are counted.
        if self.spans.recv_many(batch, 1).await == 0 {
            return;
        }
        let until = Instant::now() + interval;
        let mut is_over = false;
        while batch.len() + self.spans.len() < MAX_BATCH && !is_over && !self.spans.is_closed() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => is_over = true,
                () = self.wakeup.notified() => {
                    if self.spans.len() >= self.spans.max_capacity() / 2 {
                        self.take(batch).await;
                    }
                }
            }
        }
        self.take(batch).await;
    }

    /// Moves queued requests to the batch, up to its maximum size.
    #[expect(clippy::vec_box, reason = "the channel carries boxes")]
    async fn take(&mut self, batch: &mut Vec<Box<TracedRequest>>) {
        let queued = self.spans.len().min(MAX_BATCH - batch.len());
        if queued > 0 {
            self.spans.recv_many(batch, queued).await;
        }
    }
}

/// The collector of spans.
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
        names: &NameResolver,
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
        let options = ClientOptions {
            request_timeout: EXPORT_TIMEOUT,
            resolver: names.clone(),
            ..ClientOptions::default()
        };
        Ok(Self {
            client: Client::new(endpoint, Credentials::new(roots)?, options),
            path: url.path().to_owned(),
            service: config.service_name.clone(),
            interval: config.interval.get(),
            results,
        })
    }

    /// Sends batches until the sending side is gone.
    pub(super) async fn run(self, mut waiting: PendingSpans, shutdown: Shutdown) {
        let mut batch = Vec::new();
        let mut failing = false;
        loop {
            waiting.next(&mut batch, self.interval).await;
            if batch.is_empty() {
                return;
            }
            let (body, count) = encode(&self.service, &batch);
            batch.clear();
            let rejected = match self.send(body, &shutdown).await {
                Ok(None) => None,
                Ok(Some(Rejected { spans, message })) => Some((spans.min(count), message)),
                Err(error) => Some((count, error.to_string())),
            };
            let failed = rejected.as_ref().map_or(0, |(spans, _)| *spans);
            self.results.exported.inc_by(count - failed);
            self.results.failed.inc_by(failed);
            match rejected {
                Some((spans, error)) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(?error, spans, "the collector does not accept spans; they are lost");
                }
                None if std::mem::take(&mut failing) => {
                    tracing::info!("the collector accepts spans again");
                }
                Some(_) | None => {}
            }
        }
    }

    /// Sends one batch; returns the spans that the collector has rejected, if any.
    async fn send(&self, body: Vec<u8>, shutdown: &Shutdown) -> Result<Option<Rejected>, ExportError> {
        let body = bytes::Bytes::from(body);
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
        let mut attempts = 1;
        loop {
            let request = Request::new(Method::POST, self.path.as_str());
            let request = request.with_body("application/json", body.clone());
            let error = match self.client.request(request).await {
                Ok(response) if response.status.is_success() => return Ok(Rejected::of(&response.body)),
                Ok(response) => return Err(ExportError::UnexpectedStatus(response.status)),
                Err(error) => error,
            };
            if attempts >= MAX_ATTEMPTS || !error.is_retryable() || shutdown.is_draining() {
                return Err(error.into());
            }
            attempts += 1;
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = shutdown.draining() => {}
            }
        }
    }
}

/// The whole batch failed, because of the collector or its configured address.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// There was no response, or an error.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Redirects are not followed.
    #[error("the collector responds with {0}, which is neither success nor an error: check its address")]
    UnexpectedStatus(StatusCode),
}

/// Spans that a collector has rejected in a response with 200 (OTLP 1.x, "Partial Success").
#[derive(Debug, PartialEq)]
struct Rejected {
    spans: u64,
    message: String,
}

impl Rejected {
    /// The rejected spans according to a response. A response without them, or an invalid one, means that none were rejected.
    fn of(body: &[u8]) -> Option<Self> {
        let response: serde_json::Value = serde_json::from_slice(body).ok()?;
        let partial = response.get("partialSuccess")?;
        // 64-bit integers are strings in protobuf's JSON, but not all collectors write them so.
        let spans = match partial.get("rejectedSpans")? {
            serde_json::Value::String(number) => number.parse().ok()?,
            number => number.as_u64()?,
        };
        let message = partial.get("errorMessage").and_then(serde_json::Value::as_str).unwrap_or_default();
        (spans > 0).then(|| Self { spans, message: truncate(message, MAX_MESSAGE).to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace::otlp::a_request;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The size of the next batch, and the time until it is complete.
    async fn next(waiting: &mut PendingSpans) -> (usize, Duration) {
        let (began, mut batch) = (Instant::now(), Vec::new());
        waiting.next(&mut batch, HOUR).await;
        (batch.len(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_sent_when_it_is_full_or_old_or_when_there_are_no_more() {
        let (spans, mut waiting) = Spans::new(4096);
        let at_once = Duration::ZERO;
        for (count, expected) in [
            (3, (3, HOUR)),
            (600, (512, at_once)),
            (3, (91, HOUR)),
            (1200, (512, at_once)),
            (0, (512, at_once)),
            (0, (176, HOUR)),
        ] {
            (0..count).for_each(|_| assert!(spans.enqueue(Box::new(a_request()))));
            assert_eq!(next(&mut waiting).await, expected, "{count}");
        }
        assert!(spans.enqueue(Box::new(a_request())));
        drop(spans);
        assert_eq!(next(&mut waiting).await, (1, Duration::ZERO));
        assert_eq!(next(&mut waiting).await, (0, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_becomes_full_while_it_waits_is_sent_at_once() {
        let (spans, mut waiting) = Spans::new(4096);
        assert!(spans.enqueue(Box::new(a_request())));
        let more = async {
            tokio::time::sleep(HOUR / 2).await;
            (0..MAX_BATCH).for_each(|_| assert!(spans.enqueue(Box::new(a_request()))));
        };
        let (seen, ()) = tokio::join!(next(&mut waiting), more);
        assert_eq!(seen, (MAX_BATCH, HOUR / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waits_adds_to_the_capacity_of_a_small_queue() {
        let (spans, mut waiting) = Spans::new(16);
        let count = async {
            for _ in 0..100 {
                assert!(spans.enqueue(Box::new(a_request())));
                tokio::task::yield_now().await;
            }
        };
        let (seen, ()) = tokio::join!(next(&mut waiting), count);
        assert_eq!(seen, (100, HOUR));
    }

    #[tokio::test]
    async fn a_full_queue_drops_requests() {
        let (spans, _waiting) = Spans::new(16);
        assert_eq!((0..20).filter(|_| spans.enqueue(Box::new(a_request()))).count(), 16);
    }

    #[test]
    fn rejected_spans_are_counted_in_both_number_formats() {
        let rejected = |spans, message: &str| Some(Rejected { spans, message: message.to_owned() });
        for (body, expected) in [
            ("", None),
            ("{}", None),
            ("<html>", None),
            (r#"{"partialSuccess": {}}"#, None),
            (r#"{"partialSuccess": null}"#, None),
            (r#"{"partialSuccess": {"rejectedSpans": "0", "errorMessage": "a hint"}}"#, None),
            (
                r#"{"partialSuccess": {"rejectedSpans": "7", "errorMessage": "too old"}}"#,
                rejected(7, "too old"),
            ),
            (r#"{"partialSuccess": {"rejectedSpans": 7}}"#, rejected(7, "")),
            (r#"{"partialSuccess": {"rejectedSpans": -7}}"#, None),
        ] {
            assert_eq!(Rejected::of(body.as_bytes()), expected, "{body}");
        }
    }
}
