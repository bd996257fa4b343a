//! A whole dashboard: positions of panels, and their queries.

use std::collections::BTreeMap;

use serde_json::Value;

use super::svg::{Anchor, Canvas, Rectangle, Theme, cut};
use super::unit::shown;
use super::{Span, plot, widgets};
use crate::dashboards::expand_variables;
use crate::scenario::{Prometheus, ScenarioError, Series};

/// Width and height of a cell. A page has 24 columns.
const CELL: (f64, f64) = (66.0, 34.0);
const MARGIN: f64 = 16.0;
const HEAD: f64 = 64.0;

/// A series with its name in the legend.
pub(super) struct NamedSeries {
    pub(super) name: String,
    /// The name distinguishes several series of one query.
    pub(super) is_named_by_labels: bool,
    /// Timestamps and values.
    pub(super) samples: Vec<(f64, f64)>,
}

impl NamedSeries {
    /// The last value that is a number.
    pub(super) fn last(&self) -> Option<f64> {
        self.samples.iter().rev().map(|(_, value)| *value).find(|value| !value.is_nan())
    }
}

/// The visual options of a panel.
pub(super) struct PanelOptions {
    pub(super) unit: String,
    pub(super) decimals: Option<usize>,
    pub(super) max: Option<f64>,
    pub(super) log: bool,
    pub(super) stack: bool,
    /// Values from which on the colour changes.
    pub(super) thresholds: Vec<(f64, String)>,
    /// The colour below the first threshold.
    below: String,
    /// Whether thresholds are dashed lines.
    pub(super) dashed: bool,
}

impl PanelOptions {
    fn of(panel: &Value) -> Self {
        let defaults = &panel["fieldConfig"]["defaults"];
        let custom = &defaults["custom"];
        let steps = defaults["thresholds"]["steps"].as_array().cloned().unwrap_or_default();
        let colour = |step: &Value| step["color"].as_str().unwrap_or_default().to_owned();
        let threshold = |step: &Value| Some((step["value"].as_f64()?, colour(step)));
        Self {
            unit: defaults["unit"].as_str().unwrap_or_default().to_owned(),
            decimals: defaults["decimals"].as_u64().and_then(|decimals| decimals.try_into().ok()),
            max: defaults["max"].as_f64(),
            log: custom["scaleDistribution"]["type"] == "log",
            stack: custom["stacking"]["mode"] == "normal",
            thresholds: steps.iter().filter_map(threshold).collect(),
            below: steps.first().map(colour).unwrap_or_default(),
            dashed: custom["thresholdsStyle"]["mode"] == "dashed",
        }
    }

    /// The colour of a value.
    pub(super) fn colour(&self, value: f64) -> &str {
        let passed = self.thresholds.iter().rev().find(|(threshold, _)| value >= *threshold);
        passed.map_or(&self.below, |(_, colour)| colour)
    }
}

/// The content of a table.
pub(super) struct Table {
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Number of leading columns that are labels.
    pub(super) labels: usize,
}

/// The SVG text of a page.
pub(super) async fn page(
    prometheus: &Prometheus,
    dashboard: &Value,
    span: Span,
    theme: Theme,
) -> Result<String, ScenarioError> {
    let mut canvas = Canvas::new(theme);
    let text = |name: &str| dashboard[name].as_str().unwrap_or_default();
    canvas.words((MARGIN, 30.0), 20.0, Anchor::Start, theme.words(), text("title"));
    canvas.words((MARGIN, 52.0), 12.0, Anchor::Start, theme.faint(), text("description"));
    let mut lowest = 0.0_f64;
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        let cell = |name: &str| panel["gridPos"][name].as_f64().unwrap_or_default();
        let place = Rectangle {
            x: MARGIN + cell("x") * CELL.0,
            y: HEAD + cell("y") * CELL.1,
            width: cell("w") * CELL.0 - 8.0,
            height: cell("h") * CELL.1 - 8.0,
        };
        lowest = lowest.max(place.y + place.height);
        self::panel(&mut canvas, prometheus, panel, place, span).await?;
    }
    Ok(canvas.finish(MARGIN * 2.0 + 24.0 * CELL.0 - 8.0, lowest + MARGIN))
}

async fn panel(
    canvas: &mut Canvas,
    prometheus: &Prometheus,
    panel: &Value,
    place: Rectangle,
    span: Span,
) -> Result<(), ScenarioError> {
    let theme = canvas.theme;
    let title = panel["title"].as_str().unwrap_or_default();
    if panel["type"] == "row" {
        canvas.words((place.x, place.y + 18.0), 14.0, Anchor::Start, theme.words(), title);
        return Ok(());
    }
    canvas.rectangle(place, theme.panel(), theme.frame());
    let title = cut(title, 12.5, place.width - 16.0);
    canvas.words((place.x + 10.0, place.y + 19.0), 12.5, Anchor::Start, theme.words(), &title);
    let inside = Rectangle {
        x: place.x + 8.0,
        y: place.y + 28.0,
        width: place.width - 16.0,
        height: place.height - 34.0,
    };
    let look = PanelOptions::of(panel);
    let kind = panel["type"].as_str().unwrap_or_default();
    if kind == "table" {
        let table = table(prometheus, panel, &look).await?;
        widgets::table(canvas, inside, &table);
        return Ok(());
    }
    let over_time = kind != "bargauge";
    let mut series = Vec::new();
    for target in panel["targets"].as_array().into_iter().flatten() {
        let expr = expand_variables(target["expr"].as_str().unwrap_or_default(), WINDOW);
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        let found = if over_time {
            let step = ((span.to - span.from) / 240.0).max(1.0);
            prometheus.query_range(&expr, span.from, span.to, step).await?
        } else {
            prometheus.query(&expr).await?
        };
        series.extend(found.iter().map(|one| named_series(legend, one)));
    }
    match kind {
        _ if series.is_empty() => {
            let middle = (inside.x + inside.width / 2.0, inside.y + inside.height / 2.0);
            canvas.words(middle, 13.0, Anchor::Middle, theme.faint(), "no data");
        }
        "stat" => widgets::stat(canvas, inside, &look, span, &series),
        "bargauge" => widgets::bars(canvas, inside, &look, &series),
        _ => plot::plot(canvas, inside, &look, span, &series),
    }
    Ok(())
}

/// The window of rates, which Grafana would choose.
const WINDOW: &str = "15s";

fn named_series(legend: &str, series: &Series) -> NamedSeries {
    let name = series
        .labels
        .iter()
        .fold(legend.to_owned(), |name, (label, value)| name.replace(&format!("{{{{{label}}}}}"), value));
    NamedSeries {
        is_named_by_labels: name != legend,
        name,
        samples: series.samples().map(|sample| (sample.at, sample.value)).collect(),
    }
}

/// The cells of a table: the queries joined by the labels of its columns, under the titles of the file.
async fn table(prometheus: &Prometheus, panel: &Value, look: &PanelOptions) -> Result<Table, ScenarioError> {
    let organized = &panel["transformations"][1]["options"];
    let order = organized["indexByName"].as_object().into_iter().flatten();
    let mut names: Vec<_> = order.map(|(name, index)| (index.as_u64(), name.as_str())).collect();
    names.sort();
    let labels: Vec<_> =
        names.iter().map(|(_, name)| *name).filter(|name| !name.starts_with("Value")).collect();
    let heads = names.iter().filter_map(|(_, name)| organized["renameByName"][*name].as_str());
    let heads: Vec<_> = heads.map(str::to_owned).collect();
    let targets: Vec<_> = panel["targets"].as_array().into_iter().flatten().collect();
    let mut rows: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for (number, target) in targets.iter().enumerate() {
        let expr = expand_variables(target["expr"].as_str().unwrap_or_default(), WINDOW);
        let head = heads.get(labels.len() + number).map(String::as_str).unwrap_or_default();
        let (unit, decimals) = overridden(panel, head, look);
        for series in prometheus.query(&expr).await? {
            let key = labels.iter().map(|label| series.labels.get(*label).cloned().unwrap_or_default());
            let cells = rows.entry(key.collect()).or_insert_with(|| vec![String::new(); targets.len()]);
            if let Some(sample) = series.samples().last() {
                cells[number] = shown(sample.value, &unit, decimals);
            }
        }
    }
    let rows = rows.into_iter().map(|(labels, values)| [labels, values].concat()).collect();
    Ok(Table { heads, rows, labels: labels.len() })
}

/// The unit of a column.
fn overridden(panel: &Value, head: &str, look: &PanelOptions) -> (String, Option<usize>) {
    let mut overrides = panel["fieldConfig"]["overrides"].as_array().into_iter().flatten();
    let Some(found) = overrides.find(|one| one["matcher"]["options"] == head) else {
        return (look.unit.clone(), look.decimals);
    };
    let property = |id: &str| {
        found["properties"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["id"] == id)
            .map(|one| &one["value"])
    };
    let unit = property("unit").and_then(Value::as_str).unwrap_or(&look.unit).to_owned();
    (unit, property("decimals").and_then(Value::as_u64).and_then(|count| count.try_into().ok()))
}
