//! The pause before a process that has ended is restarted.

use std::time::Duration;

/// The first pause. It doubles with each further end.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// A process that has run for this long has recovered: the next pause is the first one again.
const RECOVERY_TIME: Duration = Duration::from_secs(30);

/// Exponential back-off for the restarts of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestartBackoff {
    consecutive_ends: u32,
}

impl RestartBackoff {
    /// The pause after the end of a process that ran for `ran_for`.
    pub(crate) fn pause_after(&mut self, ran_for: Duration) -> Duration {
        if ran_for >= RECOVERY_TIME {
            self.consecutive_ends = 0;
        }
        let pause = MIN_PAUSE.saturating_mul(1 << self.consecutive_ends.min(16)).min(MAX_PAUSE);
        self.consecutive_ends = self.consecutive_ends.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(restarts: &mut RestartBackoff, runs: &[u64]) -> Vec<u128> {
        runs.iter().map(|ran_for| restarts.pause_after(Duration::from_secs(*ran_for)).as_millis()).collect()
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_are_reset_after_a_long_run() {
        let mut restarts = RestartBackoff::default();
        assert_eq!(pauses(&mut restarts, &[0, 0, 5, 0]), [100, 200, 400, 800]);
        assert_eq!(pauses(&mut restarts, &[0, 0, 0, 29, 29]), [1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(pauses(&mut restarts, &[30, 0]), [100, 200]);
    }

    #[test]
    fn the_count_of_restarts_does_not_overflow() {
        let mut restarts = RestartBackoff { consecutive_ends: u32::MAX };
        assert_eq!(pauses(&mut restarts, &[0, 0]), [10_000, 10_000]);
    }
}
