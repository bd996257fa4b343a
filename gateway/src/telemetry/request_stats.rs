//! Per-request statistics, collected while the request is served and read once at its end by metrics, access log and tracing.
//!
//! Each part of the pipeline records its own values. The statistics live as long as an open watch, so they are small,
//! and they are shared by reference.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fairlead_authn::Identity;
use parking_lot::Mutex;

use crate::telemetry::metrics::RequestStage;

/// The statistics of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestStats {
    stages: [Span; RequestStage::OF_REQUEST.len()],
    first_byte: Span,
    annotations: Mutex<RequestAnnotations>,
}

/// Properties of a request that were found while it was served.
#[derive(Debug, Default)]
pub(crate) struct RequestAnnotations {
    /// The client's identity, if the gateway authenticated it.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The id of the logical cluster that the path leads to.
    pub(crate) cluster: Option<Arc<str>>,
    /// Reason of the gateway's own response, if it did not forward the request.
    pub(crate) reason: Option<&'static str>,
    /// Body size of that response in bytes.
    pub(crate) local_bytes: u32,
}

impl RequestStats {
    /// Adds to the duration of a stage.
    pub(crate) fn stage(&self, stage: RequestStage, took: Duration) {
        if let Some(span) = self.span(stage) {
            span.add(took);
        }
    }

    /// The duration of a stage, if the request went through it.
    pub(crate) fn duration_of(&self, stage: RequestStage) -> Option<Duration> {
        self.span(stage)?.get()
    }

    /// Records the time to the first byte of the shard's response.
    pub(crate) fn first_byte(&self, after: Duration) {
        self.first_byte.add(after);
    }

    /// Records the client's identity.
    pub(crate) fn identity(&self, identity: &Arc<Identity>) {
        self.annotations.lock().identity = Some(Arc::clone(identity));
    }

    /// Records the logical cluster of the path.
    pub(crate) fn cluster(&self, cluster: &Arc<str>) {
        self.annotations.lock().cluster = Some(Arc::clone(cluster));
    }

    /// The time to the first byte of the shard's response, if it came.
    pub(crate) fn time_to_first_byte(&self) -> Option<Duration> {
        self.first_byte.get()
    }

    /// Records a response of the gateway itself and its body size.
    pub(crate) fn local_response(&self, reason: &'static str, bytes: usize) {
        let mut annotations = self.annotations.lock();
        annotations.reason = Some(reason);
        annotations.local_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Reads the annotations. `read` is called under a lock: it must be short and must not call methods of these statistics.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&RequestAnnotations) -> T) -> T {
        read(&self.annotations.lock())
    }

    fn span(&self, stage: RequestStage) -> Option<&Span> {
        let index = RequestStage::OF_REQUEST.iter().position(|one| *one == stage)?;
        self.stages.get(index)
    }
}

/// A duration in tenths of a microsecond, at most seven minutes; 0 for none.
#[derive(Debug, Default)]
struct Span(AtomicU32);

impl Span {
    fn add(&self, took: Duration) {
        let tenths = u32::try_from(took.as_nanos() / 100).unwrap_or(u32::MAX).max(1);
        // There is only one writer at a time.
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(tenths), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            tenths => Some(Duration::from_nanos(u64::from(tenths) * 100)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_and_missing_stages_have_no_duration() {
        let seen = RequestStats::default();
        for (stage, took, expected) in [
            (RequestStage::Auth, Duration::ZERO, Some(Duration::from_nanos(100))),
            (RequestStage::Auth, Duration::from_micros(3), Some(Duration::from_nanos(3100))),
            (
                RequestStage::Queue,
                Duration::from_secs(3600),
                Some(Duration::from_nanos(u64::from(u32::MAX) * 100)),
            ),
            (
                RequestStage::Queue,
                Duration::from_secs(1),
                Some(Duration::from_nanos(u64::from(u32::MAX) * 100)),
            ),
            (RequestStage::Tls, Duration::from_secs(1), None),
        ] {
            seen.stage(stage, took);
            assert_eq!(seen.duration_of(stage), expected, "{stage:?} {took:?}");
        }
        assert_eq!(seen.duration_of(RequestStage::Route), None);
    }
}
