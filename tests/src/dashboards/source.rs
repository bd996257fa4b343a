//! What a dashboard shows, without how Grafana says it.

use serde::Deserialize;

/// A page that answers questions of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    /// Its name in addresses; others link to it by this.
    pub uid: String,
    /// For people.
    pub title: String,
    /// What it is for.
    pub description: String,
    /// What can be chosen at its head.
    pub variables: Vec<Variable>,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// What somebody can choose.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Variable {
    /// Gateways, by `instance`.
    Gateway,
    /// Servers of all kinds, by `instance`.
    Server,
    /// Doors, by `listener`.
    Door,
    /// Shards, by `shard`.
    Shard,
}

/// Panels under a heading.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The heading.
    pub title: String,
    /// From left to right; what has no room goes below.
    pub panels: Vec<Panel>,
}

/// The answer to a question.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Short.
    pub title: String,
    /// How it looks.
    pub kind: Kind,
    /// Of the page's 24 columns.
    pub width: u32,
    /// In rows of some 30 pixels.
    #[serde(default = "usual_height")]
    pub height: u32,
    /// Grafana's name of the unit.
    pub unit: String,
    /// Digits behind the point.
    #[serde(default)]
    pub decimals: Option<u32>,
    /// The upper end of the axis.
    #[serde(default)]
    pub max: Option<f64>,
    /// On a logarithmic axis.
    #[serde(default)]
    pub log: bool,
    /// One on top of the other.
    #[serde(default)]
    pub stack: bool,
    /// The question.
    pub asks: String,
    /// What to do about the answer.
    pub act: String,
    /// From when on it is not well.
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
    /// What is asked of Prometheus.
    pub queries: Vec<Query>,
    /// Labels that a table shows.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// The dashboard with more about it.
    #[serde(default)]
    pub more: Option<String>,
}

/// How a panel looks.
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

/// From when on it is not well.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// On which side it is well.
    pub good: Better,
    /// From here on somebody should look.
    pub warning: f64,
    /// From here on it is bad.
    pub bad: f64,
}

/// Which values are good.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// High ones.
    Above,
    /// Low ones.
    Below,
}

/// A question to Prometheus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// PromQL, with Grafana's variables.
    pub expr: String,
    /// What a series is called; `{{label}}` stands for its value.
    #[serde(default)]
    pub legend: String,
    /// In a table: the column's head.
    #[serde(default)]
    pub title: String,
    /// In a table: the column's unit.
    #[serde(default)]
    pub unit: Option<String>,
    /// In a table: digits behind the point.
    #[serde(default)]
    pub decimals: Option<u32>,
}

/// A column of a table that shows a label.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The label.
    pub label: String,
    /// The column's head.
    pub title: String,
}

impl Dashboard {
    /// All panels, from top to bottom.
    pub fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|row| &row.panels)
    }
}

impl Variable {
    /// Its name in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Server => "server",
            Self::Door => "door",
            Self::Shard => "shard",
        }
    }

    /// What Grafana asks for its values.
    pub fn values(self) -> &'static str {
        match self {
            Self::Gateway => "label_values(fairlead_gateway_index_synced, instance)",
            Self::Server => "label_values(fairlead_build_info, instance)",
            Self::Door => "label_values(fairlead_gateway_peers_refused_total, listener)",
            Self::Shard => "label_values(fairlead_gateway_index_age_seconds, shard)",
        }
    }
}

/// An expression as Grafana fills it in when everything is chosen, and rates are over this window.
pub fn filled_in(expr: &str, window: &str) -> String {
    let all = [Variable::Gateway, Variable::Server, Variable::Door, Variable::Shard];
    let windowed = expr.replace("$__rate_interval", window);
    all.iter().fold(windowed, |expr, variable| expr.replace(&format!("${}", variable.name()), ".*"))
}

fn usual_height() -> u32 {
    8
}
