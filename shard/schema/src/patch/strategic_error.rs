//! Errors of strategic merge patches.

use serde_json::Value;

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
    /// A merged list has lists as items.
    #[error("lists of lists are not supported")]
    ListOfLists,
}

/// The directive that says how an object is merged.
pub(super) const PATCH: &str = "$patch";

pub(super) fn missing_key(item: &Value, key: &str) -> StrategicPatchError {
    StrategicPatchError::MissingMergeKey { item: item.to_string(), key: key.to_owned() }
}
