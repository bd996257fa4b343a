//! Errors of strategic merge patches.

use serde_json::{Map, Value};

/// Errors of a strategic merge patch. The client is at fault (400).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicPatchError {
    /// The patch is not an object.
    #[error("a strategic merge patch must be an object")]
    NotAnObject,
    /// `$patch` has an unknown value, or one that is invalid at this place.
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective {
        /// The value of the directive.
        directive: String,
        /// The object that has it, as JSON.
        map: String,
    },
    /// `$patch: merge` in an item of a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergedItem,
    /// The value of a directive has another type, or fields of the patch contradict it.
    #[error("invalid patch format of {0}")]
    MalformedDirective(&'static str),
    /// `$setElementOrder` lacks items of the patch, or has them in another order.
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch {
        /// The list of the patch, as JSON.
        patch: String,
        /// The directive, as JSON.
        order: String,
    },
    /// An item of a list that merges by key has no key.
    #[error("map: {item} does not contain declared merge key: {key}")]
    MissingMergeKey {
        /// The item, as JSON.
        item: String,
        /// The merge key of the list.
        key: String,
    },
    /// The items of the list and of the patch have different types.
    #[error("list element types are not identical: {0}")]
    MixedItems(String),
    /// A value of a directive, or an item of a list, has another type.
    #[error("expected a {expected}, but received a {received}")]
    WrongType {
        /// The type in the notation of Go.
        expected: &'static str,
        /// The type of the value in the notation of Go.
        received: &'static str,
    },
    /// An item of `$setElementOrder` is no object, at this index.
    #[error("value for key {0} is not a map")]
    UnreadableOrder(usize),
    /// `$setElementOrder` of a list that has no items.
    #[error("no elements in any of the given slices")]
    NoElements,
    /// A list of values is merged that has objects.
    #[error("cannot merge lists without merge key for struct")]
    NoMergeKey,
    /// An object or list is merged that is a value of a map, whose merge strategy is unknown.
    #[error("merging an object in json but data type is not struct, instead is: map")]
    BelowMap,
    /// An object or list is merged that the kind does not specify, for example in a raw extension.
    #[error("unable to find api field in struct {name} for the json field {field:?}")]
    NoField {
        /// The name of the definition.
        name: String,
        /// The name of the field.
        field: String,
    },
    /// A merged list has lists as items.
    #[error("lists of lists are not supported")]
    ListOfLists,
}

/// The directive that says how an object is merged.
pub(super) const PATCH: &str = "$patch";

/// The Go type of JSON objects, in errors.
pub(super) const OBJECT: &str = "map[string]interface {}";

pub(super) fn missing_key(item: &Value, key: &str) -> StrategicPatchError {
    StrategicPatchError::MissingMergeKey { item: item.to_string(), key: key.to_owned() }
}

pub(super) fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> StrategicPatchError {
    let directive = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    StrategicPatchError::UnknownDirective { directive, map: Value::Object(map.clone()).to_string() }
}

pub(super) fn wrong_type(expected: &'static str, value: &Value) -> StrategicPatchError {
    let received = match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => OBJECT,
    };
    StrategicPatchError::WrongType { expected, received }
}
