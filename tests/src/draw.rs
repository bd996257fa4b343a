//! Draws dashboards with data of a Prometheus, so that they can be viewed without Grafana: as SVG, and as PNG with an
//! external program.

mod page;
mod plot;
mod scale;
mod svg;
mod unit;
mod widgets;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{HarnessError, tool};
use crate::scenario::{Prometheus, ScenarioError};
pub use svg::Theme;

/// The displayed range of time.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Start, in seconds since the epoch.
    pub from: f64,
    /// End, in seconds since the epoch.
    pub to: f64,
}

/// Draws a dashboard, as Grafana would import it, into a file of that name below `folder`; returns the file.
pub async fn draw(
    prometheus: &Prometheus,
    dashboard: &Value,
    span: Span,
    theme: Theme,
    folder: &Path,
    name: &str,
) -> Result<PathBuf, ScenarioError> {
    let svg = page::page(prometheus, dashboard, span, theme).await?;
    let [drawing, picture] = ["svg", "png"].map(|extension| folder.join(name).with_extension(extension));
    std::fs::write(&drawing, svg).map_err(HarnessError::system(format!("writing {}", drawing.display())))?;
    let mut command = Command::new(tool("rsvg-convert")?);
    let output = command.arg("--output").arg(&picture).arg(&drawing).output();
    let output = output.map_err(HarnessError::system("starting rsvg-convert"))?;
    match output.status.success() {
        true => Ok(picture),
        false => Err(ScenarioError::missing(
            format!("a picture of {}", drawing.display()),
            String::from_utf8_lossy(&output.stderr),
        )),
    }
}
