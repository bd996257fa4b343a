//! Rates, as the generic cell rate algorithm has them (ITU-T I.371): all that is kept is when the debt will be paid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether what is asked counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counting {
    /// It does.
    Real,
    /// The answer is that of a real one, and nothing is counted.
    Rehearsed,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pace {
    /// Nanoseconds that one costs, in 2^-10: whole bytes at a gigabyte per second cost one nanosecond each.
    cost: u64,
    /// Nanoseconds of debt that are nobody's business.
    tolerance: u64,
}

const FRACTION: u32 = 10;
/// Nanoseconds that anybody has to wait at most.
const MOST_DEBT: u64 = 60_000_000_000;

impl Pace {
    /// `per_second` in the long run, `burst` at once after a pause. Both at least 1.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let cost = (1_000_000_000_u64 << FRACTION) / per_second.max(1);
        let cost = cost.max(1);
        Self { cost, tolerance: nanos(cost, burst.max(1)) }
    }
}

impl Pace {
    /// As it was set.
    pub fn per_second(self) -> u64 {
        (1_000_000_000_u64 << FRACTION) / self.cost
    }
}

fn nanos(cost: u64, count: u64) -> u64 {
    let all = (u128::from(cost) * u128::from(count)) >> FRACTION;
    u64::try_from(all).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1)
}

/// What has happened of it: when, in nanoseconds, all would be paid. Eight bytes, no lock.
#[derive(Debug, Default)]
pub struct Debt(AtomicU64);

impl Debt {
    /// One more, if it may be.
    ///
    /// # Errors
    /// How long until it may.
    pub fn take(&self, pace: Pace, now: u64, counting: Counting) -> Result<(), Duration> {
        let one = nanos(pace.cost, 1).max(1);
        let more = |before: u64| {
            let paid = before.max(now).saturating_add(one);
            let after = if counting == Counting::Real { paid } else { before };
            (paid - now <= pace.tolerance.max(one)).then_some(after)
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(paid) => {
                Err(Duration::from_nanos((paid + one).saturating_sub(now + pace.tolerance.max(one))))
            }
        }
    }

    /// Whether anything may be asked: what was used before has been paid but for the tolerance.
    ///
    /// # Errors
    /// How long until it has.
    pub fn check(&self, pace: Pace, now: u64) -> Result<(), Duration> {
        let debt = self.0.load(Ordering::Relaxed).saturating_sub(now);
        if debt <= pace.tolerance { Ok(()) } else { Err(Duration::from_nanos(debt - pace.tolerance)) }
    }

    /// How many may still be at once.
    pub fn left(&self, pace: Pace, now: u64) -> u64 {
        let debt = self.0.load(Ordering::Relaxed).saturating_sub(now);
        let left = u128::from(pace.tolerance.saturating_sub(debt)) << FRACTION;
        u64::try_from(left / u128::from(pace.cost)).unwrap_or(u64::MAX)
    }

    /// Counts what was used. What would take longer than a minute to pay is given away: one large answer must not shut
    /// somebody out for hours.
    pub fn charge(&self, pace: Pace, count: u64, now: u64) {
        let cost = nanos(pace.cost, count);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
            let most = now.saturating_add(pace.tolerance).saturating_add(MOST_DEBT);
            // What is owed already may be more, of another pace.
            Some(paid.max(now).saturating_add(cost).min(most.max(paid)))
        });
    }

    /// Nothing is owed.
    pub fn is_paid(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_at_once_and_then_as_many_as_the_pace_allows() {
        for (per_second, burst) in [(1, 1), (10, 1), (10, 25), (5_000, 7)] {
            let (pace, debt) = (Pace::new(per_second, burst), Debt::default());
            let begin = 5 * SECOND;
            let at_once =
                (0..burst + 10).filter(|_| debt.take(pace, begin, Counting::Real).is_ok()).count() as u64;
            assert_eq!(at_once, burst, "{per_second}/s");
            let wait = debt.take(pace, begin, Counting::Real).err().map_or(0, |wait| wait.as_nanos() as u64);
            assert!(wait > 0 && wait <= SECOND / per_second + 1, "{wait}");
            assert!(debt.take(pace, begin + wait, Counting::Real).is_ok(), "what it says is enough: {wait}");
            // Three seconds in steps of a millisecond.
            let later = (1..=3_000_u64).map(|step| begin + SECOND + step * (SECOND / 1_000));
            let allowed: u64 = later
                .map(|now| {
                    (0..per_second / 500 + 2).filter(|_| debt.take(pace, now, Counting::Real).is_ok()).count()
                        as u64
                })
                .sum();
            // What was saved up in the second before counts, too.
            let most = burst.min(per_second) + 3 * per_second;
            assert!(allowed <= most + 1, "{allowed} of {per_second}/s with bursts of {burst}");
            assert!(allowed + 3 >= 3 * per_second.min(burst * 1_000), "{allowed} of {per_second}/s");
        }
    }

    #[test]
    fn bytes_are_counted_afterwards_and_have_to_be_paid() {
        let (pace, debt) = (Pace::new(1 << 20, 2 << 20), Debt::default());
        assert!(debt.check(pace, SECOND).is_ok());
        debt.charge(pace, 10 << 20, SECOND);
        let wait = debt.check(pace, SECOND).err().map_or(0.0, |wait| wait.as_secs_f64());
        assert!((7.9..8.1).contains(&wait), "{wait}");
        assert!(debt.check(pace, SECOND * 9 + SECOND / 10).is_ok());
        assert!(!debt.is_paid(SECOND * 10) && debt.is_paid(SECOND * 12));
    }

    #[test]
    fn nobody_has_to_wait_for_more_than_a_minute() {
        let (pace, debt) = (Pace::new(1 << 20, 2 << 20), Debt::default());
        for _ in 0..3 {
            debt.charge(pace, 100 << 30, SECOND);
            let wait = debt.check(pace, SECOND).err().map_or(0.0, |wait| wait.as_secs_f64());
            assert!((59.9..60.1).contains(&wait), "{wait}");
        }
        assert!(debt.check(pace, SECOND * 62).is_ok());
    }

    #[test]
    fn numbers_that_are_out_of_all_proportion_do_no_harm() {
        for (per_second, burst) in [(1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (0, 0)] {
            let (pace, debt) = (Pace::new(per_second, burst), Debt::default());
            assert!(debt.take(pace, u64::MAX >> 2, Counting::Real).is_ok());
            debt.charge(pace, u64::MAX, u64::MAX >> 2);
            let _ = debt.take(pace, u64::MAX >> 2, Counting::Real);
        }
    }
}
