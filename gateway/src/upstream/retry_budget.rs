//! The retry budget of a server: retries are rare, so that a server in trouble is not overloaded by them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of requests that earn one retry: 20 %.
const REQUESTS_PER_RETRY: i64 = 5;
/// Maximum budget, in requests.
const MAX_BUDGET: i64 = 100 * REQUESTS_PER_RETRY;
/// Retries that are allowed regardless of the number of requests, per [`MIN_RETRIES_PERIOD`].
const MIN_RETRIES: u32 = 10;
const MIN_RETRIES_PERIOD: Duration = Duration::from_secs(10);

/// The budget of one server. Counting a request costs one atomic addition.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// Unused budget, in requests.
    saved: AtomicI64,
    minimum: Mutex<(Instant, u32)>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { saved: AtomicI64::new(0), minimum: Mutex::new((Instant::now(), 0)) }
    }
}

impl RetryBudget {
    /// Counts a request that was sent for the first time.
    pub(crate) fn earn(&self) {
        if self.saved.load(Ordering::Relaxed) < MAX_BUDGET {
            self.saved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if a request may be retried; counts the retry if so.
    pub(crate) fn spend(&self) -> bool {
        let less = |saved: i64| (saved >= REQUESTS_PER_RETRY).then_some(saved - REQUESTS_PER_RETRY);
        if self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return true;
        }
        let mut minimum = self.minimum.lock();
        if minimum.0.elapsed() >= MIN_RETRIES_PERIOD {
            *minimum = (Instant::now(), 0);
        }
        minimum.1 += 1;
        minimum.1 <= MIN_RETRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_requests_and_a_minimum_may_be_retried() {
        let budget = RetryBudget::default();
        let spend = |tries| (0..tries).filter(|_| budget.spend()).count();
        assert_eq!(spend(50), MIN_RETRIES as usize);
        for _ in 0..100 {
            budget.earn();
        }
        assert_eq!(spend(50), 20);
        for _ in 0..10_000 {
            budget.earn();
        }
        assert_eq!(spend(1000), 100);
    }
}
