//! The current time. It is passed as an argument, so that tests can choose it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A time on both clocks: the monotonic one for expiry of state, the wall clock for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) instant: Instant,
    /// Seconds since 1970.
    pub(crate) unix: u64,
}

impl Time {
    pub(crate) fn now() -> Self {
        // A clock before 1970 makes expired tokens.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { instant: Instant::now(), unix }
    }

    /// The time after a duration.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self { instant: self.instant + duration, unix: self.unix.saturating_add(duration.as_secs()) }
    }
}
