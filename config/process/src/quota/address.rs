//! What an address may do before anybody is known: connect, and show credentials that do not count.
//!
//! Memory is bounded like that of all meters. Addresses of IPv6 count by their network of 64 bits, which is what one
//! customer gets.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fairlead_config::AddressQuotaConfig;

use super::meter::{Meter, Meters};
use super::rate::{Counting, Pace};

/// The quotas of the addresses that connect to a listener.
#[derive(Debug)]
pub struct AddressQuotas {
    rules: ArcSwap<Rules>,
    /// What makes a listener without them cheap.
    counts: AtomicBool,
    began: Instant,
    meters: Meters,
}

#[derive(Debug, Default)]
struct Rules {
    connections: Option<Pace>,
    open: Option<u32>,
    failures: Option<Pace>,
}

/// What is counted as open of an address.
const CONNECTIONS: usize = 0;
/// Seconds' worth of connections, and of failures, at once.
const CONNECTIONS_AT_ONCE: u64 = 2;
const FAILURES_AT_ONCE: u64 = 10;

/// When to try again where nobody can know.
const A_MOMENT: Duration = Duration::from_secs(1);

/// A connection of an address, until this is dropped.
#[derive(Debug)]
pub struct Connected(Arc<Meter>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.close(CONNECTIONS);
    }
}

impl AddressQuotas {
    /// Those that settings make.
    pub fn new(config: &AddressQuotaConfig) -> Self {
        let quotas = Self {
            rules: ArcSwap::default(),
            counts: AtomicBool::new(false),
            began: Instant::now(),
            meters: Meters::default(),
        };
        quotas.set(config);
        quotas
    }

    /// Other ones from now on.
    pub fn set(&self, config: &AddressQuotaConfig) {
        let pace = |rate: Option<u32>, at_once| {
            rate.map(|rate| Pace::new(rate.into(), u64::from(rate).saturating_mul(at_once)))
        };
        let rules = Rules {
            connections: pace(config.connections_per_second, CONNECTIONS_AT_ONCE),
            open: config.connections,
            failures: pace(config.failures_per_second, FAILURES_AT_ONCE),
        };
        let counts = rules.connections.is_some() || rules.open.is_some() || rules.failures.is_some();
        self.rules.store(Arc::new(rules));
        self.counts.store(counts, Ordering::Relaxed);
    }

    /// Counts a connection, until what this returns is dropped; `None` where nothing is counted.
    ///
    /// # Errors
    /// How long until there may be one more; this one should be closed.
    pub fn connect(&self, address: IpAddr) -> Result<Option<Connected>, Duration> {
        let Some((rules, meter)) = self.of(address) else { return Ok(None) };
        if !meter.open(CONNECTIONS, rules.open, Counting::Real) {
            return Err(A_MOMENT);
        }
        let connected = Connected(meter);
        if let Some(pace) = rules.connections {
            connected.0.requests.take(pace, self.now(), Counting::Real)?;
        }
        Ok(Some(connected))
    }

    /// Whether a credential of this address may be looked at.
    ///
    /// # Errors
    /// How long until one may.
    pub fn may_try(&self, address: IpAddr) -> Result<(), Duration> {
        let Some((rules, meter)) = self.of(address) else { return Ok(()) };
        let Some(pace) = rules.failures else { return Ok(()) };
        meter.bytes.check(pace, self.now())
    }

    /// Counts a credential that does not count.
    pub fn failed(&self, address: IpAddr) {
        if let Some((rules, meter)) = self.of(address)
            && let Some(pace) = rules.failures
        {
            meter.bytes.charge(pace, 1, self.now());
        }
    }

    fn of(&self, address: IpAddr) -> Option<(Arc<Rules>, Arc<Meter>)> {
        if !self.counts.load(Ordering::Relaxed) {
            return None;
        }
        Some((self.rules.load_full(), self.meters.of(&network_of(address), self.now())))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The network that counts as one client: an IPv4 address, or the /64 of an IPv6 address, which one host usually has.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_count_by_themselves_and_networks_together() {
        let quotas =
            AddressQuotas::new(&AddressQuotaConfig { connections: Some(2), ..AddressQuotaConfig::default() });
        let open: Vec<_> = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8:0:0:ffff::2"]
            .map(|text| quotas.connect(address(text)).unwrap())
            .into();
        for (text, is_refused) in
            [("192.0.2.1", true), ("192.0.2.2", false), ("2001:db8::3", true), ("2001:db8:0:1::1", false)]
        {
            let outcome = quotas.connect(address(text));
            assert_eq!(outcome.is_err(), is_refused, "{text}");
        }
        drop(open);
        assert!(quotas.connect(address("192.0.2.1")).is_ok());
    }

    #[test]
    fn connections_and_failures_have_rates() {
        let quotas = AddressQuotas::new(&AddressQuotaConfig {
            connections_per_second: Some(5),
            failures_per_second: Some(1),
            ..AddressQuotaConfig::default()
        });
        let one = address("192.0.2.1");
        assert_eq!((0..100).filter(|_| quotas.connect(one).is_ok()).count(), 10);
        for _ in 0..10 {
            assert!(quotas.may_try(one).is_ok());
            quotas.failed(one);
        }
        quotas.failed(one);
        let wait = quotas.may_try(one).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1));
        assert!(quotas.may_try(address("192.0.2.2")).is_ok());
    }

    #[test]
    fn without_a_quota_nothing_is_counted() {
        let quotas = AddressQuotas::new(&AddressQuotaConfig::default());
        assert!((0..100).all(|_| quotas.connect(address("192.0.2.1")).unwrap().is_none()));
    }
}
