//! A circuit breaker: requests for a server that cannot be connected to fail at once for a while, at no cost.
//!
//! One attempt at a time tests whether the server is available again; other requests fail at once. Open connections are used
//! regardless of the circuit. Pauses do not grow: an attempt twice a second costs nothing, and a server that is back
//! should be found at once.

use std::time::Duration;

use fairlead_config::CircuitBreakerConfig;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The condition for opening the circuit, and the duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BreakerOptions {
    /// Consecutive failures that open the circuit; 0 for never.
    failures: u32,
    pause: Duration,
}

impl BreakerOptions {
    /// The options of a configuration.
    pub(crate) fn new(config: &CircuitBreakerConfig) -> Self {
        Self { failures: config.failures, pause: config.open_duration.get() }
    }
}

/// The circuit of one server.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Consecutive failed attempts.
    failures: u32,
    /// No attempt is made before this time.
    until: Option<Instant>,
    /// True while an attempt after a pause is in progress.
    trying: bool,
}

/// The circuit is open. A retry helps after a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CircuitOpen;

/// The permit for one attempt. Dropping it without a result does not change the number of failures.
#[derive(Debug)]
pub(super) struct Attempt<'b> {
    breaker: &'b Breaker,
    options: BreakerOptions,
    after_pause: bool,
}

impl Breaker {
    /// Starts an attempt.
    ///
    /// # Errors
    /// [`CircuitOpen`], immediately.
    pub(super) fn attempt(&self, options: BreakerOptions) -> Result<Attempt<'_>, CircuitOpen> {
        if self.is_refusing(options) {
            return Err(CircuitOpen);
        }
        let mut state = self.state.lock();
        let after_pause = options.failures > 0 && state.failures >= options.failures;
        if after_pause && std::mem::replace(&mut state.trying, true) {
            return Err(CircuitOpen);
        }
        Ok(Attempt { breaker: self, options, after_pause })
    }

    /// True if an attempt would be refused now.
    pub(super) fn is_refusing(&self, options: BreakerOptions) -> bool {
        let state = *self.state.lock();
        options.failures > 0
            && state.failures >= options.failures
            && (state.trying || state.until.is_some_and(|until| Instant::now() < until))
    }

    /// True from the opening of the circuit until an attempt succeeds.
    pub(super) fn is_open(&self, options: BreakerOptions) -> bool {
        options.failures > 0 && self.state.lock().failures >= options.failures
    }
}

impl Attempt<'_> {
    /// Reports that the server could be connected to.
    pub(super) fn succeeded(self) {
        let mut state = self.breaker.state.lock();
        (state.failures, state.until) = (0, None);
    }

    /// Reports that the server could not be connected to.
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
    async fn consecutive_failures_open_the_circuit_for_all_but_one_attempt() {
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
    async fn without_a_limit_the_circuit_never_opens() {
        let (breaker, never) = (Breaker::default(), BreakerOptions { failures: 0, ..OPTIONS });
        for _ in 0..100 {
            breaker.attempt(never).unwrap().failed();
        }
        assert!(!breaker.is_open(never));
    }
}
