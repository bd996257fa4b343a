//! The settings of quotas of listeners and of concurrency limits of shards.

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::{ByteSize, Timespan};

settings! {
    /// Quotas of a listener. A request beyond them gets 429 with Retry-After. Health endpoints do not count.
    pub struct ListenerQuotasConfig {
        /// All clients together.
        all ("all"): QuotaConfig = QuotaConfig::default();
        /// Each user; clients whose token only shards can verify count by address.
        per_identity ("perIdentity"): QuotaConfig = QuotaConfig::default();
        /// All clients together in each logical cluster.
        per_workspace ("perWorkspace"): QuotaConfig = QuotaConfig::default();
        /// Each peer and client address, before authentication. IPv6 addresses count by their /64 network.
        per_address ("perAddress"): AddressQuotaConfig = AddressQuotaConfig::default();
        /// Groups whose members only count for "all".
        exempt_groups ("exemptGroups"): Vec<String> = Vec::new();
    }

    /// Quota of an address before authentication. Unset values have no limit.
    pub struct AddressQuotaConfig {
        /// New connections per second, with bursts of two seconds. Further ones are closed at once.
        connections_per_second ("connectionsPerSecond"): Option<u32> = None;
        /// Open connections. Further ones are closed at once.
        connections ("connections"): Option<u32> = None;
        /// Failed authentications (401) per second, with bursts of ten seconds. Beyond it credentials of the address are not
        /// verified for a while (429).
        failures_per_second ("failuresPerSecond"): Option<u32> = None;
    }

    /// Quota of requests. Unset values have no limit.
    pub struct QuotaConfig {
        /// Requests of every kind per second.
        requests_per_second ("requestsPerSecond"): Option<u32> = None;
        /// Burst of requests. Unset: those of one second.
        burst ("burst"): Option<u32> = None;
        /// Concurrent requests that are neither watches nor upgrades.
        concurrent ("concurrent"): Option<u32> = None;
        /// Open watches and followed logs.
        watches ("watches"): Option<u32> = None;
        /// Open upgraded connections: exec, attach, port-forward.
        upgrades ("upgrades"): Option<u32> = None;
        /// Bytes of bodies per second in both directions, with bursts of two seconds. Open requests continue beyond it; later ones
        /// get 429 until the excess is paid off.
        bytes_per_second ("bytesPerSecond"): Option<ByteSize> = None;
    }

    /// Concurrency limit of a shard. Requests beyond it are queued fairly by logical cluster, leases first and lists last. A
    /// request counts until its response begins.
    pub struct ConcurrencyConfig {
        /// adaptive (as many as the shard handles without getting slower), fixed (maxLimit), or none. Adaptive suits shards with
        /// uniform requests: it mistakes other delays, such as of webhooks and slow request bodies, for slowness of the shard.
        policy ("policy"): ConcurrencyPolicy = ConcurrencyPolicy::None;
        /// Lower bound of the adaptive limit.
        min_limit ("minLimit"): u32 = 32;
        /// The fixed limit, and the upper bound of the adaptive one.
        max_limit ("maxLimit"): u32 = 2000;
        /// Maximum number of queued requests. Beyond it the newest request of the logical cluster with the longest
        /// queue gets 429.
        max_queued ("maxQueued"): u32 = 4000;
        /// Time in the queue after which a request gets 429.
        queue_timeout ("queueTimeout"): Timespan = Timespan::from_secs(5);
        /// Time after which a request no longer counts, because longer ones mostly wait for something else.
        max_counted_time ("maxCountedTime"): Timespan = Timespan::from_secs(1);
    }

    /// Circuit breaker: while it is open, requests to a shard fail at once.
    pub struct CircuitBreakerConfig {
        /// Consecutive failed connection attempts that open it; 0 for never.
        failures ("failures"): u32 = 3;
        /// Time for which it is open. Then one request at a time tests whether the shard is back.
        open_duration ("openDuration"): Timespan = Timespan::from_millis(500);
    }
}

/// Policy of the concurrency limit of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConcurrencyPolicy {
    /// As many as the shard handles without getting slower.
    Adaptive,
    /// A fixed number.
    Fixed,
    /// No limit.
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
            checker.fault("burst", "burst has no effect without a rate", "set requestsPerSecond");
        }
    }
}

impl ConcurrencyConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("minLimit", self.min_limit, 1);
        if self.max_limit < self.min_limit {
            let message = format!("{} is less than minLimit, {}", self.max_limit, self.min_limit);
            checker.fault("maxLimit", &message, "use at least minLimit");
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
