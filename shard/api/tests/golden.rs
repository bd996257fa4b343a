//! Compares definitions and bootstrap objects with those of a recorded kcp (`tests/data/kcp`).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use fairlead_api::{
    APIBinding, APIExport, APIExportEndpointSlice, APIResourceSchema, ExportReference, LogicalCluster,
    NewLogicalCluster, ObjectMeta, Shard, TypeReference, UserInfo, WorkspaceType, apis_to_v1alpha1,
    apis_to_v1alpha2, bound_crd, default_api_binding, default_endpoint_slice, identity_namespace,
    owner_annotation, resources, root_phase0, root_phase1, system_admin, system_resources, system_shard,
    universal_workspace, workspace_admin_binding,
};
use serde_json::Value;

/// The recorded objects of a resource in a place (a logical cluster on one server). `path` is the path of the list below the
/// logical cluster.
fn recorded(place: &str, path: &str) -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kcp/objects");
    let file = folder.join(format!("{place}.jsonl.gz"));
    let compressed = std::fs::File::open(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
    let mut lists = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let list = lists.find(|list| list["path"] == path);
    let list = list.unwrap_or_else(|| panic!("{}: no {path}", file.display()));
    let items = list["body"]["items"].as_array().unwrap().clone();
    assert!(!items.is_empty(), "{}: {path} is empty", file.display());
    items
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Removes descriptions, but keeps properties that are named `description`.
fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, value)| *key != "description" || !value.is_string())
            .map(|(key, value)| (key.clone(), without_descriptions(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_descriptions).collect(),
        scalar => scalar.clone(),
    }
}

fn assert_same(subject: &str, ours: &Value, theirs: &Value) {
    let ours = serde_json::to_string_pretty(&without_descriptions(ours)).unwrap();
    let theirs = serde_json::to_string_pretty(&without_descriptions(theirs)).unwrap();
    if ours != theirs {
        for (line, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(our, their, "{subject}, line {line}\n{ours}");
        }
        panic!("{subject} differs in length:\n{ours}");
    }
}

#[test]
fn system_crds_equal_the_recorded_ones() {
    let recorded =
        recorded("system-system-crds.root-shard", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let mut ours: Vec<Value> =
        system_resources().map(|resource| resource.custom_resource_definition()).collect();
    ours.sort_by(|a, b| name(a).cmp(name(b)));
    let names = |objects: &[Value]| objects.iter().map(|object| name(object).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&recorded));
    for (ours, theirs) in ours.iter().zip(&recorded) {
        assert_same(name(ours), &ours["spec"], &theirs["spec"]);
    }
}

#[test]
fn schemas_of_root_equal_the_recorded_ones() {
    let recorded = recorded("root", "/apis/apis.kcp.io/v1alpha1/apiresourceschemas");
    let mut ours: Vec<Value> =
        resources().iter().filter_map(|resource| resource.api_resource_schema()).collect();
    ours.sort_by(|a, b| name(a).cmp(name(b)));
    let names = |objects: &[Value]| objects.iter().map(|object| name(object).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&recorded));
    for (ours, theirs) in ours.iter().zip(&recorded) {
        assert_same(name(ours), &ours["spec"], &theirs["spec"]);
    }
}

/// Objects of one kind by `[namespace/]name`.
fn by_name(objects: &[Value], kind: Option<&str>) -> BTreeMap<String, Value> {
    objects
        .iter()
        .filter(|object| kind.is_none_or(|kind| object["kind"] == kind))
        .map(|object| {
            let name = name(object);
            let key = object["metadata"]["namespace"]
                .as_str()
                .map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
            (key, object.clone())
        })
        .collect()
}

/// Annotations, labels and finalizers, without the annotations that a server adds to every response.
fn comparable_metadata(object: &Value) -> Value {
    let mut annotations = object["metadata"]["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("kcp.io/cluster");
        annotations.remove("internal.apis.kcp.io/resource-bindings");
    }
    if annotations == serde_json::json!({}) {
        annotations = Value::Null;
    }
    serde_json::json!({
        "annotations": annotations,
        "labels": object["metadata"]["labels"],
        "finalizers": object["metadata"]["finalizers"],
    })
}

/// Compares Fairlead's objects of a kind with recorded ones: their names, except those that begin with a prefix in
/// `missing` (prefix, reason), then annotations, labels, finalizers and the given fields.
fn compare(ours: &[Value], kind: &str, place: &str, path: &str, fields: &[&str], missing: &[(&str, &str)]) {
    let recorded = recorded(place, path);
    let ours = by_name(ours, Some(kind));
    let theirs = by_name(&recorded, None);
    assert!(!ours.is_empty(), "{place} {kind}");
    for name in ours.keys() {
        assert!(theirs.contains_key(name), "{place}: {kind} {name} is not in the recording");
    }
    for (name, theirs) in &theirs {
        let Some(ours) = ours.get(name) else {
            let reason = missing.iter().find(|(prefix, _)| name.starts_with(prefix));
            assert!(reason.is_some(), "{place}: {kind} {name} is only in the recording");
            continue;
        };
        assert_same(&format!("{place} {name}"), &comparable_metadata(ours), &comparable_metadata(theirs));
        for field in fields {
            assert_same(
                &format!("{place} {name} {field}"),
                ours.pointer(field).unwrap_or(&Value::Null),
                theirs.pointer(field).unwrap_or(&Value::Null),
            );
        }
    }
    for (prefix, reason) in missing {
        assert!(
            theirs.keys().any(|name| name.starts_with(prefix)),
            "{place}: nothing recorded begins with {prefix} ({reason})"
        );
    }
}

#[test]
fn system_admin_holds_the_recorded_policy() {
    let ours = system_admin();
    let place = "system-admin.root-shard";
    let nodes = "there are no nodes, kubelets or kube-proxies";
    let processes = "kube-scheduler, kube-controller-manager, kube-aggregator and kube-dns do not run here";
    compare(
        &ours,
        "ClusterRole",
        place,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &["/rules", "/aggregationRule"],
        &[
            ("system:controller:", "Kubernetes' controllers do not run here"),
            ("system:heapster", "a retired monitoring program"),
            ("system:kube-", processes),
            ("system:kubelet-api-admin", nodes),
            ("system:node", nodes),
            ("system:persistent-volume-provisioner", "there are no volumes"),
            ("system:volume-scheduler", "there are no volumes"),
        ],
    );
    compare(
        &ours,
        "ClusterRoleBinding",
        place,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &["/roleRef", "/subjects"],
        &[
            ("system:controller:", "Kubernetes' controllers do not run here"),
            ("system:kube-", processes),
            ("system:node", nodes),
            ("system:volume-scheduler", "there are no volumes"),
        ],
    );
    compare(
        &ours,
        "Role",
        place,
        "/apis/rbac.authorization.k8s.io/v1/roles",
        &["/rules"],
        &[
            ("kube-system/system:controller:", "Kubernetes' controllers do not run here"),
            ("kube-public/system:controller:", "Kubernetes' controllers do not run here"),
            ("kube-system/system::leader-locking-", processes),
        ],
    );
    compare(&ours, "Namespace", place, "/api/v1/namespaces", &["/spec", "/status"], &[]);
}

#[test]
fn system_shard_holds_the_recorded_bindings() {
    let ours = system_shard();
    let place = "system-shard.root-shard";
    compare(
        &ours,
        "APIBinding",
        place,
        "/apis/apis.kcp.io/v1alpha2/apibindings",
        &["/spec", "/apiVersion"],
        &[],
    );
    compare(&ours, "Namespace", place, "/api/v1/namespaces", &["/spec", "/status"], &[]);
    compare_logical_cluster(&ours, place);
}

#[test]
fn root_holds_the_recorded_objects() {
    let mut ours = root_phase0();
    // The controller sets the reference to the identity.
    for export in ours.iter_mut().filter(|object| object["kind"] == "APIExport") {
        export["spec"]["identity"] =
            serde_json::json!({"secretRef": {"name": name(export), "namespace": "kcp-system"}});
    }
    // The recorded server starts without the battery `metrics-viewer`.
    let battery = "/metadata/annotations/bootstrap.kcp.io~1battery";
    ours.extend(
        root_phase1(&["system:authenticated"])
            .into_iter()
            .filter(|object| object.pointer(battery).is_none_or(|battery| battery != "metrics-viewer")),
    );
    ours.push(identity_namespace());
    let bindings = "/apis/apis.kcp.io/v1alpha2/apibindings";
    let exports = "/apis/apis.kcp.io/v1alpha2/apiexports";
    let types = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role_bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let admin = [("workspace-admin", "made by the controller that serves the creator of a workspace")];
    compare(&ours, "APIBinding", "root", bindings, &["/spec", "/apiVersion"], &[]);
    compare(&ours, "APIExport", "root", exports, &["/spec", "/apiVersion"], &[]);
    compare(&ours, "WorkspaceType", "root", types, &["/spec", "/apiVersion"], &[]);
    compare(&ours, "ClusterRole", "root", roles, &["/rules"], &[]);
    compare(&ours, "ClusterRoleBinding", "root", role_bindings, &["/roleRef", "/subjects"], &admin);
    compare(&ours, "Namespace", "root", "/api/v1/namespaces", &["/spec", "/status"], &[]);
    compare_logical_cluster(&ours, "root");
}

/// Compares the LogicalCluster without labels, shard and replication, which controllers set.
fn compare_logical_cluster(ours: &[Value], place: &str) {
    let recorded = recorded(place, "/apis/core.kcp.io/v1alpha1/logicalclusters");
    let ours = &by_name(ours, Some("LogicalCluster"))["cluster"];
    let mut theirs = recorded[0].clone();
    theirs["metadata"]["labels"].take();
    let annotations = theirs["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove("core.kcp.io/shard");
    annotations.remove("internal.kcp.io/replicate");
    assert_same(place, &comparable_metadata(ours), &comparable_metadata(&theirs));
    assert_same(place, &ours["spec"], &theirs["spec"]);
}

#[test]
fn a_universal_workspace_starts_with_the_recorded_objects() {
    let place = "fresh-universal";
    let fields = ["/spec", "/status"];
    compare(&universal_workspace(), "Namespace", place, "/api/v1/namespaces", &fields, &[]);
    let recorded_clusters = recorded(place, "/apis/core.kcp.io/v1alpha1/logicalclusters");
    let theirs = &recorded_clusters[0];
    let spec = &theirs["spec"];
    let creator: UserInfo = serde_json::from_value(spec["createdBy"].clone()).unwrap();
    let ours = NewLogicalCluster {
        owner: Some(serde_json::from_value(spec["owner"].clone()).unwrap()),
        path: "root:golden-fresh-universal".to_owned(),
        type_reference: TypeReference { name: "universal".to_owned(), path: "root".to_owned() },
        shard: "root".to_owned(),
        owner_annotation: Some(owner_annotation(&creator)),
        required_groups: None,
        initializers: vec!["root:universal".to_owned(), "system:apibindings".to_owned()],
        terminators: Vec::new(),
    }
    .build();
    assert_same("LogicalCluster", &ours["spec"], spec);
    let cluster = theirs["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    let bindings: Vec<Value> = ["tenancy.kcp.io", "topology.kcp.io"]
        .iter()
        .map(|export| {
            let reference = ExportReference { path: "root".to_owned(), name: (*export).to_owned() };
            default_api_binding(cluster, &reference, "root", "root:golden-fresh-universal", &[])
        })
        .collect();
    compare(
        &bindings,
        "APIBinding",
        place,
        "/apis/apis.kcp.io/v1alpha2/apibindings",
        &["/spec", "/apiVersion"],
        &[],
    );
    let admin = workspace_admin_binding("kcp-admin");
    let theirs = &recorded(place, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")[0];
    for field in ["roleRef", "subjects"] {
        assert_same(field, &admin[field], &theirs[field]);
    }
}

#[test]
fn bound_crds_equal_the_recorded_ones() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schemas = recorded("root", "/apis/apis.kcp.io/v1alpha1/apiresourceschemas");
    let crds = recorded("system-bound-crds.root-shard", path);
    let ours: Vec<Value> = schemas
        .iter()
        .map(|schema| bound_crd(schema, "root").unwrap())
        .filter(|crd| {
            !["cachedobjects", "logicalclusters"].contains(&crd["spec"]["names"]["plural"].as_str().unwrap())
        })
        .collect();
    assert_eq!(ours.len(), crds.len());
    compare(&ours, "CustomResourceDefinition", "system-bound-crds.root-shard", path, &["/spec"], &[]);
}

#[test]
fn default_endpoint_slices_equal_the_recorded_ones() {
    let exports = recorded("root", "/apis/apis.kcp.io/v1alpha2/apiexports");
    let ours: Vec<Value> = exports
        .iter()
        .map(|export| {
            let metadata: ObjectMeta = serde_json::from_value(export["metadata"].clone()).unwrap();
            default_endpoint_slice(&metadata, "root").unwrap()
        })
        .collect();
    compare(
        &ours,
        "APIExportEndpointSlice",
        "root",
        "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices",
        &["/spec", "/apiVersion", "/metadata/ownerReferences"],
        &[],
    );
}

#[test]
fn older_versions_are_read_as_recorded() {
    let places = [
        ("root", "apiexports"),
        ("root", "apibindings"),
        ("fresh-organization", "apibindings"),
        ("system-shard.root-shard", "apibindings"),
    ];
    for (place, resource) in places {
        let newer = recorded(place, &format!("/apis/apis.kcp.io/v1alpha2/{resource}"));
        let older = recorded(place, &format!("/apis/apis.kcp.io/v1alpha1/{resource}"));
        assert_eq!(newer.len(), older.len(), "{place} {resource}");
        for (newer, older) in newer.iter().zip(&older) {
            assert_same(name(newer), &apis_to_v1alpha1(newer.clone()), older);
            assert_same(name(newer), &apis_to_v1alpha2(older.clone()).unwrap(), newer);
        }
    }
}

/// Parses objects into their type and serializes them again. All the given fields must stay.
#[test]
fn types_read_the_recorded_objects() {
    fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(
        place: &str,
        path: &str,
        parts: &[&str],
    ) {
        for object in recorded(place, path) {
            let typed: T = serde_json::from_value(object.clone()).unwrap();
            let again = serde_json::to_value(&typed).unwrap();
            for part in parts {
                let subject = format!("{place} {} {part}", name(&object));
                assert_same(
                    &subject,
                    again.pointer(part).unwrap_or(&Value::Null),
                    object.pointer(part).unwrap_or(&Value::Null),
                );
            }
        }
    }
    let whole = ["/apiVersion", "/kind", "/spec", "/status", "/metadata/annotations", "/metadata/labels"];
    round_trip::<WorkspaceType>("root", "/apis/tenancy.kcp.io/v1alpha1/workspacetypes", &whole);
    round_trip::<LogicalCluster>("fresh-universal", "/apis/core.kcp.io/v1alpha1/logicalclusters", &whole);
    round_trip::<Shard>("root", "/apis/core.kcp.io/v1alpha1/shards", &whole);
    round_trip::<APIExport>("root", "/apis/apis.kcp.io/v1alpha2/apiexports", &whole);
    round_trip::<APIBinding>("root", "/apis/apis.kcp.io/v1alpha2/apibindings", &whole);
    round_trip::<APIExportEndpointSlice>(
        "root",
        "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices",
        &whole,
    );
    round_trip::<APIResourceSchema>("root", "/apis/apis.kcp.io/v1alpha1/apiresourceschemas", &whole);
}
