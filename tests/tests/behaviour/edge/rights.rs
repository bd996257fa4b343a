//! The development user's rights are objects that administrators may change.

use fairlead_client::{ClientError, DeleteOptions, PatchType};
use serde_json::{Value, json};

use crate::installation::{Installation, until, until_object};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const NAME: &str = "development-user";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_binding_is_created_once_and_not_restored_after_a_change() {
    let mut installation = Installation::start(1).await;
    let binding = until_object(&installation.admin("/clusters/root"), BINDINGS, NAME, |_| true).await;
    assert_eq!(binding["subjects"][0]["name"], "oidc:developer");
    let noted = |installation: &Installation| {
        std::fs::read_to_string(installation.directory().join("logs/up.log"))
            .unwrap()
            .matches("was missing and has been created")
            .count()
    };
    until_ready_again(&installation, 1).await;
    assert_eq!(noted(&installation), 0, "no message at the first start");

    // An administrator removes the rights.
    let path = format!("{BINDINGS}/{NAME}");
    let patch = json!({ "subjects": [] });
    let root = installation.admin("/clusters/root");
    let _: Value = root.patch(&path, PatchType::Merge, &patch, &Default::default()).await.unwrap();
    installation.stop().await;
    installation.start_again().await;
    until_ready_again(&installation, 2).await;
    let root = installation.admin("/clusters/root");
    let binding: Value = root.get_json(&path).await.unwrap();
    assert!(binding["subjects"].as_array().is_none_or(Vec::is_empty), "{binding:#}");
    assert_eq!(noted(&installation), 0);

    // A missing binding is created again, with a message.
    root.delete(&path, &DeleteOptions::default()).await.unwrap();
    installation.stop().await;
    installation.start_again().await;
    until_ready_again(&installation, 3).await;
    let root = installation.admin("/clusters/root");
    let binding: Value = root.get_json(&path).await.unwrap();
    assert_eq!(binding["subjects"][0]["name"], "oidc:developer");
    assert_eq!(noted(&installation), 1);
}

/// The logical cluster in a workspace's spec is deleted with the workspace, so users must not set it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_cannot_choose_the_logical_cluster_of_a_workspace() {
    const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    let workspace = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
            "metadata": { "name": name, "annotations": annotations },
        })
    };
    let _: Value = root.create(WORKSPACES, &workspace("mine", json!({})), &Default::default()).await.unwrap();
    let is_ready = |workspace: &Value| workspace["status"]["phase"] == "Ready";
    until_object(&root, WORKSPACES, "mine", is_ready).await;
    let code = |error: ClientError| match error {
        ClientError::Status(status) => status.code,
        other => panic!("{other}"),
    };
    for (key, value) in [
        ("internal.tenancy.kcp.io/cluster", json!("root")),
        ("internal.tenancy.kcp.io/cluster", Value::Null),
        ("core.kcp.io/shard", json!("shard-1/../..")),
        ("internal.tenancy.kcp.io/shard", json!("x")),
    ] {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let path = format!("{WORKSPACES}/mine");
        let patched: Result<Value, _> =
            root.patch(&path, PatchType::Merge, &patch, &Default::default()).await;
        assert_eq!(patched.map_err(code).unwrap_err(), 403, "{key} {value}");
        if value.is_string() {
            let stolen = workspace("stolen", json!({ key: value }));
            let made: Result<Value, _> = root.create(WORKSPACES, &stolen, &Default::default()).await;
            assert_eq!(made.map_err(code).unwrap_err(), 403, "{key} {value}");
        }
    }
}

/// Waits for the message in the log of `fairlead up` that follows the check of the rights.
async fn until_ready_again(installation: &Installation, starts: usize) {
    let log = installation.directory().join("logs/up.log");
    until("the end of the start", || async {
        let text = std::fs::read_to_string(&log).unwrap();
        if text.matches("all ready after").count() == starts { Ok(()) } else { Err(text) }
    })
    .await;
}
