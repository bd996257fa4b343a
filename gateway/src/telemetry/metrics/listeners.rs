//! Listeners in metrics: they come and go, and there is a bound on how many there are at a time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{Histogram, HistogramVec, IntCounter, IntGauge};

use crate::request::RequestClass;
use crate::telemetry::metrics::{CLASSES, RequestStage};

/// Listeners by different names that there may be at a time, those that are closed already and drain among them.
const PLACES: usize = 64;
/// The label that names a listener.
const LABEL: &str = "listener";

/// What is counted at a listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerMetrics {
    /// Open connections.
    pub(crate) open: IntGauge,
    /// Completed handshakes, without and with resumption, and those that came to nothing.
    pub(crate) handshakes_full: IntCounter,
    /// Resumed ones.
    pub(crate) handshakes_resumed: IntCounter,
    /// Failed ones.
    pub(crate) handshakes_failed: IntCounter,
    /// Those that took too long.
    pub(crate) handshakes_timeout: IntCounter,
    /// Connections from addresses that may not connect.
    pub(crate) peers_refused: IntCounter,
    /// Connections of addresses that may have no more.
    pub(crate) connections_limited: IntCounter,
}

/// The places that listeners have in tables by listener.
#[derive(Debug)]
pub(super) struct ListenerSlots {
    taken: Mutex<[Weak<ListenerSeries>; PLACES]>,
    /// Listeners that are no more, whose series are still there.
    gone: Arc<Mutex<Vec<Arc<str>>>>,
}

/// What is counted of the requests at a listener; there as long as the listener or a connection of it.
#[derive(Debug)]
pub(crate) struct ListenerSeries {
    name: Arc<str>,
    place: usize,
    phases: [Histogram; RequestStage::ALL.len()],
    gone: Arc<Mutex<Vec<Arc<str>>>>,
}

impl ListenerSlots {
    pub(super) fn new() -> Self {
        Self { taken: Mutex::new(std::array::from_fn(|_| Weak::new())), gone: Arc::default() }
    }

    /// That of a listener; one that has the name of another shares it. `None` if there are too many.
    pub(super) fn of(&self, name: &str, phases: &HistogramVec) -> Option<Arc<ListenerSeries>> {
        let mut taken = self.taken.lock();
        let known = taken.iter().filter_map(Weak::upgrade).find(|series| &*series.name == name);
        if known.is_some() {
            return known;
        }
        let place = taken.iter().position(|place| place.strong_count() == 0)?;
        let series = Arc::new(ListenerSeries {
            name: name.into(),
            place,
            phases: RequestStage::ALL.map(|phase| phases.with_label_values(&[name, phase.as_str()])),
            gone: Arc::clone(&self.gone),
        });
        taken[place] = Arc::downgrade(&series);
        Some(series)
    }

    /// The listeners that have gone since the last call, and have not come back.
    pub(super) fn gone(&self) -> Vec<Arc<str>> {
        let gone = std::mem::take(&mut *self.gone.lock());
        let there: Vec<_> = self.taken.lock().iter().filter_map(Weak::upgrade).collect();
        gone.into_iter().filter(|name| there.iter().all(|series| series.name != *name)).collect()
    }
}

impl ListenerSeries {
    /// How long a phase took.
    pub(crate) fn phase(&self, phase: RequestStage, took: Duration) {
        self.phases[phase as usize].observe(took.as_secs_f64());
    }
}

impl Drop for ListenerSeries {
    fn drop(&mut self) {
        self.gone.lock().push(Arc::clone(&self.name));
    }
}

/// Removes the series of a listener.
pub(super) fn forget<B: MetricVecBuilder>(all: &MetricVec<B>, listener: &str) {
    for family in all.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
            if labels.get(LABEL) == Some(&listener) {
                // It may be gone by now.
                let _ = all.remove(&labels);
            }
        }
    }
}

/// The histograms of one server, each there once it has been used.
#[derive(Debug)]
pub(super) struct ByListenerAndClass {
    all: HistogramVec,
    server: Box<str>,
    /// By the places of listeners.
    listeners: Box<[ArcSwapOption<ListenerClasses>]>,
}

#[derive(Debug)]
struct ListenerClasses {
    /// Whose these are; the next listener at its place has others.
    listener: Weak<ListenerSeries>,
    classes: [OnceLock<Histogram>; CLASSES.len()],
}

impl ByListenerAndClass {
    pub(super) fn new(all: &HistogramVec, server: &str) -> Self {
        let listeners = std::iter::repeat_with(ArcSwapOption::empty).take(PLACES);
        Self { all: all.clone(), server: server.into(), listeners: listeners.collect() }
    }

    /// The number and sum of all of a class, at all listeners that there are.
    pub(super) fn of_class(&self, class: RequestClass) -> (u64, f64) {
        self.listeners.iter().fold((0, 0.0), |sums: (u64, f64), listener| {
            let listener = listener.load();
            match listener.as_ref().and_then(|listener| listener.classes[class as usize].get()) {
                Some(of) => (sums.0 + of.get_sample_count(), sums.1 + of.get_sample_sum()),
                None => sums,
            }
        })
    }

    /// Costs two indices, an atomic read and, the first time, a look-up by labels.
    pub(super) fn observe(&self, listener: &Arc<ListenerSeries>, class: RequestClass, seconds: f64) {
        let Some(place) = self.listeners.get(listener.place) else { return };
        let known = place.load();
        if let Some(known) =
            known.as_ref().filter(|known| std::ptr::eq(known.listener.as_ptr(), &raw const **listener))
        {
            return self.one(known, listener, class).observe(seconds);
        }
        let new =
            Arc::new(ListenerClasses { listener: Arc::downgrade(listener), classes: Default::default() });
        self.one(&new, listener, class).observe(seconds);
        // Somebody else may have come first; then these are looked up once more.
        place.store(Some(new));
    }

    fn one<'c>(
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
    fn a_listener_that_goes_takes_its_series_along_and_leaves_its_place() {
        let registry = Metrics::new("gateway", "test").unwrap();
        let phases = registry.histograms("phases", "phases", &[LABEL, "phase"], &[1.0]).unwrap();
        let all = registry.histograms("all", "all", &[LABEL, "shard", "class"], &[1.0]).unwrap();
        let (places, server) = (ListenerSlots::new(), ByListenerAndClass::new(&all, "alpha"));
        let kept = places.of("kept", &phases).unwrap();
        server.observe(&kept, RequestClass::Read, 1.0);
        let lines = |name: &str| {
            let text = String::from_utf8(registry.text().unwrap().to_vec()).unwrap();
            text.lines().filter(|line| line.contains(&format!("listener=\"{name}\""))).count()
        };
        let before = lines("kept");
        for number in 0..3 * PLACES {
            let name = format!("listener {number}");
            let listener = places.of(&name, &phases).unwrap();
            assert!(Arc::ptr_eq(&listener, &places.of(&name, &phases).unwrap()));
            server.observe(&listener, RequestClass::Read, 1.0);
            server.observe(&listener, RequestClass::Read, 1.0);
            assert_eq!(server.of_class(RequestClass::Read), (3, 3.0));
            assert!(places.gone().is_empty());
            drop(listener);
            let gone = places.gone();
            assert_eq!(gone.len(), 1);
            forget(&phases, &gone[0]);
            forget(&all, &gone[0]);
            assert_eq!((lines(&name), lines("kept")), (0, before));
        }
        let many: Vec<_> =
            (1..PLACES).map(|number| places.of(&number.to_string(), &phases).unwrap()).collect();
        assert!(places.of("one more", &phases).is_none());
        drop(many);
        places.of("one more", &phases).unwrap();
    }
}
