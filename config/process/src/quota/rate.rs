//! Rate limits by the generic cell rate algorithm (GCRA, ITU-T I.371). The state is one time, the theoretical arrival time: when
//! all past usage is paid for. Usage that is not paid for yet is called debt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether a check changes the counters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counting {
    /// The check counts.
    Real,
    /// The result is that of a real check, and nothing is counted.
    DryRun,
}

/// A rate limit with a burst.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    /// Nanoseconds per unit, in 2^-10: at a gigabyte per second a byte costs one nanosecond.
    cost: u64,
    /// Nanoseconds of debt that are allowed: the burst.
    tolerance: u64,
}

const FRACTION: u32 = 10;
/// Longest debt beyond the burst, in nanoseconds.
const MAX_DEBT: u64 = 60_000_000_000;

impl Rate {
    /// `per_second` units in the long run, `burst` units at once after a pause. Both are at least 1.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let cost = (1_000_000_000_u64 << FRACTION) / per_second.max(1);
        let cost = cost.max(1);
        Self { cost, tolerance: nanos(cost, burst.max(1)) }
    }
}

impl Rate {
    /// The configured units per second.
    pub fn per_second(self) -> u64 {
        (1_000_000_000_u64 << FRACTION) / self.cost
    }
}

fn nanos(cost: u64, count: u64) -> u64 {
    let all = (u128::from(cost) * u128::from(count)) >> FRACTION;
    u64::try_from(all).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1)
}

/// The usage of a rate limit: the time in nanoseconds at which all past usage is paid for. Eight bytes, no lock.
#[derive(Debug, Default)]
pub struct RateState(AtomicU64);

impl RateState {
    /// Uses one unit if the limit allows it.
    ///
    /// # Errors
    /// Time until the limit allows it.
    pub fn take(&self, rate: Rate, now: u64, counting: Counting) -> Result<(), Duration> {
        let one = nanos(rate.cost, 1).max(1);
        let more = |before: u64| {
            let paid = before.max(now).saturating_add(one);
            let after = if counting == Counting::Real { paid } else { before };
            (paid - now <= rate.tolerance.max(one)).then_some(after)
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(paid) => {
                Err(Duration::from_nanos((paid + one).saturating_sub(now + rate.tolerance.max(one))))
            }
        }
    }

    /// Whether the debt is within the burst.
    ///
    /// # Errors
    /// Time until the debt is within the burst.
    pub fn check(&self, rate: Rate, now: u64) -> Result<(), Duration> {
        let debt = self.0.load(Ordering::Relaxed).saturating_sub(now);
        if debt <= rate.tolerance { Ok(()) } else { Err(Duration::from_nanos(debt - rate.tolerance)) }
    }

    /// Units that may be used at once now.
    pub fn remaining(&self, rate: Rate, now: u64) -> u64 {
        let debt = self.0.load(Ordering::Relaxed).saturating_sub(now);
        let remaining = u128::from(rate.tolerance.saturating_sub(debt)) << FRACTION;
        u64::try_from(remaining / u128::from(rate.cost)).unwrap_or(u64::MAX)
    }

    /// Counts usage after the fact. Debt beyond a minute is dropped, so that one large response does not block a client for
    /// hours.
    pub fn charge(&self, rate: Rate, count: u64, now: u64) {
        let cost = nanos(rate.cost, count);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
            let max = now.saturating_add(rate.tolerance).saturating_add(MAX_DEBT);
            // The existing debt may be larger, from an earlier rate.
            Some(paid.max(now).saturating_add(cost).min(max.max(paid)))
        });
    }

    /// Whether there is no debt.
    pub fn is_paid(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        for (per_second, burst) in [(1, 1), (10, 1), (10, 25), (5_000, 7)] {
            let (rate, debt) = (Rate::new(per_second, burst), RateState::default());
            let begin = 5 * SECOND;
            let at_once =
                (0..burst + 10).filter(|_| debt.take(rate, begin, Counting::Real).is_ok()).count() as u64;
            assert_eq!(at_once, burst, "{per_second}/s");
            let wait = debt.take(rate, begin, Counting::Real).err().map_or(0, |wait| wait.as_nanos() as u64);
            assert!(wait > 0 && wait <= SECOND / per_second + 1, "{wait}");
            assert!(
                debt.take(rate, begin + wait, Counting::Real).is_ok(),
                "the returned time is enough: {wait}"
            );
            // Three seconds in steps of a millisecond.
            let later = (1..=3_000_u64).map(|step| begin + SECOND + step * (SECOND / 1_000));
            let allowed: u64 = later
                .map(|now| {
                    (0..per_second / 500 + 2).filter(|_| debt.take(rate, now, Counting::Real).is_ok()).count()
                        as u64
                })
                .sum();
            // Units saved in the second before count, too.
            let most = burst.min(per_second) + 3 * per_second;
            assert!(allowed <= most + 1, "{allowed} of {per_second}/s with bursts of {burst}");
            assert!(allowed + 3 >= 3 * per_second.min(burst * 1_000), "{allowed} of {per_second}/s");
        }
    }

    #[test]
    fn usage_counted_afterwards_delays_later_usage() {
        let (rate, debt) = (Rate::new(1 << 20, 2 << 20), RateState::default());
        assert!(debt.check(rate, SECOND).is_ok());
        debt.charge(rate, 10 << 20, SECOND);
        let wait = debt.check(rate, SECOND).err().map_or(0.0, |wait| wait.as_secs_f64());
        assert!((7.9..8.1).contains(&wait), "{wait}");
        assert!(debt.check(rate, SECOND * 9 + SECOND / 10).is_ok());
        assert!(!debt.is_paid(SECOND * 10) && debt.is_paid(SECOND * 12));
    }

    #[test]
    fn debt_is_at_most_a_minute() {
        let (rate, debt) = (Rate::new(1 << 20, 2 << 20), RateState::default());
        for _ in 0..3 {
            debt.charge(rate, 100 << 30, SECOND);
            let wait = debt.check(rate, SECOND).err().map_or(0.0, |wait| wait.as_secs_f64());
            assert!((59.9..60.1).contains(&wait), "{wait}");
        }
        assert!(debt.check(rate, SECOND * 62).is_ok());
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        for (per_second, burst) in [(1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (0, 0)] {
            let (rate, debt) = (Rate::new(per_second, burst), RateState::default());
            assert!(debt.take(rate, u64::MAX >> 2, Counting::Real).is_ok());
            debt.charge(rate, u64::MAX, u64::MAX >> 2);
            let _ = debt.take(rate, u64::MAX >> 2, Counting::Real);
        }
    }
}
