//! Metrics of the store, read from its statistics at each scrape.
//!
//! Names begin with `fairlead_store_`; the size has kcp's name as well. Labels are those of the tables here and the
//! configured addresses of a server, so their number is fixed. Requests cost nothing: the store counts for itself.

use std::sync::Arc;

use fairlead_process::{Metrics, MetricsError};
use fairlead_store::{DURATION_BOUNDS, DatabaseStats, DiskSpace, Durations, ServerStats, Stats, Store};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// Registers the metrics of a process's store.
///
/// # Errors
/// When they are registered already.
pub fn register_store_metrics(metrics: &Metrics, store: Arc<dyn Store>) -> Result<(), MetricsError> {
    let desc = |family: &Family| {
        let labels = family.labels.iter().map(|&label| label.to_owned()).collect();
        Desc::new(family.name.to_owned(), family.help.to_owned(), labels, Default::default())
    };
    let descs = FAMILIES.iter().map(desc).collect::<Result<_, _>>()?;
    metrics.registry().register(Box::new(StoreCollector { store, descs }))
}

struct StoreCollector {
    store: Arc<dyn Store>,
    descs: Vec<Desc>,
}

impl Collector for StoreCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stats = self.store.stats();
        FAMILIES.iter().map(|family| family.collect(&stats)).collect()
    }
}

/// A metric: its declaration, and its samples in the statistics.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    samples: fn(&Stats, &mut Samples),
}

impl Family {
    fn collect(&self, stats: &Stats) -> MetricFamily {
        let mut samples = Samples { kind: self.kind, labels: self.labels, metrics: Vec::new() };
        (self.samples)(stats, &mut samples);
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(samples.metrics);
        family
    }
}

/// The samples of a metric.
struct Samples {
    kind: MetricType,
    labels: &'static [&'static str],
    metrics: Vec<Metric>,
}

impl Samples {
    /// Adds a number, as a counter or gauge.
    fn number(&mut self, values: &[&str], number: f64) {
        let mut metric = self.metric(values);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(number);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(number);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
    }

    /// Adds a histogram.
    fn durations(&mut self, values: &[&str], durations: &Durations) {
        let mut cumulative = 0;
        let bucket = |(bound, count): (&std::time::Duration, &u64)| {
            cumulative += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound.as_secs_f64());
            bucket.set_cumulative_count(cumulative);
            bucket
        };
        let buckets = DURATION_BOUNDS.iter().zip(&durations.counts).map(bucket).collect();
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(durations.count());
        histogram.set_sample_sum(durations.sum.as_secs_f64());
        let mut metric = self.metric(values);
        metric.set_histogram(histogram);
        self.metrics.push(metric);
    }

    fn metric(&self, values: &[&str]) -> Metric {
        let pair = |(name, value): (&&str, &&str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        Metric::from_label(self.labels.iter().zip(values).map(pair).collect())
    }
}

const fn gauge(name: &'static str, help: &'static str, samples: fn(&Stats, &mut Samples)) -> Family {
    Family { name, help, kind: MetricType::GAUGE, labels: &[], samples }
}

const fn counter(name: &'static str, help: &'static str, samples: fn(&Stats, &mut Samples)) -> Family {
    Family { name, help, kind: MetricType::COUNTER, labels: &[], samples }
}

const fn histogram(name: &'static str, help: &'static str, samples: fn(&Stats, &mut Samples)) -> Family {
    Family { name, help, kind: MetricType::HISTOGRAM, labels: &[], samples }
}

const fn labelled(labels: &'static [&'static str], family: Family) -> Family {
    Family { labels, ..family }
}

/// Adds a number of the server, if the store has one.
fn of_server(stats: &Stats, samples: &mut Samples, number: fn(&ServerStats) -> f64) {
    if let Some(server) = &stats.server {
        samples.number(&[], number(server));
    }
}

/// Adds a number of the server's database, if it is known.
fn of_database(stats: &Stats, samples: &mut Samples, number: fn(&DatabaseStats) -> Option<u64>) {
    let database = stats.server.as_ref().and_then(|server| server.database.as_ref());
    if let Some(number) = database.and_then(number) {
        samples.number(&[], number as f64);
    }
}

fn of_disk(stats: &Stats, samples: &mut Samples, number: fn(&DiskSpace) -> u64) {
    if let Some(disk) = &stats.disk {
        samples.number(&[], number(disk) as f64);
    }
}

/// All metrics.
const FAMILIES: &[Family] = &[
    labelled(
        &["backend"],
        gauge("fairlead_store_info", "Always 1; the label has the kind of the store.", |stats, samples| {
            samples.number(&[stats.backend], 1.0);
        }),
    ),
    gauge(
        "fairlead_store_failed",
        "1 while the store accepts no commits and is not ready.",
        |stats, samples| {
            samples.number(&[], f64::from(u8::from(stats.failure.is_some())));
        },
    ),
    gauge(
        "fairlead_store_full",
        "1 while the disk of the store is full, so that commits are refused; reads go on.",
        |stats, samples| samples.number(&[], f64::from(u8::from(stats.is_full))),
    ),
    gauge("fairlead_store_revision", "Last durable revision that can be read.", |stats, samples| {
        samples.number(&[], stats.revision.0 as f64);
    }),
    gauge(
        "fairlead_store_compacted_revision",
        "Oldest revision that can be read; the history below it is compacted.",
        |stats, samples| samples.number(&[], stats.compacted.0 as f64),
    ),
    gauge("fairlead_store_keys", "Keys.", |stats, samples| samples.number(&[], stats.keys as f64)),
    gauge(
        "fairlead_store_history_values",
        "Superseded values that are kept until they are compacted.",
        |stats, samples| samples.number(&[], stats.history as f64),
    ),
    gauge(
        "fairlead_store_file_bytes",
        "Size of the file and its journal, or of the local copy of etcd.",
        |stats, samples| samples.number(&[], stats.file_bytes as f64),
    ),
    gauge(
        "fairlead_store_disk_available_bytes",
        "Space that is left on the disk with the file of the store.",
        |stats, samples| of_disk(stats, samples, |disk| disk.available),
    ),
    gauge("fairlead_store_disk_bytes", "Size of the disk with the file of the store.", |stats, samples| {
        of_disk(stats, samples, |disk| disk.total);
    }),
    labelled(
        &["storage_cluster_id"],
        gauge(
            "apiserver_storage_size_bytes",
            "Size of the database in bytes: of etcd, or of the file.",
            |stats, samples| {
                let database = match &stats.server {
                    Some(server) => server.database.map(|database| database.bytes),
                    None => Some(stats.file_bytes),
                };
                if let Some(bytes) = database {
                    samples.number(&["etcd-0"], bytes as f64);
                }
            },
        ),
    ),
    labelled(
        &["outcome"],
        counter("fairlead_store_commits_total", "Commits by outcome.", |stats, samples| {
            for (outcome, count) in [
                ("committed", stats.commits),
                ("conflict", stats.conflicts),
                ("unavailable", stats.unavailable),
                ("unknown", stats.unknown_outcomes),
            ] {
                samples.number(&[outcome], count as f64);
            }
        }),
    ),
    counter(
        "fairlead_store_durable_writes_total",
        "Durable writes; commits that wait at the same time share one.",
        |stats, samples| samples.number(&[], stats.durable_writes as f64),
    ),
    histogram(
        "fairlead_store_commit_duration_seconds",
        "Time from a commit to its acknowledgement, in seconds.",
        |stats, samples| samples.durations(&[], &stats.commit_durations.total),
    ),
    labelled(
        &["phase"],
        histogram(
            "fairlead_store_commit_phase_duration_seconds",
            "Time that commits spend in each phase, in seconds.",
            |stats, samples| {
                let durations = &stats.commit_durations;
                for (phase, durations) in [
                    ("queue", &durations.queue),
                    ("apply", &durations.apply),
                    ("durable", &durations.durable),
                    ("visible", &durations.visible),
                ] {
                    samples.durations(&[phase], durations);
                }
            },
        ),
    ),
    histogram(
        "fairlead_store_compaction_duration_seconds",
        "Time of compactions until their space is free, in seconds.",
        |stats, samples| samples.durations(&[], &stats.compaction_durations),
    ),
    counter(
        "fairlead_store_compacted_rows_total",
        "Rows of the log that compactions have deleted.",
        |stats, samples| samples.number(&[], stats.compacted_rows as f64),
    ),
    gauge(
        "fairlead_store_view_revisions_behind",
        "Revisions from the last one that can be read to the last one that the store is known to have; 0 for a file.",
        |stats, samples| {
            let behind = stats.server.as_ref().map_or(0, |server| server.revisions_behind);
            samples.number(&[], behind as f64);
        },
    ),
    gauge(
        "fairlead_store_view_age_seconds",
        "Age of the last proof that reads are current; 0 for a file, whose reads always are.",
        |stats, samples| {
            let age = stats.server.as_ref().map_or(0.0, |server| server.view_age.as_secs_f64());
            samples.number(&[], age);
        },
    ),
    labelled(
        &["endpoint"],
        gauge(
            "fairlead_store_etcd_connected",
            "1 for the address of etcd that is in use, 0 for the others.",
            |stats, samples| {
                let Some(server) = &stats.server else { return };
                for endpoint in &server.endpoints {
                    let is_used = server.connected.as_ref() == Some(endpoint);
                    samples.number(&[endpoint], f64::from(u8::from(is_used)));
                }
            },
        ),
    ),
    gauge(
        "fairlead_store_etcd_disconnected_seconds",
        "Time since the connection to etcd was lost; 0 while there is one.",
        |stats, samples| of_server(stats, samples, |server| server.disconnected.as_secs_f64()),
    ),
    counter(
        "fairlead_store_etcd_connections_total",
        "Connections to etcd that were established.",
        |stats, samples| of_server(stats, samples, |server| server.connections as f64),
    ),
    counter(
        "fairlead_store_etcd_reloads_total",
        "Times that the whole local copy was read from etcd.",
        |stats, samples| of_server(stats, samples, |server| server.reloads as f64),
    ),
    gauge(
        "fairlead_store_etcd_database_bytes",
        "Size of the database of the etcd member in use, read once a minute.",
        |stats, samples| of_database(stats, samples, |database| Some(database.bytes)),
    ),
    gauge(
        "fairlead_store_etcd_database_used_bytes",
        "Part of the database that is in use; the rest is free after a defragmentation.",
        |stats, samples| of_database(stats, samples, |database| Some(database.used_bytes)),
    ),
    gauge(
        "fairlead_store_etcd_database_quota_bytes",
        "Quota of the database. Only etcd 3.6 and later tells it.",
        |stats, samples| {
            of_database(stats, samples, |database| {
                (database.quota_bytes > 0).then_some(database.quota_bytes)
            });
        },
    ),
    gauge(
        "fairlead_store_etcd_space_exhausted",
        "1 while etcd refuses writes because its quota is used up (alarm NOSPACE).",
        |stats, samples| of_database(stats, samples, |database| Some(u64::from(database.is_exhausted))),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fairlead_store::{MemoryStore, Mutation, RedbOptions, RedbStore};

    use super::*;

    fn text(store: Arc<dyn Store>) -> String {
        let metrics = Metrics::new("test", "0").unwrap();
        register_store_metrics(&metrics, store).unwrap();
        String::from_utf8(metrics.text().unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_file_shows_its_commits_by_phase_and_no_server() {
        let folder = tempfile::tempdir().unwrap();
        let store =
            Arc::new(RedbStore::open(folder.path().join("store.redb"), RedbOptions::default()).unwrap());
        store.commit(vec![Mutation::create("a", "1")]).await.unwrap();
        store.commit(vec![Mutation::create("a", "1")]).await.unwrap_err();
        let text = text(store);
        for line in [
            "fairlead_store_info{backend=\"file\"} 1",
            "fairlead_store_failed 0",
            "fairlead_store_full 0",
            "fairlead_store_revision 1",
            "fairlead_store_keys 1",
            "fairlead_store_commits_total{outcome=\"committed\"} 1",
            "fairlead_store_commits_total{outcome=\"conflict\"} 1",
            "fairlead_store_commit_duration_seconds_count 1",
            "fairlead_store_commit_duration_seconds_bucket{le=\"+Inf\"} 1",
            "fairlead_store_commit_phase_duration_seconds_count{phase=\"queue\"} 2",
            "fairlead_store_commit_phase_duration_seconds_count{phase=\"durable\"} 1",
            "fairlead_store_commit_phase_duration_seconds_bucket{phase=\"visible\",le=\"10\"} 1",
            "fairlead_store_view_age_seconds 0",
            "# TYPE fairlead_store_commits_total counter",
            "# TYPE fairlead_store_commit_duration_seconds histogram",
            "# TYPE apiserver_storage_size_bytes gauge",
        ] {
            assert!(text.lines().any(|shown| shown == line), "no {line} in\n{text}");
        }
        assert!(text.contains("fairlead_store_disk_available_bytes "), "{text}");
        assert!(!text.contains("fairlead_store_etcd_"), "{text}");
    }

    #[test]
    fn the_state_of_a_server_is_shown() {
        let mut server = ServerStats::default();
        server.endpoints = vec!["http://a:2379".to_owned(), "http://b:2379".to_owned()];
        server.connected = Some("http://b:2379".to_owned());
        server.connections = 3;
        server.revisions_behind = 7;
        server.view_age = std::time::Duration::from_millis(1500);
        server.database = Some(DatabaseStats::new(4096, 1024, 0, true));
        let mut stats = Stats::default();
        (stats.backend, stats.server, stats.failure) = ("etcd", Some(server), Some("foreign".to_owned()));
        stats.is_full = true;
        let shown = |name: &str| {
            let family = FAMILIES.iter().find(|family| family.name == name).unwrap();
            let labels = |metric: &Metric| -> Vec<_> {
                metric.get_label().iter().map(|label| label.value().to_owned()).collect()
            };
            let value = |metric: &Metric| metric.get_gauge().get_value() + metric.get_counter().get_value();
            let shown = family.collect(&stats);
            shown
                .get_metric()
                .iter()
                .map(|metric| (labels(metric).join(","), value(metric)))
                .collect::<Vec<_>>()
        };
        let of = |label: &str, value: f64| (label.to_owned(), value);
        for (name, expected) in [
            ("fairlead_store_failed", vec![of("", 1.0)]),
            ("fairlead_store_full", vec![of("", 1.0)]),
            ("fairlead_store_etcd_connected", vec![of("http://a:2379", 0.0), of("http://b:2379", 1.0)]),
            ("fairlead_store_etcd_connections_total", vec![of("", 3.0)]),
            ("fairlead_store_view_revisions_behind", vec![of("", 7.0)]),
            ("fairlead_store_view_age_seconds", vec![of("", 1.5)]),
            ("fairlead_store_etcd_database_bytes", vec![of("", 4096.0)]),
            ("fairlead_store_etcd_database_quota_bytes", vec![]),
            ("fairlead_store_etcd_space_exhausted", vec![of("", 1.0)]),
            ("apiserver_storage_size_bytes", vec![of("etcd-0", 4096.0)]),
        ] {
            assert_eq!(shown(name), expected, "{name}");
        }
    }

    #[test]
    fn every_metric_has_its_own_name_and_a_prefix() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len());
        for family in FAMILIES {
            let is_ours = family.name.starts_with("fairlead_store_");
            assert!(is_ours || family.name == "apiserver_storage_size_bytes", "{}", family.name);
            let is_total = family.name.ends_with("_total");
            assert_eq!(family.kind == MetricType::COUNTER, is_total, "{}", family.name);
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        assert!(text(store).contains("fairlead_store_info{backend=\"memory\"} 1"));
    }
}
