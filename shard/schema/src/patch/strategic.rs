//! Strategic merge patch: a merge patch that merges lists by the list types of the schema.
//!
//! A patch is JSON of the object's shape. Besides plain fields it may contain directives: `$patch` (`replace`,
//! `delete`, `merge`) in objects and list items, `$retainKeys`, `$setElementOrder/<list>` and
//! `$deleteFromPrimitiveList/<list>` beside a list. The kind's schema defines which lists merge, and by which key;
//! other lists are replaced. Only built-in kinds have such schemas: Kubernetes refuses this patch type for custom
//! resources.

use serde_json::{Map, Value};

use crate::builtin::{BuiltinKind, ListMerge, Shape, ShapeTable, builtin_shapes};

/// Errors of a strategic merge patch. The client is at fault (400 for a malformed patch; 422 is never needed).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicPatchError {
    /// The patch is not an object.
    #[error("a strategic merge patch must be an object")]
    NotAnObject,
    /// `$patch` has an unknown value, or one that is invalid at this place.
    #[error("unable to find api field or directive: invalid value {0} of $patch")]
    UnknownDirective(String),
    /// The value of a directive is not a list of the required type.
    #[error("{0} must hold a list of {1}")]
    MalformedDirective(String, &'static str),
    /// An item of a list that merges by key has no key.
    #[error("map: {item} does not contain declared merge key: {key}")]
    MissingMergeKey {
        /// The item.
        item: String,
        /// The merge key of the list.
        key: String,
    },
    /// The patch has a list where the object has another type, or the other way round.
    #[error("the type of {0} in the patch and in the object differ")]
    TypeMismatch(String),
}

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

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
    apply(shapes, shapes.get(kind.definition).unwrap_or(&Shape::Any), object, patch)
}

/// Applies a patch to an object of a shape.
pub(super) fn apply(
    shapes: &ShapeTable,
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
        StrategicMerge { shapes }.object(shape, fields, patch)?;
    }
    Ok(())
}

/// The value of `$patch`.
enum Directive {
    Merge,
    Replace,
    Delete,
}

impl Directive {
    fn parse(patch: &Map<String, Value>) -> Result<Self, StrategicPatchError> {
        match patch.get(PATCH) {
            None => Ok(Directive::Merge),
            Some(Value::String(text)) if text == "merge" => Ok(Directive::Merge),
            Some(Value::String(text)) if text == "replace" => Ok(Directive::Replace),
            Some(Value::String(text)) if text == "delete" => Ok(Directive::Delete),
            Some(other) => Err(StrategicPatchError::UnknownDirective(other.to_string())),
        }
    }
}

struct StrategicMerge<'a> {
    shapes: &'a ShapeTable,
}

impl<'a> StrategicMerge<'a> {
    fn object(
        &self,
        shape: &'a Shape,
        fields: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError> {
        match Directive::parse(patch)? {
            Directive::Merge => {}
            Directive::Replace => {
                fields.clear();
                fields.extend(patch.iter().filter(|(name, _)| *name != PATCH).map(clone_entry));
                return Ok(());
            }
            Directive::Delete => {
                fields.clear();
                return Ok(());
            }
        }
        if let Some(keys) = patch.get(RETAIN_KEYS) {
            let keys = texts(RETAIN_KEYS, keys)?;
            fields.retain(|name, _| keys.contains(&name.as_str()));
        }
        self.delete_from_lists(fields, patch)?;
        for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
            self.field(self.field_shape(shape, name), name, fields, value, patch)?;
        }
        self.reorder_untouched_lists(shape, fields, patch)
    }

    fn field(
        &self,
        shape: &'a Shape,
        name: &str,
        fields: &mut Map<String, Value>,
        value: &Value,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError> {
        if value.is_null() {
            fields.remove(name);
            return Ok(());
        }
        match (fields.get_mut(name), value) {
            (Some(Value::Object(current)), Value::Object(value)) => {
                if matches!(Directive::parse(value)?, Directive::Delete) {
                    fields.remove(name);
                    return Ok(());
                }
                self.object(shape, current, value)
            }
            (Some(Value::Array(current)), Value::Array(value)) => {
                let order = patch.get(&format!("{SET_ORDER}{name}"));
                self.list(shape, name, current, value, order)
            }
            (Some(current), _) if current.is_object() != value.is_object() && !current.is_null() => {
                // A field without a schema may change its type. A known field of another type would fail to decode.
                if !matches!(self.shapes.resolve(shape), Shape::Any | Shape::Scalar(_)) {
                    return Err(StrategicPatchError::TypeMismatch(name.to_owned()));
                }
                fields.insert(name.to_owned(), value.clone());
                Ok(())
            }
            (_, value) => {
                // The object has no value to merge with: insert the patch's value without its directives and nulls.
                if let Some(value) = self.merge_into_absent(shape, name, value)? {
                    fields.insert(name.to_owned(), value);
                }
                Ok(())
            }
        }
    }

    fn list(
        &self,
        shape: &'a Shape,
        name: &str,
        current: &mut Vec<Value>,
        patch: &[Value],
        order: Option<&Value>,
    ) -> Result<(), StrategicPatchError> {
        let (items, merge) = match self.shapes.resolve(shape) {
            Shape::List { items, merge } => (&**items, merge),
            _ => (&Shape::Any, &ListMerge::Replace),
        };
        match merge {
            ListMerge::Replace => {
                *current = patch.to_vec();
                Ok(())
            }
            ListMerge::Set => {
                let order = order.map(|order| list_of(SET_ORDER, order)).transpose()?;
                for item in patch {
                    if !current.contains(item) {
                        current.push(item.clone());
                    }
                }
                if let Some(order) = order {
                    sort_by_rank(current, |item| order.iter().position(|wanted| wanted == item));
                }
                Ok(())
            }
            ListMerge::ByKey(key) => {
                self.list_by_key(items, key, current, patch)?;
                match order {
                    Some(order) => sort_by_key_order(name, key, current, order),
                    None => Ok(()),
                }
            }
        }
    }

    fn list_by_key(
        &self,
        items: &'a Shape,
        key: &str,
        current: &mut Vec<Value>,
        patch: &[Value],
    ) -> Result<(), StrategicPatchError> {
        // An item `$patch: replace` replaces the whole list by the other items of the patch.
        let replaces = |item: &Value| {
            item.get(PATCH).and_then(Value::as_str) == Some("replace") && item.get(key).is_none()
        };
        if patch.iter().any(replaces) {
            *current = patch.iter().filter(|item| !replaces(item)).cloned().collect();
            return Ok(());
        }
        for item in patch {
            let Value::Object(item) = item else {
                return Err(missing_key(item, key));
            };
            let value = item.get(key).ok_or_else(|| missing_key(&Value::Object(item.clone()), key))?;
            let position = current.iter().position(|candidate| candidate.get(key) == Some(value));
            match (Directive::parse(item)?, position) {
                (Directive::Delete, _) => current.retain(|candidate| candidate.get(key) != Some(value)),
                (Directive::Replace, Some(position)) => {
                    current[position] = Value::Object(without_directives(item));
                }
                (Directive::Merge, Some(position)) => {
                    if let Some(Value::Object(fields)) = current.get_mut(position) {
                        self.object(items, fields, item)?;
                    }
                }
                (_, None) => {
                    if let Some(item) = self.merge_into_absent(items, key, &Value::Object(item.clone()))? {
                        current.push(item);
                    }
                }
            }
        }
        Ok(())
    }

    /// The result of merging `value` into an absent field, which is the same as merging it into an empty value. `None`
    /// if the patch only deletes.
    fn merge_into_absent(
        &self,
        shape: &'a Shape,
        name: &str,
        value: &Value,
    ) -> Result<Option<Value>, StrategicPatchError> {
        match value {
            Value::Object(patch) => {
                if matches!(Directive::parse(patch)?, Directive::Delete) {
                    return Ok(None);
                }
                let mut fields = Map::new();
                self.object(shape, &mut fields, patch)?;
                Ok(Some(Value::Object(fields)))
            }
            Value::Array(patch) => {
                let mut items = Vec::new();
                self.list(shape, name, &mut items, patch, None)?;
                Ok(Some(Value::Array(items)))
            }
            scalar => Ok(Some(scalar.clone())),
        }
    }

    fn delete_from_lists(
        &self,
        fields: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError> {
        for (directive, deleted) in patch {
            let Some(list) = directive.strip_prefix(DELETE_FROM_LIST) else {
                continue;
            };
            let deleted = list_of(directive, deleted)?;
            if let Some(Value::Array(items)) = fields.get_mut(list) {
                items.retain(|item| !deleted.contains(item));
            }
        }
        Ok(())
    }

    /// Applies `$setElementOrder` to lists that the patch does not change otherwise.
    fn reorder_untouched_lists(
        &self,
        shape: &'a Shape,
        fields: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError> {
        for (directive, order) in patch {
            let Some(name) = directive.strip_prefix(SET_ORDER) else {
                continue;
            };
            let wanted = list_of(directive, order)?;
            if patch.contains_key(name) {
                continue;
            }
            let Some(Value::Array(items)) = fields.get_mut(name) else {
                continue;
            };
            match self.shapes.resolve(self.field_shape(shape, name)) {
                Shape::List { merge: ListMerge::ByKey(key), .. } => {
                    sort_by_key_order(name, key, items, order)?
                }
                Shape::List { merge: ListMerge::Set, .. } => {
                    sort_by_rank(items, |item| wanted.iter().position(|candidate| candidate == item));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn field_shape(&self, shape: &'a Shape, name: &str) -> &'a Shape {
        match self.shapes.resolve(shape) {
            Shape::Object(object) => object.field(name).map_or(&Shape::Any, |field| &field.shape),
            Shape::Map(values) => values,
            _ => &Shape::Any,
        }
    }
}

/// Other names that begin with `$` are data, such as keys of a ConfigMap or the `$ref` of a schema.
fn is_directive(name: &str) -> bool {
    matches!(name, PATCH | RETAIN_KEYS) || name.starts_with(SET_ORDER) || name.starts_with(DELETE_FROM_LIST)
}

fn without_directives(item: &Map<String, Value>) -> Map<String, Value> {
    item.iter().filter(|(name, _)| *name != PATCH && *name != RETAIN_KEYS).map(clone_entry).collect()
}

fn clone_entry((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn missing_key(item: &Value, key: &str) -> StrategicPatchError {
    StrategicPatchError::MissingMergeKey { item: item.to_string(), key: key.to_owned() }
}

fn list_of<'v>(directive: &str, value: &'v Value) -> Result<&'v [Value], StrategicPatchError> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(StrategicPatchError::MalformedDirective(directive.to_owned(), "values")),
    }
}

fn texts<'v>(directive: &str, value: &'v Value) -> Result<Vec<&'v str>, StrategicPatchError> {
    let wrong = || StrategicPatchError::MalformedDirective(directive.to_owned(), "strings");
    list_of(directive, value)?.iter().map(|item| item.as_str().ok_or_else(wrong)).collect()
}

fn sort_by_key_order(
    name: &str,
    key: &str,
    items: &mut [Value],
    order: &Value,
) -> Result<(), StrategicPatchError> {
    let order = list_of(&format!("{SET_ORDER}{name}"), order)?;
    sort_by_rank(items, |item| {
        let value = item.get(key)?;
        order.iter().position(|wanted| wanted.get(key) == Some(value))
    });
    Ok(())
}

/// Sorts the items that the patch lists into the order of the patch. Any other item stays behind its predecessor, and
/// an item without a predecessor stays first.
fn sort_by_rank(items: &mut [Value], rank: impl Fn(&Value) -> Option<usize>) {
    let mut anchor = None;
    let mut keys: Vec<(Option<usize>, usize)> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        // An item without a rank has the rank of its predecessor; the index sorts it behind that.
        let known = rank(item);
        anchor = known.or(anchor);
        keys.push((anchor, if known.is_some() { 0 } else { index + 1 }));
    }
    let mut indices: Vec<usize> = (0..items.len()).collect();
    indices.sort_by_key(|index| keys[*index]);
    let sorted: Vec<Value> = indices.iter().map(|index| items[*index].take()).collect();
    for (item, sorted) in items.iter_mut().zip(sorted) {
        *item = sorted;
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
        apply(&shapes, shapes.get("Pod").unwrap(), &mut object, &patch)?;
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
                "items merge by key, new ones are appended",
                json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
                json!({"containers": [{"name": "c", "image": "3"}, {"name": "a", "image": "9"}]}),
                json!({"containers": [{"name": "a", "image": "9"}, {"name": "b", "image": "2"},
                    {"name": "c", "image": "3"}]}),
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
                "an item is replaced by directive",
                json!({"containers": [{"name": "a", "image": "1", "ports": []}]}),
                json!({"containers": [{"name": "a", "image": "2", "$patch": "replace"}]}),
                json!({"containers": [{"name": "a", "image": "2"}]}),
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
                json!({"args": []}),
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
                json!({"finalizers": ["a", "c", "d"]}),
            ),
            (
                "order of a set",
                json!({"finalizers": ["a", "b"]}),
                json!({"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]}),
                json!({"finalizers": ["c", "b", "a"]}),
            ),
            (
                "order of items; the server's own stays behind its neighbour",
                json!({"containers": [{"name": "a"}, {"name": "server"}, {"name": "b"}]}),
                json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
                    "containers": [{"name": "new"}]}),
                json!({"containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}, {"name": "server"}]}),
            ),
            (
                "order alone, without a change of the list",
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
                json!({"containers": [{"name": "b"}, {"name": "a"}]}),
            ),
            (
                "directives do not survive in new values",
                json!({}),
                json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "b", "image": null}],
                    "strategy": {"$retainKeys": ["type"], "type": "x"}, "$setElementOrder/containers": [{"name": "b"}]}),
                json!({"containers": [{"name": "b"}], "strategy": {"type": "x"}}),
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
                "unable to find api field or directive: invalid value \"explode\" of $patch",
            ),
            (
                json!({"containers": [{"image": "x"}]}),
                r#"map: {"image":"x"} does not contain declared merge key: name"#,
            ),
            (json!({"containers": ["x"]}), r#"map: "x" does not contain declared merge key: name"#),
            (
                json!({"$deleteFromPrimitiveList/args": "x"}),
                "$deleteFromPrimitiveList/args must hold a list of values",
            ),
            (json!({"labels": {"$retainKeys": [1]}}), "$retainKeys must hold a list of strings"),
            (json!({"labels": "x"}), "the type of labels in the patch and in the object differ"),
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
            json!({"secrets": [{"name": "a"}, {"name": "b"}], "imagePullSecrets": [{"name": "y"}],
                "metadata": {"finalizers": ["f/1", "f/2"], "labels": {"a": "b"},
                    "ownerReferences": [owner("1"), owner("2")]}})
        );
    }

    #[test]
    fn config_map_keys_and_schema_fields_may_begin_with_a_dollar() {
        let map = builtin_by_kind("", "v1", "ConfigMap").unwrap();
        let mut object = json!({"data": {"$a": "1"}});
        apply_strategic_merge_patch(map, &mut object, &json!({"data": {"$a": "2", "$patch": "merge"}}))
            .unwrap();
        assert_eq!(object, json!({"data": {"$a": "2"}}));
    }
}
