//! The lifecycle of workspaces: creation, initialization, use, deletion.

use fairlead_certs::Client as Role;
use fairlead_client::{Client, DeleteOptions, PatchType, WriteOptions};
use serde_json::{Value, json};

use super::{collections, remains};
use crate::installation::{
    Installation, WORKSPACES, create_workspace, next, until, until_gone, until_object, until_ready, within,
    workspace,
};

const LOGICAL_CLUSTERS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters";
const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_workspace_has_all_its_initial_objects() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    for shard in ["root", "shard-1"] {
        let name = format!("on-{shard}");
        let path = format!("{WORKSPACES}?watch=1&fieldSelector=metadata.name%3D{name}");
        let mut watch = root.watch(&path).await.unwrap();
        create_workspace(&root, &workspace(&name, shard)).await;
        let mut phases: Vec<String> = Vec::new();
        let ready = loop {
            let (_, object) = next(&mut watch).await;
            let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
            if phases.last() != Some(&phase) {
                phases.push(phase.clone());
            }
            if phase == "Ready" {
                break object;
            }
        };
        // Each phase occurs once, in order. A watcher may miss phases.
        let order = ["", "Scheduling", "Initializing", "Ready"];
        let ranks: Vec<_> =
            phases.iter().map(|phase| order.iter().position(|known| known == phase)).collect();
        assert!(ranks.iter().all(Option::is_some) && ranks.is_sorted(), "{shard}: {phases:?}");
        assert_eq!(ready["metadata"]["annotations"]["core.kcp.io/shard"], shard, "{ready:#}");
        assert_eq!(ready["metadata"]["labels"]["tenancy.kcp.io/phase"], "Ready");

        // The objects that kcp creates in a universal workspace exist at once.
        let here = installation.admin(&format!("/clusters/root:{name}"));
        for path in [
            "/api/v1/namespaces/default",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin",
            "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
        ] {
            assert!(here.get(path).await.is_ok(), "{shard}: {path}");
        }
        let bindings: Value = here.get_json("/apis/apis.kcp.io/v1alpha2/apibindings").await.unwrap();
        let bindings = bindings["items"].as_array().unwrap();
        let exports: Vec<_> =
            bindings.iter().filter_map(|one| one["spec"]["reference"]["export"]["name"].as_str()).collect();
        assert!(exports.contains(&"tenancy.kcp.io") && exports.contains(&"topology.kcp.io"), "{exports:?}");
        assert!(bindings.iter().all(|one| one["status"]["phase"] == "Bound"), "{bindings:#?}");
        let cluster: Value = here.get_json(&format!("{LOGICAL_CLUSTERS}/cluster")).await.unwrap();
        assert_eq!(cluster["status"]["phase"], "Ready");
        assert_eq!(cluster["metadata"]["annotations"]["kcp.io/path"], format!("root:{name}"));
        assert_eq!(cluster["spec"]["owner"]["uid"], ready["metadata"]["uid"]);
        // Clients in the workspace verify the gateway by this bundle.
        let bundle: Value =
            here.get_json("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").await.unwrap();
        let authority = std::fs::read_to_string(installation.layout().serving_ca()).unwrap();
        assert_eq!(bundle["data"]["ca.crt"], authority);
        // The cluster name leads to the same workspace.
        let id = ready["spec"]["cluster"].as_str().unwrap();
        let by_id = installation.admin(&format!("/clusters/{id}"));
        assert_eq!(by_id.get_json::<Value>(&format!("{LOGICAL_CLUSTERS}/cluster")).await.unwrap(), cluster);
    }
}

/// An administrator of a workspace has all rights in it, except to change its type, path, shard or owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_cannot_change_the_system_fields_of_a_workspace() {
    let installation = Installation::start(1).await;
    let here = installation.admin(&installation.workspace("root", "mine", "root").await);
    let path = format!("{LOGICAL_CLUSTERS}/cluster");
    let note = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    for change in [
        note("internal.tenancy.kcp.io/type", "root:organization"),
        note("kcp.io/path", "root:yours"),
        note("core.kcp.io/shard", "elsewhere"),
        json!({ "metadata": { "annotations": { "internal.tenancy.kcp.io/type": null } } }),
        json!({ "spec": { "owner": { "cluster": "elsewhere" } } }),
        json!({ "spec": { "createdBy": { "username": "somebody" } } }),
    ] {
        let response = here.patch::<Value>(&path, PatchType::Merge, &change, &WriteOptions::default()).await;
        assert_eq!(response.unwrap_err().code(), Some(403), "{change}");
    }
    let harmless = note("example.com/colour", "red");
    let patched: Value =
        here.patch(&path, PatchType::Merge, &harmless, &WriteOptions::default()).await.unwrap();
    assert_eq!(patched["metadata"]["annotations"]["internal.tenancy.kcp.io/type"], "root:universal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_workspace_removes_its_content_and_its_children() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    // One child on each shard, so that one of them is on another shard than its parent.
    let parent = installation.workspace("root", "parent", "shard-1").await;
    let mut all = vec![parent];
    for (name, shard) in [("near", "shard-1"), ("far", "root")] {
        all.push(installation.workspace("root:parent", name, shard).await);
    }
    let mut clusters = Vec::new();
    let mut listed = Vec::new();
    for prefix in &all {
        let here = installation.admin(prefix);
        let cluster: Value = here.get_json(&format!("{LOGICAL_CLUSTERS}/cluster")).await.unwrap();
        clusters.push(cluster["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap().to_owned());
        let options = WriteOptions::default();
        for name in ["one", "two"] {
            let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
            here.create::<Value>("/api/v1/namespaces/default/configmaps", &map, &options).await.unwrap();
        }
        listed = collections(&installation, prefix).await;
    }
    assert!(listed.len() > 10, "{listed:?}");
    for (shard, cluster) in [("shard-1", 0), ("shard-1", 1), ("root", 2)] {
        let there = remains(&installation, shard, &clusters[cluster], &listed).await;
        assert!(there.len() > 5, "before: {there:?}");
    }
    root.delete(&format!("{WORKSPACES}/parent"), &DeleteOptions::default()).await.unwrap();
    until_gone(&root, WORKSPACES, "parent").await;
    for shard in ["root", "shard-1"] {
        for cluster in &clusters {
            assert_eq!(remains(&installation, shard, cluster, &listed).await, [""; 0], "{shard}");
            let direct = installation.direct(shard, &Role::ShardAdmin, &format!("/clusters/{cluster}"));
            match direct.get_json::<Value>("/api/v1/configmaps").await {
                Ok(list) => assert_eq!(list["items"], json!([]), "{shard}"),
                Err(error) => assert!(matches!(error.code(), Some(403 | 404)), "{shard}: {error}"),
            }
        }
    }
    for prefix in &all {
        crate::installation::until("the gateway has removed it from its index", || async {
            match installation.admin(prefix).get("/api").await {
                Err(error) if error.code() == Some(403) => Ok(()),
                other => Err(other.map(|response| response.status)),
            }
        })
        .await;
    }
    // The name can be used again.
    installation.workspace("root", "parent", "root").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_initializer_delays_a_workspace_until_it_is_removed() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    let options = WriteOptions::default();
    create_type_with_initializer(&root).await;
    for shard in ["root", "shard-1"] {
        let name = format!("dock-{shard}");
        let mut wanted = workspace(&name, shard);
        wanted["spec"]["type"]["name"] = json!("dock");
        crate::installation::until("the type is known", || {
            root.create::<Value>(WORKSPACES, &wanted, &options)
        })
        .await;
        let held = until_object(&root, WORKSPACES, &name, |object| {
            object["status"]["phase"] == "Initializing"
                && object["status"]["initializers"] == json!(["root:dock"])
        })
        .await;
        let id = held["spec"]["cluster"].as_str().unwrap();
        let cluster = installation.admin(&format!("/clusters/{id}"));
        let path = format!("{LOGICAL_CLUSTERS}/cluster");
        // The workspace does not become Ready with the initializer, and users cannot add one.
        for (patch, why) in [
            (json!({ "status": { "phase": "Ready" } }), "not empty"),
            (json!({ "status": { "initializers": ["root:dock", "root:other"] } }), "must not grow"),
        ] {
            let status = format!("{path}/status");
            let refused =
                cluster.patch::<Value>(&status, PatchType::Merge, &patch, &options).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{shard}: {refused}");
        }
        let done = json!({ "status": { "initializers": [] } });
        let status = format!("{path}/status");
        cluster.patch::<Value>(&status, PatchType::Merge, &done, &options).await.unwrap();
        within(&name, until_ready(&root, &name)).await;
    }
}

/// A client acts on the logical cluster as soon as it sees the phase of the workspace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_logical_cluster_of_an_initializing_workspace_can_be_read() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    create_type_with_initializer(&root).await;
    for number in 0..20 {
        let shard = ["root", "shard-1"][number % 2];
        let name = format!("dock-{number}");
        let mut watch =
            root.watch(&format!("{WORKSPACES}?watch=1&fieldSelector=metadata.name%3D{name}")).await.unwrap();
        let mut wanted = workspace(&name, shard);
        wanted["spec"]["type"]["name"] = json!("dock");
        let options = WriteOptions::default();
        until("the type is known", || root.create::<Value>(WORKSPACES, &wanted, &options)).await;
        let held = loop {
            let (_, object) = next(&mut watch).await;
            if object["status"]["phase"] == "Initializing" {
                break object;
            }
        };
        let id = held["spec"]["cluster"].as_str().unwrap();
        let cluster: Value = installation
            .admin(&format!("/clusters/{id}"))
            .get_json(&format!("{LOGICAL_CLUSTERS}/cluster"))
            .await
            .unwrap();
        assert_eq!(cluster["status"]["phase"], "Initializing", "{name}");
    }
}

async fn create_type_with_initializer(root: &Client) {
    let custom = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": { "name": "dock" },
        "spec": { "initializer": true, "extend": { "with": [{ "name": "universal", "path": "root" }] } },
    });
    root.create::<Value>(TYPES, &custom, &WriteOptions::default()).await.unwrap();
    until_object(root, TYPES, "dock", |object| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminator_delays_the_deletion_of_a_workspace_until_it_is_removed() {
    let installation = Installation::start(1).await;
    let root = installation.admin("/clusters/root");
    let options = WriteOptions::default();
    let custom = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": { "name": "dock" },
        "spec": { "terminator": true, "extend": { "with": [{ "name": "universal", "path": "root" }] } },
    });
    root.create::<Value>(TYPES, &custom, &options).await.unwrap();
    let mut wanted = workspace("held", "root");
    wanted["spec"]["type"]["name"] = json!("dock");
    until("the type is known", || root.create::<Value>(WORKSPACES, &wanted, &options)).await;
    let ready = until_ready(&root, "held").await;
    let id = ready["spec"]["cluster"].as_str().unwrap();
    root.delete(&format!("{WORKSPACES}/held"), &DeleteOptions::default()).await.unwrap();
    until_object(&root, WORKSPACES, "held", |object| object["status"]["phase"] == "Terminating").await;
    let cluster = installation.admin(&format!("/clusters/{id}"));
    let status = format!("{LOGICAL_CLUSTERS}/cluster/status");
    let done = json!({ "status": { "terminators": [] } });
    let patched: Value = cluster.patch(&status, PatchType::Merge, &done, &options).await.unwrap();
    assert!(patched["metadata"]["deletionTimestamp"].is_string(), "{patched}");
    until_gone(&root, WORKSPACES, "held").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_no_controller_acts_on_are_refused() {
    let installation = Installation::start(1).await;
    let root = installation.admin("/clusters/root");
    let bindings = "/apis/apis.kcp.io/v1alpha2/apibindings";
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "migrations" },
        "spec": { "reference": { "export": { "path": "root", "name": "migration.kcp.io" } } },
    });
    root.create::<Value>(bindings, &binding, &WriteOptions::default()).await.unwrap();
    until_object(&root, bindings, "migrations", |object| object["status"]["phase"] == "Bound").await;
    let path = "/apis/migration.kcp.io/v1alpha1/logicalclustermigrations";
    let object = json!({
        "apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration", "metadata": { "name": "mine" },
        "spec": { "logicalCluster": "abc", "destinationShard": "shard-1" },
    });
    let refused = root.create::<Value>(path, &object, &WriteOptions::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some(403), "{refused}");
    assert!(
        refused.to_string().contains("migrations of logical clusters are not supported yet"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_slice_needs_an_export_and_gets_the_url_of_a_shard_with_bindings() {
    let installation = Installation::start(1).await;
    let root = installation.admin("/clusters/root");
    let slices = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices";
    let slice = |export: &str| {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": { "name": "mine" },
            "spec": { "export": { "name": export, "path": "root" } },
        })
    };
    let created = root.create::<Value>(slices, &slice("missing"), &WriteOptions::default()).await;
    let refused = created.unwrap_err();
    assert_eq!(refused.code(), Some(403), "{refused}");
    let message = "unable to create APIExportEndpointSlice: no permission to bind to export root:missing";
    assert!(refused.to_string().contains(message), "{refused}");
    root.create::<Value>(slices, &slice("tenancy.kcp.io"), &WriteOptions::default()).await.unwrap();
    let has_url = |object: &Value| {
        let url = object["status"]["endpoints"][0]["url"].as_str().unwrap_or_default();
        url.ends_with("/services/apiexport/root/tenancy.kcp.io")
    };
    until_object(&root, slices, "mine", has_url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_gets_a_home_workspace_at_the_first_request() {
    let installation = Installation::start(1).await;
    let root = installation.admin("/clusters/root");
    let path = "/apis/tenancy.kcp.io/v1alpha1/workspaces/~";
    // The client repeats a request that gets 429.
    let home: Value = until("the home workspace is ready", || root.get_json(path)).await;
    assert_eq!(home["metadata"]["name"], "cluster");
    assert_eq!(home["status"]["phase"], "Ready", "{home}");
    let cluster = home["spec"]["cluster"].as_str().unwrap().to_owned();
    assert_eq!(cluster, "kvdk2spgmbix", "the name follows from that of the user");
    assert!(home["spec"]["URL"].as_str().unwrap().ends_with(&format!("/clusters/{cluster}")), "{home}");
    let again: Value = root.get_json(path).await.unwrap();
    assert_eq!(again, home);
    let own = installation.admin(&format!("/clusters/{cluster}"));
    let binding: Value =
        own.get_json("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin").await.unwrap();
    assert_eq!(binding["subjects"][0]["name"], "kcp-admin", "{binding}");
}

/// Clients compare what they wrote; kcp's own tests do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_keeps_the_path_of_its_type_as_the_client_wrote_it() {
    let installation = Installation::start(1).await;
    let path = installation.workspace("root", "types", "root").await;
    let parent = installation.admin(&path);
    let kind = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "shop"},
    });
    let kind: Value = parent.create(TYPES, &kind, &WriteOptions::default()).await.unwrap();
    let cluster = kind["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    for (name, given, shown) in [
        ("by-cluster", json!({"name": "shop", "path": cluster}), cluster),
        ("by-path", json!({"name": "shop", "path": "root:types"}), "root:types"),
        ("by-name", json!({"name": "shop"}), "root:types"),
    ] {
        let workspace = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
            "spec": {"type": given},
        });
        let created = create_workspace(&parent, &workspace).await;
        assert_eq!(created["spec"]["type"], json!({"name": "shop", "path": shown}), "{created}");
        within(name, until_ready(&parent, name)).await;
    }
}
