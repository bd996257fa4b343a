//! Metrics by listener. Listeners are added and removed at run time; their number at a time is bounded.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{Histogram, HistogramVec, IntCounter, IntGauge};

use crate::request::RequestClass;
use crate::telemetry::metrics::{CLASSES, RequestStage};

/// Maximum number of listeners with different names at a time, including closed ones that still drain.
const MAX_LISTENERS: usize = 64;
/// The label that names a listener.
const LABEL: &str = "listener";

/// The metrics of a listener's connections.
#[derive(Clone, Debug)]
pub(crate) struct ListenerMetrics {
    /// Open connections.
    pub(crate) open: IntGauge,
    /// Completed TLS handshakes without resumption.
    pub(crate) handshakes_full: IntCounter,
    /// Resumed handshakes.
    pub(crate) handshakes_resumed: IntCounter,
    /// Failed handshakes.
    pub(crate) handshakes_failed: IntCounter,
    /// Handshakes that timed out.
    pub(crate) handshakes_timeout: IntCounter,
    /// Connections from addresses that may not connect.
    pub(crate) peers_refused: IntCounter,
    /// Connections beyond the limit of their address.
    pub(crate) connections_limited: IntCounter,
}

/// Assigns listeners to the slots of tables by listener.
#[derive(Debug)]
pub(super) struct ListenerSlots {
    taken: Mutex<[Weak<ListenerSeries>; MAX_LISTENERS]>,
    /// Removed listeners whose series still exist.
    removed: Arc<Mutex<Vec<Arc<str>>>>,
}

/// The metrics of requests at a listener; kept while the listener or one of its connections exists.
#[derive(Debug)]
pub(crate) struct ListenerSeries {
    name: Arc<str>,
    slot: usize,
    stages: [Histogram; RequestStage::ALL.len()],
    removed: Arc<Mutex<Vec<Arc<str>>>>,
}

impl ListenerSlots {
    pub(super) fn new() -> Self {
        Self { taken: Mutex::new(std::array::from_fn(|_| Weak::new())), removed: Arc::default() }
    }

    /// The series of a listener; listeners with the same name share them. `None` if there are too many.
    pub(super) fn of(&self, name: &str, stages: &HistogramVec) -> Option<Arc<ListenerSeries>> {
        let mut taken = self.taken.lock();
        let known = taken.iter().filter_map(Weak::upgrade).find(|series| &*series.name == name);
        if known.is_some() {
            return known;
        }
        let slot = taken.iter().position(|slot| slot.strong_count() == 0)?;
        let series = Arc::new(ListenerSeries {
            name: name.into(),
            slot,
            stages: RequestStage::ALL.map(|stage| stages.with_label_values(&[name, stage.as_str()])),
            removed: Arc::clone(&self.removed),
        });
        taken[slot] = Arc::downgrade(&series);
        Some(series)
    }

    /// The listeners that were removed since the last call and were not added again.
    pub(super) fn removed(&self) -> Vec<Arc<str>> {
        let removed = std::mem::take(&mut *self.removed.lock());
        let current: Vec<_> = self.taken.lock().iter().filter_map(Weak::upgrade).collect();
        removed.into_iter().filter(|name| current.iter().all(|series| series.name != *name)).collect()
    }
}

impl ListenerSeries {
    /// Records the duration of a stage.
    pub(crate) fn stage(&self, stage: RequestStage, took: Duration) {
        self.stages[stage as usize].observe(took.as_secs_f64());
    }
}

impl Drop for ListenerSeries {
    fn drop(&mut self) {
        self.removed.lock().push(Arc::clone(&self.name));
    }
}

/// Removes the series of a listener.
pub(super) fn remove_series<B: MetricVecBuilder>(all: &MetricVec<B>, listener: &str) {
    for family in all.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
            if labels.get(LABEL) == Some(&listener) {
                // Another thread may have removed it.
                let _ = all.remove(&labels);
            }
        }
    }
}

/// The histograms of one server, each created at its first use.
#[derive(Debug)]
pub(super) struct ByListenerAndClass {
    all: HistogramVec,
    server: Box<str>,
    /// By the slots of listeners.
    listeners: Box<[ArcSwapOption<ListenerClasses>]>,
}

#[derive(Debug)]
struct ListenerClasses {
    /// The owner of these histograms; the next listener in its slot has others.
    listener: Weak<ListenerSeries>,
    classes: [OnceLock<Histogram>; CLASSES.len()],
}

impl ByListenerAndClass {
    pub(super) fn new(all: &HistogramVec, server: &str) -> Self {
        let listeners = std::iter::repeat_with(ArcSwapOption::empty).take(MAX_LISTENERS);
        Self { all: all.clone(), server: server.into(), listeners: listeners.collect() }
    }

    /// Number and sum of the observations of a class, at all present listeners.
    pub(super) fn of_class(&self, class: RequestClass) -> (u64, f64) {
        self.listeners.iter().fold((0, 0.0), |sums: (u64, f64), listener| {
            let listener = listener.load();
            match listener.as_ref().and_then(|listener| listener.classes[class as usize].get()) {
                Some(of) => (sums.0 + of.get_sample_count(), sums.1 + of.get_sample_sum()),
                None => sums,
            }
        })
    }

    /// Records a duration. Costs two indices, an atomic read and, the first time, a look-up by labels.
    pub(super) fn observe(&self, listener: &Arc<ListenerSeries>, class: RequestClass, seconds: f64) {
        let Some(slot) = self.listeners.get(listener.slot) else { return };
        let known = slot.load();
        if let Some(known) =
            known.as_ref().filter(|known| std::ptr::eq(known.listener.as_ptr(), &raw const **listener))
        {
            return self.histogram(known, listener, class).observe(seconds);
        }
        let new =
            Arc::new(ListenerClasses { listener: Arc::downgrade(listener), classes: Default::default() });
        self.histogram(&new, listener, class).observe(seconds);
        // Another thread may have stored them first; then these are looked up once more.
        slot.store(Some(new));
    }

    fn histogram<'c>(
        &self,
        known: &'c ListenerClasses,
        listener: &ListenerSeries,
        class: RequestClass,
    ) -> &'c Histogram {
        let labels = || [&*listener.name, &*self.server, class.as_str()];
        known.classes[class as usize].get_or_init(|| self.all.with_label_values(&labels()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_process::Metrics;

    use super::*;

    #[test]
    fn a_removed_listener_removes_its_series_and_frees_its_slot() {
        let registry = Metrics::new("gateway", "test").unwrap();
        let stages = registry.histograms("stages", "stages", &[LABEL, "stage"], &[1.0]).unwrap();
        let all = registry.histograms("all", "all", &[LABEL, "shard", "class"], &[1.0]).unwrap();
        let (places, server) = (ListenerSlots::new(), ByListenerAndClass::new(&all, "alpha"));
        let kept = places.of("kept", &stages).unwrap();
        server.observe(&kept, RequestClass::Read, 1.0);
        let lines = |name: &str| {
            let text = String::from_utf8(registry.text().unwrap().to_vec()).unwrap();
            text.lines().filter(|line| line.contains(&format!("listener=\"{name}\""))).count()
        };
        let before = lines("kept");
        for number in 0..3 * MAX_LISTENERS {
            let name = format!("listener {number}");
            let listener = places.of(&name, &stages).unwrap();
            assert!(Arc::ptr_eq(&listener, &places.of(&name, &stages).unwrap()));
            server.observe(&listener, RequestClass::Read, 1.0);
            server.observe(&listener, RequestClass::Read, 1.0);
            assert_eq!(server.of_class(RequestClass::Read), (3, 3.0));
            assert!(places.removed().is_empty());
            drop(listener);
            let removed = places.removed();
            assert_eq!(removed.len(), 1);
            remove_series(&stages, &removed[0]);
            remove_series(&all, &removed[0]);
            assert_eq!((lines(&name), lines("kept")), (0, before));
        }
        let many: Vec<_> =
            (1..MAX_LISTENERS).map(|number| places.of(&number.to_string(), &stages).unwrap()).collect();
        assert!(places.of("one more", &stages).is_none());
        drop(many);
        places.of("one more", &stages).unwrap();
    }
}
