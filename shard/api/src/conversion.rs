//! APIExport and APIBinding between v1alpha1 and v1alpha2.
//!
//! Neither version can express everything that the other can. Whenever converting back would not give the original, the
//! original is saved in an annotation below `apis.v1alpha2.kcp.io/`. The conversion back uses it if it still matches. So a
//! round trip loses nothing.

use serde_json::{Map, Value, json};

/// An object that cannot be converted. The cause is the object; a retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The schema's name has no group. v1alpha2 needs group and resource, which v1alpha1 holds only in the schema's name.
    #[error("invalid schema name {0:?}: must be <prefix>.<resource>.<group>")]
    SchemaName(String),
}

/// Converts an APIExport or APIBinding to v1alpha1. In other kinds of `apis.kcp.io` only the version changes.
pub fn apis_to_v1alpha1(mut object: Value) -> Value {
    set_version(&mut object, "apis.kcp.io/v1alpha1");
    match object["kind"].as_str() {
        Some("APIExport") => {
            resources_to_v1alpha1(&mut object);
            convert_claims(&mut object, &EXPORT_CLAIMS, Direction::ToV1alpha1);
        }
        Some("APIBinding") => {
            for claims in &BINDING_CLAIMS {
                convert_claims(&mut object, claims, Direction::ToV1alpha1);
            }
        }
        _ => {}
    }
    object
}

/// Converts an APIExport or APIBinding to v1alpha2. In other kinds of `apis.kcp.io` only the version changes.
///
/// # Errors
/// See [`ConversionError`].
pub fn apis_to_v1alpha2(mut object: Value) -> Result<Value, ConversionError> {
    set_version(&mut object, "apis.kcp.io/v1alpha2");
    match object["kind"].as_str() {
        Some("APIExport") => {
            resources_to_v1alpha2(&mut object)?;
            convert_claims(&mut object, &EXPORT_CLAIMS, Direction::ToV1alpha2);
        }
        Some("APIBinding") => {
            for claims in &BINDING_CLAIMS {
                convert_claims(&mut object, claims, Direction::ToV1alpha2);
            }
        }
        _ => {}
    }
    Ok(object)
}

fn set_version(object: &mut Value, version: &str) {
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".to_owned(), version.into());
    }
}

const RESOURCES_ANNOTATION: &str = "apis.v1alpha2.kcp.io/resource-schemas";

/// A list of claims, and the annotations that save claims which the other version cannot express.
struct ClaimList {
    part: &'static str,
    field: &'static str,
    /// Annotation of v1alpha1 objects that saves v1alpha2 claims.
    v1alpha2_annotation: &'static str,
    /// Annotation of v1alpha2 objects that saves v1alpha1 claims.
    v1alpha1_annotation: &'static str,
    /// Converts a v1alpha1 claim to v1alpha2.
    to_v1alpha2: fn(&Value) -> Value,
}

const EXPORT_CLAIMS: ClaimList = ClaimList {
    part: "spec",
    field: "permissionClaims",
    v1alpha2_annotation: "apis.v1alpha2.kcp.io/permission-claims",
    v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-permission-claims",
    to_v1alpha2: export_claim,
};

const BINDING_CLAIMS: [ClaimList; 3] = [
    ClaimList {
        part: "spec",
        field: "permissionClaims",
        v1alpha2_annotation: "apis.v1alpha2.kcp.io/acceptable-permission-claims",
        v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-permission-claims",
        to_v1alpha2: binding_claim,
    },
    ClaimList {
        part: "status",
        field: "exportPermissionClaims",
        v1alpha2_annotation: "apis.v1alpha2.kcp.io/status-export-permission-claims",
        v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims",
        to_v1alpha2: export_claim,
    },
    ClaimList {
        part: "status",
        field: "appliedPermissionClaims",
        v1alpha2_annotation: "apis.v1alpha2.kcp.io/status-applied-permission-claims",
        v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims",
        to_v1alpha2: binding_claim,
    },
];

#[derive(Clone, Copy)]
enum Direction {
    ToV1alpha1,
    ToV1alpha2,
}

fn convert_claims(object: &mut Value, list: &ClaimList, direction: Direction) {
    let to_v1alpha1: fn(&Value) -> Value = claim_to_v1alpha1;
    let (convert, convert_back, read_annotation, save_annotation) = match direction {
        Direction::ToV1alpha1 => {
            (to_v1alpha1, list.to_v1alpha2, list.v1alpha1_annotation, list.v1alpha2_annotation)
        }
        Direction::ToV1alpha2 => {
            (list.to_v1alpha2, to_v1alpha1, list.v1alpha2_annotation, list.v1alpha1_annotation)
        }
    };
    let mut saved: Vec<Value> = take_annotation(object, read_annotation);
    // A client may have written anything.
    saved.retain(Value::is_object);
    let Some(claims) =
        object.get_mut(list.part).and_then(|part| part.get_mut(list.field)).and_then(Value::as_array_mut)
    else {
        return;
    };
    let mut lost = Vec::new();
    for claim in claims.iter_mut() {
        let original = saved.iter().find(|saved| {
            is_same_claim(saved, claim) && without_state(&convert_back(saved)) == without_state(claim)
        });
        let converted = match original {
            Some(original) => complete(original, claim, direction),
            None => convert(claim),
        };
        if original.is_none()
            && without_empty_values(&convert_back(&converted)) != without_empty_values(claim)
        {
            lost.push(ordered_json(claim));
        }
        *claim = converted;
    }
    if !lost.is_empty() {
        set_annotation(object, save_annotation, format!("[{}]", lost.join(",")));
    }
}

/// A v1alpha2 claim of an export. v1alpha1 has no verbs.
fn export_claim(v1alpha1: &Value) -> Value {
    json!({
        "group": text(v1alpha1, "group"),
        "resource": text(v1alpha1, "resource"),
        "identityHash": text(v1alpha1, "identityHash"),
        "verbs": ["*"],
    })
}

/// A v1alpha2 claim of a binding, which also has a selector of objects.
fn binding_claim(v1alpha1: &Value) -> Value {
    let mut claim = export_claim(v1alpha1);
    claim["selector"] = json!({"matchAll": true});
    if let Some(state) = v1alpha1.get("state") {
        claim["state"] = state.clone();
    }
    claim
}

fn claim_to_v1alpha1(v1alpha2: &Value) -> Value {
    let mut claim = json!({"resource": text(v1alpha2, "resource")});
    for field in ["group", "identityHash", "state"] {
        if !text(v1alpha2, field).is_empty() {
            claim[field] = text(v1alpha2, field).into();
        }
    }
    if v1alpha2["selector"]["matchAll"] == true {
        claim["all"] = true.into();
    }
    claim
}

/// Completes a saved claim. For v1alpha2, missing texts are set to empty ones. The state comes from the current claim,
/// because both versions have the state.
fn complete(saved: &Value, current: &Value, direction: Direction) -> Value {
    let mut claim = saved.clone();
    if let Direction::ToV1alpha2 = direction {
        for field in ["group", "identityHash"] {
            claim[field] = text(saved, field).into();
        }
    }
    if let Some(state) = current.get("state") {
        claim["state"] = state.clone();
    }
    claim
}

fn without_state(claim: &Value) -> Value {
    let mut claim = without_empty_values(claim);
    if let Some(fields) = claim.as_object_mut() {
        fields.remove("state");
    }
    claim
}

fn is_same_claim(one: &Value, other: &Value) -> bool {
    ["group", "resource", "identityHash"].iter().all(|field| text(one, field) == text(other, field))
}

/// The claim without empty values, for comparison.
fn without_empty_values(claim: &Value) -> Value {
    let is_empty =
        |value: &Value| value.is_null() || value == "" || value == &json!([]) || value == &json!(false);
    claim
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !is_empty(value))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

/// The claim as JSON, its fields in the order of kcp's types, without empty values.
fn ordered_json(claim: &Value) -> String {
    const ORDER: [&str; 9] = [
        "group",
        "resource",
        "all",
        "resourceSelector",
        "verbs",
        "identityHash",
        "defaultSelector",
        "selector",
        "state",
    ];
    let fields_present = without_empty_values(claim);
    let fields: Vec<String> = ORDER
        .iter()
        .filter_map(|field| Some(format!("{}:{}", Value::from(*field), fields_present.get(field)?)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn resources_to_v1alpha1(export: &mut Value) {
    let Some(Value::Array(resources)) = spec_of(export).and_then(|spec| spec.remove("resources")) else {
        return;
    };
    let (virtual_resources, crd_resources): (Vec<Value>, Vec<Value>) =
        resources.into_iter().partition(|resource| resource["storage"].get("virtual").is_some());
    if !virtual_resources.is_empty() {
        set_annotation(export, RESOURCES_ANNOTATION, Value::from(virtual_resources).to_string());
    }
    let names: Vec<Value> = crd_resources.iter().map(|resource| resource["schema"].clone()).collect();
    if let Some(spec) = spec_of(export).filter(|_| !names.is_empty()) {
        spec.insert("latestResourceSchemas".to_owned(), names.into());
    }
}

fn resources_to_v1alpha2(export: &mut Value) -> Result<(), ConversionError> {
    let virtual_resources = take_annotation(export, RESOURCES_ANNOTATION);
    let names = spec_of(export).and_then(|spec| spec.remove("latestResourceSchemas"));
    let mut resources = Vec::new();
    for name in names.as_ref().and_then(Value::as_array).into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        let mut parts = name.splitn(3, '.').skip(1);
        let (Some(resource), Some(group)) = (parts.next(), parts.next()) else {
            return Err(ConversionError::SchemaName(name.to_owned()));
        };
        let group = if group == "core" { "" } else { group };
        resources.push(json!({"group": group, "name": resource, "schema": name, "storage": {"crd": {}}}));
    }
    resources.extend(virtual_resources);
    if let Some(spec) = spec_of(export).filter(|_| !resources.is_empty()) {
        spec.insert("resources".to_owned(), resources.into());
    }
    Ok(())
}

fn spec_of(export: &mut Value) -> Option<&mut Map<String, Value>> {
    export.get_mut("spec").and_then(Value::as_object_mut)
}

/// Removes an annotation with a JSON list. Any other value counts as an empty list.
fn take_annotation(object: &mut Value, key: &str) -> Vec<Value> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let value = annotations.remove(key);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    value
        .as_ref()
        .and_then(Value::as_str)
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

fn set_annotation(object: &mut Value, key: &str, value: String) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let mut entry = object;
    for field in ["metadata", "annotations"] {
        let inner = entry
            .entry(field)
            .and_modify(|inner| {
                if !inner.is_object() {
                    *inner = Value::Object(Map::new());
                }
            })
            .or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(inner) = inner else { return };
        entry = inner;
    }
    entry.insert(key.to_owned(), value.into());
}

fn text<'a>(claim: &'a Value, field: &str) -> &'a str {
    claim.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As recorded in `e-apiexport`, requests 72 and 76.
    #[test]
    fn an_export_with_claims_converts_both_ways() {
        let v1alpha2 = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
            "metadata": {"name": "golden", "annotations": {"kcp.io/path": "root:provider"}},
            "spec": {
                "permissionClaims": [
                    {"group": "", "identityHash": "", "resource": "configmaps", "verbs": ["*"]},
                    {"group": "", "identityHash": "", "resource": "secrets", "verbs": ["get", "list"]},
                ],
                "resources": [{"group": "golden.example.com", "name": "sheriffs",
                               "schema": "v1.sheriffs.golden.example.com", "storage": {"crd": {}}}],
            },
        });
        let v1alpha1 = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport",
            "metadata": {"name": "golden", "annotations": {
                "apis.v1alpha2.kcp.io/permission-claims": r#"[{"resource":"secrets","verbs":["get","list"]}]"#,
                "kcp.io/path": "root:provider",
            }},
            "spec": {
                "latestResourceSchemas": ["v1.sheriffs.golden.example.com"],
                "permissionClaims": [{"resource": "configmaps"}, {"resource": "secrets"}],
            },
        });
        assert_eq!(apis_to_v1alpha1(v1alpha2.clone()), v1alpha1);
        assert_eq!(apis_to_v1alpha2(v1alpha1).unwrap(), v1alpha2);
    }

    /// As recorded in `e-apiexport`, requests 196 and 204.
    #[test]
    fn a_binding_with_claims_converts_both_ways() {
        let v1alpha2 = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": "golden"},
            "spec": {
                "permissionClaims": [
                    {"group": "", "identityHash": "", "resource": "configmaps", "selector": {"matchAll": true},
                     "state": "Accepted", "verbs": ["*"]},
                    {"group": "", "identityHash": "", "resource": "secrets", "selector": {"matchAll": true},
                     "state": "Rejected", "verbs": ["*"]},
                ],
                "reference": {"export": {"name": "golden", "path": "root:provider"}},
            },
            "status": {
                "appliedPermissionClaims": [
                    {"group": "", "identityHash": "", "resource": "configmaps", "selector": {"matchAll": true},
                     "verbs": ["*"]},
                ],
                "exportPermissionClaims": [
                    {"group": "", "identityHash": "", "resource": "configmaps", "verbs": ["*"]},
                    {"group": "", "identityHash": "", "resource": "secrets", "verbs": ["get", "list"]},
                ],
                "phase": "Bound",
            },
        });
        let v1alpha1 = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding",
            "metadata": {"name": "golden", "annotations": {
                "apis.v1alpha2.kcp.io/status-export-permission-claims":
                    r#"[{"resource":"secrets","verbs":["get","list"]}]"#,
            }},
            "spec": {
                "permissionClaims": [
                    {"all": true, "resource": "configmaps", "state": "Accepted"},
                    {"all": true, "resource": "secrets", "state": "Rejected"},
                ],
                "reference": {"export": {"name": "golden", "path": "root:provider"}},
            },
            "status": {
                "appliedPermissionClaims": [{"all": true, "resource": "configmaps"}],
                "exportPermissionClaims": [{"resource": "configmaps"}, {"resource": "secrets"}],
                "phase": "Bound",
            },
        });
        assert_eq!(apis_to_v1alpha1(v1alpha2.clone()), v1alpha1);
        assert_eq!(apis_to_v1alpha2(v1alpha1).unwrap(), v1alpha2);
    }

    #[test]
    fn saved_claims_that_are_no_objects_are_ignored() {
        // The text is equal to that of a claim without values.
        let binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": "a", "annotations": {
                "apis.v1alpha2.kcp.io/acceptable-permission-claims": "[1]",
                "apis.v1alpha2.kcp.io/v1alpha1-permission-claims": "[[],null]",
            }},
            "spec": {"permissionClaims": [{"resource": "", "state": "Accepted"}]},
        });
        for direction in [Direction::ToV1alpha1, Direction::ToV1alpha2] {
            let mut converted = binding.clone();
            convert_claims(&mut converted, &BINDING_CLAIMS[0], direction);
            assert_eq!(converted["spec"]["permissionClaims"][0]["state"], "Accepted");
        }
    }

    #[test]
    fn fields_of_one_version_survive_round_trips() {
        let v1alpha1 = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport",
            "metadata": {"name": "a"},
            "spec": {
                "latestResourceSchemas": ["v1.pods.core"],
                "permissionClaims": [
                    {"resource": "configmaps", "all": true},
                    {"group": "g", "resource": "r", "identityHash": "abc", "resourceSelector": [{"name": "x"}]},
                ],
            },
        });
        let v1alpha2 = apis_to_v1alpha2(v1alpha1.clone()).unwrap();
        assert_eq!(v1alpha2["spec"]["resources"][0]["group"], "");
        assert_eq!(apis_to_v1alpha1(v1alpha2), v1alpha1);

        let v1alpha2 = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": "a"},
            "spec": {"permissionClaims": [
                {"group": "g", "identityHash": "", "resource": "r", "state": "Accepted", "verbs": ["get"],
                 "selector": {"matchLabels": {"a": "b"}}},
            ]},
        });
        assert_eq!(apis_to_v1alpha2(apis_to_v1alpha1(v1alpha2.clone())).unwrap(), v1alpha2);

        let v1alpha2 = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
            "metadata": {"name": "a"},
            "spec": {"resources": [
                {"group": "g.io", "name": "r", "schema": "v1.r.g.io",
                 "storage": {"virtual": {"identityHash": "x", "reference": {"kind": "K", "name": "n"}}}},
            ]},
        });
        let v1alpha1 = apis_to_v1alpha1(v1alpha2.clone());
        assert_eq!(v1alpha1["spec"], json!({}));
        assert_eq!(apis_to_v1alpha2(v1alpha1).unwrap(), v1alpha2);
    }

    #[test]
    fn a_state_changed_through_v1alpha1_keeps_the_verbs() {
        let v1alpha2 = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "a"},
            "spec": {"permissionClaims": [
                {"group": "", "identityHash": "", "resource": "secrets", "state": "Accepted", "verbs": ["get"],
                 "selector": {"matchAll": true}},
            ]},
        });
        let mut v1alpha1 = apis_to_v1alpha1(v1alpha2);
        v1alpha1["spec"]["permissionClaims"][0]["state"] = "Rejected".into();
        let claim = &apis_to_v1alpha2(v1alpha1).unwrap()["spec"]["permissionClaims"][0];
        assert_eq!(claim["state"], "Rejected");
        assert_eq!(claim["verbs"], json!(["get"]));
    }

    #[test]
    fn malformed_objects_are_converted_without_error() {
        for malformed in [
            json!([1]),
            json!({"kind": "APIExport", "metadata": 1, "spec": "x"}),
            json!({"kind": "APIBinding", "spec": {"permissionClaims": [1, {}]}, "status": []}),
        ] {
            let v1alpha1 = apis_to_v1alpha1(malformed.clone());
            assert_eq!(v1alpha1.is_object(), malformed.is_object());
            assert!(apis_to_v1alpha2(malformed).is_ok());
        }
    }

    #[test]
    fn a_schema_name_without_group_cannot_be_converted() {
        let export = json!({"kind": "APIExport", "spec": {"latestResourceSchemas": ["pods"]}});
        assert_eq!(apis_to_v1alpha2(export), Err(ConversionError::SchemaName("pods".to_owned())));
    }
}
