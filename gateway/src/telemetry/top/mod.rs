//! The busiest workspaces by requests, bytes and errors per second, and by open watches.
//!
//! Each of the first three measures uses [`COUNTERS`] counters per serving thread, regardless of the number of workspaces.
//! Their mutex is contended only while they are read. So a request costs an uncontended lock and two or three
//! look-ups: 0.06 µs with some hundred workspaces, 0.8 µs if each request is for another one of 100,000. Open watches are
//! counted exactly: a watch itself costs more than its counter.

mod sketch;

use std::cell::Cell;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use sketch::{Sketch, TopEntry, heaviest};

/// Counters per measure and thread: a workspace with more than a 512th of the total is always found.
const COUNTERS: usize = 512;
/// Interval of the decay, and the fraction that remains. An event counts for 50 s on average.
const TICK: Duration = Duration::from_secs(5);
const REMAINS: f64 = 0.9;
/// Number of locks for the counters of open watches.
const WATCH_PARTS: usize = 16;

/// A measure of a workspace's load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Measure {
    /// Completed requests.
    Requests,
    /// Bytes of their bodies, in both directions.
    Bytes,
    /// Responses with 5xx, from the shard or from the gateway.
    Errors,
}

impl Measure {
    pub(crate) const ALL: [Self; 3] = [Self::Requests, Self::Bytes, Self::Errors];
}

/// Counts for all workspaces.
pub(crate) struct TopWorkspaces {
    parts: Box<[Mutex<Part>]>,
    watches: [Mutex<FxHashMap<Arc<str>, u32>>; WATCH_PARTS],
}

/// The counters of one thread, or of several.
struct Part {
    sketches: [Sketch; Measure::ALL.len()],
    /// Time of the last decay.
    ticked: Instant,
}

/// A workspace and its load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BusyCluster {
    /// The id of its logical cluster.
    pub(crate) cluster: Arc<str>,
    /// Rate per second, averaged over about a minute.
    pub(crate) per_second: f64,
    /// Upper bound of the overestimation.
    pub(crate) error: f64,
}

impl TopWorkspaces {
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        let parts = std::thread::available_parallelism().map_or(1, usize::from);
        let part = || Mutex::new(Part { sketches: Measure::ALL.map(|_| Sketch::new(COUNTERS)), ticked: now });
        Arc::new(Self { parts: (0..parts).map(|_| part()).collect(), watches: Default::default() })
    }

    /// Counts a completed request for this logical cluster.
    pub(crate) fn ended(&self, cluster: &Arc<str>, code: u16, bytes: u64, now: Instant) {
        let mut part = self.parts[thread_number() % self.parts.len()].lock();
        part.tick(now);
        let [requests, all_bytes, errors] = &mut part.sketches;
        requests.add(cluster, 1.0);
        if bytes > 0 {
            all_bytes.add(cluster, bytes as f64);
        }
        if code >= 500 {
            errors.add(cluster, 1.0);
        }
    }

    /// Counts a watch in this logical cluster until the returned guard is dropped.
    pub(crate) fn watch(self: &Arc<Self>, cluster: &Arc<str>) -> OpenWatch {
        *self.watches_of(cluster).lock().entry(Arc::clone(cluster)).or_default() += 1;
        OpenWatch { all: Arc::clone(self), cluster: Arc::clone(cluster) }
    }

    /// The busiest workspaces by one measure, at most `most`.
    pub(crate) fn by(&self, measure: Measure, most: usize, now: Instant) -> Vec<BusyCluster> {
        let mut parts: Vec<_> = self.parts.iter().map(|part| part.lock()).collect();
        parts.iter_mut().for_each(|part| part.tick(now));
        let mut heavy = heaviest(parts.iter().map(|part| &part.sketches[measure as usize]));
        drop(parts);
        heavy.truncate(most);
        // Skips workspaces whose load has decayed.
        heavy.retain(|one| one.weight - one.error > 0.01);
        // For a constant rate the sketch contains this many seconds' worth of it.
        let seconds = TICK.as_secs_f64() / (1.0 - REMAINS);
        let busy = |TopEntry { key, weight, error }: TopEntry| BusyCluster {
            cluster: key,
            per_second: weight / seconds,
            error: error / seconds,
        };
        heavy.into_iter().map(busy).collect()
    }

    /// The workspaces with the most open watches, at most `most`.
    pub(crate) fn by_watches(&self, most: usize) -> Vec<(Arc<str>, u32)> {
        let mut all: Vec<(Arc<str>, u32)> = Vec::new();
        for part in &self.watches {
            all.extend(part.lock().iter().map(|(cluster, open)| (Arc::clone(cluster), *open)));
            // Selects before sorting, because there may be very many.
            let order = |one: &(Arc<str>, u32), other: &(Arc<str>, u32)| {
                other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0))
            };
            all.sort_unstable_by(order);
            all.truncate(most);
        }
        all
    }

    fn watches_of(&self, cluster: &str) -> &Mutex<FxHashMap<Arc<str>, u32>> {
        // The upper bits, because the map below uses the lower ones.
        let part = FxBuildHasher.hash_one(cluster) >> 40;
        &self.watches[part as usize % WATCH_PARTS]
    }
}

impl Part {
    fn tick(&mut self, now: Instant) {
        let due = now.saturating_duration_since(self.ticked).as_secs() / TICK.as_secs();
        if due == 0 {
            return;
        }
        let ticks = u32::try_from(due).unwrap_or(u32::MAX);
        self.ticked += TICK.saturating_mul(ticks);
        let remains = REMAINS.powf(f64::from(ticks));
        self.sketches.iter_mut().for_each(|sketch| sketch.decay(remains));
    }
}

/// An open watch, counted until this is dropped.
pub(crate) struct OpenWatch {
    all: Arc<TopWorkspaces>,
    cluster: Arc<str>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut open = self.all.watches_of(&self.cluster).lock();
        match open.get_mut(&self.cluster) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = open.remove(&self.cluster),
        }
    }
}

/// The number of this thread.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn rates_are_of_the_last_minute_or_so() {
        let start = Instant::now();
        let top = TopWorkspaces::new(start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for second in 0..600 {
            for _ in 0..20 {
                top.ended(&cluster("steady"), 200, 1000, at(second));
            }
            if second < 300 {
                top.ended(&cluster("before"), 503, 0, at(second));
            }
        }
        let requests = top.by(Measure::Requests, 10, at(600));
        assert_eq!(&*requests[0].cluster, "steady");
        assert!((17.0..=21.0).contains(&requests[0].per_second), "{requests:?}");
        let bytes = top.by(Measure::Bytes, 10, at(600));
        assert!((17_000.0..=21_000.0).contains(&bytes[0].per_second), "{bytes:?}");
        let errors = top.by(Measure::Errors, 10, at(300));
        assert_eq!(&*errors[0].cluster, "before");
        // An hour later everything has decayed.
        assert_eq!(top.by(Measure::Requests, 10, at(4200)), []);
    }

    #[test]
    #[ignore = "a measurement: make figures"]
    fn cost_per_request() {
        const REQUESTS: u32 = 1_000_000;
        for workspaces in [10, 500, 100_000] {
            let clusters: Vec<_> = (0..workspaces).map(|number| cluster(&format!("c{number:015}"))).collect();
            let top = TopWorkspaces::new(Instant::now());
            let began = Instant::now();
            for number in 0..REQUESTS as usize {
                // An order that is neither sequential nor random: consecutive requests are far apart.
                let cluster = &clusters[number.wrapping_mul(7919) % workspaces];
                top.ended(cluster, 200, 1000, began);
            }
            println!("{workspaces} workspaces: {} ns per request", (began.elapsed() / REQUESTS).as_nanos());
        }
    }

    #[test]
    fn open_watches_are_counted_exactly() {
        let top = TopWorkspaces::new(Instant::now());
        let mut held: Vec<_> =
            (0..100).map(|number| top.watch(&cluster(&format!("c{}", number % 30)))).collect();
        let heavy: Vec<_> = (0..7).map(|_| top.watch(&cluster("heavy"))).collect();
        assert_eq!(top.by_watches(2), [(cluster("heavy"), 7), (cluster("c0"), 4)]);
        drop(heavy);
        held.truncate(1);
        assert_eq!(top.by_watches(10), [(cluster("c0"), 1)]);
        held.clear();
        assert_eq!(top.by_watches(10), []);
    }
}
