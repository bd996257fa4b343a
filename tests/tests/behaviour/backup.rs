//! `fairlead backup` while writes go on, and `fairlead restore` into an installation with other certificates.

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlead_certs::Client as Role;
use fairlead_client::{Client, DeleteOptions, RetryPolicy, WriteOptions, retry};
use fairlead_tests::harness::{Program, is_left_out, tool};
use serde_json::{Value, json};

use crate::installation::{Installation, WORKSPACES, until, until_gone, until_object, until_ready};
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
async fn an_installation_with_files_is_restored_from_backups_that_were_made_under_writes() {
    restored_elsewhere("file", "file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_with_files_is_restored_into_etcd() {
    if !is_left_out("etcd") {
        restored_elsewhere("file", "etcd").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_with_etcd_is_restored_into_files() {
    if !is_left_out("etcd") {
        restored_elsewhere("etcd", "file").await;
    }
}

/// Backs up all shards of an installation while it serves, deletes it, and restores the backups into a new one with other
/// certificates and perhaps another kind of store.
async fn restored_elsewhere(from: &str, to: &str) {
    let mut installation = Installation::start_on(2, from).await;
    let fleet = filled(&installation, "shard-1").await;
    let before = objects(&installation).await;
    let pilot = token(&installation.admin(&fleet)).await;
    let old = list(&installation.admin(&fleet), CONFIG_MAPS).await["metadata"]["resourceVersion"].clone();

    let is_over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write_until(installation.admin(&fleet), Arc::clone(&is_over)));
    until_object(&installation.admin(&fleet), CONFIG_MAPS, "written-20", |_| true).await;
    let made = succeeded(&installation.fairlead(["backup", "--dir=site", "--all", "-o", "backups"]).await);
    is_over.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();
    assert!(made.starts_with("root: ") && made.contains("\nshard-1: "), "{made}");
    let verified = installation.fairlead(["restore", "backups/root.backup", "--verify"]).await;
    assert!(succeeded(&verified).contains(" objects of shard root at revision "), "{verified:?}");
    if from == "file" {
        let refused = installation.fairlead(into_file("root", true)).await;
        assert!(failed(&refused).contains("is in use by another process"), "{refused:?}");
    }
    let keys = installation.layout().service_account_keys();
    let keys = [keys.signing_key, keys.verification_keys].map(|path| (std::fs::read(&path).unwrap(), path));
    let authority = std::fs::read(installation.layout().serving_ca()).unwrap();
    installation.stop().await;
    std::fs::remove_dir_all(installation.directory()).unwrap();

    installation.start_again_on(2, to).await;
    installation.stop().await;
    assert_ne!(std::fs::read(installation.layout().serving_ca()).unwrap(), authority);
    // The key of service account tokens is kept apart from backups.
    for (key, path) in keys {
        std::fs::write(path, key).unwrap();
    }
    if to == "file" {
        let refused = installation.fairlead(into_file("root", false)).await;
        assert!(failed(&refused).contains("store.redb exists"), "{refused:?}");
        let mut of_another = into_file("root", true);
        of_another[1] = "backups/shard-1.backup".to_owned();
        let refused = failed(&installation.fairlead(of_another).await);
        assert!(
            refused.contains("belongs to \"shard root\", not to \"shard shard-1\"\n  hint: "),
            "{refused}"
        );
        for shard in ["root", "shard-1"] {
            succeeded(&installation.fairlead(into_file(shard, true)).await);
        }
    } else {
        restore_into_etcd(&installation).await;
    }
    installation.start_again_on(2, to).await;

    until("every object is as before, and its revision unless it is in another kind of store", || async {
        let after = objects(&installation).await;
        let is_equal = if to == "file" {
            after == before
        } else {
            without_revisions(&after) == without_revisions(&before)
        };
        if is_equal { Ok(()) } else { Err(format!("{after:#?}\nbefore: {before:#?}")) }
    })
    .await;
    let admin = installation.admin(&fleet);
    let found = revisions_of_written(&list(&admin, CONFIG_MAPS).await);
    assert!((20..=written.len()).contains(&found.len()), "{} of {}", found.len(), written.len());
    if to == "file" {
        assert_eq!(found, written[..found.len()], "the first ones, with their revisions");
    } else {
        assert!(
            found.is_sorted_by(|one, next| one < next) && found[0] > written[written.len() - 1],
            "{found:?}"
        );
    }
    old_revisions_are_gone(&admin, &old).await;

    // The installation works: controllers, bindings, new workspaces, and tokens from before.
    create(&admin, ANCHORS, &anchor("new")).await;
    installation.workspace("root", "yard", "root").await;
    bind(&installation, "/clusters/root:yard", json!([])).await;
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": pilot },
    });
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed: Value = admin.create(reviews, &review, &WriteOptions::default()).await.unwrap();
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:default:pilot", "{reviewed}");
}

fn into_file(shard: &str, replace: bool) -> Vec<String> {
    let (backup, folder) = (format!("backups/{shard}.backup"), format!("--data-dir=site/data/{shard}"));
    let replace = replace.then(|| "--replace".to_owned());
    ["restore".to_owned(), backup, folder].into_iter().chain(replace).collect()
}

/// Restores both shards into the etcd of an installation that does not run. Everything in it is deleted before.
async fn restore_into_etcd(installation: &Installation) {
    let data = installation.directory().join("data");
    for process in ["cache", "root", "shard-1"] {
        std::fs::remove_dir_all(data.join(process)).unwrap();
    }
    let config = installation.directory().join("config/etcd.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let config_of_etcd: Value = serde_saphyr::from_str(&text).unwrap();
    let url = config_of_etcd["listen-client-urls"].as_str().unwrap().to_owned();
    let start = || {
        let etcd = Program::at(tool("etcd").unwrap(), "etcd", &installation.scratch("etcd"));
        etcd.args(["--config-file".into(), config.clone()]).start().unwrap()
    };
    let (layout, shard) = (installation.layout(), "shard-1".parse().unwrap());
    let files = layout.client_cert(&Role::Shard(shard));
    let into = |shard: &str| {
        [
            "restore".to_owned(),
            format!("backups/{shard}.backup"),
            format!("--etcd={url}/shards/{shard}"),
            format!("--etcd-cafile={}", layout.serving_ca().display()),
            format!("--etcd-certfile={}", files.certificate.display()),
            format!("--etcd-keyfile={}", files.key.display()),
        ]
    };
    let mut etcd = start();
    let refused = installation.fairlead(into("root")).await;
    assert!(failed(&refused).contains("has keys already\n  hint: name a prefix without keys"), "{refused:?}");
    etcd.kill().await.unwrap();
    std::fs::remove_dir_all(data.join("etcd/member")).unwrap();
    let mut etcd = start();
    for shard in ["root", "shard-1"] {
        let restored = succeeded(&installation.fairlead(into(shard)).await);
        assert!(
            restored.contains(&format!("are in {url}/shards/{shard}, which is at revision ")),
            "{restored}"
        );
    }
    etcd.terminate().await.unwrap();
}

/// A token of the service account `pilot`.
async fn token(admin: &Client) -> String {
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let made: Value =
        admin.create(&format!("{ACCOUNTS}/pilot/token"), &request, &WriteOptions::default()).await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_workspace_comes_back_into_the_store_of_its_shard() {
    let mut installation = Installation::start(1).await;
    let fleet = filled(&installation, "root").await;
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

/// A provider on the shard root, and a workspace on a shard that has bound its export and has objects of all kinds. Returns the latter's path.
async fn filled(installation: &Installation, shard: &str) -> String {
    let provider = installation.workspace("root", "harbour", "root").await;
    publish(installation, &provider, one_version(), json!([])).await;
    let fleet = installation.workspace("root", "fleet", shard).await;
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
            if collection.ends_with("/apibindings") {
                judged_again(&mut item);
            }
            let name = item["metadata"]["name"].as_str().unwrap();
            found.insert(format!("{cluster}{collection}/{name}"), item);
        }
    }
    assert!(found.len() > 10, "{found:#?}");
    found
}

/// Removes what a new installation writes anew: until its cache server has the exports, bindings to them are not valid.
fn judged_again(binding: &mut Value) {
    binding["metadata"]["resourceVersion"].take();
    for condition in binding["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
}

/// The objects without their revisions, and their names in the order of these.
fn without_revisions(objects: &BTreeMap<String, Value>) -> (Vec<Value>, Vec<String>) {
    let has_revision = |object: &Value| object["metadata"]["resourceVersion"].is_string();
    let in_fleet = objects.iter().filter(|(path, _)| path.contains("root:fleet"));
    let mut order: Vec<_> = in_fleet.filter(|(_, object)| has_revision(object)).collect();
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
