//! Status of a server's store, read from its metrics.

use serde::Serialize;

/// Status of a store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoreStatus {
    /// `file`, `etcd` or `memory`.
    pub backend: String,
    /// Whether it accepts no commits.
    pub failed: bool,
    /// Whether its disk is full, so that it refuses commits.
    pub full: bool,
    /// The last revision that can be read.
    pub revision: u64,
    /// Size of the database, in bytes: of the file with its journal, or of etcd.
    pub size_bytes: Option<u64>,
    /// Revisions that etcd is known to have and reads do not show yet; 0 for a file.
    pub revisions_behind: Option<u64>,
    /// Age of the last proof that reads are current; 0 for a file.
    pub view_age_seconds: Option<f64>,
    /// The address of etcd that is in use; `None` without a connection.
    pub endpoint: Option<String>,
    /// All addresses of etcd; `None` for a file.
    pub endpoints: Option<Vec<String>>,
    /// Time since the connection to etcd was lost; 0 while there is one.
    pub disconnected_seconds: Option<f64>,
    /// Whether this process leads the controllers of its shard, or the cache servers; `None` if it does not say.
    pub leader: Option<bool>,
}

impl StoreStatus {
    /// The status in the metrics of a server; `None` if it exports none of its store.
    pub(super) fn of_metrics(text: &str) -> Option<Self> {
        let samples: Vec<Sample<'_>> = text.lines().filter_map(Sample::parse).collect();
        let of = |name: &'static str| samples.iter().filter(move |sample| sample.name == name);
        let value = |name| of(name).next().map(|sample| sample.value);
        // A float with a whole number, which is never negative here.
        let count = |name| value(name).map(|value| value as u64);
        let backend = of("fairlead_store_info").next()?.label?;
        let connections = || of("fairlead_store_etcd_connected");
        let address = |sample: &Sample<'_>| sample.label.map(str::to_owned);
        Some(Self {
            backend: backend.to_owned(),
            failed: value("fairlead_store_failed") == Some(1.0),
            full: value("fairlead_store_full") == Some(1.0),
            revision: count("fairlead_store_revision").unwrap_or_default(),
            size_bytes: count("apiserver_storage_size_bytes"),
            revisions_behind: count("fairlead_store_view_revisions_behind"),
            view_age_seconds: value("fairlead_store_view_age_seconds"),
            endpoint: connections().find(|sample| sample.value == 1.0).and_then(address),
            endpoints: Some(connections().filter_map(address).collect::<Vec<_>>())
                .filter(|all| !all.is_empty()),
            disconnected_seconds: value("fairlead_store_etcd_disconnected_seconds"),
            leader: value("fairlead_shard_leader")
                .or_else(|| value("fairlead_cache_leader"))
                .map(|value| value == 1.0),
        })
    }
}

/// A line of the text format of Prometheus, with the value of its first label.
struct Sample<'t> {
    name: &'t str,
    label: Option<&'t str>,
    value: f64,
}

impl<'t> Sample<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, labels)) = series.split_once('{') else {
            return Some(Self { name: series, label: None, value });
        };
        // None of the labels that are read here has a quote in its value.
        let label = labels.split('"').nth(1);
        Some(Self { name, label, value })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_and_an_etcd_are_read_from_metrics() {
        let file = "# TYPE fairlead_store_info gauge\nfairlead_store_info{backend=\"file\"} 1\nfairlead_store_failed 1\n\
            fairlead_store_full 1\n\
            fairlead_store_revision 12\napiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} 4096\n\
            fairlead_store_view_revisions_behind 0\nfairlead_store_view_age_seconds 0\n";
        let expected = StoreStatus {
            backend: "file".to_owned(),
            failed: true,
            full: true,
            revision: 12,
            size_bytes: Some(4096),
            revisions_behind: Some(0),
            view_age_seconds: Some(0.0),
            ..StoreStatus::default()
        };
        assert_eq!(StoreStatus::of_metrics(file), Some(expected));

        let etcd = "fairlead_store_info{backend=\"etcd\"} 1\nfairlead_store_revision 1e6\n\
            fairlead_store_etcd_connected{endpoint=\"http://a:2379\"} 0\n\
            fairlead_store_etcd_connected{endpoint=\"http://b:2379\"} 1\n\
            fairlead_store_etcd_disconnected_seconds 0\nfairlead_store_view_age_seconds 1.5\nfairlead_shard_leader{shard=\"root\"} 0\n";
        let status = StoreStatus::of_metrics(etcd).unwrap();
        assert_eq!(status.endpoint.as_deref(), Some("http://b:2379"));
        assert_eq!(status.endpoints.unwrap().len(), 2);
        assert_eq!(
            (status.revision, status.view_age_seconds, status.leader),
            (1_000_000, Some(1.5), Some(false))
        );
        assert_eq!(status.size_bytes, None, "etcd has not told it");
    }

    #[test]
    fn a_server_without_metrics_of_a_store_has_no_status() {
        assert_eq!(StoreStatus::of_metrics("process_open_fds 12\nnonsense\n"), None);
    }
}
