//! Placement of new workspaces on shards.
//!
//! The gateway picks the shard, because it has the state of all shards. If it does not respond in time, the shard picks one at
//! random, as kcp does. If it responds that no shard fits, or that none fits now, the workspace is not placed: its
//! condition has the reason, and the gateway is called again later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_api::annotation;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::request::LabelSelector;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_client::{Client, ClientError};
use prometheus::IntCounterVec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::global::GlobalView;
use crate::index::Definitions;
use crate::names::SHARDS;

/// Path of the gateway's placement API.
const PICK_PATH: &str = "/services/fairlead/v1/shard-picks";

/// The fields of a Shard that placement uses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShardInfo {
    pub(crate) name: String,
    pub(crate) base_url: String,
    pub(crate) external_url: String,
    pub(crate) virtual_workspace_url: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) is_cordoned: bool,
    pub(crate) is_draining: bool,
}

/// Annotation of a Shard that is being emptied and gets no new workspaces; any value counts.
const DRAIN: &str = "fairlead.dev/drain";
/// The beginning of kcp's message if there is no shard.
const NO_SHARD: &str = "No available shards to schedule the workspace";

/// The result of a placement.
pub(crate) enum PlacementOutcome {
    /// A shard, with the policy and the reason of the choice.
    Shard(ShardInfo, String),
    /// No shard fits; a new or changed shard may.
    NoShardFits(String),
    /// No shard fits now; the same shards may fit soon.
    NoShardNow(String),
    /// The shards are not known yet.
    ShardsUnknown,
}

/// Chooses shards for workspaces.
pub(crate) struct Placement {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) global: Arc<GlobalView>,
    pub(crate) gateway: Option<PickClient>,
    pub(crate) picks: IntCounterVec,
}

/// Client of the gateway's placement API.
pub(crate) struct PickClient {
    pub(crate) client: Client,
    pub(crate) timeout: Duration,
}

impl Placement {
    /// All shards: the Shards in root on root's shard, their replicas on other shards.
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

    /// The shard with this name.
    pub(crate) fn shard(&self, name: &str) -> Option<ShardInfo> {
        self.shards().into_iter().find(|shard| shard.name == name)
    }

    /// Chooses a shard for a workspace.
    pub(crate) async fn choose(&self, parent: &str, workspace: &Value) -> PlacementOutcome {
        let selector = &workspace["spec"]["location"]["selector"];
        // An absent selector selects all shards.
        let parsed = match LabelSelector::of_object(selector) {
            Ok(parsed) => parsed,
            Err(error) => return PlacementOutcome::NoShardFits(error.to_string()),
        };
        let shards = self.shards();
        if shards.is_empty() {
            return PlacementOutcome::ShardsUnknown;
        }
        let (fitting, others): (Vec<&ShardInfo>, Vec<&ShardInfo>) =
            shards.iter().partition(|shard| shard.exclusion(&parsed).is_none());
        if fitting.is_empty() {
            return PlacementOutcome::NoShardFits(no_shard_message(&others, &parsed));
        }
        let fallback_cause = match self.request_pick(parent, workspace, selector).await {
            PickOutcome::Shard { name, reason } => match shards.iter().find(|shard| shard.name == name) {
                Some(shard) => match shard.exclusion(&parsed) {
                    None => {
                        self.picks.with_label_values(&["gateway"]).inc();
                        return PlacementOutcome::Shard(shard.clone(), reason);
                    }
                    // The gateway and this shard observe changes of a Shard at different times; a retry helps.
                    Some(exclusion) => {
                        let name = &shard.name;
                        return PlacementOutcome::NoShardNow(format!(
                            "{NO_SHARD} now: the gateway chose {name}, which is {exclusion}"
                        ));
                    }
                },
                None => "the gateway chose a shard that is not known here",
            },
            PickOutcome::NoShardFits(reason) => {
                return PlacementOutcome::NoShardFits(format!("{NO_SHARD}: {reason}"));
            }
            PickOutcome::NoShardNow(reason) => {
                return PlacementOutcome::NoShardNow(format!("{NO_SHARD} now: {reason}"));
            }
            PickOutcome::NoResponse => "the gateway did not respond",
            PickOutcome::NoGateway => "no gateway is configured",
        };
        self.picks.with_label_values(&["random"]).inc();
        let mut random = [0; 8];
        // If the system provides no random bytes, the first shard is used.
        let _ = getrandom::fill(&mut random);
        let index = (u64::from_le_bytes(random) % fitting.len() as u64) as usize;
        let reason = format!("random: {} of {} shards fit; {fallback_cause}", fitting.len(), shards.len());
        PlacementOutcome::Shard(fitting[index].clone(), reason)
    }

    async fn request_pick(&self, parent: &str, workspace: &Value, selector: &Value) -> PickOutcome {
        let Some(gateway) = &self.gateway else { return PickOutcome::NoGateway };
        let request = PickRequest {
            workspace_uid: workspace["metadata"]["uid"].as_str().unwrap_or_default(),
            parent_cluster: parent,
            selector: (!selector.is_null()).then_some(selector),
        };
        let options = fairlead_client::WriteOptions::default();
        let response = gateway.client.create(PICK_PATH, &request, &options);
        match tokio::time::timeout(gateway.timeout, response).await {
            Ok(Ok(PickResponse { shard, policy, reason })) => {
                PickOutcome::Shard { name: shard, reason: format!("{policy}: {reason}") }
            }
            // A selector that the gateway rejects must not lead to a random choice.
            Ok(Err(ClientError::Status(status))) if matches!(status.code, 400 | 413 | 422) => {
                PickOutcome::NoShardFits(status.message)
            }
            Ok(Err(ClientError::Status(status))) if status.reason == "NoShardNow" => {
                PickOutcome::NoShardNow(status.message)
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the gateway did not pick a shard");
                PickOutcome::NoResponse
            }
            Err(_) => PickOutcome::NoResponse,
        }
    }
}

enum PickOutcome {
    Shard {
        name: String,
        reason: String,
    },
    NoShardFits(String),
    NoShardNow(String),
    NoResponse,
    /// No gateway is configured.
    NoGateway,
}

#[derive(Serialize)]
struct PickRequest<'q> {
    #[serde(rename = "workspaceUID")]
    workspace_uid: &'q str,
    #[serde(rename = "parentCluster")]
    parent_cluster: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<&'q Value>,
}

#[derive(Deserialize)]
struct PickResponse {
    shard: String,
    policy: String,
    #[serde(default)]
    reason: String,
}

/// The reason why a shard cannot be chosen, from its object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Exclusion {
    NotSelected,
    Cordoned,
    Draining,
}

impl Exclusion {
    const ALL: [Self; 3] = [Self::NotSelected, Self::Cordoned, Self::Draining];
}

impl std::fmt::Display for Exclusion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::NotSelected => "not selected",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
        })
    }
}

/// kcp's message for the case that no shard fits, with the number of shards per reason.
fn no_shard_message(shards: &[&ShardInfo], selector: &LabelSelector) -> String {
    let count = |exclusion: &Exclusion| {
        shards.iter().filter(|shard| shard.exclusion(selector) == Some(*exclusion)).count()
    };
    let counts = Exclusion::ALL.iter().map(|exclusion| (exclusion, count(exclusion)));
    let counts =
        counts.filter(|(_, count)| *count > 0).map(|(exclusion, count)| format!("{count} {exclusion}"));
    format!("{NO_SHARD}: of {} shards {}", shards.len(), counts.collect::<Vec<_>>().join(", "))
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
            is_draining: !metadata["annotations"][DRAIN].is_null(),
        })
    }

    fn exclusion(&self, selector: &LabelSelector) -> Option<Exclusion> {
        match () {
            () if !selector.selects(|key| self.labels.get(key).map(String::as_str)) => {
                Some(Exclusion::NotSelected)
            }
            () if self.is_cordoned => Some(Exclusion::Cordoned),
            () if self.is_draining => Some(Exclusion::Draining),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_counts_shards_by_reason_of_exclusion() {
        let shard = |name: &str, annotations: Value| {
            let labels = json!({"name": name});
            ShardInfo::read(
                &json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}}),
            )
            .unwrap()
        };
        let shards = [
            shard("a", json!({annotation::UNSCHEDULABLE: ""})),
            shard("b", json!({DRAIN: "true"})),
            shard("c", json!({DRAIN: "", annotation::UNSCHEDULABLE: "false"})),
            shard("d", json!({})),
        ];
        let selector = |json| LabelSelector::of_object(&json).unwrap();
        let fits = |name: &str| selector(json!({"matchLabels": {"name": name}}));
        let exclusions = shards.each_ref().map(|shard| shard.exclusion(&selector(Value::Null)));
        assert_eq!(
            exclusions,
            [Some(Exclusion::Cordoned), Some(Exclusion::Draining), Some(Exclusion::Cordoned), None]
        );
        assert_eq!(
            no_shard_message(&shards.each_ref(), &fits("b")),
            "No available shards to schedule the workspace: of 4 shards 3 not selected, 1 draining"
        );
        assert_eq!(
            no_shard_message(&shards.each_ref()[..3], &selector(Value::Null)),
            "No available shards to schedule the workspace: of 3 shards 2 cordoned, 1 draining"
        );
    }
}
