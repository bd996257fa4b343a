//! Strategic merge patch: a merge patch that merges lists by the list types of the schema.
//!
//! A patch is JSON of the object's shape. Besides plain fields it may contain directives: `$patch` (`replace` or
//! `delete`) in objects and list items, `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`
//! beside a list. The kind's schema defines which lists merge, and by which key; other lists are replaced. Only
//! built-in kinds have such schemas: Kubernetes refuses this patch type for custom resources.
//!
//! As in Kubernetes, the result may contain nulls and directives of new values. They disappear when the result is
//! decoded: fields that the kind does not have are dropped.

use core::mem::discriminant;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::list_merge::{ItemMerge, MergedList, without_directives};
use super::strategic_error::{PATCH, StrategicPatchError, unknown_directive, wrong_type};
use crate::builtin::{BuiltinKind, FieldShape, ListMerge, Shape, ShapeTable, builtin_shapes};

const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Applies `patch` to `object` in place. After an error, the object is partly patched and must be discarded.
///
/// # Errors
/// [`StrategicPatchError`].
pub fn apply_strategic_merge_patch(
    kind: &BuiltinKind,
    object: &mut Value,
    patch: &Value,
) -> Result<(), StrategicPatchError> {
    let shapes = builtin_shapes();
    let shape = shapes.get(kind.definition).unwrap_or(&Shape::Any);
    apply(shapes, UnknownFields::Refused, shape, object, patch)
}

/// The treatment of an object or list that exists already and whose shape is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownFields {
    /// It cannot be merged, as in Kubernetes for values below open maps and raw JSON.
    Refused,
    /// Objects are merged, lists are replaced. For tables of shapes that only name lists which merge.
    Merged,
}

/// Applies a patch to an object of a shape.
pub(super) fn apply(
    shapes: &ShapeTable,
    unknown: UnknownFields,
    shape: &Shape,
    object: &mut Value,
    patch: &Value,
) -> Result<(), StrategicPatchError> {
    let Value::Object(patch) = patch else {
        return Err(StrategicPatchError::NotAnObject);
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Value::Object(fields) = object {
        StrategicMerge { shapes, unknown }.object(shape, fields, patch)?;
    }
    Ok(())
}

struct StrategicMerge<'a> {
    shapes: &'a ShapeTable,
    unknown: UnknownFields,
}

impl<'a> ItemMerge<'a> for StrategicMerge<'a> {
    fn item(
        &self,
        shape: &'a Shape,
        fields: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError> {
        self.object(shape, fields, patch)
    }
}

impl<'a> StrategicMerge<'a> {
    fn object(
        &self,
        shape: &'a Shape,
        fields: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError> {
        match patch.get(PATCH).map(|directive| (directive, directive.as_str())) {
            None => {}
            Some((_, Some("replace"))) => {
                fields.clone_from(patch);
                fields.remove(PATCH);
                return Ok(());
            }
            Some((_, Some("delete"))) => {
                fields.clear();
                return Ok(());
            }
            Some((directive, _)) => return Err(unknown_directive(directive, patch)),
        }
        retain_keys(fields, patch)?;
        let mut ordered: Vec<&str> = Vec::new();
        for (directive, order) in patch.iter().filter(|(name, _)| name.starts_with(SET_ORDER)) {
            let order = as_list(order)?;
            let malformed = StrategicPatchError::MalformedDirective("setElementOrder list");
            let name = list_name(directive, SET_ORDER).ok_or(malformed)?;
            self.ordered_list(shape, name, fields, patch.get(name), order)?;
            ordered.push(name);
        }
        for (name, value) in patch {
            let is_done =
                name == RETAIN_KEYS || name.starts_with(SET_ORDER) || ordered.contains(&name.as_str());
            if is_done {
                continue;
            }
            if name.starts_with(DELETE_FROM_LIST) {
                let malformed = StrategicPatchError::MalformedDirective("primitive list");
                let name = list_name(name, DELETE_FROM_LIST).ok_or(malformed)?;
                self.deletion(shape, name, fields, value)?;
            } else {
                self.field(shape, name, fields, value)?;
            }
        }
        Ok(())
    }

    fn field(
        &self,
        shape: &'a Shape,
        name: &str,
        fields: &mut Map<String, Value>,
        value: &Value,
    ) -> Result<(), StrategicPatchError> {
        match (fields.get_mut(name), value) {
            (_, Value::Null) => drop(fields.remove(name)),
            (Some(Value::Object(current)), Value::Object(value)) => {
                if self.specified(shape, name).is_some_and(|field| field.is_replaced) {
                    current.clone_from(value);
                    return Ok(());
                }
                self.object(self.field_shape(shape, name)?, current, value)?;
            }
            (Some(Value::Array(current)), Value::Array(value)) => {
                let own = core::mem::take(current);
                *current = self.merged_list(shape, name)?.merge(self, own, value)?;
            }
            // The Go type of a built-in kind has an empty struct here, with which the value is merged.
            (None, Value::Object(value)) if self.is_struct(shape, name) => {
                let mut own = Map::new();
                self.object(self.field_shape(shape, name)?, &mut own, value)?;
                fields.insert(name.to_owned(), own.into());
            }
            _ => match without_directives(&without_nulls(value)) {
                Some(value) => drop(fields.insert(name.to_owned(), value)),
                None => drop(fields.remove(name)),
            },
        }
        Ok(())
    }

    /// `$deleteFromPrimitiveList`. As in Kubernetes, other values than lists are treated as if they were the field's.
    fn deletion(
        &self,
        shape: &'a Shape,
        name: &str,
        fields: &mut Map<String, Value>,
        value: &Value,
    ) -> Result<(), StrategicPatchError> {
        match (fields.get_mut(name), value) {
            (Some(Value::Array(current)), Value::Array(deleted)) => {
                let own = core::mem::take(current);
                *current = self.merged_list(shape, name)?.without(self, own, deleted)?;
                Ok(())
            }
            (Some(current), value) if value.is_null() || discriminant(current) == discriminant(value) => {
                self.field(shape, name, fields, value)
            }
            _ => Ok(()),
        }
    }

    /// Merges a list that has a `$setElementOrder` and sorts it.
    fn ordered_list(
        &self,
        shape: &'a Shape,
        name: &str,
        fields: &mut Map<String, Value>,
        patch: Option<&Value>,
        order: &[Value],
    ) -> Result<(), StrategicPatchError> {
        let own = fields.get(name).map(as_list).transpose()?;
        let patch = patch.map(as_list).transpose()?;
        let list = self.merged_list(shape, name)?;
        if let Some(merged) = list.merge_ordered(self, own, patch, order)? {
            fields.insert(name.to_owned(), merged.into());
        }
        Ok(())
    }

    fn merged_list(&self, shape: &'a Shape, name: &str) -> Result<MergedList<'a>, StrategicPatchError> {
        Ok(match self.shapes.resolve(self.field_shape(shape, name)?) {
            Shape::List { items, merge } => MergedList { items, merge },
            _ => MergedList { items: &Shape::Any, merge: &ListMerge::Replace },
        })
    }

    fn field_shape(&self, shape: &'a Shape, name: &str) -> Result<&'a Shape, StrategicPatchError> {
        if let Some(field) = self.specified(shape, name) {
            return Ok(&field.shape);
        }
        match (self.unknown, self.shapes.resolve(shape)) {
            (UnknownFields::Merged, _) => Ok(&Shape::Any),
            (UnknownFields::Refused, Shape::Map(_)) => Err(StrategicPatchError::BelowMap),
            (UnknownFields::Refused, _) => Err(StrategicPatchError::NoField {
                name: shape.type_name().to_owned(),
                field: name.to_owned(),
            }),
        }
    }

    fn is_struct(&self, shape: &'a Shape, name: &str) -> bool {
        self.unknown == UnknownFields::Refused
            && self.specified(shape, name).is_some_and(|field| field.is_struct)
    }

    /// The field, if the shape specifies it.
    fn specified(&self, shape: &'a Shape, name: &str) -> Option<&'a FieldShape> {
        match self.shapes.resolve(shape) {
            Shape::Object(object) => object.field(name),
            _ => None,
        }
    }
}

/// Removes the fields that `$retainKeys` does not list. The patch must not set others.
fn retain_keys(
    fields: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), StrategicPatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let malformed = StrategicPatchError::MalformedDirective("retainKeys");
    let Some(keys) = keys.as_array() else { return Err(malformed) };
    let kept: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_directive =
        |name: &str| name == RETAIN_KEYS || name.starts_with(SET_ORDER) || name.starts_with(DELETE_FROM_LIST);
    let is_set = |(name, value): &(&String, &Value)| !value.is_null() && !is_directive(name);
    if patch.iter().filter(is_set).any(|(name, _)| !kept.contains(name.as_str())) {
        return Err(malformed);
    }
    fields.retain(|name, _| kept.contains(name.as_str()));
    Ok(())
}

/// The list that a directive such as `$setElementOrder/finalizers` names.
fn list_name<'d>(directive: &'d str, prefix: &str) -> Option<&'d str> {
    directive.strip_prefix(prefix)?.strip_prefix('/')
}

fn as_list(value: &Value) -> Result<&[Value], StrategicPatchError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong_type("[]interface {}", value))
}

/// A new value without the fields that are null. Nulls in lists are kept.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::builtin::{builtin_by_kind, shape_table};

    /// A schema with every list type; the built-in kinds have few.
    fn schemas() -> Value {
        json!({
            "Pod": {"type": "object", "properties": {
                "containers": {"type": "array", "items": {"$ref": "#/components/schemas/Container"},
                    "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"},
                "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
                "args": {"type": "array", "items": {"type": "string"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "strategy": {"type": "object", "properties": {
                    "type": {"type": "string"}, "rolling": {"type": "object"}, "recreate": {"type": "object"}}},
            }},
            "Container": {"type": "object", "properties": {
                "name": {"type": "string"}, "image": {"type": "string"},
                "ports": {"type": "array", "x-kubernetes-patch-strategy": "merge",
                    "x-kubernetes-patch-merge-key": "port",
                    "items": {"type": "object", "properties": {
                        "port": {"type": "integer"}, "name": {"type": "string"}}}},
            }},
        })
    }

    fn patched(object: Value, patch: Value) -> Result<Value, StrategicPatchError> {
        let schemas = schemas();
        let shapes = shape_table(schemas.as_object().unwrap());
        let mut object = object;
        apply(&shapes, UnknownFields::Refused, shapes.get("Pod").unwrap(), &mut object, &patch)?;
        Ok(object)
    }

    #[test]
    fn patches_merge_as_in_kubernetes() {
        for (case, object, patch, expected) in [
            (
                "fields merge, null deletes",
                json!({"labels": {"a": "1", "b": "2"}, "args": ["x"]}),
                json!({"labels": {"a": null, "c": "3"}}),
                json!({"labels": {"b": "2", "c": "3"}, "args": ["x"]}),
            ),
            ("null on nothing is nothing", json!({}), json!({"labels": {"a": null}}), json!({"labels": {}})),
            (
                "atomic lists are replaced",
                json!({"args": ["x", "y"]}),
                json!({"args": ["z"]}),
                json!({"args": ["z"]}),
            ),
            (
                "items merge by key and have the order of the patch",
                json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
                json!({"containers": [{"name": "c", "image": "3"}, {"name": "a", "image": "9"}]}),
                json!({"containers": [{"name": "c", "image": "3"}, {"name": "a", "image": "9"},
                    {"name": "b", "image": "2"}]}),
            ),
            (
                "lists within items merge too",
                json!({"containers": [{"name": "a", "ports": [{"port": 1, "name": "x"}]}]}),
                json!({"containers": [{"name": "a", "ports": [{"port": 1, "name": "y"}, {"port": 2}]}]}),
                json!({"containers": [{"name": "a", "ports": [{"port": 1, "name": "y"}, {"port": 2}]}]}),
            ),
            (
                "an item is deleted by directive",
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "zz", "$patch": "delete"}]}),
                json!({"containers": [{"name": "b"}]}),
            ),
            (
                "a list is replaced by directive",
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
                json!({"containers": [{"name": "c"}]}),
            ),
            (
                "an object is replaced by directive",
                json!({"labels": {"a": "1"}, "args": []}),
                json!({"labels": {"$patch": "replace", "b": "2"}}),
                json!({"labels": {"b": "2"}, "args": []}),
            ),
            (
                "an object is deleted by directive",
                json!({"labels": {"a": "1"}, "args": []}),
                json!({"labels": {"$patch": "delete"}}),
                json!({"labels": {}, "args": []}),
            ),
            (
                "retained keys",
                json!({"strategy": {"type": "rolling", "rolling": {"max": 1}}}),
                json!({"strategy": {"$retainKeys": ["type", "recreate"], "type": "recreate", "recreate": {}}}),
                json!({"strategy": {"type": "recreate", "recreate": {}}}),
            ),
            (
                "sets are united",
                json!({"finalizers": ["a", "b"]}),
                json!({"finalizers": ["b", "c"]}),
                json!({"finalizers": ["a", "b", "c"]}),
            ),
            (
                "values are deleted from sets",
                json!({"finalizers": ["a", "b", "c"]}),
                json!({"$deleteFromPrimitiveList/finalizers": ["b", "x"], "finalizers": ["d"]}),
                json!({"finalizers": ["d", "a", "c"]}),
            ),
            (
                "order of a set",
                json!({"finalizers": ["a", "b"]}),
                json!({"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]}),
                json!({"finalizers": ["c", "b", "a"]}),
            ),
            (
                "order of items; the server's own stays before the item that it preceded",
                json!({"containers": [{"name": "a"}, {"name": "server"}, {"name": "b"}]}),
                json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
                    "containers": [{"name": "new"}]}),
                json!({"containers": [{"name": "server"}, {"name": "b"}, {"name": "new"}, {"name": "a"}]}),
            ),
            (
                "order alone, without a change of the list",
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
                json!({"containers": [{"name": "b"}, {"name": "a"}]}),
            ),
            (
                "objects with a directive are not added, and new values keep what decoding drops",
                json!({}),
                json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "b", "image": null}],
                    "strategy": {"$retainKeys": ["type"], "type": "x"}, "$setElementOrder/containers": [{"name": "b"}]}),
                json!({"containers": [{"name": "b", "image": null}],
                    "strategy": {"$retainKeys": ["type"], "type": "x"}}),
            ),
            ("an empty patch changes nothing", json!({"args": ["x"]}), json!({}), json!({"args": ["x"]})),
        ] {
            assert_eq!(patched(object, patch), Ok(expected), "{case}");
        }
    }

    #[test]
    fn malformed_patches_are_refused() {
        let containers = || json!({"containers": [{"name": "a"}], "labels": {"a": "1"}});
        for (patch, expected) in [
            (json!([]), "a strategic merge patch must be an object"),
            (
                json!({"labels": {"$patch": "explode"}}),
                r#"unknown patch type: explode in map: {"$patch":"explode"}"#,
            ),
            (
                json!({"containers": [{"image": "x"}]}),
                r#"map: {"image":"x"} does not contain declared merge key: name"#,
            ),
            (json!({"containers": ["x"]}), r#"list element types are not identical: [{"name":"a"},"x"]"#),
            (
                json!({"containers": [{"name": "a", "$patch": "merge"}]}),
                "merging lists cannot yet be specified in the patch",
            ),
            (json!({"$deleteFromPrimitiveList": ["x"]}), "invalid patch format of primitive list"),
            (json!({"labels": {"$retainKeys": ["b"], "a": "2"}}), "invalid patch format of retainKeys"),
            (
                json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "c"}]}),
                "The order in patch list:\n[{\"name\":\"c\"}]\n doesn't match $setElementOrder list:\n[{\"name\":\"b\"}]\n",
            ),
        ] {
            let error = patched(containers(), patch).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn built_in_kinds_merge_by_their_keys() {
        let account = builtin_by_kind("", "v1", "ServiceAccount").unwrap();
        let owner = |uid: &str| json!({"uid": uid, "name": uid, "kind": "K", "apiVersion": "v1"});
        let mut object = json!({"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "x"}],
            "metadata": {"finalizers": ["f/1"], "ownerReferences": [owner("1")]}});
        let patch = json!({"secrets": [{"name": "b"}], "imagePullSecrets": [{"name": "y"}],
            "metadata": {"finalizers": ["f/2"], "labels": {"a": "b"}, "ownerReferences": [owner("2")]}});
        apply_strategic_merge_patch(account, &mut object, &patch).unwrap();
        assert_eq!(
            object,
            json!({"secrets": [{"name": "b"}, {"name": "a"}], "imagePullSecrets": [{"name": "y"}],
                "metadata": {"finalizers": ["f/2", "f/1"], "labels": {"a": "b"},
                    "ownerReferences": [owner("2"), owner("1")]}})
        );
    }

    #[test]
    fn config_map_keys_and_schema_fields_may_begin_with_a_dollar() {
        let map = builtin_by_kind("", "v1", "ConfigMap").unwrap();
        let mut object = json!({"data": {"$a": "1"}});
        apply_strategic_merge_patch(map, &mut object, &json!({"data": {"$a": "2"}})).unwrap();
        assert_eq!(object, json!({"data": {"$a": "2"}}));
    }
}
