//! APIExport and APIBinding between v1alpha1 and v1alpha2.
//!
//! Neither version can say everything the other can. What does not fit travels in annotations below
//! `apis.v1alpha2.kcp.io/`, so that a round trip loses nothing: whenever converting back would not give the original,
//! the original is kept there, and it is used again on the way back if it still fits.

use serde_json::{Map, Value, json};

/// An object that cannot be converted. Its author is to blame; a retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// v1alpha2 needs group and resource, which v1alpha1 has in the schema's name only.
    #[error("invalid schema name {0:?}: must be <prefix>.<resource>.<group>")]
    SchemaName(String),
}

/// An APIExport or APIBinding (or anything else of `apis.kcp.io`, where only the version changes) in v1alpha1.
pub fn apis_to_v1alpha1(mut object: Value) -> Value {
    set_version(&mut object, "apis.kcp.io/v1alpha1");
    match object["kind"].as_str() {
        Some("APIExport") => {
            resources_to_v1alpha1(&mut object);
            convert_claims(&mut object, &EXPORT_CLAIMS, Direction::Down);
        }
        Some("APIBinding") => {
            for claims in &BINDING_CLAIMS {
                convert_claims(&mut object, claims, Direction::Down);
            }
        }
        _ => {}
    }
    object
}

/// The way back.
///
/// # Errors
/// See [`ConversionError`].
pub fn apis_to_v1alpha2(mut object: Value) -> Result<Value, ConversionError> {
    set_version(&mut object, "apis.kcp.io/v1alpha2");
    match object["kind"].as_str() {
        Some("APIExport") => {
            resources_to_v1alpha2(&mut object)?;
            convert_claims(&mut object, &EXPORT_CLAIMS, Direction::Up);
        }
        Some("APIBinding") => {
            for claims in &BINDING_CLAIMS {
                convert_claims(&mut object, claims, Direction::Up);
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

/// A list of claims and the annotations for what does not fit.
struct ClaimList {
    part: &'static str,
    field: &'static str,
    /// Kept in v1alpha1 objects: claims as v1alpha2 knows them.
    newer: &'static str,
    /// Kept in v1alpha2 objects: claims as v1alpha1 knows them.
    older: &'static str,
    /// The v1alpha2 claim that a v1alpha1 claim means.
    up: fn(&Value) -> Value,
}

const EXPORT_CLAIMS: ClaimList = ClaimList {
    part: "spec",
    field: "permissionClaims",
    newer: "apis.v1alpha2.kcp.io/permission-claims",
    older: "apis.v1alpha2.kcp.io/v1alpha1-permission-claims",
    up: offered_claim,
};

const BINDING_CLAIMS: [ClaimList; 3] = [
    ClaimList {
        part: "spec",
        field: "permissionClaims",
        newer: "apis.v1alpha2.kcp.io/acceptable-permission-claims",
        older: "apis.v1alpha2.kcp.io/v1alpha1-permission-claims",
        up: answered_claim,
    },
    ClaimList {
        part: "status",
        field: "exportPermissionClaims",
        newer: "apis.v1alpha2.kcp.io/status-export-permission-claims",
        older: "apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims",
        up: offered_claim,
    },
    ClaimList {
        part: "status",
        field: "appliedPermissionClaims",
        newer: "apis.v1alpha2.kcp.io/status-applied-permission-claims",
        older: "apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims",
        up: answered_claim,
    },
];

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

fn convert_claims(object: &mut Value, list: &ClaimList, direction: Direction) {
    let down: fn(&Value) -> Value = older_claim;
    let (there, back, kept, keep) = match direction {
        Direction::Down => (down, list.up, list.older, list.newer),
        Direction::Up => (list.up, down, list.newer, list.older),
    };
    let kept: Vec<Value> = take_annotation(object, kept);
    let Some(claims) =
        object.get_mut(list.part).and_then(|part| part.get_mut(list.field)).and_then(Value::as_array_mut)
    else {
        return;
    };
    let mut lost = Vec::new();
    for claim in claims.iter_mut() {
        let original = kept
            .iter()
            .find(|kept| is_same_claim(kept, claim) && without_state(&back(kept)) == without_state(claim));
        let converted = match original {
            Some(original) => complete(original, claim, direction),
            None => there(claim),
        };
        if original.is_none() && plain(&back(&converted)) != plain(claim) {
            lost.push(in_order(claim));
        }
        *claim = converted;
    }
    if !lost.is_empty() {
        set_annotation(object, keep, format!("[{}]", lost.join(",")));
    }
}

/// A claim of an export: v1alpha1 knows no verbs.
fn offered_claim(older: &Value) -> Value {
    json!({
        "group": text(older, "group"),
        "resource": text(older, "resource"),
        "identityHash": text(older, "identityHash"),
        "verbs": ["*"],
    })
}

/// A claim in a binding also says which objects it covers.
fn answered_claim(older: &Value) -> Value {
    let mut claim = offered_claim(older);
    claim["selector"] = json!({"matchAll": true});
    if let Some(state) = older.get("state") {
        claim["state"] = state.clone();
    }
    claim
}

fn older_claim(newer: &Value) -> Value {
    let mut claim = json!({"resource": text(newer, "resource")});
    for field in ["group", "identityHash", "state"] {
        if !text(newer, field).is_empty() {
            claim[field] = text(newer, field).into();
        }
    }
    if newer["selector"]["matchAll"] == true {
        claim["all"] = true.into();
    }
    claim
}

/// A kept claim leaves out empty text, which objects of v1alpha2 spell out. Both versions have the state, so it comes
/// from the present claim.
fn complete(kept: &Value, present: &Value, direction: Direction) -> Value {
    let mut claim = kept.clone();
    if let Direction::Up = direction {
        for field in ["group", "identityHash"] {
            claim[field] = text(kept, field).into();
        }
    }
    if let Some(state) = present.get("state") {
        claim["state"] = state.clone();
    }
    claim
}

fn without_state(claim: &Value) -> Value {
    let mut claim = plain(claim);
    if let Some(fields) = claim.as_object_mut() {
        fields.remove("state");
    }
    claim
}

fn is_same_claim(one: &Value, other: &Value) -> bool {
    ["group", "resource", "identityHash"].iter().all(|field| text(one, field) == text(other, field))
}

/// The claim without empty values, for comparison.
fn plain(claim: &Value) -> Value {
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

/// The claim as JSON in the order of kcp's types, without empty values.
fn in_order(claim: &Value) -> String {
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
    let plain = plain(claim);
    let fields: Vec<String> = ORDER
        .iter()
        .filter_map(|field| Some(format!("{}:{}", Value::from(*field), plain.get(field)?)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn resources_to_v1alpha1(export: &mut Value) {
    let Some(Value::Array(resources)) = spec_of(export).and_then(|spec| spec.remove("resources")) else {
        return;
    };
    let (elsewhere, here): (Vec<Value>, Vec<Value>) =
        resources.into_iter().partition(|resource| resource["storage"].get("virtual").is_some());
    if !elsewhere.is_empty() {
        set_annotation(export, RESOURCES_ANNOTATION, Value::from(elsewhere).to_string());
    }
    let names: Vec<Value> = here.iter().map(|resource| resource["schema"].clone()).collect();
    if let Some(spec) = spec_of(export).filter(|_| !names.is_empty()) {
        spec.insert("latestResourceSchemas".to_owned(), names.into());
    }
}

fn resources_to_v1alpha2(export: &mut Value) -> Result<(), ConversionError> {
    let elsewhere = take_annotation(export, RESOURCES_ANNOTATION);
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
    resources.extend(elsewhere);
    if let Some(spec) = spec_of(export).filter(|_| !resources.is_empty()) {
        spec.insert("resources".to_owned(), resources.into());
    }
    Ok(())
}

fn spec_of(export: &mut Value) -> Option<&mut Map<String, Value>> {
    export.get_mut("spec").and_then(Value::as_object_mut)
}

/// Removes an annotation with a JSON list; whatever is not one counts as empty.
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
    fn an_export_with_claims() {
        let newer = json!({
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
        let older = json!({
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
        assert_eq!(apis_to_v1alpha1(newer.clone()), older);
        assert_eq!(apis_to_v1alpha2(older).unwrap(), newer);
    }

    /// As recorded in `e-apiexport`, requests 196 and 204.
    #[test]
    fn a_binding_with_claims() {
        let newer = json!({
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
        let older = json!({
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
        assert_eq!(apis_to_v1alpha1(newer.clone()), older);
        assert_eq!(apis_to_v1alpha2(older).unwrap(), newer);
    }

    #[test]
    fn what_does_not_fit_survives_both_round_trips() {
        let older = json!({
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
        let newer = apis_to_v1alpha2(older.clone()).unwrap();
        assert_eq!(newer["spec"]["resources"][0]["group"], "");
        assert_eq!(apis_to_v1alpha1(newer), older);

        let newer = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": "a"},
            "spec": {"permissionClaims": [
                {"group": "g", "identityHash": "", "resource": "r", "state": "Accepted", "verbs": ["get"],
                 "selector": {"matchLabels": {"a": "b"}}},
            ]},
        });
        assert_eq!(apis_to_v1alpha2(apis_to_v1alpha1(newer.clone())).unwrap(), newer);

        let newer = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
            "metadata": {"name": "a"},
            "spec": {"resources": [
                {"group": "g.io", "name": "r", "schema": "v1.r.g.io",
                 "storage": {"virtual": {"identityHash": "x", "reference": {"kind": "K", "name": "n"}}}},
            ]},
        });
        let older = apis_to_v1alpha1(newer.clone());
        assert_eq!(older["spec"], json!({}));
        assert_eq!(apis_to_v1alpha2(older).unwrap(), newer);
    }

    #[test]
    fn a_new_state_in_the_other_version_keeps_the_verbs() {
        let newer = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "a"},
            "spec": {"permissionClaims": [
                {"group": "", "identityHash": "", "resource": "secrets", "state": "Accepted", "verbs": ["get"],
                 "selector": {"matchAll": true}},
            ]},
        });
        let mut older = apis_to_v1alpha1(newer);
        older["spec"]["permissionClaims"][0]["state"] = "Rejected".into();
        let claim = &apis_to_v1alpha2(older).unwrap()["spec"]["permissionClaims"][0];
        assert_eq!(claim["state"], "Rejected");
        assert_eq!(claim["verbs"], json!(["get"]));
    }

    #[test]
    fn nonsense_is_left_to_validation() {
        for nonsense in [
            json!([1]),
            json!({"kind": "APIExport", "metadata": 1, "spec": "x"}),
            json!({"kind": "APIBinding", "spec": {"permissionClaims": [1, {}]}, "status": []}),
        ] {
            let older = apis_to_v1alpha1(nonsense.clone());
            assert_eq!(older.is_object(), nonsense.is_object());
            assert!(apis_to_v1alpha2(nonsense).is_ok());
        }
    }

    #[test]
    fn a_schema_name_without_group_cannot_be_converted() {
        let export = json!({"kind": "APIExport", "spec": {"latestResourceSchemas": ["pods"]}});
        assert_eq!(apis_to_v1alpha2(export), Err(ConversionError::SchemaName("pods".to_owned())));
    }
}
