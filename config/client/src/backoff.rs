//! Exponential back-off with jitter.

use std::time::Duration;

/// Doubling delays with jitter: the n-th delay is uniformly random in the upper half of `initial * 2^n`, capped at
/// `longest`, so that clients that lost the same server do not reconnect at the same time.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    longest: Duration,
    attempt: u32,
}

impl Backoff {
    /// Delays that start near `initial` and never exceed `longest`.
    pub fn new(initial: Duration, longest: Duration) -> Self {
        Self { initial, longest, attempt: 0 }
    }

    /// The next, longer delay.
    pub fn next_delay(&mut self) -> Duration {
        let full = self.initial.saturating_mul(1u32 << self.attempt.min(20)).min(self.longest);
        self.attempt = self.attempt.saturating_add(1);
        full.mul_f64(0.5 + 0.5 * random_fraction())
    }

    /// Starts over, after a success.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// A uniformly random number in `[0, 1)`, for jitter only. It is not suitable for secrets.
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0u8; 4];
    // Without a source of randomness there is no jitter, which is acceptable.
    if getrandom::fill(&mut bytes).is_err() {
        return 0.5;
    }
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_restart_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        for full in [800u64, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            let delay = backoff.next_delay();
            let full = Duration::from_millis(full);
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(800));
    }

    #[test]
    fn many_attempts_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        for _ in 0..100 {
            assert!(backoff.next_delay() <= Duration::from_secs(30));
        }
    }
}
