//! How much may be asked: of a door, and of a shard.

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::{ByteSize, Timespan};

settings! {
    /// How much may be asked of a door. Who asks for more gets 429 and is told when to try again. Health endpoints are free.
    pub struct ListenerQuotasConfig {
        /// Everybody together.
        all ("all"): QuotaConfig = QuotaConfig::default();
        /// Each user; whom only shards could judge counts by address.
        per_identity ("perIdentity"): QuotaConfig = QuotaConfig::default();
        /// Everybody together in each logical cluster.
        per_workspace ("perWorkspace"): QuotaConfig = QuotaConfig::default();
        /// Each address that connects, and each client address: before anybody is known. Addresses of IPv6 count by their
        /// network of 64 bits.
        per_address ("perAddress"): AddressQuotaConfig = AddressQuotaConfig::default();
        /// Groups whose members count for nothing but "all".
        exempt_groups ("exemptGroups"): Vec<String> = Vec::new();
    }

    /// What an address may do before anybody is known. What is not set has no limit.
    pub struct AddressQuotaConfig {
        /// New connections, in the long run; those of two seconds at once. More are closed at once.
        connections_per_second ("connectionsPerSecond"): Option<u32> = None;
        /// Connections at a time. More are closed at once.
        connections ("connections"): Option<u32> = None;
        /// Requests whose credential does not count (401), in the long run; those of ten seconds at once. After more no
        /// credential of that address is looked at for a while (429).
        failures_per_second ("failuresPerSecond"): Option<u32> = None;
    }

    /// How much may be asked. What is not set has no limit.
    pub struct QuotaConfig {
        /// Requests of every kind, in the long run.
        requests_per_second ("requestsPerSecond"): Option<u32> = None;
        /// Requests at once after a pause; unset, those of one second.
        burst ("burst"): Option<u32> = None;
        /// Requests at a time that are neither watches nor upgrades.
        concurrent ("concurrent"): Option<u32> = None;
        /// Open watches and followed logs.
        watches ("watches"): Option<u32> = None;
        /// Open upgraded connections: exec, attach, port-forward.
        upgrades ("upgrades"): Option<u32> = None;
        /// Bytes of bodies both ways, in the long run; those of two seconds at once. What is open goes on, and the next request
        /// waits until they are paid.
        bytes_per_second ("bytesPerSecond"): Option<ByteSize> = None;
    }

    /// How many requests a shard works on at a time, and what becomes of more: they wait, in turn by logical cluster, leases
    /// first and lists last. A request counts until its answer begins.
    pub struct ConcurrencyConfig {
        /// adaptive (as many as the shard answers without getting slower), fixed (maxLimit), or none: whatever comes. Adaptive is
        /// for shards whose requests all take about as long: where some wait long for something else, a webhook or their
        /// client's body, it takes that for slowness.
        policy ("policy"): ConcurrencyPolicy = ConcurrencyPolicy::None;
        /// Never fewer.
        min_limit ("minLimit"): u32 = 32;
        /// Never more.
        max_limit ("maxLimit"): u32 = 2000;
        /// Requests that wait at most; one more and the last of the logical cluster that has most gets 429.
        max_queued ("maxQueued"): u32 = 4000;
        /// How long one waits before it gets 429.
        queue_timeout ("queueTimeout"): Timespan = Timespan::from_secs(5);
        /// For how long one counts at most: what takes longer mostly waits for something else.
        max_counted_time ("maxCountedTime"): Timespan = Timespan::from_secs(1);
    }

    /// When a shard is taken to be gone, so that requests fail at once.
    pub struct CircuitBreakerConfig {
        /// Connections in a row that could not be opened; 0 for never.
        failures ("failures"): u32 = 3;
        /// For how long nobody tries then. After that one request at a time finds out whether the shard is back.
        open_duration ("openDuration"): Timespan = Timespan::from_millis(500);
    }
}

/// How many requests a shard gets at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConcurrencyPolicy {
    /// As many as it answers without getting slower.
    Adaptive,
    /// Always as many.
    Fixed,
    /// Whatever comes.
    None,
}

plain_settings!(ConcurrencyPolicy);

impl ListenerQuotasConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        let quotas =
            [("all", &self.all), ("perIdentity", &self.per_identity), ("perWorkspace", &self.per_workspace)];
        for (key, quota) in quotas {
            checker.within(key, |checker| quota.check(checker));
        }
        checker.within("perAddress", |checker| self.per_address.check(checker));
    }
}

impl AddressQuotaConfig {
    /// Whether anything is limited.
    pub(crate) fn is_set(&self) -> bool {
        *self != Self::default()
    }

    fn check(&self, checker: &mut Checker) {
        let counts = [
            ("connectionsPerSecond", self.connections_per_second),
            ("connections", self.connections),
            ("failuresPerSecond", self.failures_per_second),
        ];
        for (key, count) in counts.into_iter().filter_map(|(key, count)| Some((key, count?))) {
            checker.at_least(key, count, 1);
        }
    }
}

impl QuotaConfig {
    fn check(&self, checker: &mut Checker) {
        let counts = [
            ("requestsPerSecond", self.requests_per_second),
            ("burst", self.burst),
            ("concurrent", self.concurrent),
        ];
        for (key, count) in counts.into_iter().filter_map(|(key, count)| Some((key, count?))) {
            checker.at_least(key, count, 1);
        }
        if let Some(bytes) = self.bytes_per_second {
            checker.at_least("bytesPerSecond", bytes, ByteSize::kib(1));
        }
        if self.burst.is_some() && self.requests_per_second.is_none() {
            checker.fault("burst", "there is nothing that it is a burst of", "set requestsPerSecond");
        }
    }
}

impl ConcurrencyConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("minLimit", self.min_limit, 1);
        if self.max_limit < self.min_limit {
            let message = format!("{} is less than minLimit, {}", self.max_limit, self.min_limit);
            checker.fault("maxLimit", &message, "use at least as many");
        }
        checker.at_least("queueTimeout", self.queue_timeout, Timespan::from_millis(1));
        checker.at_least("maxCountedTime", self.max_counted_time, Timespan::from_millis(1));
    }
}

impl CircuitBreakerConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("openDuration", self.open_duration, Timespan::from_millis(10));
    }
}
