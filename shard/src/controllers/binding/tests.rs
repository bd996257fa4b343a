#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_api::ExportReference;

use super::super::testing::{Shard, condition};
use super::*;

const BINDINGS: &str = "apibindings.apis.kcp.io";
const WORKSPACES: &str = "workspaces.tenancy.kcp.io";

#[test]
fn foreign_locks_are_preserved() {
    let text = r#"{"a.x":{"n":"mine"},"b.x":{"c":true,"e":"2026-01-01T00:00:00Z"}}"#;
    assert_eq!(ResourceLocks::parse(text).to_json(), text);
    assert_eq!(ResourceLocks::parse("nonsense"), ResourceLocks::default());
}

#[test]
fn a_bound_binding_that_is_not_deleted_is_settled() {
    for (object, expected) in [
        (json!({"metadata": {}, "status": {"phase": "Bound"}}), true),
        (json!({"metadata": {}, "status": {"phase": "Binding"}}), false),
        (json!({"metadata": {}}), false),
        (json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Bound"}}), false),
    ] {
        assert_eq!(is_settled(object.to_string().as_bytes()), expected, "{object}");
    }
}

#[tokio::test(start_paused = true)]
async fn resources_are_bound_only_where_they_are_free() {
    let shard = Shard::start().await;
    let mine = binding("mine");
    let other = binding("other");
    let none: &[&Value] = &[];
    let one: &[&Value] = &[&other];
    let lock = |holder: &str| format!(r#"{{"workspaces.tenancy.kcp.io":{{"n":"{holder}"}}}}"#);
    for (locks, others, crds, conflict) in [
        ("{}".to_owned(), none, None, None),
        (lock("mine"), one, None, None),
        (lock("vanished"), one, None, None),
        (r#"{"workspaces.tenancy.kcp.io":{"c":true}}"#.to_owned(), none, None, None),
        (lock("other"), one, None, Some("map[workspaces.tenancy.kcp.io:{other false}]")),
        (
            "{}".to_owned(),
            none,
            Some("workspaces.tenancy.kcp.io"),
            Some("map[workspaces.tenancy.kcp.io:{ true}]"),
        ),
    ] {
        let context = BindingContext {
            exports: &shard.exports,
            locks: ResourceLocks::parse(&locks),
            others,
            crds: crds.into_iter().map(str::to_owned).collect(),
        };
        let plan = bind(&mine, &context, Timestamp::UNIX_EPOCH);
        let bound = plan.binding.unwrap();
        match conflict {
            None => {
                assert_eq!(bound["status"]["phase"], "Bound", "{locks}");
                assert_eq!(plan.locks.0["workspaces.tenancy.kcp.io"].binding.as_deref(), Some("mine"));
            }
            Some(conflict) => {
                assert_eq!(bound["status"]["phase"], "Binding", "{locks}");
                assert!(bound["status"].get("boundResources").is_none());
                assert_eq!(plan.locks, context.locks);
                for kind in [condition_type::READY, condition_type::BINDING_UP_TO_DATE] {
                    let (holds, reason, message) = condition(&bound, kind).unwrap();
                    assert_eq!((holds, &*reason), (false, "NamingConflicts"));
                    assert_eq!(
                        message,
                        format!(
                            "Unable to bind APIs because they are bound by other APIBindings or CRDs: {conflict}"
                        )
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bound_binding_stays_bound_when_its_resources_conflict() {
    let shard = Shard::start().await;
    let context = |locks: &str| BindingContext {
        exports: &shard.exports,
        locks: ResourceLocks::parse(locks),
        others: &[],
        crds: BTreeSet::new(),
    };
    let mut mine = binding("mine");
    mine["metadata"]["finalizers"] = json!(["example.com/f"]);
    let first = bind(&mine, &context("{}"), Timestamp::UNIX_EPOCH);
    let bound = first.binding.unwrap();
    assert_eq!(bound["metadata"]["finalizers"], json!(["example.com/f", finalizer::API_BINDING]));
    let again = bind(&bound, &context(&first.locks.to_json()), Timestamp::from_second(9).unwrap());
    assert_eq!(again.binding.as_ref(), Some(&bound));
    let mut conflicts = context("{}");
    conflicts.crds.insert("workspaces.tenancy.kcp.io".to_owned());
    let conflict = bind(&bound, &conflicts, Timestamp::UNIX_EPOCH).binding.unwrap();
    assert_eq!(conflict["status"]["phase"], "Bound");
    assert_eq!(conflict["status"]["boundResources"], bound["status"]["boundResources"]);
    assert!(condition(&conflict, condition_type::INITIAL_BINDING_COMPLETED).unwrap().0);
    assert!(!condition(&conflict, condition_type::BINDING_UP_TO_DATE).unwrap().0);
}

#[tokio::test(start_paused = true)]
async fn an_export_outside_root_is_not_found() {
    let shard = Shard::start().await;
    let mut object = binding("mine");
    object["spec"]["reference"]["export"]["name"] = "strange".into();
    let context = BindingContext {
        exports: &shard.exports,
        locks: ResourceLocks::default(),
        others: &[],
        crds: BTreeSet::new(),
    };
    let plan = bind(&object, &context, Timestamp::UNIX_EPOCH);
    let (holds, reason, message) =
        condition(&plan.binding.unwrap(), condition_type::API_EXPORT_VALID).unwrap();
    assert_eq!(
        (holds, &*reason, &*message),
        (false, "APIExportNotFound", "APIExport root|strange not found")
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_binding_waits_for_the_removal_of_the_first() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let first = default_binding_name(&shard);
    shard.create("abc", BINDINGS, binding("second")).await.unwrap();
    let second = || shard.get("abc", BINDINGS, None, "second").unwrap();
    let conflicts = || {
        condition(&second(), condition_type::BINDING_UP_TO_DATE).is_some_and(|one| one.1 == "NamingConflicts")
    };
    shard.until("it conflicts", conflicts).await;
    shard.create("abc", WORKSPACES, workspace("kept", json!([]))).await.unwrap();
    shard.delete("abc", BINDINGS, None, &first).await;
    shard.until("it is bound", || second()["status"]["phase"] == "Bound").await;
    assert_eq!(shard.get("abc", BINDINGS, None, &first), None);
    let locks = ResourceLocks::of(&shard.logical_cluster("abc").unwrap());
    assert_eq!(locks.0["workspaces.tenancy.kcp.io"].binding.as_deref(), Some("second"));
    let catalog = shard.get("abc", WORKSPACES, None, "kept");
    assert!(catalog.is_some(), "objects of an export that another binding refers to are kept");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_binding_removes_its_objects_and_locks() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.workspace("other").await;
    let first = default_binding_name(&shard);
    for cluster in ["abc", "other"] {
        shard.create(cluster, WORKSPACES, workspace("free", json!([]))).await.unwrap();
    }
    shard.create("abc", WORKSPACES, workspace("held", json!([finalizer::WORKSPACE]))).await.unwrap();
    shard.delete("abc", BINDINGS, None, &first).await;
    shard.settle().await;
    let left = shard.get("abc", BINDINGS, None, &first).unwrap();
    let (holds, reason, message) = condition(&left, condition_type::BINDING_RESOURCE_DELETE_SUCCESS).unwrap();
    assert_eq!((holds, &*reason), (false, "SomeFinalizersRemain"));
    assert!(message.ends_with("core.kcp.io/logicalcluster in 1 resource instances"), "{message}");
    assert!(shard.get("abc", WORKSPACES, None, "held").unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(shard.get("abc", WORKSPACES, None, "free"), None);
    shard
        .change("abc", WORKSPACES, None, "held", |object| object["metadata"]["finalizers"] = json!([]))
        .await;
    shard.until("it is removed", || shard.get("abc", BINDINGS, None, &first).is_none()).await;
    assert!(shard.keys("abc").iter().all(|key| !key.contains("/workspaces/")));
    assert!(shard.get("other", WORKSPACES, None, "free").is_some());
    let locks = ResourceLocks::of(&shard.logical_cluster("abc").unwrap());
    assert!(!locks.0.is_empty() && locks.0.values().all(|lock| lock.binding.as_deref() != Some(&first)));
}

fn binding(name: &str) -> Value {
    let reference = ExportReference { path: "root".to_owned(), name: "tenancy.kcp.io".to_owned() };
    fairlead_api::api_binding(name, &reference, "root", "root:w", &[])
}

fn workspace(name: &str, finalizers: Value) -> Value {
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"type": {"name": "universal", "path": "root"}},
    })
}

/// The default binding to `tenancy.kcp.io`.
fn default_binding_name(shard: &Shard) -> String {
    let locks = ResourceLocks::of(&shard.logical_cluster("abc").unwrap());
    locks.0["workspaces.tenancy.kcp.io"].binding.clone().unwrap()
}
