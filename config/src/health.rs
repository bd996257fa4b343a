//! The settings of endpoint health (outlier detection).

use crate::check::Checker;
use crate::setting::settings;
use crate::units::Timespan;

settings! {
    /// Ejection of failing addresses of a shard. An address that cannot be connected to is ejected at once.
    pub struct HealthConfig {
        /// Consecutive requests that broke or got no response in time after which an address is ejected; 0 for never.
        failures ("failures"): u32 = 5;
        /// Duration of the first ejection; doubled for each consecutive one, and shortened randomly by up to a fifth.
        ejection_time ("ejectionTime"): Timespan = Timespan::from_secs(10);
        /// Maximum duration of an ejection. After being in use for this long, an address starts again with ejectionTime.
        max_ejection_time ("maxEjectionTime"): Timespan = Timespan::from_secs(5 * 60);
        /// Interval of probes (GET /readyz) of an ejected address after its ejection time; doubled after each failure. 0s: the
        /// address is used without a probe.
        probe_interval ("probeInterval"): Timespan = Timespan::from_secs(2);
        /// Percentage of failing addresses of a shard beyond which all are used, because the cause is then likely the gateway's own
        /// network. Placement ignores failing shards in the same way when more than this percentage of them fail.
        panic_percent ("panicPercent"): u32 = 50;
    }
}

impl HealthConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("ejectionTime", self.ejection_time, Timespan::from_millis(10));
        if self.max_ejection_time < self.ejection_time {
            let message =
                format!("{} is less than the first ejection, {}", self.max_ejection_time, self.ejection_time);
            checker.fault("maxEjectionTime", &message, "use at least as much");
        }
        if self.panic_percent > 100 {
            checker.fault("panicPercent", "a percentage is at most 100", "use at most 100");
        }
    }
}
