//! Read your writes across the replicas of a server: requests carry the highest revision that responses have shown.
//!
//! Replicas behind one address follow each other with a lag of some milliseconds. The connections of a pool may lead to
//! different ones, and a broken connection is replaced by one to any of them. Each request has the header
//! `x-fairlead-revision`; a replica serves it when it has passed that revision, and shows its own in the response. A replica
//! that does not get there in time refuses the request, and has executed nothing of it: then it is sent on a new connection.
//!
//! Cost of a request: one header each way, two atomic operations and a lock that is held for a comparison.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Of a request: the lowest revision at which it may be served. Of a response: the revision of the replica.
const REVISION: HeaderName = HeaderName::from_static("x-fairlead-revision");
/// Of a response: nothing was executed, for this reason.
const REFUSED: HeaderName = HeaderName::from_static("x-fairlead-refused");

/// A revision that every replica refuses for this long is forgotten: the store was replaced by one with lower revisions.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The revisions that one client has seen.
#[derive(Default)]
pub(crate) struct SeenRevision {
    highest: AtomicU64,
    /// The first of the refusals since a response that was none.
    refused_since: Mutex<Option<Instant>>,
}

impl SeenRevision {
    /// Adds the header of a request.
    pub(crate) fn stamp(&self, headers: &mut HeaderMap) {
        headers.insert(REVISION, HeaderValue::from(self.highest.load(Ordering::Acquire)));
    }

    /// Takes the revision of a response. Returns whether it is the refusal of a replica that is behind.
    pub(crate) fn note(&self, status: StatusCode, headers: &mut HeaderMap) -> bool {
        // A server without replicas, or of another kind, has no such header.
        let Some(revision) = headers.remove(REVISION) else { return false };
        let Some(revision) = revision.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else {
            return false;
        };
        let is_refusal = status == StatusCode::SERVICE_UNAVAILABLE && headers.contains_key(REFUSED);
        let mut refused_since = self.refused_since.lock();
        if !is_refusal {
            *refused_since = None;
            self.highest.fetch_max(revision, Ordering::AcqRel);
        } else if refused_since.get_or_insert_with(Instant::now).elapsed() >= FORGET_AFTER {
            *refused_since = None;
            self.highest.store(revision, Ordering::Release);
        }
        is_refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(seen: &SeenRevision) -> String {
        let mut headers = HeaderMap::new();
        seen.stamp(&mut headers);
        String::from_utf8_lossy(headers[REVISION].as_bytes()).into_owned()
    }

    fn respond(seen: &SeenRevision, code: u16, revision: &'static str, is_refused: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(REVISION, HeaderValue::from_static(revision));
        if is_refused {
            headers.insert(REFUSED, HeaderValue::from_static("behind"));
        }
        let is_refusal = seen.note(StatusCode::from_u16(code).unwrap_or_default(), &mut headers);
        assert!(!headers.contains_key(REVISION));
        is_refusal
    }

    #[test]
    fn the_highest_revision_of_responses_is_sent() {
        let seen = SeenRevision::default();
        assert_eq!(sent(&seen), "0");
        for (code, revision, is_refused, expected) in [
            (200, "7", false, "7"),
            (200, "5", false, "7"),
            (503, "3", true, "7"),
            // Of a server that is overloaded, for example.
            (503, "9", false, "9"),
            (200, "x", false, "9"),
        ] {
            assert_eq!(respond(&seen, code, revision, is_refused), is_refused, "{code} {revision}");
            assert_eq!(sent(&seen), expected, "{code} {revision}");
        }
        assert!(!seen.note(StatusCode::OK, &mut HeaderMap::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_that_is_refused_for_long_is_forgotten() {
        let seen = SeenRevision::default();
        respond(&seen, 200, "70", false);
        respond(&seen, 503, "3", true);
        tokio::time::advance(FORGET_AFTER / 2).await;
        // Another replica is current.
        respond(&seen, 200, "70", false);
        respond(&seen, 503, "3", true);
        tokio::time::advance(FORGET_AFTER / 2).await;
        respond(&seen, 503, "3", true);
        assert_eq!(sent(&seen), "70");
        tokio::time::advance(FORGET_AFTER / 2).await;
        assert!(respond(&seen, 503, "4", true));
        assert_eq!(sent(&seen), "4");
    }
}
