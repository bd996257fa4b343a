//! The adaptive concurrency limit: the number of requests that a server can process at a time without getting slower.
//!
//! Over windows of a tenth of a second the mean response time is compared with the baseline, which is the time under low
//! load; per priority, and separately for reads and writes. Slower responses reduce the limit in proportion. If they are
//! not slower and the limit is reached, it grows (a gradient, as in Netflix's concurrency-limits). A server without low
//! load for a while gets few requests for a window, to measure its baseline again (as Envoy does).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::request::Priority;
use crate::upstream::admission::FlowKey;

/// Bounds of the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Bounds {
    pub(super) min: u32,
    pub(super) max: u32,
}

/// Minimum length of a window.
const WINDOW: Duration = Duration::from_millis(100);
/// Number of responses below which a window is extended.
const MIN_RESPONSES: u64 = 20;
/// Response times may be this many times the baseline.
const TOLERANCE: f64 = 1.5;
/// Fraction by which the limit decreases towards the value of a window.
const STEP: f64 = 0.3;
/// Minimum relative growth of the limit.
const GROWTH: f64 = 0.1;
/// Fraction by which a baseline follows longer times under low load: the server has become slower.
const DRIFT: f64 = 0.05;
/// Number of windows under load after which the baseline is measured again.
const PROBE_AFTER: u32 = 300;
/// Maximum length of such a measurement, in windows: the open requests must complete first.
const PROBE_FOR: u32 = 10;

/// Number of kinds of requests; each kind is compared only with itself.
const KINDS: usize = 2 * Priority::ALL.len();

/// The index of a request's kind.
pub(super) fn kind(flow_key: FlowKey) -> usize {
    2 * flow_key.priority as usize + usize::from(flow_key.writes)
}

/// The limit of one server. Counting a response costs about six atomic operations; ending a window costs a lock.
#[derive(Debug)]
pub(super) struct Adaptive {
    limit: AtomicU32,
    epoch: Instant,
    /// End of the window, in microseconds.
    end: AtomicU64,
    times: [LatencyWindow; KINDS],
    /// Maximum number of concurrent requests.
    most_open: AtomicU32,
    /// Requests that took longer than the time for which they count.
    expired: AtomicU64,
    overloaded: AtomicU64,
    evaluation: Mutex<Evaluation>,
}

/// The measurements of one kind in a window.
#[derive(Debug, Default)]
struct LatencyWindow {
    count: AtomicU64,
    micros: AtomicU64,
}

/// The result of earlier windows.
#[derive(Debug, Default, Clone, Copy)]
struct Evaluation {
    /// The limit; infinite before the first measurement.
    limit: f64,
    probe: Probe,
    /// Mean times in microseconds under low load.
    baselines: [Option<f64>; KINDS],
}

/// Time since the last low load.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// Number of windows since the last low load.
    Idle(u32),
    /// The baseline is being measured, for so many windows; afterwards the limit returns to this value.
    Running(u32, f64),
}

impl Default for Probe {
    fn default() -> Self {
        // There was no low load yet.
        Self::Idle(PROBE_AFTER - 20)
    }
}

/// The measurements of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Number and mean time in microseconds by kind.
    times: [(u64, f64); KINDS],
    most_open: u32,
    expired: u64,
    overloaded: u64,
}

impl Adaptive {
    pub(super) fn new() -> Self {
        Self {
            limit: AtomicU32::new(u32::MAX),
            epoch: Instant::now(),
            end: AtomicU64::new(micros(WINDOW)),
            times: Default::default(),
            most_open: AtomicU32::new(0),
            expired: AtomicU64::new(0),
            overloaded: AtomicU64::new(0),
            evaluation: Mutex::new(Evaluation { limit: f64::from(u32::MAX), ..Evaluation::default() }),
        }
    }

    pub(super) fn limit(&self, bounds: Bounds) -> u32 {
        self.limit.load(Ordering::Relaxed).clamp(bounds.min, bounds.max)
    }

    /// Counts a response that began after this time, while `open` requests were open.
    pub(super) fn record_response(&self, kind: usize, took: Duration, open: u32, bounds: Bounds) {
        let times = &self.times[kind];
        times.count.fetch_add(1, Ordering::Relaxed);
        times.micros.fetch_add(micros(took), Ordering::Relaxed);
        if open > self.most_open.load(Ordering::Relaxed) {
            self.most_open.fetch_max(open, Ordering::Relaxed);
        }
        self.end_window_if_due(bounds);
    }

    /// Counts a request that took longer than the time for which it counts.
    pub(super) fn expired(&self, open: u32, bounds: Bounds) {
        self.expired.fetch_add(1, Ordering::Relaxed);
        self.most_open.fetch_max(open, Ordering::Relaxed);
        self.end_window_if_due(bounds);
    }

    /// Counts a request that overloaded the server.
    pub(super) fn overloaded(&self, open: u32, bounds: Bounds) {
        self.overloaded.fetch_add(1, Ordering::Relaxed);
        self.most_open.fetch_max(open, Ordering::Relaxed);
        self.end_window_if_due(bounds);
    }

    /// Ends the window if its time is over.
    fn end_window_if_due(&self, bounds: Bounds) {
        let now = micros(self.epoch.elapsed());
        if now < self.end.load(Ordering::Relaxed) {
            return;
        }
        // If another thread holds the lock, that thread ends the window.
        let Some(mut evaluation) = self.evaluation.try_lock() else { return };
        let responses: u64 = self.times.iter().map(|times| times.count.load(Ordering::Relaxed)).sum();
        let others = self.overloaded.load(Ordering::Relaxed) + self.expired.load(Ordering::Relaxed);
        if responses + others < MIN_RESPONSES {
            return;
        }
        self.end.store(now + micros(WINDOW), Ordering::Relaxed);
        let mut window = Window {
            most_open: self.most_open.swap(0, Ordering::Relaxed),
            expired: self.expired.swap(0, Ordering::Relaxed),
            overloaded: self.overloaded.swap(0, Ordering::Relaxed),
            ..Window::default()
        };
        for (measured, times) in window.times.iter_mut().zip(&self.times) {
            let count = times.count.swap(0, Ordering::Relaxed);
            let sum = times.micros.swap(0, Ordering::Relaxed);
            *measured = (count, if count > 0 { sum as f64 / count as f64 } else { 0.0 });
        }
        *evaluation = evaluate(*evaluation, &window, bounds);
        self.limit.store(evaluation.limit as u32, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The evaluation that follows from a window. A pure function.
fn evaluate(before: Evaluation, window: &Window, bounds: Bounds) -> Evaluation {
    let (min, max) = (f64::from(bounds.min), f64::from(bounds.max));
    let limit = before.limit.clamp(min, max);
    let open = f64::from(window.most_open);
    // So few requests that they cannot cause slow responses themselves.
    let is_quiet = open <= min * 1.25;
    let baselines = baselines(before.baselines, window, is_quiet, before.probe);
    match before.probe {
        Probe::Running(_, limit) if is_quiet => {
            return Evaluation { limit, probe: Probe::Idle(0), baselines };
        }
        Probe::Running(PROBE_FOR.., limit) => return Evaluation { limit, probe: Probe::Idle(0), baselines },
        Probe::Running(windows, limit) => {
            return Evaluation { limit: min, probe: Probe::Running(windows + 1, limit), baselines };
        }
        Probe::Idle(PROBE_AFTER..) if !is_quiet => {
            return Evaluation { limit: min, probe: Probe::Running(0, limit), baselines };
        }
        Probe::Idle(_) => {}
    }
    let probe = match before.probe {
        Probe::Idle(windows) if !is_quiet => Probe::Idle(windows + 1),
        _ => Probe::Idle(0),
    };
    let limit = limited(limit, window, &baselines, is_quiet).clamp(min, max);
    Evaluation { limit, probe, baselines }
}

/// The baselines after this window.
fn baselines(
    mut baselines: [Option<f64>; KINDS],
    window: &Window,
    is_quiet: bool,
    probe: Probe,
) -> [Option<f64>; KINDS] {
    for (baseline, (count, mean)) in baselines.iter_mut().zip(window.times) {
        if count == 0 {
            continue;
        }
        let known = *baseline.get_or_insert(mean);
        // A shorter time is the server's real speed. A longer one counts only if the requests cannot have caused it.
        *baseline = Some(match probe {
            _ if mean < known => mean,
            Probe::Running(..) if is_quiet => mean,
            _ if is_quiet => known + (mean - known) * DRIFT,
            _ => known,
        });
    }
    baselines
}

fn limited(limit: f64, window: &Window, baselines: &[Option<f64>; KINDS], is_quiet: bool) -> f64 {
    let open = f64::from(window.most_open).min(limit);
    let (mut weight, mut gradients) = (0.0, 0.0);
    for (baseline, (count, mean)) in baselines.iter().zip(window.times) {
        let known = baseline.unwrap_or(mean);
        gradients += (TOLERANCE * known.max(1.0) / mean.max(1.0)).clamp(0.5, 1.0) * count as f64;
        weight += count as f64;
    }
    // Some requests hang regardless of the others. If most do, that is the response time.
    let expired = window.expired as f64;
    if expired > weight {
        (gradients, weight) = (gradients + expired * 0.5, weight + expired);
    }
    let overloaded = window.overloaded as f64;
    if overloaded > 0.0 && overloaded >= weight / 10.0 {
        return limit * 0.7;
    }
    let gradient = if weight > 0.0 { gradients / weight } else { 1.0 };
    if gradient < 0.99 {
        let target = open * gradient + open.sqrt();
        return if is_quiet || target >= limit { limit } else { limit + (target - limit) * STEP };
    }
    if open >= limit * 0.5 { limit + limit.sqrt().max(limit * GROWTH) } else { limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 10, max: 2000 };

    fn window(mean: f64, open: f64) -> Window {
        Window { times: times(&[(NORMAL, 100, mean)]), most_open: open as u32, expired: 0, overloaded: 0 }
    }

    const NORMAL: FlowKey = FlowKey { flow: 0, priority: Priority::Normal, writes: false };
    const LIST: FlowKey = FlowKey { priority: Priority::List, ..NORMAL };
    const WRITE: FlowKey = FlowKey { writes: true, ..NORMAL };

    fn times(of: &[(FlowKey, u64, f64)]) -> [(u64, f64); KINDS] {
        let mut times = [(0, 0.0); KINDS];
        for (flow_key, count, mean) in of {
            times[kind(*flow_key)] = (*count, *mean);
        }
        times
    }

    /// A server that processes `capacity` requests at a time, each for a millisecond; further requests are queued.
    fn settle(mut evaluation: Evaluation, capacity: f64, asked: f64, windows: usize) -> Evaluation {
        for _ in 0..windows {
            let open = asked.min(evaluation.limit.min(2_000.0));
            evaluation = evaluate(evaluation, &window(1_000.0 * (open / capacity).max(1.0), open), BOUNDS);
        }
        evaluation
    }

    /// The evaluation of a server with a known baseline.
    fn known() -> Evaluation {
        settle(Evaluation { limit: 200.0, ..Evaluation::default() }, 100.0, 10.0, 5)
    }

    #[test]
    fn the_limit_converges_to_the_capacity_and_follows_it() {
        for capacity in [20.0, 100.0, 700.0] {
            for asked in [10_000.0, capacity * 4.0] {
                let settled = settle(known(), capacity, asked, 250).limit;
                let flow_key = settled / capacity;
                assert!((1.0..2.6).contains(&flow_key), "{settled} for {capacity}");
            }
        }
        let slower = settle(settle(known(), 500.0, 10_000.0, 250), 50.0, 10_000.0, 40).limit;
        assert!(slower < 130.0, "{slower}");
        let faster = settle(settle(known(), 50.0, 10_000.0, 250), 500.0, 10_000.0, 40).limit;
        assert!(faster > 500.0, "{faster}");
    }

    #[test]
    fn the_limit_converges_soon_for_a_server_under_load() {
        // Like a restart of the gateway during a flood.
        let first = Evaluation { limit: f64::from(u32::MAX), ..Evaluation::default() };
        let settled = settle(first, 50.0, 10_000.0, 100).limit;
        assert!((50.0..150.0).contains(&settled), "{settled}");
    }

    #[test]
    fn under_low_load_times_do_not_change_the_limit() {
        let mut evaluation = known();
        for mean in [50_000.0, 1.0, 900_000.0] {
            evaluation = evaluate(evaluation, &window(mean, 9.0), BOUNDS);
            assert!((evaluation.limit - 200.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_server_that_has_become_slower_is_not_throttled_for_good() {
        let mut evaluation = settle(known(), 100.0, 10_000.0, 100);
        // Everything takes ten times as long, regardless of the load.
        for _ in 0..1_000 {
            evaluation = evaluate(evaluation, &window(10_000.0, evaluation.limit), BOUNDS);
        }
        assert!(evaluation.limit > 100.0, "{}", evaluation.limit);
    }

    #[test]
    fn a_reported_overload_reduces_the_limit() {
        let some = Window { overloaded: 20, ..window(1_000.0, 200.0) };
        assert!(evaluate(known(), &some, BOUNDS).limit < 150.0);
        let few = Window { overloaded: 2, ..some };
        assert!(evaluate(known(), &few, BOUNDS).limit >= 200.0);
        let mut evaluation = known();
        for _ in 0..100 {
            evaluation = evaluate(evaluation, &Window { overloaded: 30, ..Window::default() }, BOUNDS);
        }
        assert!((evaluation.limit - 10.0).abs() < 1e-9, "never fewer than the minimum");
    }

    #[test]
    fn a_few_hanging_requests_do_not_reduce_the_limit() {
        let hanging = Window { expired: 90, ..window(1_000.0, 190.0) };
        assert!(evaluate(known(), &hanging, BOUNDS).limit >= 200.0);
        let all = Window { expired: 90, most_open: 190, ..Window::default() };
        assert!(evaluate(known(), &all, BOUNDS).limit < 200.0);
    }

    #[test]
    fn each_priority_is_compared_with_itself_and_so_are_writes() {
        for slow in [LIST, WRITE] {
            let mut evaluation = known();
            evaluation = evaluate(
                evaluation,
                &Window { times: times(&[(slow, 9, 50_000.0)]), ..window(0.0, 5.0) },
                BOUNDS,
            );
            for count in [0, 100, 3, 80, 0, 100] {
                let times = times(&[(NORMAL, 100, 1_000.0), (slow, count, 50_000.0)]);
                evaluation = evaluate(evaluation, &Window { times, ..window(0.0, evaluation.limit) }, BOUNDS);
            }
            assert!(evaluation.limit > 200.0, "{}", evaluation.limit);
        }
    }
}
