//! The source format of dashboards, independent of Grafana.

use serde::Deserialize;

/// A page of panels on one topic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    /// The name in URLs, used by links from other dashboards.
    pub uid: String,
    /// The title.
    pub title: String,
    /// The purpose.
    pub description: String,
    /// The variables that can be selected.
    pub variables: Vec<Variable>,
    /// The rows, from top to bottom.
    pub rows: Vec<Row>,
}

/// A variable that can be selected.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Variable {
    /// Gateways, by the label `instance`.
    Gateway,
    /// Servers of all kinds, by the label `instance`.
    Server,
    /// Listeners, by the label `listener`.
    Listener,
    /// Shards, by the label `shard`.
    Shard,
}

/// Panels under a heading.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The heading.
    pub title: String,
    /// The panels, from left to right. Panels that do not fit continue below.
    pub panels: Vec<Panel>,
}

/// A panel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The kind of visualization.
    pub kind: Kind,
    /// Width in the page's 24 columns.
    pub width: u32,
    /// Height in rows of some 30 pixels.
    #[serde(default = "usual_height")]
    pub height: u32,
    /// Grafana's name of the unit.
    pub unit: String,
    /// Number of decimals.
    #[serde(default)]
    pub decimals: Option<u32>,
    /// The upper end of the axis.
    #[serde(default)]
    pub max: Option<f64>,
    /// Whether the axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Whether the series are stacked.
    #[serde(default)]
    pub stack: bool,
    /// The question that the panel answers.
    pub question: String,
    /// The operator's reaction to the answer.
    pub action: String,
    /// The limits of good values.
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
    /// The queries to Prometheus.
    pub queries: Vec<Query>,
    /// The labels in the columns of a table.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// A dashboard with more details.
    #[serde(default)]
    pub more: Option<String>,
}

/// The kind of a visualization.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Lines over time.
    Timeseries,
    /// The last value, large.
    Stat,
    /// A row per series.
    Table,
    /// A bar per series.
    Bars,
}

/// The limits of good values.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// The direction of good values.
    pub good: GoodDirection,
    /// Values from here on need attention.
    pub warning: f64,
    /// Values from here on are bad.
    pub bad: f64,
}

/// The direction of good values.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum GoodDirection {
    /// High values are good.
    Above,
    /// Low values are good.
    Below,
}

/// A query to Prometheus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// PromQL, with Grafana's variables.
    pub expr: String,
    /// The name of a series in the legend; `{{label}}` is replaced by the label's value.
    #[serde(default)]
    pub legend: String,
    /// In a table: the title of the column.
    #[serde(default)]
    pub title: String,
    /// In a table: the column's unit.
    #[serde(default)]
    pub unit: Option<String>,
    /// In a table: number of decimals.
    #[serde(default)]
    pub decimals: Option<u32>,
}

/// A column of a table that shows a label.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The label's name.
    pub label: String,
    /// The title of the column.
    pub title: String,
}

impl Dashboard {
    /// All panels, from top to bottom.
    pub fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|row| &row.panels)
    }
}

impl Variable {
    /// The variable's name in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Server => "server",
            Self::Listener => "listener",
            Self::Shard => "shard",
        }
    }

    /// Grafana's query for the values of the variable.
    pub fn values(self) -> &'static str {
        match self {
            Self::Gateway => "label_values(fairlead_gateway_index_synced, instance)",
            Self::Server => "label_values(fairlead_build_info, instance)",
            Self::Listener => "label_values(fairlead_gateway_peers_refused_total, listener)",
            Self::Shard => "label_values(fairlead_gateway_index_age_seconds, shard)",
        }
    }
}

/// An expression with all values of the variables selected and this window for rates, as Grafana fills it in.
pub fn expand_variables(expr: &str, window: &str) -> String {
    let all = [Variable::Gateway, Variable::Server, Variable::Listener, Variable::Shard];
    let windowed = expr.replace("$__rate_interval", window);
    all.iter().fold(windowed, |expr, variable| expr.replace(&format!("${}", variable.name()), ".*"))
}

fn usual_height() -> u32 {
    8
}
