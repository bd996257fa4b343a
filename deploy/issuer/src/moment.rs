//! Now, which is passed along so that tests can choose it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on both clocks: the steady one for what is remembered, that of the calendar for tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) instant: Instant,
    /// Seconds since 1970.
    pub(crate) unix: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        // A clock before 1970 makes tokens that nobody accepts, which is right.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { instant: Instant::now(), unix }
    }

    /// So much later.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self { instant: self.instant + duration, unix: self.unix.saturating_add(duration.as_secs()) }
    }
}
