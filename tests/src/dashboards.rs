//! The dashboards of `deploy/dashboards`: `source/*.yaml` is converted to files for Grafana.

mod grafana;
mod source;

use std::path::{Path, PathBuf};

pub use grafana::grafana_json;
pub use source::{
    Column, Dashboard, GoodDirection, Kind, Panel, Query, Row, Thresholds, Variable, expand_variables,
};

/// A dashboard source that cannot be read or converted.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The source is not a valid [`Dashboard`].
    #[error("{}: {message}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The position and the problem.
        message: String,
    },
}

/// A dashboard and its file for Grafana.
#[derive(Debug)]
pub struct GeneratedDashboard {
    /// The source.
    pub dashboard: Dashboard,
    /// `deploy/dashboards/<name>.json`.
    pub file: PathBuf,
    /// The content of the file.
    pub text: String,
}

/// All dashboards of a folder, by name.
pub fn dashboards(folder: &Path) -> Result<Vec<GeneratedDashboard>, DashboardError> {
    let sources = folder.join("source");
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| DashboardError::File { path, source }
    };
    let entries = std::fs::read_dir(&sources).map_err(unreadable(&sources))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable(&sources))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(unreadable(path))?;
        let fault = |message| DashboardError::Source { path: path.clone(), message };
        let dashboard: Dashboard = serde_saphyr::from_str(&text).map_err(|error| fault(error.to_string()))?;
        let text = grafana_json(&dashboard).map_err(|error| fault(error.to_string()))?;
        let file = folder.join(path.file_stem().unwrap_or_default()).with_extension("json");
        Ok(GeneratedDashboard { dashboard, file, text })
    };
    paths.iter().map(read).collect()
}
