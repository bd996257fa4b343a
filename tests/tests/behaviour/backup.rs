//! `fairlead backup` while writes go on, and `fairlead restore` into an installation with other certificates.

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlead_client::{Client, DeleteOptions, RetryPolicy, WriteOptions, retry};
use serde_json::{Value, json};

use crate::installation::{Installation, WORKSPACES, until_gone, until_object, until_ready};
use crate::sharing::{bind, one_version, publish};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ANCHORS: &str = "/apis/harbour.example.com/v1/namespaces/default/anchors";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";

/// Collections whose objects nobody writes during the backup, by the path of their logical cluster.
const COMPARED: [(&str, &str); 8] = [
    ("/clusters/root", WORKSPACES),
    ("/clusters/root:harbour", EXPORTS),
    ("/clusters/root:harbour", ACCOUNTS),
    ("/clusters/root:fleet", BINDINGS),
    ("/clusters/root:fleet", ACCOUNTS),
    ("/clusters/root:fleet", SECRETS),
    ("/clusters/root:fleet", ANCHORS),
    ("/clusters/root:fleet", "/api/v1/namespaces"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_is_restored_from_a_backup_that_was_made_under_writes() {
    let mut installation = Installation::start(1).await;
    let fleet = filled(&installation).await;
    let before = objects(&installation).await;
    let old = list(&installation.admin(&fleet), CONFIG_MAPS).await["metadata"]["resourceVersion"].clone();

    let is_over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write_until(installation.admin(&fleet), Arc::clone(&is_over)));
    until_object(&installation.admin(&fleet), CONFIG_MAPS, "written-20", |_| true).await;
    let made = installation.fairlead(["backup", "--dir=site", "-o", "root.backup"]).await;
    is_over.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();
    assert!(succeeded(&made).starts_with("root: "), "{made:?}");
    let verified = installation.fairlead(["restore", "root.backup", "--verify"]).await;
    assert!(succeeded(&verified).contains(" objects of shard root at revision "), "{verified:?}");

    let refused =
        installation.fairlead(["restore", "root.backup", "--data-dir", "site/data/root", "--replace"]).await;
    assert!(failed(&refused).contains("is in use by another process"), "{refused:?}");
    installation.stop().await;
    let authority = std::fs::read(installation.layout().serving_ca()).unwrap();
    std::fs::remove_dir_all(installation.directory()).unwrap();

    installation.start_again().await;
    installation.stop().await;
    assert_ne!(std::fs::read(installation.layout().serving_ca()).unwrap(), authority);
    let refused = installation.fairlead(["restore", "root.backup", "--data-dir", "site/data/root"]).await;
    assert!(failed(&refused).contains("store.redb exists"), "{refused:?}");
    let restored =
        installation.fairlead(["restore", "root.backup", "--data-dir", "site/data/root", "--replace"]).await;
    succeeded(&restored);
    installation.start_again().await;

    assert_eq!(objects(&installation).await, before);
    let admin = installation.admin(&fleet);
    let found = revisions_of_written(&list(&admin, CONFIG_MAPS).await);
    assert!((20..=written.len()).contains(&found.len()), "{} of {}", found.len(), written.len());
    assert_eq!(found, written[..found.len()], "the first ones, with their revisions");
    old_revisions_are_gone(&admin, &old).await;

    // The installation works: controllers, bindings and new workspaces.
    create(&admin, ANCHORS, &anchor("new")).await;
    installation.workspace("root", "yard", "root").await;
    bind(&installation, "/clusters/root:yard", json!([])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_workspace_comes_back_into_the_store_of_its_shard() {
    let mut installation = Installation::start(1).await;
    let fleet = filled(&installation).await;
    let before = objects(&installation).await;
    let made = installation
        .fairlead(["backup", "--dir=site", "--workspace", "root:fleet", "-o", "fleet.backup"])
        .await;
    assert!(succeeded(&made).starts_with("root:fleet: "), "{made:?}");
    let root = installation.admin("/clusters/root");
    let old = list(&root, WORKSPACES).await["metadata"]["resourceVersion"].clone();
    root.delete(&format!("{WORKSPACES}/fleet"), &DeleteOptions::default()).await.unwrap();
    until_gone(&root, WORKSPACES, "fleet").await;

    let arguments = ["restore", "fleet.backup", "--data-dir", "site/data/root"];
    installation.stop().await;
    succeeded(&installation.fairlead(arguments).await);
    let again = installation.fairlead(arguments).await;
    assert!(failed(&again).contains("already\n  hint: delete the workspace first"), "{again:?}");
    installation.start_again().await;

    until_ready(&installation.admin("/clusters/root"), "fleet").await;
    // They have new revisions, in the same order.
    assert_eq!(without_revisions(&objects(&installation).await), without_revisions(&before));
    let admin = installation.admin(&fleet);
    create(&admin, ANCHORS, &anchor("new")).await;
    old_revisions_are_gone(&installation.admin("/clusters/root"), &old).await;
}

/// A provider, and a workspace that has bound its export and has objects of all kinds. Returns the latter's path.
async fn filled(installation: &Installation) -> String {
    let provider = installation.workspace("root", "harbour", "root").await;
    publish(installation, &provider, one_version(), json!([])).await;
    let fleet = installation.workspace("root", "fleet", "root").await;
    bind(installation, &fleet, json!([])).await;
    let admin = installation.admin(&fleet);
    for name in ["bow", "stern"] {
        create(&admin, ANCHORS, &anchor(name)).await;
    }
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "pilot" } });
    create(&admin, ACCOUNTS, &account).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "chart" }, "stringData": { "depth": "12" },
    });
    create(&admin, SECRETS, &secret).await;
    until_object(&admin, ACCOUNTS, "default", |_| true).await;
    fleet
}

fn anchor(name: &str) -> Value {
    json!({ "apiVersion": "harbour.example.com/v1", "kind": "Anchor", "metadata": { "name": name } })
}

/// Creates config maps one after the other; returns their revisions in that order.
async fn write_until(admin: Client, is_over: Arc<AtomicBool>) -> Vec<u64> {
    let mut revisions = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("written-{}", revisions.len()) },
        });
        let created: Value = admin.create(CONFIG_MAPS, &map, &WriteOptions::default()).await.unwrap();
        revisions.push(revision(&created));
    }
    revisions
}

/// The revisions of the config maps of [`write_until`], in the order of their numbers.
fn revisions_of_written(list: &Value) -> Vec<u64> {
    let numbered = list["items"].as_array().unwrap().iter().filter_map(|map| {
        let number = map["metadata"]["name"].as_str().unwrap().strip_prefix("written-")?;
        Some((number.parse::<u64>().unwrap(), revision(map)))
    });
    let numbered: BTreeMap<u64, u64> = numbered.collect();
    assert!(numbered.keys().copied().eq(0..numbered.len() as u64), "none is left out: {numbered:?}");
    numbered.into_values().collect()
}

/// The compared objects by path and name. The URLs of the installation are left out.
async fn objects(installation: &Installation) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (cluster, collection) in COMPARED {
        let list = list(&installation.admin(cluster), collection).await;
        for item in list["items"].as_array().unwrap() {
            let mut item = item.clone();
            for url in ["/spec/URL", "/status/virtualWorkspaces"] {
                if let Some(url) = item.pointer_mut(url) {
                    url.take();
                }
            }
            let name = item["metadata"]["name"].as_str().unwrap();
            found.insert(format!("{cluster}{collection}/{name}"), item);
        }
    }
    assert!(found.len() > 10, "{found:#?}");
    found
}

/// The objects without their revisions, and their names in the order of these.
fn without_revisions(objects: &BTreeMap<String, Value>) -> (Vec<Value>, Vec<String>) {
    let mut order: Vec<_> = objects.iter().filter(|(path, _)| path.contains("root:fleet")).collect();
    order.sort_by_key(|(_, object)| revision(object));
    let names = order.into_iter().map(|(path, _)| path.clone()).collect();
    let mut objects: Vec<Value> = objects.values().cloned().collect();
    for object in &mut objects {
        object["metadata"]["resourceVersion"].take();
    }
    (objects, names)
}

/// Lists and watches of a revision before the restore are told to begin anew.
async fn old_revisions_are_gone(admin: &Client, old: &Value) {
    let old = old.as_str().unwrap();
    let exact = format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(admin.get(&exact).await.unwrap_err().code(), Some(410));
    let watch = admin.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={old}")).await;
    let code = match watch {
        Err(refused) => refused.code(),
        Ok(mut watch) => match watch.next().await.unwrap() {
            Err(ended) => ended.code(),
            Ok(event) => Some(event.status().code),
        },
    };
    assert_eq!(code, Some(410));
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Honours `Retry-After`: a gateway that has just started answers 503 until it knows a restored workspace.
async fn list(client: &Client, collection: &str) -> Value {
    retry(&RetryPolicy::default(), || client.get_json(collection)).await.unwrap()
}

async fn create(client: &Client, collection: &str, object: &Value) {
    let _: Value = client.create(collection, object, &WriteOptions::default()).await.unwrap();
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn failed(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}
