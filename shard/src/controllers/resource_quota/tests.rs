#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_apiserver::request::{DryRun, WriteOptions};
use futures_util::future::join_all;

use super::super::testing::{Shard, config_map, namespace, thing};
use super::*;

const MAPS: &str = "configmaps";
const QUOTAS: &str = "resourcequotas";
const LIMIT: &str = "count/configmaps";

fn quota(namespace: &str, name: &str, hard: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard},
    })
}

fn cluster_quota(namespace: &str, name: &str, hard: Value) -> Value {
    let mut quota = quota(namespace, name, hard);
    quota["metadata"]["annotations"]["experimental.quota.kcp.io/cluster-scoped"] = "true".into();
    quota
}

fn used(shard: &Shard, name: &str, limit: &str) -> Value {
    status_of(shard, "default", name)["used"][limit].clone()
}

fn status_of(shard: &Shard, namespace: &str, name: &str) -> Value {
    shard.get("abc", QUOTAS, Some(namespace), name).map_or(Value::Null, |quota| quota["status"].clone())
}

async fn create_map(shard: &Shard, name: &str) -> Result<(), Status> {
    shard.create("abc", MAPS, config_map("default", name)).await
}

async fn set_limit(shard: &Shard, name: &str, amount: &str) {
    shard
        .change("abc", QUOTAS, Some("default"), name, |quota| quota["spec"]["hard"][LIMIT] = amount.into())
        .await;
}

/// Config maps in `default`, without the CA bundle.
fn maps(shard: &Shard) -> usize {
    shard.keys("abc").iter().filter(|key| key.contains("/configmaps/") && key.contains("/default/m")).count()
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_limits_and_use_and_follows_each_change() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard
        .create("abc", QUOTAS, quota("default", "q", json!({LIMIT: "3", "requests.cpu": "1"})))
        .await
        .unwrap();
    shard.until("existing objects are counted", || used(&shard, "q", LIMIT) == "1").await;
    assert_eq!(
        status_of(&shard, "default", "q"),
        json!({"hard": {LIMIT: "3", "requests.cpu": "1"}, "used": {LIMIT: "1"}})
    );
    create_map(&shard, "m1").await.unwrap();
    shard.until("a create is counted", || used(&shard, "q", LIMIT) == "2").await;
    shard.delete("abc", MAPS, Some("default"), "m1").await;
    shard.until("a delete is counted", || used(&shard, "q", LIMIT) == "1").await;
    set_limit(&shard, "q", "5").await;
    shard.until("the limit is taken over", || status_of(&shard, "default", "q")["hard"][LIMIT] == "5").await;
    let settled = shard.objects.store().revision();
    shard.settle().await;
    assert_eq!(shard.objects.store().revision(), settled, "a correct status is not written again");
}

#[tokio::test(start_paused = true)]
async fn a_full_quota_refuses_creates_until_objects_are_deleted() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", QUOTAS, quota("default", "q", json!({LIMIT: "2"}))).await.unwrap();
    // No wait for the status: the limit applies at once.
    create_map(&shard, "m1").await.unwrap();
    let refused = create_map(&shard, "m2").await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "configmaps \"m2\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
             count/configmaps=2, limited: count/configmaps=2"
        )
    );
    shard
        .create(
            "abc",
            "secrets",
            json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}),
        )
        .await
        .unwrap();
    shard.create("abc", MAPS, config_map("kube-system", "m2")).await.unwrap();
    shard.delete("abc", MAPS, Some("default"), "m1").await;
    create_map(&shard, "m2").await.unwrap();
    set_limit(&shard, "q", "3").await;
    create_map(&shard, "m3").await.unwrap();
    set_limit(&shard, "q", "1").await;
    assert_eq!(create_map(&shard, "m4").await.unwrap_err().code, 403);
    shard.delete("abc", QUOTAS, Some("default"), "q").await;
    create_map(&shard, "m4").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn concurrent_creates_never_exceed_a_limit() {
    for hard in [5, 17, 40] {
        let shard = Shard::start().await;
        let limit = hard.to_string();
        shard.workspace("abc").await;
        shard.create("abc", QUOTAS, quota("default", "q", json!({LIMIT: limit}))).await.unwrap();
        let names: Vec<String> =
            (0..32).flat_map(|creator| [format!("m{creator}"), format!("m{creator}x")]).collect();
        let outcomes = join_all(names.iter().map(|name| create_map(&shard, name))).await;
        let created = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        // One is the CA bundle.
        assert_eq!((created, maps(&shard)), (hard - 1, hard - 1));
        shard.until("all are counted", || used(&shard, "q", LIMIT) == limit).await;
        // Creates of one name share nothing: the refused ones give their share back.
        shard
            .delete("abc", MAPS, Some("default"), &names[outcomes.iter().position(Result::is_ok).unwrap()])
            .await;
        let outcomes = join_all((0..32).map(|_| create_map(&shard, "mm"))).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        shard.until("one is counted", || used(&shard, "q", LIMIT) == limit).await;
        assert_eq!(create_map(&shard, "mn").await.unwrap_err().code, 403);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_refused_but_takes_no_share() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", QUOTAS, quota("default", "q", json!({LIMIT: "2"}))).await.unwrap();
    let options = WriteOptions { dry_run: DryRun::All, ..WriteOptions::default() };
    for _ in 0..3 {
        shard.create_with("abc", MAPS, config_map("default", "m"), &options).await.unwrap();
    }
    create_map(&shard, "m").await.unwrap();
    let refused = shard.create_with("abc", MAPS, config_map("default", "n"), &options).await.unwrap_err();
    assert_eq!(refused.code, 403);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_counted_while_their_definition_comes_and_goes() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let limit = "count/things.example.com";
    shard.create("abc", QUOTAS, cluster_quota("default", "q", json!({limit: "2"}))).await.unwrap();
    for _ in 0..2 {
        shard.define("abc", "things", "Cluster").await;
        for name in ["a", "b"] {
            shard.create("abc", "things.example.com", thing(name)).await.unwrap();
        }
        assert_eq!(shard.create("abc", "things.example.com", thing("c")).await.unwrap_err().code, 403);
        shard.until("two are counted", || used(&shard, "q", limit) == "2").await;
        shard
            .delete("abc", "customresourcedefinitions.apiextensions.k8s.io", None, "things.example.com")
            .await;
        shard.until("none is counted", || used(&shard, "q", limit) == "0").await;
        let defined = || {
            shard
                .get("abc", "customresourcedefinitions.apiextensions.k8s.io", None, "things.example.com")
                .is_some()
        };
        shard.until("the definition is gone", || !defined()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_quota_counts_all_namespaces() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.workspace("other").await;
    shard.create("abc", "namespaces", namespace("admin")).await.unwrap();
    let bundle = || shard.get("abc", MAPS, Some("admin"), "kube-root-ca.crt");
    shard.until("its CA bundle exists", || bundle().is_some()).await;
    let hard = json!({LIMIT: "4", "count/namespaces": "3"});
    shard.create("abc", QUOTAS, cluster_quota("admin", "all", hard)).await.unwrap();
    let used = |limit: &str| status_of(&shard, "admin", "all")["used"][limit].clone();
    shard.until("three bundles are counted", || used(LIMIT) == "3").await;
    assert_eq!(used("count/namespaces"), "3");
    assert_eq!(shard.create("abc", "namespaces", namespace("more")).await.unwrap_err().code, 403);
    create_map(&shard, "m1").await.unwrap();
    assert_eq!(create_map(&shard, "m2").await.unwrap_err().code, 403);
    shard.create("other", MAPS, config_map("default", "m2")).await.unwrap();
    // The objects of a deleted namespace give their share back.
    shard.delete("abc", "namespaces", None, "kube-system").await;
    shard.until("two bundles and a map are counted", || used(LIMIT) == "3").await;
    shard.until("two namespaces are counted", || used("count/namespaces") == "2").await;
}

#[tokio::test(start_paused = true)]
async fn the_tightest_of_several_quotas_decides() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", QUOTAS, quota("default", "loose", json!({LIMIT: "100"}))).await.unwrap();
    shard
        .create("abc", QUOTAS, quota("default", "tight", json!({LIMIT: "1", "configmaps": "1"})))
        .await
        .unwrap();
    let refused = create_map(&shard, "m1").await.unwrap_err();
    assert_eq!(
        refused.message,
        "configmaps \"m1\" is forbidden: exceeded quota: tight, requested: configmaps=1,count/configmaps=1, used: \
         configmaps=1,count/configmaps=1, limited: configmaps=1,count/configmaps=1"
    );
    shard.delete("abc", QUOTAS, Some("default"), "tight").await;
    create_map(&shard, "m1").await.unwrap();
    shard.until("the other is counted", || used(&shard, "loose", LIMIT) == "2").await;
}

#[tokio::test(start_paused = true)]
async fn a_logical_cluster_has_a_limit_of_all_objects() {
    let annotate = async |shard: &Shard, cluster: &str, limit: &str| {
        shard
            .change(cluster, "logicalclusters.core.kcp.io", None, "cluster", |object| {
                object["metadata"]["annotations"]["core.kcp.io/max-total-objects"] = limit.into();
            })
            .await;
    };
    for default_limit in [None, Some(20)] {
        let shard = Shard::start_with_limit(default_limit).await;
        shard.workspace("abc").await;
        shard.workspace("other").await;
        if default_limit.is_none() {
            annotate(&shard, "abc", "20").await;
        }
        let events = |keys: Vec<String>| keys.iter().filter(|key| !key.contains("/events/")).count();
        let room = 20 - events(shard.keys("abc"));
        let outcomes = join_all((0..32).map(async |nth| create_map(&shard, &format!("m{nth}")).await)).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), room);
        let refused = create_map(&shard, "more").await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (
                403,
                "configmaps \"more\" is forbidden: logical cluster \"abc\" has reached its total object count limit \
                 (20/20 objects); delete objects to free up capacity"
            )
        );
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"namespace": "default"}});
        shard.create("abc", "events", event).await.unwrap();
        let first = outcomes.iter().position(Result::is_ok).unwrap();
        shard.delete("abc", MAPS, Some("default"), &format!("m{first}")).await;
        create_map(&shard, "more").await.unwrap();
        assert_eq!(create_map(&shard, "again").await.unwrap_err().code, 403);
        annotate(&shard, "abc", "0").await;
        create_map(&shard, "again").await.unwrap();
        shard.create("other", MAPS, config_map("default", "m")).await.unwrap();
    }
}
