//! Events of an installation besides traffic.

use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Client, ClientError, PatchType, WriteOptions};
use serde_json::{Value, json};

use super::site::Site;
use super::{Prometheus, ScenarioError, until};

/// The collection that clients read and write in workspaces.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Workspaces below root, and their shards.
pub(crate) const WORKSPACES_WITH_SHARDS: [(&str, &str); 3] =
    [("harbour", "root"), ("quay", "shard-1"), ("lighthouse", "shard-1")];

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const SHARDS: &str = "/apis/core.kcp.io/v1alpha1/shards";

/// Creates the workspaces in which clients work.
pub(crate) async fn make_workspaces(site: &Site) -> Result<(), ScenarioError> {
    let root = site.admin("/clusters/root")?;
    for (name, shard) in WORKSPACES_WITH_SHARDS {
        make_workspace(&root, name, shard).await?;
    }
    for (name, _) in WORKSPACES_WITH_SHARDS {
        until(&format!("workspace {name}"), || async {
            let workspace: Value =
                root.get_json(&format!("{WORKSPACES}/{name}")).await.map_err(|error| error.to_string())?;
            if workspace["status"]["phase"] == "Ready" {
                Ok(())
            } else {
                Err(workspace["status"].to_string())
            }
        })
        .await?;
    }
    Ok(())
}

/// Runs all events one after the other. Each outage lasts for `outage`.
pub(crate) async fn run_all(
    site: &mut Site,
    prometheus: &Prometheus,
    outage: Duration,
) -> Result<(), ScenarioError> {
    let root = site.admin("/clusters/root")?;
    close_shard(&root, prometheus).await?;
    // A valid change, and an invalid one.
    site.configure(|config| config["index"]["missWait"] = json!("200ms"))?;
    site.reload()?;
    site.write(&site.peers(), "not a network\n")?;
    site.reload()?;
    site.replace("shard-1", outage).await?;
    site.write(&site.peers(), "127.0.0.1/32\n")?;
    site.reload()?;
    let (root, during) = (Arc::new(root), outage);
    let maker = tokio::spawn(async move {
        // Objects that a shard replicates to the cache server, which fails during its outage.
        for number in 0..20 {
            let role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": format!("pilot-{number}"), "annotations": { "internal.kcp.io/replicate": "true" } },
            });
            let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
            let _ = root.create::<Value>(roles, &role, &WriteOptions::default()).await;
            let _ = make_workspace(&root, &format!("boat-{number}"), "root").await;
            tokio::time::sleep(during / 20).await;
        }
    });
    site.replace("cache", outage).await?;
    maker.await.map_err(|error| ScenarioError::missing("the end of a client", error))
}

async fn make_workspace(root: &Client, name: &str, shard: &str) -> Result<(), ClientError> {
    let workspace = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": {
            "type": { "name": "universal", "path": "root" },
            "location": { "selector": { "matchLabels": { "name": shard } } },
        },
    });
    match root.create::<Value>(WORKSPACES, &workspace, &WriteOptions::default()).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

/// Cordons a shard. Once Prometheus has seen that, declares the shard full instead, so that a workspace that is pinned to
/// it cannot be placed.
async fn close_shard(root: &Client, prometheus: &Prometheus) -> Result<(), ScenarioError> {
    let changes = [("experimental.core.kcp.io/unschedulable", "cordoned"), ("fairlead.dev/capacity", "full")];
    for (annotation, reason) in changes {
        annotate(root, annotation, json!("1")).await?;
        if reason == "full" {
            annotate(root, changes[0].0, Value::Null).await?;
        }
        let seen = format!("fairlead_gateway_shard_excluded{{reason=\"{reason}\"}}");
        until(&seen, || async {
            match prometheus.series(&seen).await {
                Ok(0) => Err("nothing".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await?;
    }
    Ok(make_workspace(root, "flotsam", "shard-1").await?)
}

/// Sets an annotation of the shard that is not the root shard. Null removes it.
async fn annotate(root: &Client, annotation: &str, value: Value) -> Result<(), ScenarioError> {
    let change = json!({ "metadata": { "annotations": { annotation: value } } });
    let path = format!("{SHARDS}/shard-1");
    root.patch::<Value>(&path, PatchType::Merge, &change, &WriteOptions::default()).await?;
    Ok(())
}
