#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::testing::{SERVING_CA, Shard, condition, config_map, namespace};
use super::*;

#[test]
fn a_terminating_namespace_is_removed_with_its_last_finalizer() {
    let empty = Sweep::default();
    for (spec, metadata, expected) in [
        (json!(["kubernetes"]), json!(null), None),
        (json!(["kubernetes"]), json!([]), None),
        (json!(["kubernetes", "a/b"]), json!([]), Some(json!(["a/b"]))),
        (json!(["kubernetes"]), json!(["a/b"]), Some(Value::Null)),
    ] {
        let old = json!({"metadata": {"finalizers": metadata}, "spec": {"finalizers": spec}});
        let plan = plan(&old, &empty, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(plan.namespace.map(|new| new["spec"]["finalizers"].clone()), expected, "{old}");
        assert_eq!(plan.next, ReconcileOutcome::Done);
    }
}

#[test]
fn conditions_keep_their_time_while_nothing_changes() {
    let mut namespace = json!({"status": {}});
    set_conditions(&mut namespace, &Sweep::default(), &[], Timestamp::UNIX_EPOCH);
    let before = namespace.clone();
    set_conditions(&mut namespace, &Sweep::default(), &[], Timestamp::from_second(100).unwrap());
    assert_eq!(namespace, before);
    let kinds: Vec<&str> = namespace["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "NamespaceDeletionDiscoveryFailure",
            "NamespaceDeletionGroupVersionParsingFailure",
            "NamespaceDeletionContentFailure",
            "NamespaceContentRemaining",
            "NamespaceFinalizersRemaining",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn default_objects_of_a_namespace_are_restored() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", "namespaces", namespace("more")).await.unwrap();
    let bundle = || shard.get("abc", "configmaps", Some("more"), "kube-root-ca.crt");
    let account = || shard.get("abc", "serviceaccounts", Some("more"), "default");
    shard.until("its default objects exist", || bundle().is_some() && account().is_some()).await;
    shard.delete("abc", "serviceaccounts", Some("more"), "default").await;
    shard.until("the account is created again", || account().is_some()).await;
    shard.delete("abc", "configmaps", Some("more"), "kube-root-ca.crt").await;
    shard.until("the bundle is created again", || bundle().is_some()).await;
    shard
        .change("abc", "configmaps", Some("more"), "kube-root-ca.crt", |object| {
            object["data"] = json!({"x": "y"})
        })
        .await;
    shard
        .until("the bundle is restored", || bundle().unwrap()["data"] == json!({"ca.crt": SERVING_CA}))
        .await;
    let settled = shard.objects.store().revision();
    shard.settle().await;
    assert_eq!(shard.objects.store().revision(), settled, "correct objects are not written again");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_namespace_deletes_its_objects() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.define("abc", "objects", "Namespaced").await;
    for name in ["more", "more2", "mor"] {
        shard.create("abc", "namespaces", namespace(name)).await.unwrap();
        shard.create("abc", "configmaps", config_map(name, "a")).await.unwrap();
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": name}});
        shard.create("abc", "objects.example.com", object).await.unwrap();
    }
    shard.settle().await;
    let others = in_namespaces(&shard, &["more2", "mor", "default"]);
    shard.delete("abc", "namespaces", None, "more").await;
    shard.until("it is removed", || shard.get("abc", "namespaces", None, "more").is_none()).await;
    assert_eq!(in_namespaces(&shard, &["more"]), Vec::<String>::new());
    shard.settle().await;
    assert_eq!(in_namespaces(&shard, &["more"]), Vec::<String>::new(), "no object is created again");
    assert_eq!(in_namespaces(&shard, &["more2", "mor", "default"]), others);
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_objects_in_a_namespace_are_awaited_and_reported() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", "namespaces", namespace("more")).await.unwrap();
    let mut held = config_map("more", "held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    shard.create("abc", "configmaps", held).await.unwrap();
    shard.delete("abc", "namespaces", None, "more").await;
    shard.settle().await;
    let left = shard.get("abc", "namespaces", None, "more").unwrap();
    let reported = |kind: &str| condition(&left, kind).unwrap();
    assert_eq!(
        reported("NamespaceContentRemaining"),
        (
            true,
            "SomeResourcesRemain".into(),
            "Some resources are remaining: configmaps. has 1 resource instances".into()
        )
    );
    assert_eq!(
        reported("NamespaceFinalizersRemaining"),
        (
            true,
            "SomeFinalizersRemain".into(),
            "Some content in the namespace has finalizers remaining: example.com/f in 1 resource instances"
                .into()
        )
    );
    assert!(!reported("NamespaceDeletionContentFailure").0);
    assert_eq!(in_namespaces(&shard, &["more"]).len(), 1, "objects without finalizers are removed");
    shard
        .change("abc", "configmaps", Some("more"), "held", |object| {
            object["metadata"]["finalizers"] = json!([])
        })
        .await;
    shard.until("it is removed", || shard.get("abc", "namespaces", None, "more").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn objects_created_during_the_deletion_of_a_namespace_are_removed() {
    let shard = Arc::new(Shard::start().await);
    shard.workspace("abc").await;
    shard.create("abc", "namespaces", namespace("more")).await.unwrap();
    let created = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (shard, created) = (shard.clone(), created.clone());
            tokio::spawn(async move {
                for nth in 0..2000 {
                    let object = config_map("more", &format!("{writer}-{nth}"));
                    match shard.create("abc", "configmaps", object).await {
                        Ok(()) => created.fetch_add(1, Ordering::Relaxed),
                        Err(status) => return assert!(matches!(status.code, 403 | 404), "{status}"),
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
    shard.delete("abc", "namespaces", None, "more").await;
    for writer in writers {
        writer.await.unwrap();
    }
    shard.until("it is removed", || shard.get("abc", "namespaces", None, "more").is_none()).await;
    assert_eq!(in_namespaces(&shard, &["more"]), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_prevents_the_removal_of_a_namespace() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", "namespaces", namespace("more")).await.unwrap();
    shard.create("abc", "configmaps", config_map("more", "a")).await.unwrap();
    // The sweep is based on a state that another writer has changed since: the whole commit is refused.
    shard.settle().await;
    let scope = Scope::new("abc");
    let stored = shard.objects.get(&NAMESPACES, &BUILT_IN, &scope, None, "more").unwrap().unwrap();
    let old = shard.objects.tree(&stored).unwrap();
    let mut sweep = Sweep::default();
    visit_all(&shard.objects, (&shard.definitions, &shard.hub), "abc", Some("more"), &mut |found| {
        sweep.add(&shard.objects, found)
    })
    .await
    .unwrap();
    shard.change("abc", "configmaps", Some("more"), "a", |object| object["data"] = json!({"x": "y"})).await;
    let mut writes = Writes::new(&shard.objects, &shard.definitions);
    writes.extend(sweep.into_mutations());
    let resource = writes.resource_of(&old).unwrap();
    writes.remove(&resource, &stored, &old);
    assert!(commit(writes).await.unwrap().is_none());
    assert!(shard.get("abc", "namespaces", None, "more").is_some());
    assert!(shard.get("abc", "configmaps", Some("more"), "kube-root-ca.crt").is_some());
}

fn in_namespaces(shard: &Shard, names: &[&str]) -> Vec<String> {
    let mut keys = shard.keys("abc");
    keys.retain(|key| names.iter().any(|name| key.contains(&format!("/abc/{name}/"))));
    keys
}
