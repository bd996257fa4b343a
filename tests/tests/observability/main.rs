//! Observability: dashboards, alerts and their runbook are complete, and a real Prometheus has data for all of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod alerts;
mod live;
mod panels;
mod rules;
mod selectors;

use std::path::PathBuf;

/// The folder of the whole workspace.
fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
