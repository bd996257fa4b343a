//! Strategic merge patch: a merge patch that merges lists by the list types of the schema.
//!
//! A patch is JSON of the object's shape. Besides plain fields it may contain directives: `$patch` (`replace` or
//! `delete`) in objects and list items, `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`
//! beside a list. The kind's schema defines which lists merge, and by which key; other lists are replaced. Only
//! built-in kinds have such schemas: Kubernetes refuses this patch type for custom resources.

use serde_json::{Map, Value};

use super::element_order::{check_order, server_order, sorted};
use super::strategic_error::{PATCH, StrategicPatchError, missing_key};
use crate::builtin::{BuiltinKind, ListMerge, Shape, ShapeTable, builtin_shapes};

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

struct StrategicMerge<'a> {
    shapes: &'a ShapeTable,
}

/// The merge behaviour of a list and the shape of its items.
#[derive(Clone, Copy)]
struct MergedList<'a> {
    items: &'a Shape,
    merge: &'a ListMerge,
}

impl<'a> MergedList<'a> {
    fn key(&self) -> Option<&'a str> {
        match self.merge {
            ListMerge::ByKey(key) => Some(key),
            ListMerge::Replace | ListMerge::Set => None,
        }
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
                *fields = cleaned_fields(patch);
                return Ok(());
            }
            Some((_, Some("delete"))) => {
                fields.clear();
                return Ok(());
            }
            Some((directive, _)) => return Err(unknown_directive(directive, patch)),
        }
        retain_keys(fields, patch)?;
        for (directive, order) in patch {
            if let Some(name) = directive.strip_prefix(SET_ORDER) {
                self.ordered_list(shape, name, fields, patch.get(name), order)?;
            }
        }
        for (name, value) in patch {
            let is_done = *name == RETAIN_KEYS
                || name.starts_with(SET_ORDER)
                || patch.contains_key(&format!("{SET_ORDER}{name}"));
            if !is_done {
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
        if let Some(name) = name.strip_prefix(DELETE_FROM_LIST) {
            if let (Some(Value::Array(items)), Value::Array(deleted)) = (fields.get_mut(name), value) {
                items.retain(|item| !deleted.contains(item));
            }
            return match value {
                Value::Array(_) => Ok(()),
                _ => Err(StrategicPatchError::MalformedDirective("primitive list")),
            };
        }
        match (fields.get_mut(name), value) {
            (_, Value::Null) => drop(fields.remove(name)),
            (Some(Value::Object(current)), Value::Object(value)) => {
                self.object(self.field_shape(shape, name), current, value)?;
            }
            (Some(Value::Array(current)), Value::Array(value)) => {
                let own = core::mem::take(current);
                *current = self.list(self.merged_list(shape, name), own, value)?;
            }
            _ => match without_directives(value) {
                Some(value) => drop(fields.insert(name.to_owned(), value)),
                None => drop(fields.remove(name)),
            },
        }
        Ok(())
    }

    /// Merges a list that has a `$setElementOrder` and sorts it.
    fn ordered_list(
        &self,
        shape: &'a Shape,
        name: &str,
        fields: &mut Map<String, Value>,
        patch: Option<&Value>,
        order: &Value,
    ) -> Result<(), StrategicPatchError> {
        let malformed = || StrategicPatchError::MalformedDirective("setElementOrder list");
        let order = order.as_array().ok_or_else(malformed)?;
        let patch = patch.map(|patch| patch.as_array().ok_or_else(malformed)).transpose()?;
        let list = self.merged_list(shape, name);
        check_order(patch.map_or(&[], |patch| patch), order, list.key())?;
        let own = fields.get(name).map(|own| own.as_array().cloned().ok_or_else(malformed)).transpose()?;
        let merged = match (own.clone(), patch) {
            (None, None) => return Ok(()),
            (Some(own), None) => own,
            (None, Some(patch)) => patch.iter().filter_map(without_directives).collect(),
            (Some(own), Some(patch)) => self.list(list, own, patch)?,
        };
        let server = server_order(own.unwrap_or_default(), patch.map_or(&[], |patch| patch), list.key());
        let sorted = sorted(merged, order, &server, list.key())?;
        fields.insert(name.to_owned(), sorted.into());
        Ok(())
    }

    fn list(
        &self,
        list: MergedList<'a>,
        own: Vec<Value>,
        patch: &[Value],
    ) -> Result<Vec<Value>, StrategicPatchError> {
        match list.merge {
            ListMerge::Replace => Ok(patch.iter().map(cleaned).collect()),
            _ if own.is_empty() && patch.is_empty() => Ok(own),
            ListMerge::Set => {
                check_types(&own, patch)?;
                let mut merged: Vec<Value> = Vec::with_capacity(own.len() + patch.len());
                for item in own.iter().chain(patch) {
                    if !merged.contains(item) {
                        merged.push(item.clone());
                    }
                }
                sorted(merged, patch, &own, None)
            }
            ListMerge::ByKey(key) => {
                check_types(&own, patch)?;
                self.list_by_key(list.items, key, own, patch)
            }
        }
    }

    fn list_by_key(
        &self,
        items: &'a Shape,
        key: &str,
        own: Vec<Value>,
        patch: &[Value],
    ) -> Result<Vec<Value>, StrategicPatchError> {
        let (mut own, mut replaces) = (own, false);
        let mut merged_items: Vec<&Value> = Vec::with_capacity(patch.len());
        for item in patch {
            let Some(directive) = item.get(PATCH) else {
                merged_items.push(item);
                continue;
            };
            match directive.as_str() {
                Some("delete") => {
                    let value = item.get(key).ok_or_else(|| missing_key(item, key))?;
                    own.retain(|candidate| candidate.get(key) != Some(value));
                }
                // The whole list is replaced by the items without a directive.
                Some("replace") => replaces = true,
                Some("merge") => return Err(StrategicPatchError::MergedItem),
                _ => return Err(unknown_directive(directive, item.as_object().unwrap_or(&Map::new()))),
            }
        }
        let patch: Vec<Value> = if replaces {
            own = merged_items.into_iter().map(cleaned).collect();
            Vec::new()
        } else {
            merged_items.into_iter().cloned().collect()
        };
        let mut merged = own.clone();
        for item in &patch {
            let value = item.get(key).ok_or_else(|| missing_key(item, key))?;
            match (merged.iter_mut().find(|candidate| candidate.get(key) == Some(value)), item) {
                (Some(Value::Object(fields)), Value::Object(item)) => self.object(items, fields, item)?,
                _ => merged.push(cleaned(item)),
            }
        }
        sorted(merged, &patch, &own, Some(key))
    }

    fn merged_list(&self, shape: &'a Shape, name: &str) -> MergedList<'a> {
        match self.shapes.resolve(self.field_shape(shape, name)) {
            Shape::List { items, merge } => MergedList { items, merge },
            _ => MergedList { items: &Shape::Any, merge: &ListMerge::Replace },
        }
    }

    fn field_shape(&self, shape: &'a Shape, name: &str) -> &'a Shape {
        match self.shapes.resolve(shape) {
            Shape::Object(object) => object.field(name).map_or(&Shape::Any, |field| &field.shape),
            Shape::Map(values) => values,
            _ => &Shape::Any,
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
    let is_kept = |name: &str| keys.iter().any(|key| key == name);
    let is_set = |(name, value): (&String, &Value)| !value.is_null() && !is_directive(name);
    if patch.iter().filter(|field| is_set(*field)).any(|(name, _)| !is_kept(name)) {
        return Err(malformed);
    }
    fields.retain(|name, _| is_kept(name));
    Ok(())
}

/// Other names that begin with `$` are data, such as keys of a ConfigMap or the `$ref` of a schema.
fn is_directive(name: &str) -> bool {
    matches!(name, PATCH | RETAIN_KEYS) || name.starts_with(SET_ORDER) || name.starts_with(DELETE_FROM_LIST)
}

/// A value of a patch for a field that does not exist: without nulls and directives. Objects with `$patch` are dropped.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
            let kept = kept.filter_map(|(name, value)| Some((name.clone(), without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.iter().filter_map(without_directives).collect()),
        scalar => Some(scalar.clone()),
    }
}

/// A value of a patch that is taken as it is, without nulls, which mean "absent", and without directives.
fn cleaned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(cleaned_fields(fields)),
        Value::Array(items) => items.iter().map(cleaned).collect(),
        scalar => scalar.clone(),
    }
}

fn cleaned_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    let kept = fields.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    kept.map(|(name, value)| (name.clone(), cleaned(value))).collect()
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> StrategicPatchError {
    let directive = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    StrategicPatchError::UnknownDirective { directive, map: Value::Object(map.clone()).to_string() }
}

/// Merged lists have items of one type.
fn check_types(own: &[Value], patch: &[Value]) -> Result<(), StrategicPatchError> {
    let mut items = own.iter().chain(patch);
    let Some(first) = items.next() else { return Ok(()) };
    if first.is_array() {
        return Err(StrategicPatchError::ListOfLists);
    }
    if items.all(|item| core::mem::discriminant(item) == core::mem::discriminant(first)) {
        return Ok(());
    }
    Err(StrategicPatchError::MixedItems(Value::from([own, patch].concat()).to_string()))
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

    /// `data/strategic.jsonl` has generated patches with the results of Kubernetes; `STRATEGIC_CASES` names a larger file.
    #[test]
    fn generated_patches_have_the_results_of_kubernetes() {
        let path = std::env::var("STRATEGIC_CASES").unwrap_or_else(|_| {
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/strategic.jsonl").to_owned()
        });
        let text = std::fs::read_to_string(path).unwrap();
        let (mut cases, mut failures) = (0, 0);
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let ours = patched(case["object"].clone(), case["patch"].clone());
            cases += 1;
            let is_same = match (&ours, case.get("result")) {
                // Directives in new values are unknown fields in Kubernetes; here they are dropped.
                (Ok(ours), Some(theirs)) => cleaned(ours) == cleaned(theirs),
                (Err(_), None) => true,
                // Kubernetes cannot order a list that is empty.
                (Ok(_), None) => case["error"] == "no elements in any of the given slices",
                (Err(_), Some(_)) => false,
            };
            if !is_same {
                failures += 1;
                if failures <= 5 {
                    println!("{case}\n  ours {ours:?}");
                }
            }
        }
        assert_eq!(failures, 0, "of {cases}");
        assert!(cases >= 300, "{cases}");
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
            (json!({"$deleteFromPrimitiveList/args": "x"}), "invalid patch format of primitive list"),
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
