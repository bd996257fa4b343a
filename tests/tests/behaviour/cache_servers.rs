//! Several cache servers on one etcd, and a cache server whose store is lost.

use fairlead_client::{Client, PatchType, WatchStream, WriteOptions};
use fairlead_tests::harness::{
    CacheServers, EtcdCluster, EtcdSettings, Installation, Shard, ShardSettings, cache_server, is_left_out,
};
use serde_json::{Value, json};

use crate::installation::{create_workspace, next, until, until_ready, within, workspace};
use crate::sharing::{BINDINGS, bind_in, one_version, publish_in};

const OWN_TYPES: &str =
    "/services/cache/shards/test/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
const EXPORTS: &str = "/services/cache/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports";
const LABELS: &str = "/metadata/labels";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_servers_on_etcd_serve_together_and_shards_go_on_when_one_dies() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let etcd = EtcdCluster::start(directory.path(), 1, &[]).await.unwrap();
    let settings = EtcdSettings { endpoints: etcd.endpoints(), prefix: "/cache".to_owned() };
    let caches = CacheServers { count: 2, etcd: settings };
    let (shards, of_shards) = (["root", "shard-1"], ShardSettings::default());
    let started = Installation::start_cache_servers(directory.path(), &shards, &of_shards, &caches).await;
    let mut installation = started.unwrap();
    let names = [cache_server(0), cache_server(1)];
    writes_at_one_are_seen_at_the_other(&installation, &names).await;
    let mut bindings = bound_workspaces(&installation, "harbour", "fleet").await;

    // Each of them dies once, so the one that the shards use does.
    let first = leader(&installation, &names).await;
    for (at, dead) in [first, 1 - first].into_iter().enumerate() {
        installation.kill(&names[dead]).await.unwrap();
        assert_eq!(leader(&installation, &names[1 - dead..][..1]).await, 0);
        bound_workspaces(&installation, &format!("harbour-{at}"), &format!("fleet-{at}")).await;
        installation.restart(&names[dead]).await.unwrap();
        installation.until_ready().await.unwrap();
    }
    stays_bound(&installation, "fleet", &mut bindings).await;
    let second = leader(&installation, &names).await;
    installation.terminate(&names[second]).await.unwrap();
    let log = installation.log(&names[second]);
    assert!(log.contains("resigned from leading the cache servers"), "{log}");
    leader(&installation, &names[1 - second..][..1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_cache_is_filled_again_by_the_shards_and_bindings_stay_bound() {
    let directory = tempfile::tempdir().unwrap();
    let shards = ["root", "shard-1"];
    let started = Installation::start(directory.path(), &shards, &ShardSettings::default()).await;
    let mut installation = started.unwrap();
    let mut bindings = bound_workspaces(&installation, "harbour", "fleet").await;
    let before = cached(&installation).await;
    assert!(before.iter().any(|name| name.contains("harbour")), "{before:?}");
    installation.kill("cache").await.unwrap();
    std::fs::remove_dir_all(directory.path().join("data/cache")).unwrap();
    std::fs::create_dir(directory.path().join("data/cache")).unwrap();
    installation.restart("cache").await.unwrap();
    installation.until_ready().await.unwrap();
    until("the copies of all shards", || async {
        let now = cached(&installation).await;
        if now == before { Ok(()) } else { Err(format!("{now:?} instead of {before:?}")) }
    })
    .await;
    // What comes later goes through the new store.
    bound_workspaces(&installation, "harbour-later", "fleet-later").await;
    stays_bound(&installation, "fleet", &mut bindings).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_refuses_the_prefix_of_a_cache_server() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let etcd = EtcdCluster::start(directory.path(), 1, &[]).await.unwrap();
    // kcp's meaning of the default prefix: a cache server and a shard can both be started with it.
    let settings = EtcdSettings { endpoints: etcd.endpoints(), prefix: "/registry".to_owned() };
    let caches = CacheServers { count: 1, etcd: settings.clone() };
    let of_shards = ShardSettings { etcd: Some(settings.clone()), ..ShardSettings::default() };
    let started = Installation::start_cache_servers(directory.path(), &["root"], &of_shards, &caches).await;
    let _installation = started.unwrap();
    let folder = directory.path().join("other");
    std::fs::create_dir(&folder).unwrap();
    let settings = EtcdSettings { prefix: "/cache".to_owned(), ..settings };
    let of_shards = ShardSettings { etcd: Some(settings), ..ShardSettings::default() };
    let Err(refused) = Shard::start(&folder, &of_shards).await else { panic!("the shard has started") };
    let text = refused.to_string();
    assert!(text.contains("belongs to \"cache\", not to \"shard root\""), "{text}");
}

async fn writes_at_one_are_seen_at_the_other(installation: &Installation, names: &[String; 2]) {
    for (writer, reader) in [(0, 1), (1, 0)] {
        let client = |at: usize| installation.cached_at(&names[at], "").unwrap();
        let name = format!("from-{writer}");
        let query = format!("{OWN_TYPES}?watch=1&fieldSelector=metadata.name%3D{name}");
        let mut watch = client(reader).watch(&query).await.unwrap();
        let object = json!({ "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType",
                             "metadata": { "name": name } });
        let created: Value =
            client(writer).create(OWN_TYPES, &object, &WriteOptions::default()).await.unwrap();
        let (kind, seen) = within("an event of the other cache server", next(&mut watch)).await;
        assert_eq!((kind.as_str(), &seen), ("ADDED", &created));
        // A response shows the revision, and the other server waits for it.
        let mut request = fairlead_client::Request::new(http::Method::GET, format!("{OWN_TYPES}/{name}"));
        let version = created["metadata"]["resourceVersion"].as_str().unwrap();
        request.headers.insert("x-fairlead-revision", version.parse().unwrap());
        let response = client(reader).request(request).await.unwrap();
        let revision = response.headers["x-fairlead-revision"].to_str().unwrap().parse::<u64>().unwrap();
        assert!(revision >= version.parse().unwrap(), "{revision} after {version}");
    }
}

/// Publishes an API in a workspace on `root` and binds it in one on `shard-1`. Returns a watch of the bindings there.
async fn bound_workspaces(installation: &Installation, provider: &str, consumer: &str) -> WatchStream {
    let root = installation.admin("/clusters/root").unwrap();
    for (name, shard) in [(provider, "root"), (consumer, "shard-1")] {
        create_workspace(&root, &workspace(name, shard)).await;
        until_ready(&root, name).await;
    }
    publish_in(&admin(installation, provider), one_version(), json!([])).await;
    let client = admin(installation, consumer);
    bind_in(&client, &format!("root:{provider}"), json!([])).await;
    client.watch(&format!("{BINDINGS}?watch=1&fieldSelector=metadata.name%3Dharbour")).await.unwrap()
}

fn admin(installation: &Installation, workspace: &str) -> Client {
    installation.admin(&format!("/clusters/root:{workspace}")).unwrap()
}

/// Changes the label of a binding, and expects that no event before it shows the binding without its export.
async fn stays_bound(installation: &Installation, consumer: &str, bindings: &mut WatchStream) {
    let client = admin(installation, consumer);
    let patch = json!([{ "op": "add", "path": LABELS, "value": { "last": "true" } }]);
    let path = format!("{BINDINGS}/harbour");
    let _: Value = client.patch(&path, PatchType::Json, &patch, &WriteOptions::default()).await.unwrap();
    let mut events = 0;
    loop {
        let (kind, binding) = within("the last event of a binding", next(bindings)).await;
        events += 1;
        assert_ne!(kind, "DELETED");
        assert_eq!(binding["status"]["phase"], "Bound", "{binding:#}");
        for condition in binding["status"]["conditions"].as_array().into_iter().flatten() {
            assert_eq!(condition["status"], "True", "{binding:#}");
        }
        if binding["metadata"]["labels"]["last"] == "true" {
            break;
        }
    }
    // The initial state, and the label.
    assert!(events <= 3, "the binding was written again and again");
}

/// The position of the cache server that leads, among some. Fails if several do.
async fn leader(installation: &Installation, names: &[String]) -> usize {
    until("the election of a leader", || async {
        let mut leaders = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let client = installation.cached_at(name, "").unwrap();
            let metrics = client.get("/metrics").await.map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            if text.lines().any(|line| line == "fairlead_cache_leader 1") {
                leaders.push(index);
            }
        }
        match leaders[..] {
            [leader] => Ok(leader),
            _ => Err(format!("leaders: {leaders:?}")),
        }
    })
    .await
}

/// The locations of all copies of exports.
async fn cached(installation: &Installation) -> Vec<String> {
    let client = installation.cached("").unwrap();
    let list: Value = client.get_json(EXPORTS).await.unwrap();
    let mut names: Vec<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            format!("{} {}", item["metadata"]["annotations"]["kcp.io/cluster"], item["metadata"]["name"])
        })
        .collect();
    names.sort_unstable();
    names
}
