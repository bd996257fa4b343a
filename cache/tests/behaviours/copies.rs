use fairlead_client::{DeleteOptions, PatchType, Preconditions, WriteOptions};
use serde_json::{Value, json};

use crate::support::{Cache, code, collection, names, typed};

const EXPORTS: &str = "apis.kcp.io/v1alpha2/apiexports";
const ROLES: &str = "rbac.authorization.k8s.io/v1/clusterroles";

fn copy(name: &str) -> Value {
    copy_of(EXPORTS, name)
}

fn copy_of(resource: &str, name: &str) -> Value {
    let object = json!({
        "metadata": {
            "name": name,
            "uid": "11111111-1111-1111-1111-111111111111",
            "generation": 7,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["apis.kcp.io/held"],
            "labels": {"color": "red"},
            "annotations": {"kcp.io/shard": "s1", "cache.kcp.io/original-resource-version": "42"},
        },
        "spec": {"anything": {"goes": [1, null]}},
        "status": {"phase": "Ready"},
    });
    typed(resource, object)
}

#[tokio::test]
async fn a_copy_keeps_the_metadata_of_its_original() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    let created: Value = master.create(&collection_path, &copy("a"), &WriteOptions::default()).await.unwrap();
    let given = copy("a");
    for field in ["uid", "generation", "creationTimestamp", "finalizers", "labels"] {
        assert_eq!(created["metadata"][field], given["metadata"][field], "{field}");
    }
    assert_eq!((&created["spec"], &created["status"]), (&given["spec"], &given["status"]));
    assert_eq!(
        created["metadata"]["annotations"],
        json!({"kcp.io/shard": "s1", "kcp.io/cluster": "root", "cache.kcp.io/original-resource-version": "42"})
    );
    assert_eq!(
        (&created["kind"], &created["apiVersion"]),
        (&json!("APIExport"), &json!("apis.kcp.io/v1alpha2"))
    );
}

#[tokio::test]
async fn an_object_without_origin_annotation_gets_new_metadata() {
    let cache = Cache::start().await;
    let mut object = copy("a");
    object["metadata"]["annotations"].as_object_mut().unwrap().remove("kcp.io/shard");
    let created: Value = cache
        .master()
        .create(&collection("s1", "root", EXPORTS), &object, &WriteOptions::default())
        .await
        .unwrap();
    assert_ne!(created["metadata"]["uid"], object["metadata"]["uid"]);
    assert_eq!(created["metadata"]["generation"], 1);
    assert_ne!(created["metadata"]["creationTimestamp"], object["metadata"]["creationTimestamp"]);
    assert_eq!(created["metadata"]["annotations"]["kcp.io/shard"], "s1", "the shard of the path");
}

#[tokio::test]
async fn the_path_overrides_the_origin_annotations() {
    let cache = Cache::start().await;
    let master = cache.master();
    let mut object = copy("a");
    object["metadata"]["annotations"]["kcp.io/shard"] = "other".into();
    object["metadata"]["annotations"]["kcp.io/cluster"] = "elsewhere".into();
    let created: Value =
        master.create(&collection("s1", "root", EXPORTS), &object, &WriteOptions::default()).await.unwrap();
    assert_eq!(created["metadata"]["annotations"]["kcp.io/shard"], "s1");
    assert_eq!(created["metadata"]["annotations"]["kcp.io/cluster"], "root");
    let other: Value = master.get_json(&collection("other", "*", EXPORTS)).await.unwrap();
    assert!(names(&other).is_empty());
}

#[tokio::test]
async fn an_update_replaces_everything_but_the_uid() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    let mut object: Value =
        master.create(&collection_path, &copy("a"), &WriteOptions::default()).await.unwrap();
    let path = format!("{collection_path}/a");
    object["metadata"]["generation"] = 9.into();
    object["spec"] = json!({"new": true});
    object["status"] = json!({"phase": "Gone"});
    let changed: Value = master.replace(&path, &object, &WriteOptions::default()).await.unwrap();
    assert_eq!(changed["metadata"]["generation"], 9, "set by the writer");
    assert_eq!((&changed["spec"], &changed["status"]), (&object["spec"], &object["status"]));

    // The cache does not increment the generation.
    let mut next = changed.clone();
    next["spec"] = json!({"new": false});
    let next: Value = master.replace(&path, &next, &WriteOptions::default()).await.unwrap();
    assert_eq!(next["metadata"]["generation"], 9);

    // An update with an old resourceVersion is refused, and so is one without.
    assert_eq!(code(master.replace::<Value>(&path, &changed, &WriteOptions::default()).await), 409);
    let mut unversioned = next.clone();
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(code(master.replace::<Value>(&path, &unversioned, &WriteOptions::default()).await), 422);
    let mut with_other_uid = next.clone();
    with_other_uid["metadata"]["uid"] = "22222222-2222-2222-2222-222222222222".into();
    assert_eq!(code(master.replace::<Value>(&path, &with_other_uid, &WriteOptions::default()).await), 409);

    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let patched: Value =
        master.patch(&path, PatchType::Merge, &patch, &WriteOptions::default()).await.unwrap();
    assert_eq!(patched["metadata"]["labels"], json!({"a": "b", "color": "red"}));
    assert_eq!(patched["metadata"]["generation"], 9);
}

#[tokio::test]
async fn a_copy_has_the_owners_of_its_original() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    let owners = |manager: &str| {
        json!([{
            "manager": manager, "operation": "Update", "apiVersion": "apis.kcp.io/v1alpha2",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:anything": {}}},
        }])
    };
    let mut object = copy("a");
    object["metadata"]["managedFields"] = owners("one");
    let options = WriteOptions::default();
    let mut created: Value = master.create(&collection_path, &object, &options).await.unwrap();
    assert_eq!(created["metadata"]["managedFields"], owners("one"));
    created["metadata"]["managedFields"] = owners("two");
    let path = format!("{collection_path}/a");
    let mut changed: Value = master.replace(&path, &created, &options).await.unwrap();
    assert_eq!(changed["metadata"]["managedFields"], owners("two"));
    changed["metadata"].as_object_mut().unwrap().remove("managedFields");
    changed["spec"] = json!({});
    let kept: Value = master.replace(&path, &changed, &options).await.unwrap();
    assert_eq!(kept["metadata"]["managedFields"], owners("two"));
}

#[tokio::test]
async fn an_unchanged_update_writes_nothing() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    let object: Value = master.create(&collection_path, &copy("a"), &WriteOptions::default()).await.unwrap();
    let before = cache.store.revision();
    let next: Value =
        master.replace(&format!("{collection_path}/a"), &object, &WriteOptions::default()).await.unwrap();
    assert_eq!(next, object);
    assert_eq!(cache.store.revision(), before);
}

#[tokio::test]
async fn deletion_does_not_wait_for_finalizers() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    let path = format!("{collection_path}/a");
    master.create::<Value>(&collection_path, &copy("a"), &WriteOptions::default()).await.unwrap();
    let of_another = DeleteOptions {
        preconditions: Some(Preconditions { uid: Some("other".into()), resource_version: None }),
        ..DeleteOptions::default()
    };
    assert_eq!(code(master.delete(&path, &of_another).await), 409);
    master.delete(&path, &DeleteOptions::default()).await.unwrap();
    assert_eq!(code(master.get(&path).await), 404);
    assert_eq!(code(master.delete(&path, &DeleteOptions::default()).await), 404);
    for name in ["b", "c"] {
        master.create::<Value>(&collection_path, &copy(name), &WriteOptions::default()).await.unwrap();
    }
    master.delete(&collection_path, &DeleteOptions::default()).await.unwrap();
    assert!(names(&master.get_json(&collection_path).await.unwrap()).is_empty());
}

/// Copies of objects that are being deleted are removed by their writer, not by the cache.
#[tokio::test]
async fn a_copy_that_is_marked_for_deletion_stays_until_it_is_deleted() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    let mut object = copy("a");
    object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    let mut created: Value =
        master.create(&collection_path, &object, &WriteOptions::default()).await.unwrap();
    assert_eq!(created["metadata"]["deletionTimestamp"], "2026-01-02T00:00:00Z");
    created["metadata"].as_object_mut().unwrap().remove("finalizers");
    master
        .replace::<Value>(&format!("{collection_path}/a"), &created, &WriteOptions::default())
        .await
        .unwrap();
    assert_eq!(names(&master.get_json(&collection_path).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn names_are_not_validated_again() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", ROLES);
    let name = "system:kcp:Authenticated:access";
    master.create::<Value>(&collection_path, &copy_of(ROLES, name), &WriteOptions::default()).await.unwrap();
    let path = format!("{collection_path}/system%3Akcp%3AAuthenticated%3Aaccess");
    let found: Value = master.get_json(&path).await.unwrap();
    assert_eq!(found["metadata"]["name"], name);
    for name in ["a/b", "..", ""] {
        let created =
            master.create::<Value>(&collection_path, &copy_of(ROLES, name), &WriteOptions::default()).await;
        assert_eq!(code(created), 422, "{name:?}");
    }
}

#[tokio::test]
async fn malformed_metadata_is_refused() {
    let cache = Cache::start().await;
    let master = cache.master();
    let collection_path = collection("s1", "root", EXPORTS);
    for (field, value) in
        [("labels", json!([1])), ("annotations", json!({"a": {}})), ("finalizers", json!("x"))]
    {
        let mut object = copy("a");
        object["metadata"][field] = value;
        assert_eq!(
            code(master.create::<Value>(&collection_path, &object, &WriteOptions::default()).await),
            400,
            "{field}"
        );
    }
    let mut versioned = copy("a");
    versioned["metadata"]["resourceVersion"] = "42".into();
    assert_eq!(
        code(master.create::<Value>(&collection_path, &versioned, &WriteOptions::default()).await),
        400
    );
}
