//! What is remembered of one request while it is being answered, for those who look at it afterwards: metrics, the
//! access log, traces.
//!
//! It is noted by whoever comes to know it and read once, at the end. It lives as long as an open watch, so it is small,
//! and shared by reference with everything that works on the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fairlead_authn::Identity;
use parking_lot::Mutex;

use crate::telemetry::metrics::RequestStage;

/// Of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestStats {
    phases: [Span; RequestStage::OF_REQUEST.len()],
    first_byte: Span,
    noted: Mutex<RequestAnnotations>,
}

/// What was found out about a request.
#[derive(Debug, Default)]
pub(crate) struct RequestAnnotations {
    /// Who asks, if that was judged here.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The id of the logical cluster that the path leads to.
    pub(crate) cluster: Option<Arc<str>>,
    /// Why the gateway answered itself, if it did.
    pub(crate) why: Option<&'static str>,
    /// Bytes of that answer's body.
    pub(crate) own_bytes: u32,
}

impl RequestStats {
    /// A phase took so long; several times are added up.
    pub(crate) fn phase(&self, phase: RequestStage, took: Duration) {
        if let Some(span) = self.span(phase) {
            span.add(took);
        }
    }

    /// How long a phase took, if there was one.
    pub(crate) fn took(&self, phase: RequestStage) -> Option<Duration> {
        self.span(phase)?.get()
    }

    /// The head of the shard's answer came after so long.
    pub(crate) fn first_byte(&self, after: Duration) {
        self.first_byte.add(after);
    }

    /// Who asks.
    pub(crate) fn identity(&self, identity: &Arc<Identity>) {
        self.noted.lock().identity = Some(Arc::clone(identity));
    }

    /// Where the path leads.
    pub(crate) fn cluster(&self, cluster: &Arc<str>) {
        self.noted.lock().cluster = Some(Arc::clone(cluster));
    }

    /// When the head of the shard's answer came, if it did.
    pub(crate) fn got_first_byte(&self) -> Option<Duration> {
        self.first_byte.get()
    }

    /// The gateway answered itself, with so many bytes.
    pub(crate) fn answered(&self, why: &'static str, bytes: usize) {
        let mut noted = self.noted.lock();
        noted.why = Some(why);
        noted.own_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// What was found out so far. What is done with it must be short while others work on the request, and never come back
    /// to this.
    pub(crate) fn with<T>(&self, what: impl FnOnce(&RequestAnnotations) -> T) -> T {
        what(&self.noted.lock())
    }

    fn span(&self, phase: RequestStage) -> Option<&Span> {
        let at = RequestStage::OF_REQUEST.iter().position(|one| *one == phase)?;
        self.phases.get(at)
    }
}

/// A time in tenths of a microsecond, at most seven minutes; 0 if there was none.
#[derive(Debug, Default)]
struct Span(AtomicU32);

impl Span {
    fn add(&self, took: Duration) {
        let tenths = u32::try_from(took.as_nanos() / 100).unwrap_or(u32::MAX).max(1);
        // Nobody else adds to it at the same time.
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
    fn phases_add_up_and_those_that_were_not_are_not_there() {
        let seen = RequestStats::default();
        for (phase, took, expected) in [
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
            seen.phase(phase, took);
            assert_eq!(seen.took(phase), expected, "{phase:?} {took:?}");
        }
        assert_eq!(seen.took(RequestStage::Route), None);
    }
}
