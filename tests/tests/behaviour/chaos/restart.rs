//! Restarts keep all state.

use fairlead_client::WriteOptions;
use serde_json::{Value, json};

use crate::installation::{Installation, until, until_object};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TIDES: &str = "/apis/sea.example.com/v1/tides";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_objects_survive_a_restart() {
    let mut installation = Installation::start(2).await;
    let red = installation.workspace("root", "red", "root").await;
    let blue = installation.workspace("root", "blue", "shard-1").await;
    for workspace in [&red, &blue] {
        fill(&installation, workspace).await;
    }
    let before = all_objects(&installation, &[&red, &blue]).await;
    installation.stop().await;
    installation.start_again().await;
    assert_eq!(all_objects(&installation, &[&red, &blue]).await, before);
    // The same after a crash.
    installation.lose().await;
    installation.start_again().await;
    assert_eq!(all_objects(&installation, &[&red, &blue]).await, before);
    for workspace in [&red, &blue] {
        // The workspace is writable, not only readable.
        let tide =
            json!({ "apiVersion": "sea.example.com/v1", "kind": "Tide", "metadata": { "name": "spring" } });
        let options = WriteOptions::default();
        installation.admin(workspace).create::<Value>(TIDES, &tide, &options).await.unwrap();
    }
}

async fn fill(installation: &Installation, workspace: &str) {
    let client = installation.admin(workspace);
    let options = WriteOptions::default();
    for number in 0..20 {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("entry-{number}") }, "data": { "number": number.to_string() },
        });
        client.create::<Value>(CONFIG_MAPS, &object, &options).await.unwrap();
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "tides.sea.example.com" },
        "spec": {
            "group": "sea.example.com", "scope": "Cluster",
            "names": { "plural": "tides", "singular": "tide", "kind": "Tide" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    });
    client.create::<Value>(DEFINITIONS, &definition, &options).await.unwrap();
    until_object(&client, DEFINITIONS, "tides.sea.example.com", |object| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
    })
    .await;
    let tide = json!({ "apiVersion": "sea.example.com/v1", "kind": "Tide", "metadata": { "name": "neap" } });
    until("the new resource", || client.create::<Value>(TIDES, &tide, &options)).await;
}

/// All objects with their versions and times.
async fn all_objects(installation: &Installation, workspaces: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for (prefix, path) in workspaces
        .iter()
        .flat_map(|workspace| {
            [CONFIG_MAPS, DEFINITIONS, TIDES, "/api/v1/namespaces"].map(|path| (*workspace, path))
        })
        .chain([("/clusters/root", crate::installation::WORKSPACES)])
    {
        let list: Value = installation.admin(prefix).get_json(path).await.unwrap();
        all.extend(list["items"].as_array().unwrap().iter().cloned());
    }
    assert!(all.len() > 40);
    all
}
