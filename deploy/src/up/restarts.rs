//! How long to wait before a process that has ended is started again.

use std::time::Duration;

/// The first pause; it doubles with every end that follows soon.
const SHORTEST: Duration = Duration::from_millis(100);
/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(10);
/// A process that has run for so long has recovered: the next end is a new story.
const RECOVERED: Duration = Duration::from_secs(30);

/// The ends of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    /// The pause after an end of a process that ran for `lived`.
    pub(crate) fn pause_after(&mut self, lived: Duration) -> Duration {
        if lived >= RECOVERED {
            self.in_a_row = 0;
        }
        let pause = SHORTEST.saturating_mul(1 << self.in_a_row.min(16)).min(LONGEST);
        self.in_a_row = self.in_a_row.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(restarts: &mut Restarts, lives: &[u64]) -> Vec<u128> {
        lives.iter().map(|lived| restarts.pause_after(Duration::from_secs(*lived)).as_millis()).collect()
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_start_over_after_a_long_life() {
        let mut restarts = Restarts::default();
        assert_eq!(pauses(&mut restarts, &[0, 0, 5, 0]), [100, 200, 400, 800]);
        assert_eq!(pauses(&mut restarts, &[0, 0, 0, 29, 29]), [1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(pauses(&mut restarts, &[30, 0]), [100, 200]);
    }

    #[test]
    fn a_process_that_never_lives_does_not_overflow_the_count() {
        let mut restarts = Restarts { in_a_row: u32::MAX };
        assert_eq!(pauses(&mut restarts, &[0, 0]), [10_000, 10_000]);
    }
}
