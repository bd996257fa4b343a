//! One request at a time opens a connection, so that a cold start dials once.
//!
//! Without it three hundred cold requests would open three hundred connections. Requests that waited while a dial failed
//! share its failure instead of dialling again, so that a dead shard costs one timeout, not one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Admits one dial at a time to one shard.
#[derive(Debug, Default)]
pub(crate) struct DialGuard {
    lock: Arc<Mutex<()>>,
    /// Number of failed dials.
    failures: Arc<AtomicU64>,
}

/// The permit to dial; released when dropped.
#[derive(Debug)]
pub(crate) struct DialPermit {
    _lock: OwnedMutexGuard<()>,
    failures: Arc<AtomicU64>,
}

/// Another request's dial failed while this request waited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RecentlyFailed;

impl DialGuard {
    /// Waits until no other request dials.
    ///
    /// # Errors
    /// [`RecentlyFailed`] if a dial failed meanwhile.
    pub(crate) async fn acquire(&self) -> Result<DialPermit, RecentlyFailed> {
        let before = self.failures.load(Ordering::Acquire);
        let lock = Arc::clone(&self.lock).lock_owned().await;
        if self.failures.load(Ordering::Acquire) != before {
            return Err(RecentlyFailed);
        }
        Ok(DialPermit { _lock: lock, failures: Arc::clone(&self.failures) })
    }
}

impl DialPermit {
    /// Reports that the dial failed: the requests that wait now fail with it.
    pub(crate) fn failed(self) {
        self.failures.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn those_who_waited_share_a_failure_and_the_next_tries_again() {
        let gate = Arc::new(DialGuard::default());
        let first = gate.acquire().await.unwrap();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move { gate.acquire().await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        first.failed();
        for outcome in waiting {
            assert_eq!(outcome.await.unwrap(), Err(RecentlyFailed));
        }
        assert!(gate.acquire().await.is_ok());
    }

    #[tokio::test]
    async fn a_successful_dial_admits_the_next_request() {
        let gate = Arc::new(DialGuard::default());
        let first = gate.acquire().await.unwrap();
        let second = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.acquire().await.is_ok() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(second.await.unwrap());
    }
}
