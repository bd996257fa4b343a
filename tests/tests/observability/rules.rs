//! The recording and alerting rules of Prometheus.

use serde::Deserialize;

use crate::workspace;

/// A file of rules.
#[derive(Deserialize)]
pub struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

/// A recording or alerting rule.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    pub record: Option<String>,
    pub alert: Option<String>,
    pub expr: String,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default)]
    pub annotations: Annotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Labels {
    pub severity: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Annotations {
    pub summary: String,
    pub description: String,
    pub runbook_url: String,
}

/// All rules, in their order.
pub fn all() -> Vec<Rule> {
    let text = std::fs::read_to_string(workspace().join("deploy/alerts/fairlead.yaml")).unwrap();
    let rules: Rules = serde_saphyr::from_str(&text).unwrap();
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}
