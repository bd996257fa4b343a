//! The heaviest keys of a stream, counted with few counters: Space-Saving (Metwally, Agrawal, El Abbadi 2005) with weights and
//! decay.
//!
//! With `k` counters and a stream of total weight `W`, the estimate for a key is never less than its true weight, and at
//! most `W / k` more; so every key with more than `W / k` has a counter. Decay multiplies all weights by the same factor, which
//! keeps the order and both bounds for the decayed stream.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Counters of the heaviest keys.
#[derive(Debug)]
pub(super) struct Sketch {
    most: usize,
    counters: Vec<Counter>,
    /// Indices of counters as a heap with the lightest first.
    heap: Vec<u32>,
    by_key: FxHashMap<Arc<str>, u32>,
}

#[derive(Debug)]
struct Counter {
    key: Arc<str>,
    weight: f64,
    /// Upper bound of the part of the weight that belongs to other keys.
    error: f64,
    /// Its index in the heap.
    place: u32,
}

/// The estimate for a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopEntry {
    pub(super) key: Arc<str>,
    /// Estimated weight, at least the true weight.
    pub(super) weight: f64,
    /// Upper bound of the overestimation.
    pub(super) error: f64,
}

impl Sketch {
    /// A sketch with `most` counters, but at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, counters: Vec::new(), heap: Vec::new(), by_key: FxHashMap::default() }
    }

    /// Adds weight to a key. Costs a look-up of the key and an update of the heap, logarithmic in the worst case and mostly
    /// constant. A key without a counter costs two more changes of the map.
    pub(super) fn add(&mut self, key: &Arc<str>, weight: f64) {
        let number = match self.by_key.get(key) {
            Some(number) => *number,
            None if self.counters.len() < self.most => return self.begin(key, weight),
            None => self.take_over(key),
        };
        let counter = &mut self.counters[number as usize];
        counter.weight += weight;
        let place = counter.place as usize;
        self.sift_down(place);
    }

    /// Multiplies all weights by this factor.
    pub(super) fn decay(&mut self, remaining: f64) {
        for counter in &mut self.counters {
            counter.weight *= remaining;
            counter.error *= remaining;
        }
    }

    /// All estimates, in no particular order.
    pub(super) fn all(&self) -> impl Iterator<Item = TopEntry> {
        self.counters.iter().map(|counter| TopEntry {
            key: Arc::clone(&counter.key),
            weight: counter.weight,
            error: counter.error,
        })
    }

    /// Upper bound of the weight of a key without a counter.
    pub(super) fn unseen(&self) -> f64 {
        match self.heap.first() {
            Some(lightest) if self.counters.len() >= self.most => self.counters[*lightest as usize].weight,
            _ => 0.0,
        }
    }

    fn begin(&mut self, key: &Arc<str>, weight: f64) {
        let number = self.counters.len() as u32;
        self.counters.push(Counter { key: Arc::clone(key), weight, error: 0.0, place: number });
        self.heap.push(number);
        self.by_key.insert(Arc::clone(key), number);
        self.sift_up(number as usize);
    }

    /// Assigns the lightest counter to another key, whose earlier weight was at most the counter's.
    fn take_over(&mut self, key: &Arc<str>) -> u32 {
        let number = self.heap[0];
        let counter = &mut self.counters[number as usize];
        self.by_key.remove(&counter.key);
        counter.key = Arc::clone(key);
        counter.error = counter.weight;
        self.by_key.insert(Arc::clone(key), number);
        number
    }

    fn weight_at(&self, place: usize) -> f64 {
        self.counters[self.heap[place] as usize].weight
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            self.counters[self.heap[place] as usize].place = place as u32;
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.weight_at(above) <= self.weight_at(place) {
                return;
            }
            self.swap(place, above);
            place = above;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let below = [place * 2 + 1, place * 2 + 2].into_iter().filter(|below| *below < self.heap.len());
            let lightest = below.min_by(|one, other| self.weight_at(*one).total_cmp(&self.weight_at(*other)));
            match lightest {
                Some(below) if self.weight_at(below) < self.weight_at(place) => {
                    self.swap(place, below);
                    place = below;
                }
                _ => return,
            }
        }
    }
}

/// The combined estimates of several sketches, each of a part of one stream; the heaviest first.
pub(super) fn heaviest<'s>(sketches: impl IntoIterator<Item = &'s Sketch>) -> Vec<TopEntry> {
    let mut all: FxHashMap<Arc<str>, TopEntry> = FxHashMap::default();
    let mut unseen = 0.0;
    for sketch in sketches {
        let here = sketch.unseen();
        unseen += here;
        for TopEntry { key, weight, error } in sketch.all() {
            let none = TopEntry { key: Arc::clone(&key), weight: 0.0, error: 0.0 };
            let heavy = all.entry(key).or_insert(none);
            heavy.weight += weight - here;
            heavy.error += error - here;
        }
    }
    // In each sketch without a counter for it, a key may have had this weight.
    let mut all: Vec<TopEntry> = all
        .into_values()
        .map(|heavy| TopEntry { weight: heavy.weight + unseen, error: heavy.error + unseen, ..heavy })
        .collect();
    all.sort_by(|one, other| other.weight.total_cmp(&one.weight).then_with(|| one.key.cmp(&other.key)));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const ROUNDING: f64 = 1e-6;

    #[test]
    fn the_heavy_one_among_many_is_first_and_nearly_exact() {
        let mut sketch = Sketch::new(64);
        let heavy: Arc<str> = "heavy".into();
        for number in 0..100_000 {
            sketch.add(&format!("light-{number}").into(), 1.0);
            if number % 10 == 0 {
                sketch.add(&heavy, 1.0);
            }
        }
        let first = &heaviest([&sketch])[0];
        assert_eq!(&*first.key, "heavy");
        assert!((10_000.0..=10_000.0 + 110_000.0 / 64.0).contains(&first.weight), "{first:?}");
    }

    proptest! {
        /// The bounds hold over several parts of a stream, with and without decay.
        #[test]
        fn estimates_are_never_too_low_and_at_most_one_counters_share_too_high(
            stream in vec((0..40_u8, 1..100_u32, 0..3_usize, prop::bool::weighted(0.02)), 1..600),
            counters in 1..24_usize,
        ) {
            let mut sketches = [(); 3].map(|()| Sketch::new(counters));
            let mut truth: FxHashMap<Arc<str>, f64> = FxHashMap::default();
            let mut totals = [0.0; 3];
            for (key, weight, part, decays) in stream {
                let (key, weight): (Arc<str>, _) = (key.to_string().into(), f64::from(weight));
                sketches[part].add(&key, weight);
                *truth.entry(key).or_default() += weight;
                totals[part] += weight;
                if decays {
                    sketches.iter_mut().for_each(|sketch| sketch.decay(0.5));
                    truth.values_mut().for_each(|weight| *weight *= 0.5);
                    totals.iter_mut().for_each(|total| *total *= 0.5);
                }
            }
            let bound = totals.iter().sum::<f64>() / counters as f64 + ROUNDING;
            let told = heaviest(&sketches);
            for heavy in &told {
                let weight = truth[&heavy.key];
                prop_assert!(heavy.weight >= weight - ROUNDING, "{heavy:?} {weight}");
                prop_assert!(heavy.weight <= weight + bound, "{heavy:?} {weight} {bound}");
                prop_assert!(heavy.weight - heavy.error <= weight + ROUNDING, "{heavy:?} {weight}");
            }
            for (key, weight) in &truth {
                let is_there = told.iter().any(|heavy| heavy.key == *key);
                prop_assert!(is_there || *weight <= bound, "{key} with {weight} is missing");
            }
            prop_assert!(told.is_sorted_by(|one, other| one.weight >= other.weight));
        }
    }
}
