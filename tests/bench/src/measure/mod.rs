//! The measurements, each with one or a few rows of the table. In every round all contestants are measured, in alternating
//! order. The median of the rounds counts, also for ratios and differences: a shared machine is faster in one minute than in
//! the next.

mod cores;
mod gets;
mod handshakes;
mod latency;
mod list;
mod million;
mod parts;
mod watches;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use cores::{move_to, rate_on_one_core, split};
pub(crate) use gets::{UserCredential, cpu_per_get};
pub(crate) use handshakes::handshakes_per_core;
pub(crate) use latency::at_fixed_rate;
pub(crate) use list::slow_list;
pub(crate) use million::a_million_workspaces;
pub(crate) use parts::cost_of_parts;
pub(crate) use watches::idle_watches;

use crate::contestants::{Contestant, Contestants, Kind};
use crate::report::Row;

/// Duration and number of the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
}

impl Effort {
    /// Less effort, for measurements with little noise.
    pub(crate) fn brief(self) -> Self {
        Self { duration: self.duration.mul_f64(0.6), ..self }
    }
}

/// The values of all rounds.
#[derive(Default)]
struct Rounds(BTreeMap<Kind, Vec<f64>>);

impl Rounds {
    fn add(&mut self, kind: Kind, value: f64) {
        self.0.entry(kind).or_default().push(value);
    }

    /// The values of a row.
    fn fill(self, row: &mut Row) {
        let own = self.0.get(&Kind::Gateway).cloned().unwrap_or_default();
        for (kind, values) in self.0 {
            let times: Vec<f64> = own.iter().zip(&values).map(|(own, other)| own / other).collect();
            if !times.is_empty() {
                row.times.insert(kind, median(times));
                let more = own.iter().zip(&values).map(|(own, other)| other - own);
                row.more.insert(kind, median(more.collect()));
            }
            row.values.insert(kind, median(values));
        }
    }

    fn medians(self) -> BTreeMap<Kind, f64> {
        self.0.into_iter().map(|(kind, values)| (kind, median(values))).collect()
    }
}

/// The order of the contestants in a round.
fn order(contestants: &Contestants, round: usize) -> impl Iterator<Item = &Contestant> {
    let count = contestants.running.len();
    let position = move |turn: usize| if round.is_multiple_of(2) { turn } else { count - 1 - turn };
    (0..count).map(move |turn| &contestants.running[position(turn)])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contestants_are_compared_round_by_round() {
        let mut rounds = Rounds::default();
        // The machine was three times as slow in the second and third round; in the second, only for one contestant.
        for (own, other) in [(10.0, 10.0), (30.0, 10.0), (30.0, 30.0)] {
            rounds.add(Kind::Gateway, own);
            rounds.add(Kind::Haproxy, other);
        }
        let mut row = Row::new("CPU", "µs", 1);
        rounds.fill(&mut row);
        assert_eq!(row.values, BTreeMap::from([(Kind::Gateway, 30.0), (Kind::Haproxy, 10.0)]));
        assert_eq!(row.times, BTreeMap::from([(Kind::Gateway, 1.0), (Kind::Haproxy, 1.0)]));
        assert_eq!(row.more, BTreeMap::from([(Kind::Gateway, 0.0), (Kind::Haproxy, 0.0)]));
    }

    #[test]
    fn a_median_is_in_the_middle() {
        for (values, expected) in [(vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5), (vec![7.0], 7.0)] {
            assert!((median(values) - expected).abs() < f64::EPSILON);
        }
    }
}
