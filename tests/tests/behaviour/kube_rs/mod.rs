//! Programs with kube-rs, and the lifecycle of workspaces.

mod clients;
mod definitions;
mod lifecycle;
mod permissions;
mod placement;
mod shared_apis;
mod tokens;
mod virtual_workspace;

use fairlead_certs::Client as Role;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::installation::Installation;

/// kcp-admin's certificate, and a path of the gateway.
async fn config(installation: &Installation, prefix: &str) -> Config {
    let kubeconfig = Kubeconfig::read_from(installation.admin_kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.cluster_url = format!("https://127.0.0.1:{}{prefix}", installation.port()).parse().unwrap();
    config
}

/// A client with kcp-admin's certificate through the gateway, in one workspace.
async fn client(installation: &Installation, prefix: &str) -> Client {
    Client::try_from(config(installation, prefix).await).unwrap()
}

fn api(client: &Client, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    Api::all_with(client.clone(), &resource)
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// The paths of all resources of a cluster that can be listed.
async fn collections(installation: &Installation, prefix: &str) -> Vec<String> {
    let admin = installation.admin(prefix);
    let mut paths = Vec::new();
    let groups: Value = admin.get_json("/apis").await.unwrap();
    let groups = groups["groups"].as_array().unwrap().iter().flat_map(|group| {
        let versions = group["versions"].as_array().unwrap().iter();
        versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()))
    });
    for group in std::iter::once("/api/v1".to_owned()).chain(groups) {
        let resources: Value = admin.get_json(&group).await.unwrap();
        let listed = resources["resources"].as_array().unwrap().iter();
        let listed = listed.filter(|one| one["verbs"].as_array().unwrap().contains(&json!("list")));
        paths.extend(listed.map(|one| format!("{group}/{}", one["name"].as_str().unwrap())));
    }
    paths
}

/// The objects of a cluster that a shard still has, listed with all rights across all clusters.
async fn remains(
    installation: &Installation,
    shard: &str,
    cluster: &str,
    collections: &[String],
) -> Vec<String> {
    let everywhere = installation.direct(shard, &Role::ShardAdmin, "/clusters/*");
    let mut remains = Vec::new();
    for path in collections {
        let list: Value = match everywhere.get_json(path).await {
            Ok(list) => list,
            // A resource without a definition is not served any more.
            Err(error) if error.is_not_found() => continue,
            Err(error) => panic!("{path}: {error}"),
        };
        let here = |item: &&Value| item["metadata"]["annotations"]["kcp.io/cluster"] == cluster;
        let items = list["items"].as_array().unwrap().iter().filter(here);
        remains.extend(items.map(|item| format!("{path}/{}", item["metadata"]["name"].as_str().unwrap())));
    }
    remains
}
