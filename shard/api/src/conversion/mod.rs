//! APIExport and APIBinding between v1alpha1 and v1alpha2.
//!
//! Neither version can express everything that the other can. Whenever converting back would not give the original, the
//! original is saved in an annotation below `apis.v1alpha2.kcp.io/`. The conversion back takes from it the fields that the
//! other version does not have, as in kcp. So a round trip loses nothing, and a client of one version keeps what clients of
//! the other one wrote.

use serde_json::{Map, Value, json};

/// An object that cannot be converted. The cause is the object; a retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The schema's name has no group. v1alpha2 needs group and resource, which v1alpha1 holds only in the schema's name.
    #[error("invalid schema {0:?}: must have at least 3 dot-separated segments")]
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
    /// The fields of v1alpha2 that v1alpha1 does not have.
    v1alpha2_fields: &'static [&'static str],
}

/// The fields of a v1alpha1 claim that v1alpha2 does not have.
const V1ALPHA1_FIELDS: &[&str] = &["all", "resourceSelector"];

const EXPORT_CLAIMS: ClaimList = ClaimList {
    part: "spec",
    field: "permissionClaims",
    v1alpha2_annotation: "apis.v1alpha2.kcp.io/permission-claims",
    v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-permission-claims",
    to_v1alpha2: export_claim,
    v1alpha2_fields: &["verbs", "defaultSelector"],
};

const BINDING_CLAIMS: [ClaimList; 3] = [
    ClaimList {
        part: "spec",
        field: "permissionClaims",
        v1alpha2_annotation: "apis.v1alpha2.kcp.io/acceptable-permission-claims",
        v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-permission-claims",
        to_v1alpha2: binding_claim,
        v1alpha2_fields: &["verbs", "defaultSelector", "selector"],
    },
    ClaimList {
        part: "status",
        field: "exportPermissionClaims",
        v1alpha2_annotation: "apis.v1alpha2.kcp.io/status-export-permission-claims",
        v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims",
        to_v1alpha2: export_claim,
        v1alpha2_fields: &["verbs", "defaultSelector"],
    },
    ClaimList {
        part: "status",
        field: "appliedPermissionClaims",
        v1alpha2_annotation: "apis.v1alpha2.kcp.io/status-applied-permission-claims",
        v1alpha1_annotation: "apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims",
        to_v1alpha2: binding_claim,
        v1alpha2_fields: &["verbs", "defaultSelector", "selector"],
    },
];

#[derive(Clone, Copy)]
enum Direction {
    ToV1alpha1,
    ToV1alpha2,
}

fn convert_claims(object: &mut Value, list: &ClaimList, direction: Direction) {
    let to_v1alpha1: fn(&Value) -> Value = claim_to_v1alpha1;
    let (convert, convert_back, read_annotation, save_annotation, fields) = match direction {
        Direction::ToV1alpha1 => (
            to_v1alpha1,
            list.to_v1alpha2,
            list.v1alpha1_annotation,
            list.v1alpha2_annotation,
            V1ALPHA1_FIELDS,
        ),
        Direction::ToV1alpha2 => (
            list.to_v1alpha2,
            to_v1alpha1,
            list.v1alpha2_annotation,
            list.v1alpha1_annotation,
            list.v1alpha2_fields,
        ),
    };
    let saved: Vec<Value> = take_annotation(object, read_annotation);
    let Some(claims) =
        object.get_mut(list.part).and_then(|part| part.get_mut(list.field)).and_then(Value::as_array_mut)
    else {
        return;
    };
    let mut lost = Vec::new();
    for claim in claims.iter_mut() {
        let mut converted = convert(claim);
        if let Some(saved) = saved.iter().find(|saved| saved.is_object() && is_same_claim(saved, claim)) {
            restore(&mut converted, saved, fields);
        }
        let is_lossless = without_empty_values(&convert_back(&converted)) == without_empty_values(claim);
        if !is_lossless {
            lost.push(ordered_json(claim));
        }
        *claim = converted;
    }
    if !lost.is_empty() {
        set_annotation(object, save_annotation, format!("[{}]", lost.join(",")));
    }
}

/// Takes the fields from a saved claim. A client may have written anything, so fields of other types are left as they are.
fn restore(claim: &mut Value, saved: &Value, fields: &[&str]) {
    for field in fields {
        let value = saved.get(field).unwrap_or(&Value::Null);
        let is_restored = match *field {
            "all" => value.is_boolean() || value.is_null(),
            "resourceSelector" => value.is_array(),
            "verbs" => value.as_array().is_some_and(|verbs| !verbs.is_empty()),
            // A selector without terms selects nothing, which v1alpha1 cannot express.
            _ => value.as_object().is_some_and(|selector| !selector.is_empty()),
        };
        let Some(claim) = claim.as_object_mut().filter(|_| is_restored) else { continue };
        if value.is_null() || value == &Value::Bool(false) {
            claim.remove(*field);
        } else {
            claim.insert((*field).to_owned(), value.clone());
        }
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
    let (named_resources, other_resources): (Vec<Value>, Vec<Value>) =
        resources.into_iter().partition(|resource| {
            let of_name = resource["schema"].as_str().and_then(|name| resource_of_schema(name).ok());
            of_name.is_some_and(|of_name| of_name == *resource)
        });
    if !other_resources.is_empty() {
        set_annotation(export, RESOURCES_ANNOTATION, Value::from(other_resources).to_string());
    }
    let names: Vec<Value> = named_resources.iter().map(|resource| resource["schema"].clone()).collect();
    if let Some(spec) = spec_of(export).filter(|_| !names.is_empty()) {
        spec.insert("latestResourceSchemas".to_owned(), names.into());
    }
}

fn resources_to_v1alpha2(export: &mut Value) -> Result<(), ConversionError> {
    let saved_resources = take_annotation(export, RESOURCES_ANNOTATION);
    let names = spec_of(export).and_then(|spec| spec.remove("latestResourceSchemas"));
    let mut resources = Vec::new();
    for name in names.as_ref().and_then(Value::as_array).into_iter().flatten() {
        resources.push(resource_of_schema(name.as_str().unwrap_or_default())?);
    }
    resources.extend(saved_resources);
    if let Some(spec) = spec_of(export).filter(|_| !resources.is_empty()) {
        spec.insert("resources".to_owned(), resources.into());
    }
    Ok(())
}

/// The resource that a name in `latestResourceSchemas` stands for. Other resources are saved in an annotation: virtual ones, and
/// those whose schema has another name.
fn resource_of_schema(name: &str) -> Result<Value, ConversionError> {
    let mut parts = name.splitn(3, '.').skip(1);
    let (Some(resource), Some(group)) = (parts.next(), parts.next()) else {
        return Err(ConversionError::SchemaName(name.to_owned()));
    };
    let group = if group == "core" { "" } else { group };
    Ok(json!({"group": group, "name": resource, "schema": name, "storage": {"crd": {}}}))
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
mod tests;
