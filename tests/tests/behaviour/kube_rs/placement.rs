//! Placement of workspaces on shards.

use std::collections::BTreeSet;

use fairlead_client::{ClientError, PatchType, WriteOptions};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::installation::{
    Installation, WORKSPACES, create_workspace, until, until_object, until_ready, workspace,
};

const SHARDS: &str = "/apis/core.kcp.io/v1alpha1/shards";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_respects_selectors_and_cordons() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    let options = WriteOptions::default();
    let shard = |name: &str| format!("{SHARDS}/{name}");
    let is_unschedulable = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| {
            one["type"] == "WorkspaceScheduled"
                && one["status"] == "False"
                && one["reason"] == "Unschedulable"
        })
    };
    let shard_of = |object: &Value| object["metadata"]["annotations"]["core.kcp.io/shard"].clone();

    // Without a selector, workspaces are spread over the shards.
    let mut used = BTreeSet::new();
    for number in 0..6 {
        let name = format!("any-{number}");
        let mut anywhere = workspace(&name, "root");
        anywhere["spec"].as_object_mut().unwrap().remove("location");
        create_workspace(&root, &anywhere).await;
        used.insert(shard_of(&until_ready(&root, &name).await).to_string());
    }
    assert_eq!(used.len(), 2, "{used:?}");

    // A label that no shard has.
    let mut picky = workspace("picky", "root");
    picky["spec"]["location"] = json!({ "selector": { "matchLabels": { "region": "north" } } });
    create_workspace(&root, &picky).await;
    until_object(&root, WORKSPACES, "picky", is_unschedulable).await;
    let label = json!({ "metadata": { "labels": { "region": "north" } } });
    root.patch::<Value>(&shard("shard-1"), PatchType::Merge, &label, &options).await.unwrap();
    assert_eq!(shard_of(&until_ready(&root, "picky").await), "shard-1");

    // A cordoned shard gets no workspaces. After uncordoning it gets those that wait.
    let cordon = "experimental.core.kcp.io/unschedulable";
    let mark = json!({ "metadata": { "annotations": { cordon: "true" } } });
    root.patch::<Value>(&shard("shard-1"), PatchType::Merge, &mark, &options).await.unwrap();
    create_workspace(&root, &workspace("patient", "shard-1")).await;
    until_object(&root, WORKSPACES, "patient", is_unschedulable).await;
    for number in 0..4 {
        let name = format!("elsewhere-{number}");
        let mut anywhere = workspace(&name, "root");
        anywhere["spec"].as_object_mut().unwrap().remove("location");
        create_workspace(&root, &anywhere).await;
        assert_eq!(shard_of(&until_ready(&root, &name).await), "root", "{name}");
    }
    let unmark = json!({ "metadata": { "annotations": { cordon: null } } });
    root.patch::<Value>(&shard("shard-1"), PatchType::Merge, &unmark, &options).await.unwrap();
    assert_eq!(shard_of(&until_ready(&root, "patient").await), "shard-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_waits_for_a_shard_that_does_not_exist_yet() {
    let mut installation = Installation::start(1).await;
    let root = installation.admin("/clusters/root");
    create_workspace(&root, &workspace("early", "shard-1")).await;
    until_object(&root, WORKSPACES, "early", |object| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "WorkspaceScheduled" && one["reason"] == "Unschedulable")
    })
    .await;
    installation.stop().await;
    installation.start_again_with(2).await;
    let root = installation.admin("/clusters/root");
    let ready = until_ready(&root, "early").await;
    assert_eq!(ready["metadata"]["annotations"]["core.kcp.io/shard"], "shard-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_for_a_dead_shard_waits_with_a_reason() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    // The shard hangs: it is not restarted and does not respond.
    installation.freeze("shard-1").await;
    let gateway = installation.admin("");
    until("the gateway to lose shard-1", || async {
        let status: Result<Value, ClientError> = gateway.get_json("/services/fairlead/v1/status").await;
        let status = status.map_err(|error| error.to_string())?;
        let shards = status["shards"].as_array().cloned().unwrap_or_default();
        let lost = |one: &Value| one["name"] == "shard-1" && one["excluded"] == "out_of_reach";
        if shards.iter().any(lost) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let scheduled = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == "WorkspaceScheduled")
    };
    let mut anywhere = workspace("here", "root");
    anywhere["spec"].as_object_mut().unwrap().remove("location");
    create_workspace(&root, &workspace("elsewhere", "shard-1")).await;
    create_workspace(&root, &anywhere).await;
    let waiting = until_object(&root, WORKSPACES, "elsewhere", |object| {
        scheduled(object).is_some_and(|one| one["status"] == "False")
    })
    .await;
    let condition = scheduled(&waiting).unwrap();
    assert_eq!(
        condition["message"],
        "No available shards to schedule the workspace now: of 2 shards 1 not selected, 1 out of reach"
    );
    assert_eq!(waiting["status"]["phase"], "Scheduling", "the workspace waits");
    let here = until_ready(&root, "here").await;
    assert_eq!(here["metadata"]["annotations"]["core.kcp.io/shard"], "root");
    installation.signal("shard-1", Signal::CONT);
    let ready = until_ready(&root, "elsewhere").await;
    assert_eq!(ready["metadata"]["annotations"]["core.kcp.io/shard"], "shard-1");
}
