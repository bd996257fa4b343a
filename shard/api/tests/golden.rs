//! Our definitions and bootstrap objects beside recordings of a real kcp, where those are at hand.
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

/// The recorded list, or nothing (and a word about it) where the recordings are not there.
fn recorded(place: &str, file: &str) -> Option<Vec<Value>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/objects");
    let path = directory.join(place).join(file);
    let Ok(bytes) = std::fs::read(&path) else {
        println!("skipped: no recording {place}/{file}");
        return None;
    };
    let mut text = String::new();
    if file.ends_with(".gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    let list: Value = serde_json::from_str(&text).unwrap();
    Some(list["items"].as_array().unwrap().clone())
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Drops descriptions, but not a property that happens to have this name.
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

fn assert_same(what: &str, ours: &Value, theirs: &Value) {
    let ours = serde_json::to_string_pretty(&without_descriptions(ours)).unwrap();
    let theirs = serde_json::to_string_pretty(&without_descriptions(theirs)).unwrap();
    if ours != theirs {
        for (line, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(our, their, "{what}, line {line}\n{ours}");
        }
        panic!("{what} differs in length:\n{ours}");
    }
}

#[test]
fn system_crds_equal_the_recorded_ones() {
    let Some(recorded) =
        recorded("system-system-crds.root-shard", "customresourcedefinitions.apiextensions.k8s.io_v1.json")
    else {
        return;
    };
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
    let Some(recorded) = recorded("root", "apiresourceschemas.apis.kcp.io_v1alpha1.json") else {
        return;
    };
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

/// Annotations, labels and finalizers, without what a server adds when it is read.
fn decoration(object: &Value) -> Value {
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

/// Compares our objects of a kind with a recording: names up to `missing` (name prefix, reason), then decoration and
/// the given fields.
fn compare(ours: &[Value], kind: &str, place: &str, file: &str, fields: &[&str], missing: &[(&str, &str)]) {
    let Some(recorded) = recorded(place, file) else {
        return;
    };
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
        assert_same(&format!("{place} {name}"), &decoration(ours), &decoration(theirs));
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
        "clusterroles.rbac.authorization.k8s.io_v1.json.gz",
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
        "clusterrolebindings.rbac.authorization.k8s.io_v1.json",
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
        "roles.rbac.authorization.k8s.io_v1.json",
        &["/rules"],
        &[
            ("kube-system/system:controller:", "Kubernetes' controllers do not run here"),
            ("kube-public/system:controller:", "Kubernetes' controllers do not run here"),
            ("kube-system/system::leader-locking-", processes),
        ],
    );
    compare(&ours, "Namespace", place, "namespaces.v1.json", &["/spec", "/status"], &[]);
}

#[test]
fn system_shard_holds_the_recorded_bindings() {
    let ours = system_shard();
    let place = "system-shard.root-shard";
    compare(
        &ours,
        "APIBinding",
        place,
        "apibindings.apis.kcp.io_v1alpha2.json",
        &["/spec", "/apiVersion"],
        &[],
    );
    compare(&ours, "Namespace", place, "namespaces.v1.json", &["/spec", "/status"], &[]);
    compare_logical_cluster(&ours, place);
}

#[test]
fn root_holds_the_recorded_objects() {
    let mut ours = root_phase0();
    // What a controller fills in.
    for export in ours.iter_mut().filter(|object| object["kind"] == "APIExport") {
        export["spec"]["identity"] =
            serde_json::json!({"secretRef": {"name": name(export), "namespace": "kcp-system"}});
    }
    ours.extend(root_phase1(&["system:authenticated"]));
    ours.push(identity_namespace());
    let bindings = "apibindings.apis.kcp.io_v1alpha2.json";
    let exports = "apiexports.apis.kcp.io_v1alpha2.json";
    let types = "workspacetypes.tenancy.kcp.io_v1alpha1.json";
    let roles = "clusterroles.rbac.authorization.k8s.io_v1.json";
    let role_bindings = "clusterrolebindings.rbac.authorization.k8s.io_v1.json";
    let admin = [("workspace-admin", "made by the controller that serves the creator of a workspace")];
    compare(&ours, "APIBinding", "root", bindings, &["/spec", "/apiVersion"], &[]);
    compare(&ours, "APIExport", "root", exports, &["/spec", "/apiVersion"], &[]);
    compare(&ours, "WorkspaceType", "root", types, &["/spec", "/apiVersion"], &[]);
    compare(&ours, "ClusterRole", "root", roles, &["/rules"], &[]);
    compare(&ours, "ClusterRoleBinding", "root", role_bindings, &["/roleRef", "/subjects"], &admin);
    compare(&ours, "Namespace", "root", "namespaces.v1.json", &["/spec", "/status"], &[]);
    compare_logical_cluster(&ours, "root");
}

/// Labels, shard and replication are set by controllers.
fn compare_logical_cluster(ours: &[Value], place: &str) {
    let Some(recorded) = recorded(place, "logicalclusters.core.kcp.io_v1alpha1.json") else {
        return;
    };
    let ours = &by_name(ours, Some("LogicalCluster"))["cluster"];
    let mut theirs = recorded[0].clone();
    theirs["metadata"]["labels"].take();
    let annotations = theirs["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove("core.kcp.io/shard");
    annotations.remove("internal.kcp.io/replicate");
    assert_same(place, &decoration(ours), &decoration(&theirs));
    assert_same(place, &ours["spec"], &theirs["spec"]);
}

#[test]
fn a_universal_workspace_begins_with_the_recorded_objects() {
    let place = "fresh-universal";
    let fields = ["/spec", "/status"];
    compare(&universal_workspace(), "Namespace", place, "namespaces.v1.json", &fields, &[]);
    let Some(recorded_clusters) = recorded(place, "logicalclusters.core.kcp.io_v1alpha1.json") else {
        return;
    };
    let theirs = &recorded_clusters[0];
    let spec = &theirs["spec"];
    let creator: UserInfo = serde_json::from_value(spec["createdBy"].clone()).unwrap();
    let ours = NewLogicalCluster {
        owner: serde_json::from_value(spec["owner"].clone()).unwrap(),
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
        "apibindings.apis.kcp.io_v1alpha2.json",
        &["/spec", "/apiVersion"],
        &[],
    );
    let admin = workspace_admin_binding("kcp-admin");
    let theirs = &recorded(place, "clusterrolebindings.rbac.authorization.k8s.io_v1.json").unwrap()[0];
    for field in ["roleRef", "subjects"] {
        assert_same(field, &admin[field], &theirs[field]);
    }
}

#[test]
fn bound_crds_equal_the_recorded_ones() {
    let file = "customresourcedefinitions.apiextensions.k8s.io_v1.json";
    let (Some(schemas), Some(crds)) = (
        recorded("root", "apiresourceschemas.apis.kcp.io_v1alpha1.json"),
        recorded("system-bound-crds.root-shard", file),
    ) else {
        return;
    };
    let ours: Vec<Value> = schemas
        .iter()
        .map(|schema| bound_crd(schema, "root").unwrap())
        .filter(|crd| {
            !["cachedobjects", "logicalclusters"].contains(&crd["spec"]["names"]["plural"].as_str().unwrap())
        })
        .collect();
    assert_eq!(ours.len(), crds.len());
    compare(&ours, "CustomResourceDefinition", "system-bound-crds.root-shard", file, &["/spec"], &[]);
}

#[test]
fn default_endpoint_slices_equal_the_recorded_ones() {
    let exports = recorded("root", "apiexports.apis.kcp.io_v1alpha2.json").unwrap_or_default();
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
        "apiexportendpointslices.apis.kcp.io_v1alpha1.json",
        &["/spec", "/apiVersion", "/metadata/ownerReferences"],
        &[],
    );
}

#[test]
fn older_versions_are_read_as_recorded() {
    let places = [
        ("root", "apiexports.apis.kcp.io"),
        ("root", "apibindings.apis.kcp.io"),
        ("fresh-organization", "apibindings.apis.kcp.io"),
        ("system-shard.root-shard", "apibindings.apis.kcp.io"),
    ];
    for (place, resource) in places {
        let newer = recorded(place, &format!("{resource}_v1alpha2.json")).unwrap_or_default();
        let older = recorded(place, &format!("{resource}_v1alpha1.json")).unwrap_or_default();
        for (newer, older) in newer.iter().zip(&older) {
            assert_same(name(newer), &apis_to_v1alpha1(newer.clone()), older);
            assert_same(name(newer), &apis_to_v1alpha2(older.clone()).unwrap(), newer);
        }
    }
}

/// What the types of a kind read and write again is a part of what they read, and whole for the parts that kcp's own
/// logic uses.
#[test]
fn types_read_the_recorded_objects() {
    fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(
        place: &str,
        file: &str,
        parts: &[&str],
    ) {
        for object in recorded(place, file).unwrap_or_default() {
            let typed: T = serde_json::from_value(object.clone()).unwrap();
            let again = serde_json::to_value(&typed).unwrap();
            for part in parts {
                let what = format!("{place} {} {part}", name(&object));
                assert_same(
                    &what,
                    again.pointer(part).unwrap_or(&Value::Null),
                    object.pointer(part).unwrap_or(&Value::Null),
                );
            }
        }
    }
    let whole = ["/apiVersion", "/kind", "/spec", "/status", "/metadata/annotations", "/metadata/labels"];
    round_trip::<WorkspaceType>("root", "workspacetypes.tenancy.kcp.io_v1alpha1.json", &whole);
    round_trip::<LogicalCluster>("fresh-universal", "logicalclusters.core.kcp.io_v1alpha1.json", &whole);
    round_trip::<Shard>("root", "shards.core.kcp.io_v1alpha1.json", &whole);
    round_trip::<APIExport>("root", "apiexports.apis.kcp.io_v1alpha2.json", &whole);
    round_trip::<APIBinding>("root", "apibindings.apis.kcp.io_v1alpha2.json", &whole);
    round_trip::<APIExportEndpointSlice>("root", "apiexportendpointslices.apis.kcp.io_v1alpha1.json", &whole);
    round_trip::<APIResourceSchema>("root", "apiresourceschemas.apis.kcp.io_v1alpha1.json", &whole);
}
