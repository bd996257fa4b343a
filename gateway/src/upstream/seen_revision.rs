//! The highest revision that responses of a shard had, for shards with several replicas.
//!
//! The gateway sends it with each request to such a shard. A replica responds when its view has passed it, so a client reads what
//! any client has written through this gateway, whatever replica served the write.
//!
//! Cost per request and response: one relaxed load; a response that is newer than all before adds one atomic maximum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use crate::request::{REFUSED, REVISION};

/// Time after which a revision that no replica has is forgotten. The shard's store was replaced by an older one then.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The highest revision of one shard.
#[derive(Debug)]
pub(super) struct SeenRevision {
    highest: AtomicU64,
    /// Time of the first refusal since a replica had the highest revision, in milliseconds after `created`; 0 for none.
    refused_since: AtomicU64,
    created: Instant,
}

/// What a response says about its replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReplicaState {
    /// It has served the request.
    Served,
    /// It has not executed the request, because it has not passed the requested revision.
    Behind,
}

impl Default for SeenRevision {
    fn default() -> Self {
        Self { highest: AtomicU64::new(0), refused_since: AtomicU64::new(0), created: Instant::now() }
    }
}

impl SeenRevision {
    /// The highest revision; 0 before the first response.
    pub(super) fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Takes the headers about revisions off a response, and notes its revision.
    pub(super) fn take(&self, headers: &mut HeaderMap) -> ReplicaState {
        // Shards of kcp send none.
        let Some(revision) = headers.remove(REVISION) else { return ReplicaState::Served };
        let revision = revision.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or_default();
        if headers.remove(REFUSED).is_some() {
            self.refused(revision);
            ReplicaState::Behind
        } else {
            self.served(revision);
            ReplicaState::Served
        }
    }

    fn served(&self, revision: u64) {
        let highest = self.highest();
        if revision > highest {
            self.highest.fetch_max(revision, Ordering::Relaxed);
        }
        if revision >= highest && self.refused_since.load(Ordering::Relaxed) != 0 {
            self.refused_since.store(0, Ordering::Relaxed);
        }
    }

    fn refused(&self, revision: u64) {
        let now = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let since = self.refused_since.load(Ordering::Relaxed);
        if since == 0 {
            self.refused_since.store(now, Ordering::Relaxed);
        } else if Duration::from_millis(now.saturating_sub(since)) >= FORGET_AFTER {
            tracing::warn!(
                from = self.highest(),
                to = revision,
                "a shard has gone back to an older revision"
            );
            self.highest.store(revision, Ordering::Relaxed);
            self.refused_since.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(revision: u64, is_refused: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(REVISION, revision.into());
        if is_refused {
            headers.insert(REFUSED, http::HeaderValue::from_static("behind"));
        }
        headers
    }

    #[test]
    fn the_highest_revision_of_all_replicas_counts() {
        let seen = SeenRevision::default();
        assert_eq!(seen.take(&mut HeaderMap::new()), ReplicaState::Served, "a shard of kcp");
        for (revision, is_refused, highest) in
            [(0, false, 0), (7, false, 7), (5, false, 7), (6, true, 7), (9, false, 9), (20, true, 9)]
        {
            let mut headers = response(revision, is_refused);
            let state = if is_refused { ReplicaState::Behind } else { ReplicaState::Served };
            assert_eq!(seen.take(&mut headers), state);
            assert!(headers.is_empty(), "clients do not see them");
            assert_eq!(seen.highest(), highest, "after {revision}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_that_no_replica_has_for_a_minute_is_forgotten() {
        let seen = SeenRevision::default();
        let take = |revision, is_refused| {
            seen.take(&mut response(revision, is_refused));
            seen.highest()
        };
        tokio::time::advance(FORGET_AFTER * 2).await;
        assert_eq!(take(100, false), 100);
        assert_eq!(take(10, true), 100);
        tokio::time::advance(FORGET_AFTER).await;
        assert_eq!(take(100, false), 100, "another replica has it");
        assert_eq!(take(10, true), 100, "this one was behind, now and then");
        tokio::time::advance(FORGET_AFTER).await;
        assert_eq!(take(10, true), 10);
        assert_eq!(take(11, false), 11);
    }
}
