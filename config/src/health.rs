//! When an address of a shard gets no requests for a while.

use crate::check::Checker;
use crate::setting::settings;
use crate::units::Timespan;

settings! {
    /// When an address of a shard gets no requests for a while. One that cannot be connected to gets none at once.
    pub struct HealthConfig {
        /// Requests in a row that broke off, or were not answered in time, after which an address gets no more for a while; 0
        /// for never.
        failures ("failures"): u32 = 5;
        /// For how long, the first time; each time after that for twice as long. Up to a fifth less, by chance.
        ejection_time ("ejectionTime"): Timespan = Timespan::from_secs(10);
        /// Never for longer. An address that has been in use for as long begins anew.
        max_ejection_time ("maxEjectionTime"): Timespan = Timespan::from_secs(5 * 60);
        /// After that time an address is asked whether it is back (GET /readyz), and again after so long; each time that it is
        /// not, after twice as long. 0s: it is taken to be.
        probe_interval ("probeInterval"): Timespan = Timespan::from_secs(2);
        /// When more than so many of a hundred addresses of a shard fail, all are used: the fault is then rather here. In
        /// the same way new workspaces go to shards that fail, where more than so many of a hundred do.
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
            checker.fault("panicPercent", "more than all of them cannot fail", "use at most 100");
        }
    }
}
