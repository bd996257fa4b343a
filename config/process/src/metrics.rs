//! The metrics of a process: one registry, passed explicitly, printed as Prometheus text.

use bytes::Bytes;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};

/// A metric is declared twice or malformed: a fault in the program, found at its start.
pub type MetricsError = prometheus::Error;

/// The content type of [`Metrics::text`].
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A process's metrics. Cloning gives another handle to the same registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// A registry with the metrics of every process: `fairlead_build_info{process,version}` and `process_*`.
    pub fn new(process: &str, version: &str) -> Result<Self, MetricsError> {
        let metrics = Self { registry: Registry::new() };
        let build = metrics.gauges(
            "fairlead_build_info",
            "Always 1; the labels have the process and its version.",
            &["process", "version"],
        )?;
        build.with_label_values(&[process, version]).set(1.0);
        metrics.registry.register(Box::new(ProcessCollector::new()?))?;
        Ok(metrics)
    }

    /// The registry itself, for collectors that this wrapper does not cover.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Registers a counter.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.register(IntCounter::new(name, help)?)
    }

    /// Registers counters with labels. Label values must come from a bounded set.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers a gauge of whole numbers.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.register(IntGauge::new(name, help)?)
    }

    /// Registers gauges of whole numbers with labels.
    pub fn int_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers gauges with labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, MetricsError> {
        self.register(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers histograms with these upper bounds, with labels.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, MetricsError> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
    }

    /// All metrics, in the text exposition format.
    pub fn text(&self) -> Result<Bytes, MetricsError> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map(Bytes::from)
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, MetricsError> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

/// `process_*`, with the names and meanings that Prometheus' own clients use, read from `/proc` at each collection.
struct ProcessCollector {
    cpu: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    resident: Gauge,
    virtual_memory: Gauge,
    threads: Gauge,
    start_time: Gauge,
}

impl ProcessCollector {
    fn new() -> Result<Self, MetricsError> {
        let collector = Self {
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            open_fds: Gauge::new("process_open_fds", "Number of open file descriptors.")?,
            max_fds: Gauge::new("process_max_fds", "Maximum number of open file descriptors.")?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory size in bytes.")?,
            virtual_memory: Gauge::new("process_virtual_memory_bytes", "Virtual memory size in bytes.")?,
            threads: Gauge::new("process_threads", "Number of operating system threads.")?,
            start_time: Gauge::new(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
        };
        if let (Some(stat), Some(boot)) = (read_stat(), boot_time()) {
            collector.start_time.set(boot + stat.start_ticks / TICKS_PER_SECOND);
        }
        Ok(collector)
    }

    fn collectors(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu,
            &self.open_fds,
            &self.max_fds,
            &self.resident,
            &self.virtual_memory,
            &self.threads,
            &self.start_time,
        ]
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Some(stat) = read_stat() {
            // A counter can only be increased, by the time spent since the last collection.
            self.cpu.inc_by((stat.cpu_ticks / TICKS_PER_SECOND - self.cpu.get()).max(0.0));
            self.virtual_memory.set(stat.virtual_bytes);
            self.resident.set(stat.resident_pages * rustix::param::page_size() as f64);
            self.threads.set(stat.threads);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the descriptor that reads the folder.
            self.open_fds.set(entries.count().saturating_sub(1) as f64);
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.max_fds.set(limit.map_or(f64::INFINITY, |fds| fds as f64));
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

/// `/proc` counts in USER_HZ, which is 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

struct ProcessStat {
    cpu_ticks: f64,
    threads: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

fn read_stat() -> Option<ProcessStat> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the command's name, may itself have blanks and brackets.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc_pid_stat(5) counts from 1 and `rest` begins with field 3.
    let field = |number: usize| fields.get(number - 3).and_then(|value| value.parse::<f64>().ok());
    Some(ProcessStat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

fn boot_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    #[test]
    fn process_metrics_are_exported() {
        let metrics = Metrics::new("shard", "1.2.3").unwrap();
        metrics.counter("things_total", "Things.").unwrap().inc_by(3);
        let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
        assert!(text.contains("fairlead_build_info{process=\"shard\",version=\"1.2.3\"} 1\n"), "{text}");
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
        assert!(value(&text, "things_total") == 3.0);
        assert!(value(&text, "process_resident_memory_bytes") > 1e5);
        assert!(value(&text, "process_virtual_memory_bytes") > value(&text, "process_resident_memory_bytes"));
        assert!(value(&text, "process_threads") >= 1.0);
        assert!(value(&text, "process_max_fds") > value(&text, "process_open_fds"));
        // Later than the day this was written and not in the future.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = value(&text, "process_start_time_seconds");
        assert!(started > 1.7e9 && started <= now + 1.0, "{started}");
    }

    #[test]
    fn a_metric_name_can_be_registered_once() {
        let metrics = Metrics::new("shard", "1").unwrap();
        metrics.gauge("a", "A.").unwrap();
        assert!(metrics.gauge("a", "A.").is_err());
    }
}
