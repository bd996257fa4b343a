//! Positions of values on an axis, and of the axis' ticks.

/// A linear or logarithmic axis between two values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    /// Whether ticks are powers of two, for bytes.
    binary: bool,
}

impl Scale {
    /// An axis for these values: from 0 to a round number, or between powers of ten.
    pub(super) fn of(
        values: impl Iterator<Item = f64> + Clone,
        log: bool,
        binary: bool,
        most: Option<f64>,
    ) -> Self {
        let finite = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let highest = finite.clone().fold(f64::NAN, f64::max);
        let lowest = finite.fold(f64::NAN, f64::min);
        if highest.is_nan() {
            return Self { from: 0.0, to: 1.0, log: false, binary };
        }
        if log {
            let from = 10_f64.powf(lowest.log10().floor());
            let to = 10_f64.powf(highest.log10().ceil()).max(from * 10.0);
            return Self { from, to, log, binary };
        }
        let from = lowest.min(0.0);
        let to = most.unwrap_or(if highest > from { highest } else { from + 1.0 });
        let step = round_step((to - from) / 4.0, binary);
        let to = if most.is_some() { to } else { (to / step).ceil() * step };
        Self { from, to, log, binary }
    }

    /// The position from 0 (lower end) to 1. Values beyond the ends are at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.from).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        part.clamp(0.0, 1.0)
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }

    /// Values with a tick, ascending.
    pub(super) fn marks(&self) -> Vec<f64> {
        if self.log {
            let (first, last) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
            return (first..=last).map(|power| 10_f64.powi(power)).collect();
        }
        let step = round_step((self.to - self.from) / 4.0, self.binary);
        let count = ((self.to - self.from) / step + 1e-9).floor() as usize;
        (0..=count).map(|index| self.from + step * index as f64).collect()
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten; or the next power of two.
fn round_step(least: f64, binary: bool) -> f64 {
    if binary {
        return least.max(1.0).log2().ceil().exp2();
    }
    let power = 10_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    factors.iter().map(|factor| factor * power).find(|step| *step >= least * 0.999).unwrap_or(power * 10.0)
}

/// Timestamps with a tick, at most some six.
pub(super) fn moments(from: f64, to: f64) -> Vec<f64> {
    const STEPS: [f64; 12] =
        [5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10_800.0, 43_200.0];
    let step = STEPS.into_iter().find(|step| (to - from) / step <= 6.0).unwrap_or(86_400.0);
    let first = (from / step).ceil() * step;
    (0..).map(|index| first + step * f64::from(index)).take_while(|moment| *moment <= to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let linear = Scale::of([3.0, 87.0].into_iter(), false, false, None);
        assert_eq!(linear.marks(), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert!((linear.at(50.0) - 0.5).abs() < 1e-9 && linear.at(200.0) >= 1.0);
        let log = Scale::of([0.0, 0.02, 3.0].into_iter(), true, false, None);
        assert_eq!(log.marks().len(), 4, "{log:?}");
        assert!(log.at(0.0) <= 0.0);
        assert_eq!(Scale::of(std::iter::empty(), true, false, None).marks().len(), 5, "nothing is no fault");
        let bytes = Scale::of([40e6].into_iter(), false, true, None);
        assert!(bytes.marks().iter().all(|mark| mark % 1_048_576.0 == 0.0), "{bytes:?}");
        let share = Scale::of([0.2].into_iter(), false, false, Some(1.0));
        assert_eq!((share.contains(1.0), share.contains(1.1)), (true, false));
    }
}
