//! The metrics of requests with the same labels. The handles are kept, so that a request does not look up nine label values.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use fairlead_process::{Metrics, MetricsError};
use parking_lot::RwLock;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use rustc_hash::{FxHashMap, FxHasher};

use super::RequestEnd;
use super::names::OTHER;

/// Sets of labels with a resource of a tenant; further ones share the labels of `other`. One takes up to 4 KiB.
const MAX_CUSTOM_SERIES: usize = 2000;
/// Upper bounds of sizes in bytes.
const SIZES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// The label of this component.
const COMPONENT: &str = "apiserver";

/// The labels of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct RequestLabels<'r> {
    pub(crate) is_built_in: bool,
    pub(crate) group: &'r str,
    pub(crate) version: &'r str,
    pub(crate) resource: &'r str,
    pub(crate) subresource: &'r str,
    pub(crate) scope: RequestScope,
    /// `GET`, `LIST`, `WATCH`, `POST`, ….
    pub(crate) verb: &'static str,
}

/// The objects that a request is about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum RequestScope {
    /// Not about objects.
    None,
    /// Those of all namespaces, or without a namespace.
    Cluster,
    /// Those of a namespace.
    Namespace,
    /// One object.
    Resource,
}

impl RequestScope {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Cluster => "cluster",
            Self::Namespace => "namespace",
            Self::Resource => "resource",
        }
    }
}

/// All series.
pub(super) struct SeriesTable {
    families: Families,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    by_hash: FxHashMap<u64, Vec<Arc<RequestSeries>>>,
    custom: usize,
}

struct Families {
    total: IntCounterVec,
    duration: HistogramVec,
    response_sizes: HistogramVec,
    long_running: IntGaugeVec,
    watch_events: IntCounterVec,
    watch_event_sizes: HistogramVec,
}

impl SeriesTable {
    pub(super) fn new(metrics: &Metrics, durations: &[f64]) -> Result<Self, MetricsError> {
        let own = ["component", "group", "resource", "scope", "subresource", "verb", "version"];
        let with = |more: &'static [&'static str]| -> Vec<&'static str> {
            let mut labels: Vec<&str> = more.iter().copied().chain(own).collect();
            labels.sort_unstable();
            labels
        };
        let watch = ["group", "resource", "version"];
        let families = Families {
            total: metrics.counters(
                "apiserver_request_total",
                "Requests by verb, resource and code.",
                &with(&["code", "dry_run"]),
            )?,
            duration: metrics.histograms(
                "apiserver_request_duration_seconds",
                "Time until the response headers, in seconds; without watches.",
                &with(&["dry_run"]),
                durations,
            )?,
            response_sizes: metrics.histograms(
                "apiserver_response_sizes",
                "Sizes of whole responses before compression, in bytes.",
                &own,
                SIZES,
            )?,
            long_running: metrics.int_gauges("apiserver_longrunning_requests", "Open watches.", &own)?,
            watch_events: metrics.counters(
                "apiserver_watch_events_total",
                "Events sent to watches.",
                &watch,
            )?,
            watch_event_sizes: metrics.histograms(
                "apiserver_watch_events_sizes",
                "Sizes of the events sent to watches, in bytes.",
                &watch,
                SIZES,
            )?,
        };
        Ok(Self { families, known: RwLock::default() })
    }

    pub(super) fn of(&self, labels: &RequestLabels<'_>) -> Arc<RequestSeries> {
        let mut hasher = FxHasher::default();
        labels.hash(&mut hasher);
        let hash = hasher.finish();
        let find = |known: &Known| {
            let series = known.by_hash.get(&hash)?.iter().find(|series| series.has(labels))?;
            Some(Arc::clone(series))
        };
        if let Some(series) = find(&self.known.read()) {
            return series;
        }
        let mut known = self.known.write();
        if let Some(series) = find(&known) {
            return series;
        }
        if !labels.is_built_in && known.custom >= MAX_CUSTOM_SERIES {
            drop(known);
            let other = RequestLabels {
                is_built_in: true,
                group: OTHER,
                resource: OTHER,
                version: "",
                subresource: "",
                ..*labels
            };
            return self.of(&other);
        }
        known.custom += usize::from(!labels.is_built_in);
        let series = Arc::new(RequestSeries::new(&self.families, labels));
        known.by_hash.entry(hash).or_default().push(Arc::clone(&series));
        series
    }
}

/// The metrics of one set of labels.
pub(crate) struct RequestSeries {
    is_built_in: bool,
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    subresource: Box<str>,
    scope: RequestScope,
    verb: &'static str,
    total: IntCounterVec,
    /// By code and dry run; a request usually finds the first one.
    totals: RwLock<Vec<((u16, bool), IntCounter)>>,
    durations: [Histogram; 2],
    response_sizes: Histogram,
    watch: Option<WatchSeries>,
}

struct WatchSeries {
    open: IntGauge,
    events: IntCounter,
    event_sizes: Histogram,
}

impl RequestSeries {
    fn new(families: &Families, labels: &RequestLabels<'_>) -> Self {
        let RequestLabels { is_built_in, group, version, resource, subresource, scope, verb } = *labels;
        let own = [COMPONENT, group, resource, scope.as_str(), subresource, verb, version];
        let duration = |dry_run: &str| {
            families.duration.with_label_values(&[
                COMPONENT,
                dry_run,
                group,
                resource,
                scope.as_str(),
                subresource,
                verb,
                version,
            ])
        };
        let watch = (verb == "WATCH").then(|| WatchSeries {
            open: families.long_running.with_label_values(&own),
            events: families.watch_events.with_label_values(&[group, resource, version]),
            event_sizes: families.watch_event_sizes.with_label_values(&[group, resource, version]),
        });
        Self {
            is_built_in,
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            scope,
            verb,
            total: families.total.clone(),
            totals: RwLock::default(),
            durations: [duration(""), duration("All")],
            response_sizes: families.response_sizes.with_label_values(&own),
            watch,
        }
    }

    fn has(&self, labels: &RequestLabels<'_>) -> bool {
        let own = RequestLabels {
            is_built_in: self.is_built_in,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            scope: self.scope,
            verb: self.verb,
        };
        own == *labels
    }

    /// Counts a request whose response headers are known.
    pub(crate) fn finish(&self, end: &RequestEnd) {
        self.count(end.code.as_u16(), end.is_dry_run);
        if let Some(duration) = end.duration {
            self.durations[usize::from(end.is_dry_run)].observe(duration.as_secs_f64());
        }
        if let Some(size) = end.size {
            self.response_sizes.observe(size as f64);
        }
    }

    fn count(&self, code: u16, is_dry_run: bool) {
        let key = (code, is_dry_run);
        if let Some((_, counter)) = self.totals.read().iter().find(|(own, _)| *own == key) {
            counter.inc();
            return;
        }
        let counter = self.total.with_label_values(&[
            &*code.to_string(),
            COMPONENT,
            if is_dry_run { "All" } else { "" },
            &self.group,
            &self.resource,
            self.scope.as_str(),
            &self.subresource,
            self.verb,
            &self.version,
        ]);
        counter.inc();
        let mut totals = self.totals.write();
        if !totals.iter().any(|(own, _)| *own == key) {
            totals.push((key, counter));
        }
    }
}

/// An open watch, which counts its events.
pub(crate) struct LongRunning(Arc<RequestSeries>);

impl LongRunning {
    pub(crate) fn begin(series: Arc<RequestSeries>) -> Self {
        if let Some(watch) = &series.watch {
            watch.open.inc();
        }
        Self(series)
    }

    /// Counts an event.
    pub(crate) fn event(&self, bytes: usize) {
        if let Some(watch) = &self.0.watch {
            watch.events.inc();
            watch.event_sizes.observe(bytes as f64);
        }
    }
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        if let Some(watch) = &self.0.watch {
            watch.open.dec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels<'r>(group: &'r str, resource: &'r str) -> RequestLabels<'r> {
        RequestLabels {
            is_built_in: false,
            group,
            version: "v1",
            resource,
            subresource: "",
            scope: RequestScope::Cluster,
            verb: "GET",
        }
    }

    #[test]
    fn tenants_cannot_create_series_without_limit() {
        let metrics = Metrics::new("test", "0").unwrap();
        let table = SeriesTable::new(&metrics, &[1.0]).unwrap();
        for number in 0..MAX_CUSTOM_SERIES + 100 {
            let name = format!("boats{number}");
            table.of(&labels("example.com", &name)).count(200, false);
        }
        table.of(&RequestLabels { is_built_in: true, ..labels("", "secrets") }).count(200, false);
        let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
        let of = |part: &str| text.lines().filter(|line| line.starts_with(part)).count();
        assert_eq!(of("apiserver_request_total{"), MAX_CUSTOM_SERIES + 2);
        let other = "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"other\",\
            resource=\"other\",scope=\"cluster\",subresource=\"\",verb=\"GET\",version=\"\"} 100";
        assert!(text.contains(other));
        assert!(text.contains("resource=\"secrets\""));
    }

    #[test]
    fn open_watches_and_their_events_are_counted() {
        let metrics = Metrics::new("test", "0").unwrap();
        let table = SeriesTable::new(&metrics, &[1.0]).unwrap();
        let watch = LongRunning::begin(table.of(&RequestLabels { verb: "WATCH", ..labels("", "secrets") }));
        watch.event(100);
        let line = |name: &str| {
            let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
            let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap().to_owned();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!(line("apiserver_longrunning_requests"), "1");
        assert_eq!(line("apiserver_watch_events_total"), "1");
        drop(watch);
        assert_eq!(line("apiserver_longrunning_requests"), "0");
    }
}
