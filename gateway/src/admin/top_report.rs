//! Report of the busiest workspaces: JSON, with paths.

use std::time::Instant;

use serde::Serialize;

use crate::routing::table::TableView;
use crate::telemetry::top::{BusyCluster, Measure, TopWorkspaces};

/// Number of workspaces listed per measure.
const MAX_LISTED: usize = 100;

/// The response of `/services/fairlead/v1/top`.
#[derive(Debug, Serialize)]
pub(crate) struct TopReport {
    requests: Vec<BusyWorkspace>,
    bytes: Vec<BusyWorkspace>,
    errors: Vec<BusyWorkspace>,
    watches: Vec<WatchedWorkspace>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BusyWorkspace {
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Rate over about a minute.
    per_second: f64,
    /// Maximum part of the rate that may belong to other workspaces.
    error: f64,
}

#[derive(Debug, Serialize)]
struct WatchedWorkspace {
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Number of open watches.
    open: u32,
}

impl TopReport {
    /// The report of the current state. Reads the whole table for the paths.
    pub(crate) fn of(top: &TopWorkspaces, table: &TableView) -> Self {
        let now = Instant::now();
        let [requests, bytes, errors] = Measure::ALL.map(|measure| top.by(measure, MAX_LISTED, now));
        let watches = top.by_watches(MAX_LISTED);
        let busy = [&requests, &bytes, &errors].into_iter().flatten().map(|busy| &*busy.cluster);
        let paths = table.paths(busy.chain(watches.iter().map(|(cluster, _)| &**cluster)));
        let path = |cluster: &str| paths.get(cluster).cloned();
        let named = |all: &[BusyCluster]| {
            let one = |busy: &BusyCluster| BusyWorkspace {
                cluster: busy.cluster.to_string(),
                path: path(&busy.cluster),
                per_second: rounded(busy.per_second),
                error: rounded(busy.error),
            };
            all.iter().map(one).collect()
        };
        let watched = |(cluster, open): &(std::sync::Arc<str>, u32)| WatchedWorkspace {
            cluster: cluster.to_string(),
            path: path(cluster),
            open: *open,
        };
        Self {
            requests: named(&requests),
            bytes: named(&bytes),
            errors: named(&errors),
            watches: watches.iter().map(watched).collect(),
        }
    }
}

/// Rounds to thousandths; the value is not known more precisely.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
