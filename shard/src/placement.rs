//! Which shard a new workspace goes to.
//!
//! The gateway is asked, because it sees all shards; when it does not answer in time, the shard picks
//! one at random by itself, as kcp does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_api::annotation;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::request::{LabelSelector, LabelTerm, Operator};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_client::Client;
use prometheus::IntCounterVec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::global::GlobalView;
use crate::index::Definitions;
use crate::names::SHARDS;

/// Where the gateway answers.
const PICK_PATH: &str = "/services/fairlead/v1/shard-picks";

/// A shard, as far as placement is concerned.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShardInfo {
    pub(crate) name: String,
    pub(crate) base_url: String,
    pub(crate) external_url: String,
    pub(crate) virtual_workspace_url: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) is_cordoned: bool,
}

/// The outcome of a choice.
pub(crate) enum Chosen {
    Shard(ShardInfo),
    /// No shard fits; a new or changed shard may.
    Nothing(String),
    /// The shards are not known yet.
    NotYet,
}

/// Chooses shards.
pub(crate) struct Placement {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) global: Arc<GlobalView>,
    pub(crate) gateway: Option<GatewayPick>,
    pub(crate) picks: IntCounterVec,
}

/// The gateway's door for picks.
pub(crate) struct GatewayPick {
    pub(crate) client: Client,
    pub(crate) timeout: Duration,
}

impl Placement {
    /// All shards: root's own objects on root's shard, their replicas elsewhere.
    pub(crate) fn shards(&self) -> Vec<ShardInfo> {
        let local = self.definitions.exported(&SHARDS).and_then(|resource| {
            let root = ScopeSelector::One(Scope::new("root"));
            self.objects.list(&SHARDS, &resource.origin, &root, None).ok()
        });
        let local: Vec<ShardInfo> = local
            .into_iter()
            .flatten()
            .filter_map(|stored| ShardInfo::read(&self.objects.tree(&stored).ok()?))
            .collect();
        if !local.is_empty() {
            return local;
        }
        let replicas = self.global.list(&SHARDS, Some("root"));
        replicas.iter().filter_map(|replica| ShardInfo::read(replica)).collect()
    }

    /// The shard of this name.
    pub(crate) fn shard(&self, name: &str) -> Option<ShardInfo> {
        self.shards().into_iter().find(|shard| shard.name == name)
    }

    /// Chooses a shard for a workspace.
    pub(crate) async fn choose(&self, parent: &str, workspace: &Value) -> Chosen {
        let selector = &workspace["spec"]["location"]["selector"];
        let parsed = match label_selector(selector) {
            Ok(parsed) => parsed,
            Err(why) => return Chosen::Nothing(why),
        };
        let shards = self.shards();
        if shards.is_empty() {
            return Chosen::NotYet;
        }
        let fitting: Vec<&ShardInfo> = shards
            .iter()
            .filter(|shard| !shard.is_cordoned)
            .filter(|shard| parsed.selects(|key| shard.labels.get(key).map(String::as_str)))
            .collect();
        if fitting.is_empty() {
            return Chosen::Nothing("No available shards to schedule the workspace".to_owned());
        }
        match self.ask(parent, workspace, selector).await {
            Asked::Shard(name) => {
                if let Some(shard) = shards.iter().find(|shard| shard.name == name) {
                    self.picks.with_label_values(&["gateway"]).inc();
                    return Chosen::Shard(shard.clone());
                }
            }
            Asked::NoShardFits(why) => return Chosen::Nothing(why),
            Asked::NoAnswer => {}
        }
        self.picks.with_label_values(&["random"]).inc();
        let mut random = [0; 8];
        // Without randomness the first one serves as well.
        let _ = getrandom::fill(&mut random);
        let index = (u64::from_le_bytes(random) % fitting.len() as u64) as usize;
        Chosen::Shard(fitting[index].clone())
    }

    async fn ask(&self, parent: &str, workspace: &Value, selector: &Value) -> Asked {
        let Some(gateway) = &self.gateway else { return Asked::NoAnswer };
        let question = Question {
            workspace_uid: workspace["metadata"]["uid"].as_str().unwrap_or_default(),
            parent_cluster: parent,
            selector: (!selector.is_null()).then_some(selector),
        };
        let options = fairlead_client::WriteOptions::default();
        let asked = gateway.client.create(PICK_PATH, &question, &options);
        match tokio::time::timeout(gateway.timeout, asked).await {
            Ok(Ok(Answer { shard })) => Asked::Shard(shard),
            Ok(Err(error)) if error.code() == Some(422) => Asked::NoShardFits(error.to_string()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the gateway did not pick a shard");
                Asked::NoAnswer
            }
            Err(_) => Asked::NoAnswer,
        }
    }
}

enum Asked {
    Shard(String),
    NoShardFits(String),
    NoAnswer,
}

#[derive(Serialize)]
struct Question<'q> {
    #[serde(rename = "workspaceUID")]
    workspace_uid: &'q str,
    #[serde(rename = "parentCluster")]
    parent_cluster: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<&'q Value>,
}

#[derive(Deserialize)]
struct Answer {
    shard: String,
}

impl ShardInfo {
    fn read(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Some(Self {
            name: metadata["name"].as_str()?.to_owned(),
            base_url: text(&object["spec"]["baseURL"]),
            external_url: text(&object["spec"]["externalURL"]),
            virtual_workspace_url: text(&object["spec"]["virtualWorkspaceURL"]),
            labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
            is_cordoned: !metadata["annotations"][annotation::UNSCHEDULABLE].is_null(),
        })
    }
}

/// Reads `spec.location.selector`; absent selects everything.
fn label_selector(selector: &Value) -> Result<LabelSelector, String> {
    let mut terms = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let values = value.as_str().map(str::to_owned).into_iter().collect();
        terms.push(LabelTerm { key: key.clone(), operator: Operator::In, values });
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let operator = match expression["operator"].as_str() {
            Some("In") => Operator::In,
            Some("NotIn") => Operator::NotIn,
            Some("Exists") => Operator::Present,
            Some("DoesNotExist") => Operator::Absent,
            other => {
                return Err(format!(
                    "{:?} is not a valid label selector operator",
                    other.unwrap_or_default()
                ));
            }
        };
        let values = expression["values"].as_array().into_iter().flatten();
        terms.push(LabelTerm {
            key: expression["key"].as_str().unwrap_or_default().to_owned(),
            operator,
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        });
    }
    Ok(LabelSelector::of(terms))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn location_selectors_select_shards() {
        let shard = |key: &str| if key == "name" { Some("alpha") } else { None };
        for (selector, selected) in [
            (Value::Null, true),
            (json!({"matchLabels": {"name": "alpha"}}), true),
            (json!({"matchLabels": {"name": "beta"}}), false),
            (
                json!({"matchExpressions": [{"key": "name", "operator": "In", "values": ["alpha", "beta"]}]}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "region", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "region", "operator": "DoesNotExist"}]}), true),
        ] {
            assert_eq!(label_selector(&selector).unwrap().selects(shard), selected, "{selector}");
        }
        assert!(label_selector(&json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})).is_err());
    }
}
