//! Reasons for the placement of workspaces, and annotations of shards.

use fairlead_client::{Client, ClientError};
use fairlead_tests::harness::Kubectl;
use serde_json::{Value, json};

use super::versions;
use crate::installation::{
    Installation, WORKSPACES, create_workspace, until, until_object, until_ready, workspace,
};

const PICKED: &str = "fairlead.dev/shard-pick";

/// Annotates a shard and waits until the gateway has seen it.
struct Administrator {
    kubectl: Kubectl,
    gateway: Client,
}

impl Administrator {
    async fn annotate(&self, shard: &str, annotation: &str, excluded: Value) {
        self.kubectl.ok(&format!("annotate shard {shard} {annotation}")).await.unwrap();
        until(&format!("the gateway to see {annotation} of {shard}"), || async {
            let status: Result<Value, ClientError> =
                self.gateway.get_json("/services/fairlead/v1/status").await;
            let status = status.map_err(|error| error.to_string())?;
            let shards = status["shards"].as_array().cloned().unwrap_or_default();
            let seen = shards.iter().any(|one| one["name"] == shard && one["excluded"] == excluded);
            if seen { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// The output of `kubectl describe` on one line.
    async fn describe(&self, name: &str) -> String {
        let text = self.kubectl.ok(&format!("describe workspace {name}")).await.unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A workspace without a location.
fn anywhere(name: &str) -> Value {
    let mut object = workspace(name, "root");
    object["spec"].as_object_mut().unwrap().remove("location");
    object
}

fn scheduled(object: &Value) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "WorkspaceScheduled").cloned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_for_a_placement_is_on_the_workspace() {
    let installation = Installation::start(2).await;
    let Some(kubectl) = versions(&installation).pop() else { return };
    let administrator = Administrator { kubectl, gateway: installation.admin("") };
    let root = installation.admin("/clusters/root");
    let cordon = "experimental.core.kcp.io/unschedulable";
    let is = |name: &'static str, expected: String| {
        let root = &root;
        async move {
            let waits = |object: &Value| {
                scheduled(object).is_some_and(|one| one["status"] == "False" && one["message"] == expected)
            };
            let object = until_object(root, WORKSPACES, name, waits).await;
            assert_eq!(scheduled(&object).unwrap()["reason"], "Unschedulable");
        }
    };
    let nowhere = |why: &str| format!("No available shards to schedule the workspace: of 2 shards {why}");

    administrator.annotate("shard-1", &format!("{cordon}=true"), json!("cordoned")).await;
    create_workspace(&root, &anywhere("here")).await;
    let here = until_ready(&root, "here").await;
    assert_eq!(here["metadata"]["annotations"]["core.kcp.io/shard"], "root");
    let why = here["metadata"]["annotations"][PICKED].as_str().unwrap();
    assert!(
        why.starts_with("power-of-two: ") && why.ends_with("no other fits; 1 of 2 fit (1 cordoned)"),
        "{why}"
    );
    assert!(administrator.describe("here").await.contains(why));

    administrator.annotate("root", "fairlead.dev/drain=true", json!("draining")).await;
    create_workspace(&root, &anywhere("patient")).await;
    is("patient", nowhere("1 cordoned, 1 draining")).await;
    let described = administrator.describe("patient").await;
    assert!(described.contains(&nowhere("1 cordoned, 1 draining")), "{described}");

    // It is enough that a shard accepts the workspace.
    administrator.annotate("shard-1", &format!("{cordon}-"), Value::Null).await;
    let patient = until_ready(&root, "patient").await;
    assert_eq!(patient["metadata"]["annotations"]["core.kcp.io/shard"], "shard-1");
    assert_eq!(scheduled(&patient).unwrap()["status"], "True");

    // Only the gateway knows that a shard is full.
    administrator.annotate("shard-1", "fairlead.dev/capacity=1", json!("full")).await;
    create_workspace(&root, &anywhere("late")).await;
    is("late", nowhere("1 draining, 1 full")).await;
    administrator.annotate("root", "fairlead.dev/drain-", Value::Null).await;
    let late = until_ready(&root, "late").await;
    assert_eq!(late["metadata"]["annotations"]["core.kcp.io/shard"], "root");
}
