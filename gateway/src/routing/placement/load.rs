//! Load of shards by the requests of this gateway.
//!
//! Requests pay nothing for it: it is derived from sums that metrics keep anyway, at most once a second and only when
//! a placement is requested.

use std::hash::Hash;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Minimum interval between two readings.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Time constant of the exponential average: a reading of this age weighs a third of a current one.
const TIME_CONSTANT: Duration = Duration::from_secs(10);

/// Requests of this gateway that a shard has served since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ShardWork {
    /// Reads and writes whose response has begun.
    pub(crate) responses: u64,
    /// Total time until their responses began, in seconds.
    pub(crate) waited: f64,
}

/// Load and health of shards, as observed by the upstream connections.
pub(crate) trait UpstreamSignals: Send + Sync {
    /// Work of a shard; zero for a shard that has got no requests.
    fn work(&self, shard: &str) -> ShardWork;

    /// True if the latest attempt to open a connection to the shard failed.
    fn is_failing(&self, shard: &str) -> bool;

    /// True if so many of all shards fail that the fault is probably on the side of the gateway.
    fn is_panic_threshold_exceeded(&self, shards: &mut dyn Iterator<Item = &str>) -> bool {
        let _ = shards;
        false
    }
}

/// Load of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Reads and writes per second.
    pub(crate) rate: f64,
    /// Average number of reads and writes in progress at the shard: their rate times their time to the first byte.
    pub(crate) busy: f64,
}

/// Load of all shards; `S` identifies a shard.
#[derive(Debug)]
pub(super) struct Loads<S> {
    known: FxHashMap<S, (ShardWork, Load)>,
    read_at: Option<Instant>,
}

impl<S> Default for Loads<S> {
    fn default() -> Self {
        Self { known: FxHashMap::default(), read_at: None }
    }
}

impl<S: Copy + Eq + Hash> Loads<S> {
    /// Load of a shard.
    pub(super) fn of(&self, shard: S) -> Load {
        self.known.get(&shard).map(|(_, load)| *load).unwrap_or_default()
    }

    /// Reads the sums of these shards if the interval has passed; other shards are dropped.
    pub(super) fn read<'n>(
        &mut self,
        shards: impl Iterator<Item = (S, &'n str)>,
        signals: &dyn UpstreamSignals,
        now: Instant,
    ) {
        let passed = self.read_at.map(|at| now.saturating_duration_since(at));
        if passed.is_some_and(|passed| passed < READ_INTERVAL) {
            return;
        }
        self.read_at = Some(now);
        let before = std::mem::take(&mut self.known);
        self.known = shards
            .map(|(shard, name)| {
                let work = signals.work(name);
                // The load of a new shard is not known yet.
                let load = match (before.get(&shard), passed) {
                    (Some((earlier, load)), Some(passed)) => load.updated(*earlier, work, passed),
                    _ => Load::default(),
                };
                (shard, (work, load))
            })
            .collect();
    }
}

impl Load {
    fn updated(self, earlier: ShardWork, now: ShardWork, passed: Duration) -> Self {
        let old = (-passed.as_secs_f64() / TIME_CONSTANT.as_secs_f64()).exp();
        let blend = |before: f64, since: f64| before * old + since / passed.as_secs_f64() * (1.0 - old);
        Self {
            rate: blend(self.rate, now.responses.saturating_sub(earlier.responses) as f64),
            busy: blend(self.busy, (now.waited - earlier.waited).max(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use parking_lot::Mutex;

    use super::*;

    struct Fixed(Mutex<Cell<ShardWork>>);

    impl UpstreamSignals for Fixed {
        fn work(&self, shard: &str) -> ShardWork {
            if shard == "busy" { self.0.lock().get() } else { ShardWork::default() }
        }

        fn is_failing(&self, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn busy_is_rate_times_duration() {
        let (mut loads, mut now) = (Loads::default(), Instant::now());
        let signals = Fixed(Mutex::new(Cell::new(ShardWork { responses: 1_000_000, waited: 5e6 })));
        let read = |loads: &mut Loads<u8>, now| {
            loads.read([(1, "busy"), (2, "idle")].into_iter(), &signals, now);
        };
        read(&mut loads, now);
        assert_eq!(loads.of(1), Load::default(), "one look says nothing");
        // 100 requests per second, of 50 ms each.
        for _ in 0..120 {
            now += READ_INTERVAL;
            let ShardWork { responses, waited } = signals.0.lock().get();
            signals.0.lock().set(ShardWork { responses: responses + 100, waited: waited + 5.0 });
            read(&mut loads, now);
            // Too early for another reading.
            read(&mut loads, now + READ_INTERVAL / 2);
        }
        let Load { rate, busy } = loads.of(1);
        assert!((rate - 100.0).abs() < 0.1 && (busy - 5.0).abs() < 0.01, "{rate} {busy}");
        assert_eq!(loads.of(2), Load::default());
        for _ in 0..10 {
            now += READ_INTERVAL;
            read(&mut loads, now);
        }
        let after = loads.of(1).busy;
        assert!((1.7..1.9).contains(&after), "a third of it: {after}");
        loads.read([(2, "idle")].into_iter(), &signals, now + READ_INTERVAL);
        assert_eq!(loads.of(1), Load::default(), "it is gone");
    }
}
