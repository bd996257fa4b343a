//! Batches of events, and the limit of their rate.

use std::time::Duration;

use tokio::time::Instant;

/// The settings of batches.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// Number of events that wait at most; further ones are lost and counted.
    pub buffer_size: usize,
    /// Number of events in a batch.
    pub max_size: usize,
    /// Time after which an incomplete batch is sent.
    pub max_wait: Duration,
    /// Limit of batches per second.
    pub throttle: Option<Throttle>,
}

/// A limit of batches per second.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// Batches per second.
    pub rate: f64,
    /// Batches at once after a pause.
    pub burst: u32,
}

/// A token bucket.
pub(super) struct TokenBucket {
    throttle: Throttle,
    tokens: f64,
    updated: Instant,
}

impl TokenBucket {
    pub(super) fn new(throttle: Throttle) -> Self {
        Self { throttle, tokens: f64::from(throttle.burst), updated: Instant::now() }
    }

    /// Takes a token. Returns the time to wait for it.
    pub(super) fn take(&mut self) -> Duration {
        let now = Instant::now();
        let gained = now.duration_since(self.updated).as_secs_f64() * self.throttle.rate;
        self.tokens = (self.tokens + gained).min(f64::from(self.throttle.burst)) - 1.0;
        self.updated = now;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.throttle.rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_followed_by_the_rate() {
        let mut bucket = TokenBucket::new(Throttle { rate: 10.0, burst: 3 });
        assert_eq!([bucket.take(), bucket.take(), bucket.take()], [Duration::ZERO; 3]);
        assert_eq!(bucket.take(), Duration::from_millis(100));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(bucket.take(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!([bucket.take(), bucket.take(), bucket.take()], [Duration::ZERO; 3]);
        assert!(bucket.take() > Duration::ZERO);
    }
}
