//! How busy shards are, as far as this gateway sees.
//!
//! Requests pay nothing for it: what is read here are sums that metrics keep anyway, once a second at most and only when
//! somebody asks for a pick.

use std::hash::Hash;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Sums are not read more often.
const EVERY: Duration = Duration::from_secs(1);
/// What was seen so long ago counts a third of what is seen now.
const MEMORY: Duration = Duration::from_secs(10);

/// What a shard has done for this gateway since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ShardWork {
    /// Reads and writes that it has begun to answer.
    pub(crate) answered: u64,
    /// The time that they waited for it, in seconds.
    pub(crate) waited: f64,
}

/// What the way to shards says of them.
pub(crate) trait UpstreamSignals: Send + Sync {
    /// What a shard has done; nothing for one that nobody has asked for anything.
    fn work(&self, shard: &str) -> ShardWork;

    /// Whether the last try to open a connection to it failed, a moment ago.
    fn is_failing(&self, shard: &str) -> bool;

    /// Whether so many of these shards, which are all that there are, fail that the fault is rather here.
    fn panics(&self, shards: &mut dyn Iterator<Item = &str>) -> bool {
        let _ = shards;
        false
    }
}

/// How busy a shard is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Reads and writes per second.
    pub(crate) rate: f64,
    /// Reads and writes that wait for it at any moment, on average: their rate times their time to the first byte.
    pub(crate) busy: f64,
}

/// The load of all shards; `S` names one.
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
    /// How busy a shard is.
    pub(super) fn of(&self, shard: S) -> Load {
        self.known.get(&shard).map(|(_, load)| *load).unwrap_or_default()
    }

    /// Reads the sums of these shards, if it is time; others are forgotten.
    pub(super) fn read<'n>(
        &mut self,
        shards: impl Iterator<Item = (S, &'n str)>,
        signs: &dyn UpstreamSignals,
        now: Instant,
    ) {
        let passed = self.read_at.map(|at| now.saturating_duration_since(at));
        if passed.is_some_and(|passed| passed < EVERY) {
            return;
        }
        self.read_at = Some(now);
        let before = std::mem::take(&mut self.known);
        self.known = shards
            .map(|(shard, name)| {
                let work = signs.work(name);
                // Of one that was not there before, nothing is known yet.
                let load = match (before.get(&shard), passed) {
                    (Some((earlier, load)), Some(passed)) => load.and_then(*earlier, work, passed),
                    _ => Load::default(),
                };
                (shard, (work, load))
            })
            .collect();
    }
}

impl Load {
    fn and_then(self, earlier: ShardWork, now: ShardWork, passed: Duration) -> Self {
        let old = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        let blend = |before: f64, since: f64| before * old + since / passed.as_secs_f64() * (1.0 - old);
        Self {
            rate: blend(self.rate, now.answered.saturating_sub(earlier.answered) as f64),
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
    fn requests_in_hand_are_rate_times_time() {
        let (mut loads, mut now) = (Loads::default(), Instant::now());
        let signs = Fixed(Mutex::new(Cell::new(ShardWork { answered: 1_000_000, waited: 5e6 })));
        let read = |loads: &mut Loads<u8>, now| {
            loads.read([(1, "busy"), (2, "idle")].into_iter(), &signs, now);
        };
        read(&mut loads, now);
        assert_eq!(loads.of(1), Load::default(), "one look says nothing");
        // 100 requests a second, of 50 ms each.
        for _ in 0..120 {
            now += EVERY;
            let ShardWork { answered, waited } = signs.0.lock().get();
            signs.0.lock().set(ShardWork { answered: answered + 100, waited: waited + 5.0 });
            read(&mut loads, now);
            // Too early for another look.
            read(&mut loads, now + EVERY / 2);
        }
        let Load { rate, busy } = loads.of(1);
        assert!((rate - 100.0).abs() < 0.1 && (busy - 5.0).abs() < 0.01, "{rate} {busy}");
        assert_eq!(loads.of(2), Load::default());
        for _ in 0..10 {
            now += EVERY;
            read(&mut loads, now);
        }
        let after = loads.of(1).busy;
        assert!((1.7..1.9).contains(&after), "a third of it: {after}");
        loads.read([(2, "idle")].into_iter(), &signs, now + EVERY);
        assert_eq!(loads.of(1), Load::default(), "it is gone");
    }
}
