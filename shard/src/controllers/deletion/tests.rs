#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlead_apiserver::hub::SubscriptionEnd;
use fairlead_store::Mutation;
use serde_json::json;

use super::super::testing::{Shard, condition, config_map, namespace, thing};
use super::*;

const DELETED: &str = condition_type::WORKSPACE_CONTENT_DELETED;

fn logical_cluster(finalizers: &[&str], terminators: &[&str], content_deleted: Option<bool>) -> Value {
    let mut object = json!({
        "metadata": {"name": "cluster", "finalizers": finalizers, "deletionTimestamp": "1970-01-01T00:00:00Z"},
        "status": {"phase": "Ready", "terminators": terminators},
    });
    if let Some(holds) = content_deleted {
        object["status"]["conditions"] = json!([{"type": DELETED, "status": if holds { "True" } else { "False" }, "lastTransitionTime": ""}]);
    }
    object
}

#[test]
fn a_logical_cluster_is_sealed_before_it_is_removed() {
    let ours = finalizer::LOGICAL_CLUSTER;
    let terminating = finalizer::HAS_TERMINATORS;
    let empty = Sweep::default();
    for (finalizers, terminators, content_deleted, expected) in [
        // No condition yet: the logical cluster is sealed first.
        (
            &[ours][..],
            &[][..],
            None,
            Some((&[ours][..], "Deleting", ReconcileOutcome::RequeueAfter(Duration::ZERO))),
        ),
        (
            &[ours],
            &[],
            Some(false),
            Some((&[ours], "Deleting", ReconcileOutcome::RequeueAfter(Duration::ZERO))),
        ),
        // Sealed: it is removed, unless other finalizers keep it.
        (&[ours], &[], Some(true), None),
        (&[ours, "a/b"], &[], Some(true), Some((&["a/b"], "Deleting", ReconcileOutcome::Done))),
        (&["a/b"], &[], Some(true), Some((&["a/b"], "Deleting", ReconcileOutcome::Done))),
        // Terminators are awaited. Their finalizer is removed when they are done.
        (&[ours], &["t"], Some(true), Some((&[ours, terminating], "Terminating", ReconcileOutcome::Done))),
        (
            &[ours, terminating],
            &[],
            None,
            Some((&[ours], "Deleting", ReconcileOutcome::RequeueAfter(Duration::ZERO))),
        ),
        (&[ours, terminating], &[], Some(true), None),
    ] {
        let old = logical_cluster(finalizers, terminators, content_deleted);
        let plan = plan(&old, &empty, Timestamp::UNIX_EPOCH);
        let found = plan.logical_cluster.as_ref().map(|new| {
            assert!(condition(new, DELETED).unwrap().0, "{new}");
            let labels = &new["metadata"]["labels"][fairlead_api::label::PHASE];
            assert_eq!(labels, &new["status"]["phase"], "the label follows the phase");
            (new["metadata"]["finalizers"].clone(), new["status"]["phase"].clone(), plan.next)
        });
        let expected = expected.map(|(finalizers, phase, next)| (json!(finalizers), json!(phase), next));
        assert_eq!(found, expected, "{finalizers:?} {terminators:?} {content_deleted:?}");
    }
}

#[test]
fn each_kind_of_object_has_its_tier() {
    let bound = Origin::Identity("hash".into());
    for (group, resource, origin, namespace, expected) in [
        ("", "configmaps", Origin::BuiltIn, Some("default"), Tier::Content),
        ("rbac.authorization.k8s.io", "rolebindings", Origin::BuiltIn, Some("default"), Tier::Content),
        ("apis.kcp.io", "apiexports", Origin::Custom, None, Tier::Content),
        ("example.com", "things", Origin::Custom, None, Tier::Content),
        ("example.com", "things", bound.clone(), Some("default"), Tier::Content),
        ("", "namespaces", Origin::BuiltIn, None, Tier::Holders),
        ("apiextensions.k8s.io", "customresourcedefinitions", Origin::BuiltIn, None, Tier::Holders),
        ("tenancy.kcp.io", "workspaces", bound, None, Tier::Bound),
        ("apis.kcp.io", "apibindings", Origin::Custom, None, Tier::Bindings),
        ("rbac.authorization.k8s.io", "clusterroles", Origin::BuiltIn, None, Tier::Roles),
    ] {
        assert_eq!(
            tier_of(group, resource, &origin, namespace),
            expected,
            "{resource}.{group} in {namespace:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_logical_cluster_leaves_no_keys() {
    let shard = Shard::start().await;
    for cluster in ["abc", "abcd", "ab"] {
        shard.workspace(cluster).await;
        shard.define(cluster, "things", "Cluster").await;
        shard.define(cluster, "objects", "Namespaced").await;
        shard.create(cluster, "namespaces", namespace("more")).await.unwrap();
        shard.create(cluster, "configmaps", config_map("more", "a")).await.unwrap();
        shard.create(cluster, "things.example.com", thing("a")).await.unwrap();
        let mut object = thing("a");
        object["metadata"]["namespace"] = "more".into();
        shard.create(cluster, "objects.example.com", object).await.unwrap();
    }
    shard.settle().await;
    let neighbours = [shard.keys("abcd"), shard.keys("ab")];
    shard.delete_cluster("abc").await;
    shard.until("all keys are removed", || shard.keys("abc").is_empty()).await;
    shard.settle().await;
    assert_eq!(shard.keys("abc"), Vec::<String>::new());
    assert_eq!([shard.keys("abcd"), shard.keys("ab")], neighbours);
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_workspace_is_removed_in_few_commits() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.settle().await;
    let before = shard.objects.store().revision();
    shard.delete_cluster("abc").await;
    shard.until("it is removed", || shard.keys("abc").is_empty()).await;
    assert_eq!(
        shard.objects.store().revision().0,
        before.0 + 4,
        "the mark, the content in two because of two namespaces, the latter with the seal, and the removal"
    );
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_respected_and_reported() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let mut held = config_map("default", "held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    shard.create("abc", "configmaps", held).await.unwrap();
    shard.create("abc", "configmaps", config_map("default", "free")).await.unwrap();
    shard.delete_cluster("abc").await;
    let reported = || condition(&shard.logical_cluster("abc").unwrap(), DELETED);
    let message = "Some resources are remaining: configmaps. has 1 resource instances, namespaces. has 2 resource \
                   instances; Some content in the logical cluster has finalizers remaining: example.com/f in 1 \
                   resource instances";
    shard.until("the condition is set", || reported().is_some()).await;
    shard.settle().await;
    assert_eq!(reported().unwrap(), (false, "SomeResourcesRemain".to_owned(), message.to_owned()));
    assert_eq!(shard.get("abc", "configmaps", Some("default"), "free"), None);
    let held = shard.get("abc", "configmaps", Some("default"), "held").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(shard.get("abc", "namespaces", None, "default").unwrap()["status"]["phase"], "Terminating");
    let administrator =
        shard.get("abc", "clusterrolebindings.rbac.authorization.k8s.io", None, "workspace-admin");
    assert!(administrator.is_some(), "the role is needed to remove the finalizer");
    shard
        .change("abc", "configmaps", Some("default"), "held", |object| {
            object["metadata"]["finalizers"] = json!([])
        })
        .await;
    shard.until("it is removed", || shard.keys("abc").is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn child_workspaces_are_marked_and_waited_for() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let child = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": "child", "finalizers": [finalizer::WORKSPACE]},
        "spec": {"type": {"name": "universal", "path": "root"}},
    });
    shard.create("abc", "workspaces.tenancy.kcp.io", child).await.unwrap();
    shard.delete_cluster("abc").await;
    let child = || shard.get("abc", "workspaces.tenancy.kcp.io", None, "child");
    shard.until("it is marked", || child().unwrap()["metadata"]["deletionTimestamp"].is_string()).await;
    shard.settle().await;
    assert!(child().is_some(), "the controller of workspaces removes it");
    assert_eq!(shard.get("abc", "namespaces", None, "default"), None);
    shard
        .change("abc", "workspaces.tenancy.kcp.io", None, "child", |object| {
            object["metadata"]["finalizers"] = json!([]);
        })
        .await;
    shard.until("it is removed", || shard.keys("abc").is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn other_finalizers_keep_the_logical_cluster_but_not_its_content() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let finalizers = |all: Value| move |object: &mut Value| object["metadata"]["finalizers"] = all.clone();
    let both = json!([finalizer::LOGICAL_CLUSTER, "example.com/f"]);
    shard.change("abc", "logicalclusters.core.kcp.io", None, "cluster", finalizers(both)).await;
    shard.delete_cluster("abc").await;
    let rest = || shard.logical_cluster("abc").unwrap()["metadata"]["finalizers"].clone();
    shard.until("only the other finalizer is left", || rest() == json!(["example.com/f"])).await;
    shard.settle().await;
    assert_eq!(shard.keys("abc").len(), 1);
    let refused = shard.create("abc", "namespaces", namespace("late")).await.unwrap_err();
    assert_eq!(refused.code, 403);
    shard.change("abc", "logicalclusters.core.kcp.io", None, "cluster", finalizers(json!([]))).await;
    shard.settle().await;
    assert_eq!(shard.keys("abc"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn terminators_may_make_objects_until_they_are_done() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard
        .change("abc", "logicalclusters.core.kcp.io", None, "cluster", |object| {
            object["metadata"]["finalizers"] =
                json!([finalizer::LOGICAL_CLUSTER, finalizer::HAS_TERMINATORS]);
        })
        .await;
    set_terminators(&shard, &["root:t"]).await;
    shard.delete_cluster("abc").await;
    shard.until("its content is removed", || shard.keys("abc").len() == 1).await;
    shard.settle().await;
    assert_eq!(shard.logical_cluster("abc").unwrap()["status"]["phase"], "Terminating");
    shard.create("abc", "namespaces", namespace("late")).await.unwrap();
    set_terminators(&shard, &[]).await;
    shard.until("it is removed", || shard.keys("abc").is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn objects_created_during_the_deletion_are_removed() {
    let shard = Arc::new(Shard::start().await);
    shard.workspace("abc").await;
    shard.define("abc", "things", "Cluster").await;
    let created = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (shard, created) = (shard.clone(), created.clone());
            tokio::spawn(async move {
                for nth in 0..2000 {
                    let name = format!("{writer}-{nth}");
                    let outcome = match nth % 4 {
                        0 => shard.create("abc", "namespaces", namespace(&name)).await,
                        1 => shard.create("abc", "configmaps", config_map("default", &name)).await,
                        2 => shard.create("abc", "things.example.com", thing(&name)).await,
                        _ => {
                            shard
                                .create(
                                    "abc",
                                    "configmaps",
                                    config_map(&format!("{writer}-{}", nth - 3), &name),
                                )
                                .await
                        }
                    };
                    match outcome {
                        Ok(()) => created.fetch_add(1, Ordering::Relaxed),
                        Err(status) if status.message.contains("logical cluster") => return,
                        Err(_) => 0,
                    };
                    // The clock is paused and the hub delivers late by it, so a writer without pauses would stop the
                    // hub.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                panic!("creates are never refused");
            })
        })
        .collect();
    shard.until("some objects exist", || created.load(Ordering::Relaxed) > 40).await;
    shard.delete_cluster("abc").await;
    for writer in writers {
        writer.await.unwrap();
    }
    shard.settle().await;
    assert_eq!(shard.keys("abc"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn watches_end_after_the_last_event_and_other_watches_continue() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.workspace("other").await;
    let watch = shard.watch("abc", "namespaces");
    let other = shard.watch("other", "namespaces");
    shard.delete_cluster("abc").await;
    let mut deletions = 0;
    let end = loop {
        match watch.next().await {
            Ok(fairlead_apiserver::hub::Delivery::Event(event)) => {
                deletions += usize::from(event.is_deletion())
            }
            Ok(_) => {}
            Err(end) => break end,
        }
    };
    assert_eq!((deletions, end), (2, SubscriptionEnd::Cancelled));
    shard.create("other", "namespaces", namespace("more")).await.unwrap();
    assert!(other.next().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn content_without_a_logical_cluster_is_removed() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.settle().await;
    let key = shard.objects.key(&LOGICAL_CLUSTERS, &CUSTOM, "abc", None, LOGICAL_CLUSTER_NAME);
    shard.objects.store().commit(vec![Mutation::delete(key, Expect::Present)]).await.unwrap();
    shard.until("its content is removed", || shard.keys("abc").is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_large_deletion_is_a_commit_for_each_object_of_a_resource() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    for batch in 0..10 {
        let mut writes = Writes::new(&shard.objects, &shard.definitions);
        for nth in 0..100 {
            writes.create("abc", config_map("default", &format!("{batch}-{nth}"))).unwrap();
        }
        writes.commit().await.unwrap();
    }
    shard.settle().await;
    let before = shard.objects.store().revision();
    let mut commits = shard.objects.store().follow(before).unwrap();
    shard.delete_cluster("abc").await;
    shard.until("it is removed", || shard.keys("abc").is_empty()).await;
    let (mut passes, mut maps) = (0, 0);
    while commits.position() < shard.objects.store().revision() {
        let batch = commits.next().await.unwrap();
        let count = |resource: &str| {
            let keys = batch.events.iter().map(|event| String::from_utf8_lossy(&event.key));
            keys.filter(|key| key.contains(resource)).count()
        };
        assert!(count("/configmaps/") <= 1, "{} events in one commit", batch.events.len());
        maps += count("/configmaps/");
        passes += count("/logicalclusters/");
    }
    assert!(maps >= 1000, "{maps} objects");
    assert!(passes < 12, "{passes} changes of the LogicalCluster");
}

async fn set_terminators(shard: &Shard, terminators: &[&str]) {
    let scope = Scope::new("abc");
    let stored =
        shard.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME).unwrap().unwrap();
    let mut object = shard.objects.tree(&stored).unwrap();
    object["status"]["terminators"] = json!(terminators);
    let mut writes = Writes::new(&shard.objects, &shard.definitions);
    let resource = writes.resource_of(&object).unwrap();
    writes.replace(&resource, &stored, object).unwrap();
    writes.commit().await.unwrap();
}
