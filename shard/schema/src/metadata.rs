//! `metadata`: coercion and validation. Every object has it, and no resource's schema describes it.

use serde_json::{Map, Value};

use crate::field::{FieldError, FieldPath, MAX_FINDINGS};
use crate::names::{self, NameRule};

/// Maximum size of all annotation keys and values together, in bytes.
pub const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;

/// Whether objects of a resource are namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `metadata.namespace` is required.
    Namespaced,
    /// `metadata.namespace` is forbidden.
    Cluster,
}

/// Decodes a `metadata` in place: removes unknown and absent fields, and writes timestamps in their canonical form
/// (UTC, whole seconds).
///
/// Returns the paths of removed fields (`metadata.bogus`), for `fieldValidation`. The errors are fields of the wrong
/// type; Kubernetes responds to them with 400, not 422, because the object cannot be decoded. A missing `metadata` is
/// valid. `path` is the path of the metadata, for example `metadata`.
pub fn coerce(metadata: &mut Value, path: &FieldPath) -> Result<Vec<String>, Vec<FieldError>> {
    let mut unknown = Vec::new();
    let mut errors = Vec::new();
    coerce_object(metadata, OBJECT_META, path, &mut unknown, &mut errors);
    if let Value::Object(fields) = metadata {
        remove_absent(fields);
    }
    if errors.is_empty() { Ok(unknown) } else { Err(errors) }
}

/// Gives the coerced metadata of an embedded resource the form in which Kubernetes writes it: an object, whose owner
/// references have all fields that are required.
pub(crate) fn complete(metadata: &mut Value) {
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(fields) = metadata else { return };
    // An empty list resets owners in requests only; embedded resources have no owners of their own.
    fields.retain(|name, value| {
        name != "managedFields" || value.as_array().is_none_or(|list| !list.is_empty())
    });
    let owners = fields.get_mut("ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in ["apiVersion", "kind", "name", "uid"] {
            owner.entry(field).or_insert_with(|| "".into());
        }
    }
}

/// Removes the fields whose value means "absent": null, an empty text, list or map, and generation 0. Kubernetes never
/// writes them, and a field that is not there has no owner.
pub fn remove_absent(metadata: &mut Map<String, Value>) {
    metadata.retain(|name, value| match value {
        Value::Null => false,
        // An empty list of a request resets the owners of all fields.
        Value::Array(items) => !items.is_empty() || name == "managedFields",
        Value::Object(entries) => !entries.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => name != "generation" || number.as_i64() != Some(0),
        Value::Bool(_) => true,
    });
}

/// Validates the `metadata` of a new object, or of an object after an update.
///
/// `metadata` must have been coerced. The order of the errors is that of Kubernetes.
pub fn validate_object_meta(
    metadata: &Value,
    scope: Scope,
    name_rule: NameRule,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let (name, generate_name, namespace) = (text("name"), text("generateName"), text("namespace"));

    if !generate_name.is_empty() {
        for finding in name_rule.check_prefix(generate_name) {
            errors.push(FieldError::invalid_str(path.child("generateName"), generate_name, &finding));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), "name or generateName is required"));
    } else {
        for finding in name_rule.check_name(name) {
            errors.push(FieldError::invalid_str(path.child("name"), name, &finding));
        }
    }
    match scope {
        Scope::Namespaced if namespace.is_empty() => {
            errors.push(FieldError::required(path.child("namespace"), ""));
        }
        Scope::Namespaced => {
            for finding in names::dns1123_label(namespace) {
                errors.push(FieldError::invalid_str(path.child("namespace"), namespace, &finding));
            }
        }
        Scope::Cluster if !namespace.is_empty() => {
            errors.push(FieldError::forbidden(path.child("namespace"), "not allowed on this type"));
        }
        Scope::Cluster => {}
    }
    validate_generation(metadata, path, &mut errors);
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = metadata.get("annotations").and_then(Value::as_object) {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
        errors.extend(validate_owner_references(owners, &path.child("ownerReferences")));
    }
    if let Some(finalizers) = metadata.get("finalizers").and_then(Value::as_array) {
        errors.extend(validate_finalizers(finalizers, &path.child("finalizers")));
    }
    errors
}

/// Validates an update of `metadata` against the old object, in the order of Kubernetes. [`validate_object_meta`]
/// applies to an update as well, with [`NameRule::PathSegment`]: a rule for names that became stricter must not block
/// updates of existing objects.
///
/// The caller has already filled in the fields that an update may omit (`uid`, `creationTimestamp`, `generation`, the
/// deletion fields). Any difference is therefore an attempt to change them.
pub fn validate_object_meta_update(metadata: &Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let being_deleted = is_set(old, "deletionTimestamp");
    if being_deleted {
        let old_finalizers = strings(old, "finalizers");
        let added: Vec<&str> = strings(metadata, "finalizers")
            .into_iter()
            .filter(|name| !old_finalizers.contains(name))
            .collect();
        if !added.is_empty() {
            let added = &added[..added.len().min(MAX_FINDINGS)];
            let shown: Vec<String> = added.iter().map(|name| crate::field::go_quote(name)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            );
            errors.push(FieldError::forbidden(path.child("finalizers"), &detail));
        }
    }
    let old_generation = metadata_integer(old, "generation");
    if metadata_integer(metadata, "generation") < old_generation {
        let value = metadata.get("generation").cloned().unwrap_or_else(|| Value::from(0));
        errors.push(FieldError::invalid(path.child("generation"), &value, "must not be decremented"));
    }
    let immutable =
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in immutable {
        let (new_value, old_value) = (metadata.get(field), old.get(field));
        let is_empty = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == "");
        if new_value != old_value && !(is_empty(new_value) && is_empty(old_value)) {
            let value = new_value.cloned().unwrap_or(Value::Null);
            errors.push(FieldError::invalid(path.child(field), &value, IMMUTABLE));
        }
    }
    errors
}

/// Finalizers without a domain that Kubernetes knows.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "foregroundDeletion", "orphan"];

/// The text of an error about a change of an immutable field.
pub const IMMUTABLE: &str = "field is immutable";

/// Validates keys and values of labels.
pub fn validate_labels(labels: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        for finding in names::label_key(key) {
            errors.push(FieldError::invalid_str(path.clone(), key, &finding));
        }
        let value = value.as_str().unwrap_or_default();
        for finding in names::label_value(value) {
            errors.push(FieldError::invalid_str(path.clone(), value, &finding));
        }
    }
    errors
}

/// Validates the keys of annotations and their total size.
pub fn validate_annotations(annotations: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        // Kubernetes allows upper case in the prefix of an annotation key, for historical reasons.
        for finding in names::qualified_name(&key.to_lowercase()) {
            if errors.len() < MAX_FINDINGS {
                errors.push(FieldError::invalid_str(path.clone(), key, &finding));
            }
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_ANNOTATIONS_SIZE {
        errors.push(FieldError::too_long(path.clone(), MAX_ANNOTATIONS_SIZE));
    }
    errors
}

fn validate_generation(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if metadata_integer(metadata, "generation") < 0 {
        let value = metadata.get("generation").cloned().unwrap_or(Value::Null);
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.child("generation"), &value, detail));
    }
}

fn validate_finalizers(finalizers: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let texts: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
    for finalizer in &texts {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        for finding in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid_str(path.clone(), finalizer, &finding));
        }
    }
    if texts.contains(&"orphan") && texts.contains(&"foregroundDeletion") {
        let value = Value::Array(finalizers.to_vec());
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path.clone(), &value, detail));
    }
    errors
}

/// Validates the finalizers of kinds that Kubernetes validates as it does those of its core group: a name without a domain must be one
/// of the standard ones.
pub fn validate_core_finalizers(metadata: &Value, path: &FieldPath) -> Vec<FieldError> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    let names = finalizers.enumerate().filter_map(|(at, one)| Some((at, one.as_str()?)));
    let errors =
        names.filter_map(|(at, name)| unqualified_finalizer(name, path.child("finalizers").index(at)));
    errors.take(MAX_FINDINGS).collect()
}

/// The error of a finalizer that has no domain and is none of the standard ones.
pub(crate) fn unqualified_finalizer(name: &str, path: FieldPath) -> Option<FieldError> {
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let is_valid = name.contains('/') || STANDARD_FINALIZERS.contains(&name);
    (!is_valid).then(|| FieldError::invalid_str(path, name, detail))
}

fn validate_owner_references(owners: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for owner in owners {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        // Kubernetes does not say which of the references is meant.
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        if version.is_empty() || text("apiVersion").matches('/').count() > 1 {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid_str(path.child("apiVersion"), text("apiVersion"), detail));
        }
        for (field, detail) in
            [("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty")]
        {
            if text(field).is_empty() {
                errors.push(FieldError::invalid_str(path.child(field), "", detail));
            }
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_quoted(path.clone(), &owner_text(owner), detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            match controller {
                None => controller = Some(format!("{}/{}", text("kind"), text("name"))),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {}/{}",
                        text("kind"),
                        text("name")
                    );
                    let all = owners.iter().map(owner_text).collect::<Vec<_>>().join(",");
                    errors.push(FieldError::invalid_quoted(path.clone(), &format!("[{all}]"), &detail));
                    // One error is enough, because each quotes the whole list.
                    break;
                }
            }
        }
    }
    errors
}

/// An owner reference as Go's encoder writes it.
fn owner_text(owner: &Value) -> String {
    let always = ["apiVersion", "kind", "name", "uid"];
    let set = ["controller", "blockOwnerDeletion"].into_iter().filter(|field| !owner[*field].is_null());
    let fields = always.into_iter().chain(set).map(|field| match &owner[field] {
        Value::Null => format!("{field:?}:\"\""),
        value => format!("{field:?}:{value}"),
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn metadata_integer(metadata: &Value, field: &str) -> i64 {
    metadata.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn is_set(metadata: &Value, field: &str) -> bool {
    metadata.get(field).is_some_and(|value| !value.is_null())
}

fn strings<'m>(metadata: &'m Value, field: &str) -> Vec<&'m str> {
    metadata.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The type of a field of `metadata`.
#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Integer,
    Boolean,
    Time,
    StringMap,
    StringList,
    ObjectList(&'static [(&'static str, FieldType)]),
    /// Not decoded: `fieldsV1`.
    Verbatim,
}

/// `ObjectMeta` of `meta.k8s.io/v1`.
const OBJECT_META: &[(&str, FieldType)] = &[
    ("annotations", FieldType::StringMap),
    ("creationTimestamp", FieldType::Time),
    ("deletionGracePeriodSeconds", FieldType::Integer),
    ("deletionTimestamp", FieldType::Time),
    ("finalizers", FieldType::StringList),
    ("generateName", FieldType::Text),
    ("generation", FieldType::Integer),
    ("labels", FieldType::StringMap),
    ("managedFields", FieldType::ObjectList(MANAGED_FIELDS)),
    ("name", FieldType::Text),
    ("namespace", FieldType::Text),
    ("ownerReferences", FieldType::ObjectList(OWNER_REFERENCE)),
    ("resourceVersion", FieldType::Text),
    ("selfLink", FieldType::Text),
    ("uid", FieldType::Text),
];

const OWNER_REFERENCE: &[(&str, FieldType)] = &[
    ("apiVersion", FieldType::Text),
    ("blockOwnerDeletion", FieldType::Boolean),
    ("controller", FieldType::Boolean),
    ("kind", FieldType::Text),
    ("name", FieldType::Text),
    ("uid", FieldType::Text),
];

const MANAGED_FIELDS: &[(&str, FieldType)] = &[
    ("apiVersion", FieldType::Text),
    ("fieldsType", FieldType::Text),
    ("fieldsV1", FieldType::Verbatim),
    ("manager", FieldType::Text),
    ("operation", FieldType::Text),
    ("subresource", FieldType::Text),
    ("time", FieldType::Time),
];

fn coerce_object(
    value: &mut Value,
    field_types: &[(&str, FieldType)],
    path: &FieldPath,
    unknown: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) {
    let Value::Object(fields) = value else {
        if !value.is_null() {
            errors.push(wrong_type(path, value, "object"));
        }
        return;
    };
    fields.retain(|name, field| {
        let Some((_, field_type)) = field_types.iter().find(|(known, _)| known == name) else {
            if unknown.len() < MAX_FINDINGS {
                unknown.push(path.child(name).as_str().to_owned());
            }
            return false;
        };
        if field.is_null() {
            return false;
        }
        coerce_field(field, *field_type, &path.child(name), unknown, errors);
        true
    });
}

fn coerce_field(
    value: &mut Value,
    field_type: FieldType,
    path: &FieldPath,
    unknown: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    match (field_type, &mut *value) {
        (FieldType::Verbatim, _)
        | (FieldType::Text, Value::String(_))
        | (FieldType::Boolean, Value::Bool(_)) => {}
        (FieldType::Integer, Value::Number(number)) if number.is_i64() => {}
        (FieldType::Time, Value::String(text)) => match canonical_time(text) {
            Some(canonical) => *text = canonical,
            None => errors.push(wrong_type(path, value, "date-time")),
        },
        (FieldType::StringMap, Value::Object(entries)) => {
            for (key, entry) in entries.iter_mut() {
                if entry.is_null() {
                    // Go reads null as the empty string.
                    *entry = Value::String(String::new());
                } else if !entry.is_string() && errors.len() < MAX_FINDINGS {
                    errors.push(wrong_type(&path.key(key), entry, "string"));
                }
            }
        }
        (FieldType::StringList, Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                if item.is_null() {
                    *item = Value::String(String::new());
                } else if !item.is_string() && errors.len() < MAX_FINDINGS {
                    errors.push(wrong_type(&path.index(index), item, "string"));
                }
            }
        }
        (FieldType::ObjectList(field_types), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                if item.is_null() {
                    *item = Value::Object(Map::new());
                }
                coerce_object(item, field_types, &path.index(index), unknown, errors);
            }
        }
        (FieldType::Text, _) => errors.push(wrong_type(path, value, "string")),
        (FieldType::Integer, _) => errors.push(wrong_type(path, value, "integer")),
        (FieldType::Boolean, _) => errors.push(wrong_type(path, value, "boolean")),
        (FieldType::Time, _) => errors.push(wrong_type(path, value, "date-time")),
        (FieldType::StringMap, _) => errors.push(wrong_type(path, value, "object")),
        (FieldType::StringList | FieldType::ObjectList(_), _) => {
            errors.push(wrong_type(path, value, "array"))
        }
    }
}

fn wrong_type(path: &FieldPath, value: &Value, expected: &str) -> FieldError {
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(text) => text,
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let detail = format!("{path} in body must be of type {expected}: {}", crate::field::go_quote(actual));
    FieldError::type_invalid_str(path.clone(), actual, &detail)
}

/// RFC 3339 in UTC without fractions, as `metav1.Time` is written.
fn canonical_time(text: &str) -> Option<String> {
    let timestamp = crate::go_time::TimeLayout::Seconds.parse(text).ok()?;
    let seconds = jiff::Timestamp::from_second(timestamp.as_second()).ok()?;
    Some(seconds.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path() -> FieldPath {
        FieldPath::new("metadata")
    }

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_fields_and_nulls_are_removed() {
        let mut metadata = json!({
            "name": "n", "bogus": 1, "creationTimestamp": null, "labels": {"a": null},
            "ownerReferences": [{"name": "o", "extra": true}], "managedFields": [{"fieldsV1": {"f:x": {}}, "y": 1}],
            "generation": 3,
        });
        assert_eq!(
            coerce(&mut metadata, &path()).unwrap(),
            ["metadata.bogus", "metadata.managedFields[0].y", "metadata.ownerReferences[0].extra"]
        );
        assert_eq!(
            metadata,
            json!({
                "name": "n", "labels": {"a": ""}, "ownerReferences": [{"name": "o"}],
                "managedFields": [{"fieldsV1": {"f:x": {}}}], "generation": 3,
            })
        );
        assert_eq!(coerce(&mut metadata, &path()).unwrap(), Vec::<String>::new());
        assert_eq!(coerce(&mut Value::Null, &path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn empty_fields_are_absent() {
        let mut metadata = json!({
            "name": "n", "generateName": "", "namespace": null, "generation": 0, "labels": {}, "annotations": {},
            "finalizers": [], "ownerReferences": [], "managedFields": [], "deletionGracePeriodSeconds": 0,
        });
        coerce(&mut metadata, &path()).unwrap();
        assert_eq!(metadata, json!({"name": "n", "managedFields": [], "deletionGracePeriodSeconds": 0}));
    }

    #[test]
    fn timestamps_become_canonical() {
        let table = [
            ("2026-11-21T13:31:43Z", "2026-11-21T13:31:43Z"),
            ("2026-11-21T14:31:43+01:00", "2026-11-21T13:31:43Z"),
            ("2026-11-21T13:31:43.999Z", "2026-11-21T13:31:43Z"),
        ];
        for (given, expected) in table {
            let mut metadata = json!({"creationTimestamp": given});
            coerce(&mut metadata, &path()).unwrap();
            assert_eq!(metadata["creationTimestamp"], expected);
        }
    }

    #[test]
    fn wrong_types_are_errors() {
        let mut metadata = json!({
            "name": 1, "labels": {"a": 1}, "annotations": [], "finalizers": "x", "generation": "1",
            "creationTimestamp": "yesterday", "ownerReferences": [1],
        });
        let errors = coerce(&mut metadata, &path()).unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "metadata.annotations",
                "metadata.creationTimestamp",
                "metadata.finalizers",
                "metadata.generation",
                "metadata.labels[a]",
                "metadata.name",
                "metadata.ownerReferences[0]",
            ]
        );
        assert!(errors.iter().all(|error| error.reason() == "FieldValueTypeInvalid"));
    }

    #[test]
    fn finalizers_of_core_kinds_have_a_domain_or_are_standard() {
        let metadata =
            json!({"finalizers": ["a.io/x", "nodomain", "kubernetes", "orphan", "foregroundDeletion", ""]});
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        assert_eq!(
            texts(&validate_core_finalizers(&metadata, &path())),
            [
                format!("metadata.finalizers[1]: Invalid value: \"nodomain\": {detail}"),
                format!("metadata.finalizers[5]: Invalid value: \"\": {detail}"),
            ]
        );
        assert_eq!(validate_core_finalizers(&json!({}), &path()), []);
    }

    #[test]
    fn recorded_errors_have_their_order() {
        let metadata = json!({"name": "Bad_Name", "namespace": "demo", "labels": {"a b": "c d"}, "annotations": {"x y": "z"}});
        let errors = validate_object_meta(&metadata, Scope::Namespaced, NameRule::Dns1123Subdomain, &path());
        let starts = [
            "metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must",
            "metadata.labels: Invalid value: \"a b\": name part must consist of",
            "metadata.labels: Invalid value: \"c d\": a valid label must be",
            "metadata.annotations: Invalid value: \"x y\": name part must consist of",
        ];
        assert_eq!(errors.len(), starts.len());
        for (error, start) in errors.iter().zip(starts) {
            assert!(error.to_string().starts_with(start), "{error}");
        }
        let errors = validate_object_meta(&json!({}), Scope::Cluster, NameRule::Dns1123Subdomain, &path());
        assert_eq!(texts(&errors), ["metadata.name: Required value: name or generateName is required"]);
    }

    #[test]
    fn the_namespace_is_required_or_forbidden_by_scope() {
        let rule = NameRule::Dns1123Subdomain;
        let in_namespace = json!({"name": "n", "namespace": "ns"});
        let without = json!({"name": "n"});
        assert_eq!(validate_object_meta(&in_namespace, Scope::Namespaced, rule, &path()), []);
        assert_eq!(validate_object_meta(&without, Scope::Cluster, rule, &path()), []);
        assert_eq!(
            texts(&validate_object_meta(&without, Scope::Namespaced, rule, &path())),
            ["metadata.namespace: Required value"]
        );
        assert_eq!(
            texts(&validate_object_meta(&in_namespace, Scope::Cluster, rule, &path())),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
    }

    #[test]
    fn finalizers_owners_and_annotations_have_rules() {
        let rule = NameRule::Dns1123Subdomain;
        let check = |fields: Value| {
            let mut metadata = json!({"name": "n"});
            metadata.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            texts(&validate_object_meta(&metadata, Scope::Cluster, rule, &path()))
        };
        // Only namespaces require a domain in finalizers; the finalizer of CRDs has none.
        assert!(check(json!({"finalizers": ["mine.io", "orphan", "example.com/x"]})).is_empty());
        assert_eq!(
            check(json!({"finalizers": ["orphan", "foregroundDeletion"]})),
            [
                r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
            ]
        );
        let owner = json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u"});
        assert!(check(json!({"ownerReferences": [owner]})).is_empty());
        assert_eq!(
            check(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "", "uid": ""}]})),
            [
                r#"metadata.ownerReferences.name: Invalid value: "": must not be empty"#,
                r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
            ]
        );
        assert_eq!(
            check(json!({"ownerReferences": [
                {"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "u", "blockOwnerDeletion": true}]})),
            [
                r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"o","uid":"u","blockOwnerDeletion":true}: /v1, Kind=Event is disallowed from being an owner"#
            ]
        );
        let controller = |name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
        let errors = check(json!({"ownerReferences": [controller("a"), controller("b")]}));
        assert_eq!(
            errors,
            [
                r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"K","name":"a","uid":"u","controller":true},{"apiVersion":"v1","kind":"K","name":"b","uid":"u","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for K/a and K/b"#
            ]
        );
        assert_eq!(
            check(json!({"annotations": {"a": "x".repeat(MAX_ANNOTATIONS_SIZE)}})),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn metadata_updates_are_validated() {
        let old = json!({
            "name": "n", "uid": "u", "creationTimestamp": "t", "generation": 2,
            "deletionTimestamp": "d", "finalizers": ["example.com/f"],
        });
        assert_eq!(validate_object_meta_update(&old, &old, &path()), []);
        let mut new = old.clone();
        new["finalizers"] = json!(["example.com/f", "example.com/g"]);
        new["uid"] = json!("other");
        new["generation"] = json!(1);
        assert_eq!(
            texts(&validate_object_meta_update(&new, &old, &path())),
            [
                r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/g"}"#,
                "metadata.generation: Invalid value: 1: must not be decremented",
                r#"metadata.uid: Invalid value: "other": field is immutable"#,
            ]
        );
    }
}
