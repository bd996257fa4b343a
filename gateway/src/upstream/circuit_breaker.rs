//! A server that cannot be connected to is left alone for a while, so that requests for it fail at once and cost nothing.
//!
//! One attempt at a time finds out whether it is back; everybody else hears at once that it is not. An open connection is
//! used whatever happens to new ones. Pauses do not grow: an attempt twice a second costs nothing, and a server that is
//! back should be found at once.

use std::time::Duration;

use fairlead_config::CircuitBreakerConfig;
use parking_lot::Mutex;
use tokio::time::Instant;

/// When a server is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BreakerOptions {
    /// Failures in a row; 0 for never.
    failures: u32,
    pause: Duration,
}

impl BreakerOptions {
    /// As settings have it.
    pub(crate) fn new(config: &CircuitBreakerConfig) -> Self {
        Self { failures: config.failures, pause: config.open_duration.get() }
    }
}

/// Whether one server is left alone.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Attempts in a row that failed.
    failures: u32,
    /// Until when nobody tries.
    until: Option<Instant>,
    /// Somebody tries after a pause.
    trying: bool,
}

/// Nobody tries now. A retry helps after a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CircuitOpen;

/// The right to try once. Dropped without a word, it says nothing about the server.
#[derive(Debug)]
pub(super) struct Attempt<'b> {
    breaker: &'b Breaker,
    options: BreakerOptions,
    after_pause: bool,
}

impl Breaker {
    /// Asks whether to try.
    ///
    /// # Errors
    /// [`CircuitOpen`], at once.
    pub(super) fn attempt(&self, options: BreakerOptions) -> Result<Attempt<'_>, CircuitOpen> {
        if self.rests(options) {
            return Err(CircuitOpen);
        }
        let mut state = self.state.lock();
        let after_pause = options.failures > 0 && state.failures >= options.failures;
        if after_pause && std::mem::replace(&mut state.trying, true) {
            return Err(CircuitOpen);
        }
        Ok(Attempt { breaker: self, options, after_pause })
    }

    /// Whether an attempt would be refused now.
    pub(super) fn rests(&self, options: BreakerOptions) -> bool {
        let state = *self.state.lock();
        options.failures > 0
            && state.failures >= options.failures
            && (state.trying || state.until.is_some_and(|until| Instant::now() < until))
    }

    /// Whether the server is left alone, or was and nobody knows yet that it is back.
    pub(super) fn is_open(&self, options: BreakerOptions) -> bool {
        options.failures > 0 && self.state.lock().failures >= options.failures
    }
}

impl Attempt<'_> {
    /// The server is there.
    pub(super) fn succeeded(self) {
        let mut state = self.breaker.state.lock();
        (state.failures, state.until) = (0, None);
    }

    /// It is not.
    pub(super) fn failed(self) {
        let BreakerOptions { failures, pause } = self.options;
        let mut state = self.breaker.state.lock();
        state.failures = state.failures.saturating_add(1);
        if failures > 0 && state.failures >= failures {
            state.until = Some(Instant::now() + pause);
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.after_pause {
            self.breaker.state.lock().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const OPTIONS: BreakerOptions = BreakerOptions { failures: 3, pause: Duration::from_secs(1) };

    #[tokio::test(start_paused = true)]
    async fn after_failures_in_a_row_one_at_a_time_finds_out() {
        let breaker = Breaker::default();
        let attempt = || breaker.attempt(OPTIONS);
        for _ in 0..2 {
            attempt().unwrap().failed();
        }
        attempt().unwrap().succeeded();
        for _ in 0..3 {
            assert!(!breaker.is_open(OPTIONS));
            attempt().unwrap().failed();
        }
        for _ in 0..5 {
            assert!(breaker.is_open(OPTIONS));
            assert_eq!(attempt().unwrap_err(), CircuitOpen);
            tokio::time::advance(Duration::from_millis(999)).await;
            assert_eq!(attempt().unwrap_err(), CircuitOpen);
            tokio::time::advance(Duration::from_millis(1)).await;
            let trying = attempt().unwrap();
            assert_eq!(attempt().unwrap_err(), CircuitOpen, "one at a time");
            trying.failed();
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(attempt().unwrap());
        attempt().unwrap().succeeded();
        let (one, other) = (attempt().unwrap(), attempt().unwrap());
        assert!(!breaker.is_open(OPTIONS));
        drop((one, other));
    }

    #[tokio::test]
    async fn without_a_limit_everybody_may_always_try() {
        let (breaker, never) = (Breaker::default(), BreakerOptions { failures: 0, ..OPTIONS });
        for _ in 0..100 {
            breaker.attempt(never).unwrap().failed();
        }
        assert!(!breaker.is_open(never));
    }
}
