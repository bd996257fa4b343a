//! Outlier detection: the health of a server's addresses, from the results of connections and requests.
//!
//! An address that cannot be connected to, or at which several requests in a row fail, gets no requests for a while; each
//! further ejection lasts twice as long. A response is never a failure, whatever its code: a shard returns 503 for one
//! resource of one workspace, and an error that a tenant can cause must not cost the others an address.
//!
//! A successful response costs two atomic loads.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fairlead_config::HealthConfig;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

/// The conditions of an ejection, and its duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HealthOptions {
    /// Consecutive failed requests that eject an address; 0 for never.
    failures: u32,
    ejection: Duration,
    pub(super) max_ejection: Duration,
    /// Interval of the probes of an ejected address.
    pub(super) probe: Option<Duration>,
    panic_percent: usize,
}

impl HealthOptions {
    /// The options of a configuration.
    pub(crate) fn new(config: &HealthConfig) -> Self {
        let probe = config.probe_interval.get();
        Self {
            failures: config.failures,
            ejection: config.ejection_time.get(),
            max_ejection: config.max_ejection_time.get(),
            probe: (!probe.is_zero()).then_some(probe),
            panic_percent: usize::try_from(config.panic_percent).unwrap_or(100),
        }
    }

    /// True if so many of all addresses fail that the cause is probably on the side of the gateway.
    pub(super) fn exceeds_panic_threshold(&self, failing: usize, all: usize) -> bool {
        failing * 100 > self.panic_percent * all
    }

    /// Length of the `times`th ejection. `jitter` is the fraction that is subtracted, so that not all addresses return together.
    fn ejected_for(&self, times: u32, jitter: f64) -> Duration {
        let factor = 2_u32.saturating_pow(times.saturating_sub(1).min(30));
        let whole = self.ejection.saturating_mul(factor).min(self.max_ejection);
        whole.mul_f64(1.0 - jitter)
    }
}

/// Kind of a failure at an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Fault {
    /// A connection cannot be opened: refused, no TLS, or a timeout.
    Connect,
    /// Another address that was tried later connected earlier.
    Slow,
    /// Requests break off before their response.
    BrokeOff,
    /// Requests get no response in time.
    Silent,
    /// Pings get no response.
    Hung,
    /// A replica of a shard does not reach the revision of the others. Tenants cannot cause this response.
    Behind,
}

impl Fault {
    /// True if nothing can be sent to the address, so that one failure is enough.
    fn is_certain(self) -> bool {
        matches!(self, Self::Connect)
    }

    /// True if a successful connection disproves it.
    pub(super) fn is_about_connecting(self) -> bool {
        matches!(self, Self::Connect | Self::Slow)
    }
}

/// The health of one address.
#[derive(Debug, Default)]
pub(super) struct AddressHealth {
    /// Consecutive failed requests.
    failures: AtomicU32,
    is_ejected: AtomicBool,
    history: Mutex<History>,
}

#[derive(Clone, Copy, Debug, Default)]
struct History {
    ejection: Option<Ejected>,
    /// Number of consecutive ejections; starts again after the address has been in use for a long time.
    times: u32,
    /// The end of the last ejection.
    ended_at: Option<Instant>,
}

/// An ejection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ejected {
    pub(crate) since: Instant,
    /// No requests are sent before this time.
    pub(super) until: Instant,
    pub(crate) fault: Fault,
    /// Its number in the series of consecutive ejections.
    pub(crate) times: u32,
}

impl AddressHealth {
    /// Records a failed connection or request. Returns the end of the ejection if this failure ejects the address.
    pub(super) fn failed(&self, fault: Fault, options: &HealthOptions) -> Option<Instant> {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let is_enough = options.failures > 0 && failures >= options.failures;
        if !is_enough && !fault.is_certain() {
            return None;
        }
        let mut history = self.history.lock();
        if history.ejection.is_some() {
            return None;
        }
        let now = Instant::now();
        if history.ended_at.is_some_and(|ended_at| now.duration_since(ended_at) >= options.max_ejection) {
            history.times = 0;
        }
        history.times = history.times.saturating_add(1);
        let until = now + options.ejected_for(history.times, super::random_share() * EJECTION_JITTER);
        history.ejection = Some(Ejected { since: now, until, fault, times: history.times });
        self.is_ejected.store(true, Ordering::Relaxed);
        Some(until)
    }

    /// Records a response. Returns true if it changes the state.
    pub(super) fn succeeded(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.is_ejected()
    }

    /// Ends the ejection.
    pub(super) fn end_ejection(&self) {
        let mut history = self.history.lock();
        history.ejection = None;
        history.ended_at = Some(Instant::now());
        self.failures.store(0, Ordering::Relaxed);
        self.is_ejected.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Relaxed)
    }

    pub(super) fn ejection(&self) -> Option<Ejected> {
        self.history.lock().ejection
    }
}

/// Maximum fraction by which an ejection is shortened at random.
const EJECTION_JITTER: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> HealthOptions {
        HealthOptions {
            max_ejection: Duration::from_secs(60),
            ..HealthOptions::new(&HealthConfig::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_failures_eject_an_address_for_growing_times() {
        let (address, options) = (AddressHealth::default(), options());
        let fail = |count| (0..count).find_map(|_| address.failed(Fault::BrokeOff, &options));
        for _ in 0..10 {
            assert!(fail(4).is_none());
            assert!(!address.succeeded());
        }
        for most in [10, 20, 40, 60, 60] {
            let until = fail(5).map(|until| until - Instant::now()).unwrap_or_default().as_secs_f64();
            assert!((0.8 * f64::from(most)..=f64::from(most)).contains(&until), "{until} of {most}");
            assert!(fail(20).is_none(), "it is out already");
            assert!(address.succeeded());
            address.end_ejection();
            tokio::time::advance(Duration::from_secs(30)).await;
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(address.failed(Fault::Slow, &options).is_none(), "it may be by chance");
        assert!(address.failed(Fault::Connect, &options).is_some(), "once is enough");
        assert_eq!(address.ejection().map(|out| out.times), Some(1), "long ago");
    }

    #[tokio::test]
    async fn failed_requests_do_not_eject_if_that_is_disabled() {
        let (address, options) = (AddressHealth::default(), HealthOptions { failures: 0, ..options() });
        assert!((0..100).all(|_| address.failed(Fault::Silent, &options).is_none()));
        assert!(address.failed(Fault::Connect, &options).is_some());
    }

    #[test]
    fn the_panic_threshold_depends_on_the_failing_fraction() {
        let options = options();
        for (failing, all, panics) in
            [(0, 1, false), (1, 1, true), (1, 2, false), (2, 3, true), (5, 10, false)]
        {
            assert_eq!(options.exceeds_panic_threshold(failing, all), panics, "{failing} of {all}");
        }
    }
}
