//! Quotas of client addresses before authentication: connections, and failed authentications.
//!
//! Memory is bounded like that of all meters. IPv6 addresses count by their /64 network, the usual allocation of one
//! customer.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fairlead_config::AddressQuotaConfig;

use super::meter::{Meter, Meters};
use super::rate::{Counting, Rate};

/// The quotas of the addresses that connect to a listener.
#[derive(Debug)]
pub struct AddressQuotas {
    rules: ArcSwap<Rules>,
    /// Whether any quota is set; saves look-ups on listeners without quotas.
    is_set: AtomicBool,
    began: Instant,
    meters: Meters,
}

#[derive(Debug, Default)]
struct Rules {
    connections: Option<Rate>,
    open: Option<u32>,
    failures: Option<Rate>,
}

/// Index of the open connections in a meter.
const CONNECTIONS: usize = 0;
/// Burst of connections, in seconds of their rate.
const CONNECTION_BURST_SECONDS: u64 = 2;
/// Burst of failed authentications, in seconds of their rate.
const FAILURE_BURST_SECONDS: u64 = 10;

/// `Retry-After` where the end of a connection decides, which cannot be predicted.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// Guard that counts a connection of an address until it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard(Arc<Meter>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.close(CONNECTIONS);
    }
}

impl AddressQuotas {
    /// Quotas as configured.
    pub fn new(config: &AddressQuotaConfig) -> Self {
        let quotas = Self {
            rules: ArcSwap::default(),
            is_set: AtomicBool::new(false),
            began: Instant::now(),
            meters: Meters::default(),
        };
        quotas.set(config);
        quotas
    }

    /// Replaces the quotas.
    pub fn set(&self, config: &AddressQuotaConfig) {
        let rate = |rate: Option<u32>, burst_seconds| {
            rate.map(|rate| Rate::new(rate.into(), u64::from(rate).saturating_mul(burst_seconds)))
        };
        let rules = Rules {
            connections: rate(config.connections_per_second, CONNECTION_BURST_SECONDS),
            open: config.connections,
            failures: rate(config.failures_per_second, FAILURE_BURST_SECONDS),
        };
        let is_set = rules.connections.is_some() || rules.open.is_some() || rules.failures.is_some();
        self.rules.store(Arc::new(rules));
        self.is_set.store(is_set, Ordering::Relaxed);
    }

    /// Counts a connection until the guard is dropped; `None` without a quota.
    ///
    /// # Errors
    /// The quota is exceeded and the connection has to be closed. The value is the time until another one may be accepted.
    pub fn connect(&self, address: IpAddr) -> Result<Option<ConnectionGuard>, Duration> {
        let Some((rules, meter)) = self.of(address) else { return Ok(None) };
        if !meter.open(CONNECTIONS, rules.open, Counting::Real) {
            return Err(DEFAULT_RETRY);
        }
        let connected = ConnectionGuard(meter);
        if let Some(rate) = rules.connections {
            connected.0.requests.take(rate, self.now(), Counting::Real)?;
        }
        Ok(Some(connected))
    }

    /// Whether credentials of this address may be verified.
    ///
    /// # Errors
    /// Time until they may be verified.
    pub fn may_try(&self, address: IpAddr) -> Result<(), Duration> {
        let Some((rules, meter)) = self.of(address) else { return Ok(()) };
        let Some(rate) = rules.failures else { return Ok(()) };
        meter.bytes.check(rate, self.now())
    }

    /// Counts a failed authentication.
    pub fn failed(&self, address: IpAddr) {
        if let Some((rules, meter)) = self.of(address)
            && let Some(rate) = rules.failures
        {
            meter.bytes.charge(rate, 1, self.now());
        }
    }

    fn of(&self, address: IpAddr) -> Option<(Arc<Rules>, Arc<Meter>)> {
        if !self.is_set.load(Ordering::Relaxed) {
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
    fn ipv4_counts_by_address_and_ipv6_by_network() {
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
    fn connections_and_failed_authentications_have_rates() {
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
