//! Normalizes a decoded object to the form that a Kubernetes server stores, as if it had been decoded into the Go
//! type.
//!
//! Wrong types are errors. Unknown fields are dropped and reported. Nulls and zeros that mean "absent" are removed.
//! Times and base64 are written in canonical form. Works in place, in one pass.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_cel::Quantity;
use serde_json::{Map, Value};

use super::definitions::builtin_shapes;
use super::kind::BuiltinKind;
use super::shape::{ObjectShape, Scalar, Shape, ShapeTable};
use crate::decode::{go_type_of, whole_numbers_to_integers};
use crate::go_time::TimeLayout;

/// A value whose type its field cannot hold; the client is at fault (400). The text is Go's, without the prefix
/// `<Kind> in version "v1" cannot be handled as a <Kind>: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NormalizeError(String);

impl BuiltinKind {
    /// Normalizes an object of this kind. Returns the paths of the unknown fields that were dropped, such as `spec.x`
    /// or `rules[0].y`, for `fieldValidation`.
    ///
    /// # Errors
    /// A value has the wrong type. The object is then partly normalized and must be discarded.
    pub fn normalize(&self, object: &mut Value) -> Result<Vec<String>, NormalizeError> {
        normalize_definition(self.definition, object)
    }
}

/// Normalizes a value of any definition: `DeleteOptions`, `TokenRequest`, or the `ObjectMeta` of a custom resource. A
/// value of an unknown definition is not changed.
///
/// # Errors
/// See [`BuiltinKind::normalize`].
pub fn normalize_definition(definition: &str, value: &mut Value) -> Result<Vec<String>, NormalizeError> {
    let shapes = builtin_shapes();
    let Some(shape) = shapes.get(definition) else {
        return Ok(Vec::new());
    };
    let name = definition.rsplit('.').next().unwrap_or(definition);
    let mut normalizer = Normalizer { shapes, unknown: Vec::new() };
    normalizer.value(shape, value, &Position { go_type: name, go_field: "", path: "" })?;
    Ok(normalizer.unknown)
}

struct Normalizer<'a> {
    shapes: &'a ShapeTable,
    unknown: Vec<String>,
}

/// The position of the current value: the Go type and field as in Go's errors, and the field path.
struct Position<'a> {
    go_type: &'a str,
    go_field: &'a str,
    path: &'a str,
}

impl Normalizer<'_> {
    fn value(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        position: &Position<'_>,
    ) -> Result<(), NormalizeError> {
        match (self.shapes.resolve(shape), value) {
            (Shape::Any | Shape::Definition(_), value) => {
                whole_numbers_to_integers(value);
                Ok(())
            }
            (Shape::Scalar(scalar), value) => self.scalar(*scalar, value, position),
            (Shape::Object(object), Value::Object(fields)) => self.object(object, fields, position),
            (Shape::Map(values), Value::Object(entries)) => {
                for (key, value) in entries {
                    self.element(values, value, &join(position.path, key), position)?;
                }
                Ok(())
            }
            (Shape::List { items, .. }, Value::Array(elements)) => {
                for (index, element) in elements.iter_mut().enumerate() {
                    self.element(items, element, &format!("{}[{index}]", position.path), position)?;
                }
                Ok(())
            }
            (shape, value) => Err(self.mismatch(shape, value, position)),
        }
    }

    /// Normalizes an item of a list or a map, where null is the zero value of the item's type.
    fn element(
        &mut self,
        shape: &Shape,
        value: &mut Value,
        path: &str,
        position: &Position<'_>,
    ) -> Result<(), NormalizeError> {
        if value.is_null() {
            *value = self.zero(shape);
            return Ok(());
        }
        self.value(shape, value, &Position { path, ..*position })
    }

    fn object(
        &mut self,
        shape: &ObjectShape,
        fields: &mut Map<String, Value>,
        position: &Position<'_>,
    ) -> Result<(), NormalizeError> {
        let mut dropped: Vec<String> = Vec::new();
        for (name, value) in fields.iter_mut() {
            let Some(field) = shape.field(name) else {
                self.unknown.push(join(position.path, name));
                dropped.push(name.clone());
                continue;
            };
            if value.is_null() {
                // A null in an open field is data; in other fields it means "absent", also in `fieldsV1`.
                if name == "fieldsV1" || !matches!(self.shapes.resolve(&field.shape), Shape::Any) {
                    dropped.push(name.clone());
                }
                continue;
            }
            let path = join(position.path, name);
            let go_field = join(position.go_field, name);
            self.value(
                &field.shape,
                value,
                &Position { go_type: &shape.name, go_field: &go_field, path: &path },
            )?;
            let is_absent = match self.shapes.resolve(&field.shape) {
                // An empty list resets the owners of all fields.
                Shape::List { .. } if name == "managedFields" => false,
                Shape::List { .. } | Shape::Map(_) => is_empty(value),
                Shape::Scalar(_) => !field.keeps_zero && is_zero(value),
                _ => false,
            };
            if is_absent {
                dropped.push(name.clone());
            }
        }
        for name in dropped {
            fields.remove(&name);
        }
        Ok(())
    }

    fn scalar(
        &self,
        scalar: Scalar,
        value: &mut Value,
        position: &Position<'_>,
    ) -> Result<(), NormalizeError> {
        let fits = match (scalar, &mut *value) {
            (Scalar::Text, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) => true,
            (Scalar::Number, value @ Value::Number(_)) => {
                whole_numbers_to_integers(value);
                true
            }
            (Scalar::Quantity, value) => {
                let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
                let canonical = Quantity::canonical(&text);
                *value = canonical.map_err(|error| NormalizeError(error.to_owned()))?.into();
                true
            }
            (Scalar::Int64, Value::Number(number)) => number.is_i64(),
            (Scalar::Int32, Value::Number(number)) => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            (Scalar::Bytes, Value::String(text)) => {
                *text = canonical_base64(text)?;
                true
            }
            (Scalar::Time, Value::String(text)) => {
                *text = canonical_time(text, TimeLayout::Seconds)?;
                true
            }
            (Scalar::MicroTime, Value::String(text)) => {
                *text = canonical_time(text, TimeLayout::Microseconds)?;
                true
            }
            // Go reads the text of a time on its own, without the field.
            (Scalar::Time | Scalar::MicroTime, value) => {
                let found = go_type_of(value);
                return Err(NormalizeError(format!(
                    "json: cannot unmarshal {found} into Go value of type string"
                )));
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(self.mismatch(&Shape::Scalar(scalar), value, position))
    }

    fn mismatch(&self, shape: &Shape, value: &Value, position: &Position<'_>) -> NormalizeError {
        let found = match value {
            Value::Number(number) if matches!(shape, Shape::Scalar(Scalar::Int32 | Scalar::Int64)) => {
                format!("number {number}")
            }
            other => go_type_of(other).to_owned(),
        };
        let wanted = self.go_type(shape);
        let field = match position.go_field {
            "" => String::new(),
            field => format!("Go struct field {}.{field}", position.go_type),
        };
        NormalizeError(match field.as_str() {
            "" => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            field => format!("json: cannot unmarshal {found} into {field} of type {wanted}"),
        })
    }

    fn go_type(&self, shape: &Shape) -> String {
        match self.shapes.resolve(shape) {
            Shape::Any | Shape::Definition(_) => "interface {}".to_owned(),
            Shape::Object(object) => format!("v1.{}", object.name),
            Shape::Map(values) => format!("map[string]{}", self.go_type(values)),
            Shape::List { items, .. } => format!("[]{}", self.go_type(items)),
            Shape::Scalar(scalar) => match scalar {
                Scalar::Text => "string",
                Scalar::Bytes => "[]uint8",
                Scalar::Bool => "bool",
                Scalar::Int32 => "int32",
                Scalar::Int64 => "int64",
                Scalar::Number => "float64",
                Scalar::Time => "v1.Time",
                Scalar::MicroTime => "v1.MicroTime",
                Scalar::Quantity => "resource.Quantity",
            }
            .to_owned(),
        }
    }

    fn zero(&self, shape: &Shape) -> Value {
        match self.shapes.resolve(shape) {
            Shape::Any | Shape::Definition(_) => Value::Null,
            Shape::Object(_) | Shape::Map(_) => Value::Object(Map::new()),
            Shape::List { .. } => Value::Array(Vec::new()),
            Shape::Scalar(Scalar::Bool) => Value::Bool(false),
            Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number) => Value::from(0),
            Shape::Scalar(Scalar::Quantity) => Value::from("0"),
            Shape::Scalar(_) => Value::from(""),
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Validates base64 and removes line breaks, which Go ignores.
fn canonical_base64(text: &str) -> Result<String, NormalizeError> {
    let compact: String = text.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
    match STANDARD.decode(&compact) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(error) => {
            let position = match error {
                base64::DecodeError::InvalidByte(position, _)
                | base64::DecodeError::InvalidLastSymbol(position, _) => position,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                    compact.len() - compact.len() % 4
                }
            };
            Err(NormalizeError(format!("illegal base64 data at input byte {position}")))
        }
    }
}

fn canonical_time(text: &str, layout: TimeLayout) -> Result<String, NormalizeError> {
    let instant = layout.parse(text).map_err(NormalizeError)?;
    let (unit, digits) = match layout {
        TimeLayout::Seconds => (jiff::Unit::Second, 0),
        TimeLayout::Microseconds => (jiff::Unit::Microsecond, 6),
    };
    let cut = jiff::TimestampRound::new().smallest(unit).mode(jiff::RoundMode::Trunc);
    let instant = instant.round(cut).unwrap_or(instant);
    Ok(format!("{instant:.digits$}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::kind::{builtin_by_resource, builtin_kinds};
    use super::*;

    fn normalize(group: &str, plural: &str, mut object: Value) -> Result<(Value, Vec<String>), String> {
        let kind = builtin_by_resource(group, "v1", plural).unwrap();
        let unknown = kind.normalize(&mut object).map_err(|error| error.to_string())?;
        Ok((object, unknown))
    }

    #[test]
    fn objects_are_normalized_as_by_a_go_server() {
        let crds = "apiextensions.k8s.io";
        for (group, plural, object, expected) in [
            (
                "",
                "configmaps",
                json!({"metadata": {"name": "a", "creationTimestamp": null, "labels": {}, "generation": 0},
                    "data": {"a": null}, "binaryData": {}, "immutable": false}),
                json!({"metadata": {"name": "a"}, "data": {"a": ""}, "immutable": false}),
            ),
            (
                "",
                "namespaces",
                json!({"metadata": {"name": "a", "annotations": null}, "spec": {}, "status": {"phase": ""}}),
                json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}),
            ),
            (
                "",
                "resourcequotas",
                json!({"spec": {"hard": {"secrets": 2000, "configmaps": " 2 ", "requests.memory": "1024Ki", "pods": null}}}),
                json!({"spec": {"hard": {
                    "secrets": "2k", "configmaps": "2", "requests.memory": "1Mi", "pods": "0"}}}),
            ),
            (
                "",
                "secrets",
                json!({"data": {"a": "eA==", "b": "e\nA==\r\n"}, "type": ""}),
                json!({"data": {"a": "eA==", "b": "eA=="}}),
            ),
            (
                "coordination.k8s.io",
                "leases",
                json!({"spec": {"holderIdentity": "", "leaseTransitions": 0,
                    "renewTime": "2026-01-02T03:04:05.123456+01:00"}}),
                json!({"spec": {"holderIdentity": "", "leaseTransitions": 0,
                    "renewTime": "2026-01-02T02:04:05.123456Z"}}),
            ),
            (
                "rbac.authorization.k8s.io",
                "rolebindings",
                json!({"subjects": [{"kind": "User", "name": "", "namespace": ""}], "roleRef": {"kind": "Role"}}),
                json!({"subjects": [{"kind": "User", "name": ""}], "roleRef": {"kind": "Role"}}),
            ),
            (
                crds,
                "customresourcedefinitions",
                json!({"spec": {"versions": [{"name": "v1", "served": false, "schema": {"openAPIV3Schema":
                    {"nullable": false, "default": {"a": null}, "properties": {"x": {"items": {"type": "string"}},
                        "y": {"additionalProperties": false}, "z": {"enum": [null, 1]}}}}}]}}),
                json!({"spec": {"versions": [{"name": "v1", "served": false, "schema": {"openAPIV3Schema":
                    {"default": {"a": null}, "properties": {"x": {"items": {"type": "string"}},
                        "y": {"additionalProperties": false}, "z": {"enum": [null, 1]}}}}}]}}),
            ),
        ] {
            assert_eq!(normalize(group, plural, object), Ok((expected, vec![])), "{plural}");
        }
    }

    #[test]
    fn unknown_fields_are_dropped_and_reported() {
        let object = json!({"metadata": {"name": "a", "nick": "b"}, "bogus": 1,
            "rules": [{"verbs": ["get"], "verb": "x"}]});
        let (object, unknown) = normalize("rbac.authorization.k8s.io", "roles", object).unwrap();
        assert_eq!(object, json!({"metadata": {"name": "a"}, "rules": [{"verbs": ["get"]}]}));
        assert_eq!(unknown, ["bogus", "metadata.nick", "rules[0].verb"]);
    }

    #[test]
    fn wrong_types_have_the_error_texts_of_go() {
        for (plural, object, expected) in [
            (
                "configmaps",
                json!({"data": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                "configmaps",
                json!({"data": []}),
                "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "configmaps",
                json!({"metadata": {"labels": {"a": true}}}),
                "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            ("configmaps", json!([]), "json: cannot unmarshal array into Go value of type v1.ConfigMap"),
            (
                "events",
                json!({"count": 1.5}),
                "json: cannot unmarshal number 1.5 into Go struct field Event.count of type int32",
            ),
            ("secrets", json!({"data": {"a": "e*=="}}), "illegal base64 data at input byte 1"),
            (
                "resourcequotas",
                json!({"spec": {"hard": {"secrets": "0x"}}}),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                "resourcequotas",
                json!({"spec": {"hard": {"secrets": true}}}),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                "events",
                json!({"count": 1.0}),
                "json: cannot unmarshal number 1.0 into Go struct field Event.count of type int32",
            ),
            (
                "events",
                json!({"count": 2147483648_i64}),
                "json: cannot unmarshal number 2147483648 into Go struct field Event.count of type int32",
            ),
            (
                "events",
                json!({"count": "1"}),
                "json: cannot unmarshal string into Go struct field Event.count of type int32",
            ),
            (
                "events",
                json!({"metadata": {"generation": 18446744073709551615_u64}}),
                "json: cannot unmarshal number 18446744073709551615 into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
            (
                "events",
                json!({"firstTimestamp": 1}),
                "json: cannot unmarshal number into Go value of type string",
            ),
            (
                "events",
                json!({"eventTime": "2026-01-02T03:04:05Z"}),
                r#"parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
            (
                "namespaces",
                json!({"metadata": {"creationTimestamp": "yesterday"}}),
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
            ),
        ] {
            assert_eq!(normalize("", plural, object), Err(expected.to_owned()));
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let names = prop::sample::select(vec!["metadata", "labels", "data", "rules", "verbs", "x", "$patch"]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            "[ -~]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Normalizing is idempotent, and no object makes any step panic.
        #[test]
        fn normalizing_is_idempotent(object in any_json(), patch in any_json()) {
            for kind in builtin_kinds() {
                let mut patched = object.clone();
                let _ = crate::patch::apply_strategic_merge_patch(kind, &mut patched, &patch);
                for mut object in [object.clone(), patched] {
                    if kind.normalize(&mut object).is_err() {
                        continue;
                    }
                    kind.semantics().prepare_create(&mut object);
                    kind.semantics().default(&mut object);
                    let _ = kind.semantics().validate_update(&object, &patch);
                    let _ = kind.table_cells(&object, jiff::Timestamp::UNIX_EPOCH);
                    prop_assert_eq!(kind.normalize(&mut object).map_err(|error| error.to_string()), Ok(vec![]));
                    let once = object.clone();
                    prop_assert!(kind.normalize(&mut object).is_ok());
                    prop_assert_eq!(&object, &once);
                }
            }
        }
    }

    #[test]
    fn options_and_metadata_are_normalized() {
        let mut options = json!({"kind": "DeleteOptions", "gracePeriodSeconds": 0, "dryRun": [], "x": 1});
        let unknown =
            normalize_definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &mut options);
        assert_eq!(unknown, Ok(vec!["x".to_owned()]));
        assert_eq!(options, json!({"kind": "DeleteOptions", "gracePeriodSeconds": 0}));
    }
}
