//! Merges a configuration into an object without ownership, as mutating admission policies do.

use serde_json::Value;

use super::typed::{Duplicates, TypeError, TypeErrors, atomic_fields, merge, validate};
use super::types::ObjectType;

/// Reasons why a configuration cannot be merged. The author of the configuration is at fault, except for
/// [`ConfigurationError::Object`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigurationError {
    /// It does not have the type of the object.
    #[error("failed to convert patch object to typed object: {0}")]
    Configuration(TypeErrors),
    /// It sets lists, maps or objects that can only be set as a whole, which would remove what it does not mention.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
    /// The object does not have the type of its kind.
    #[error("failed to convert original object to typed object: {0}")]
    Object(TypeErrors),
}

impl From<TypeError> for ConfigurationError {
    fn from(error: TypeError) -> Self {
        Self::Object(error.into())
    }
}

/// The object with the configuration merged into it: leaves replace leaves, items of lists with keys are merged, sets
/// are united. Both must have the same apiVersion and kind.
///
/// # Errors
/// [`ConfigurationError`].
pub fn merge_configuration(
    object_type: ObjectType<'_>,
    object: &Value,
    configuration: &Value,
) -> Result<Value, ConfigurationError> {
    validate(object_type, configuration, Duplicates::Refused).map_err(ConfigurationError::Configuration)?;
    let atomic = atomic_fields(object_type, configuration);
    if !atomic.is_empty() {
        return Err(ConfigurationError::Atomic(atomic));
    }
    validate(object_type, object, Duplicates::Allowed).map_err(ConfigurationError::Object)?;
    let mut merged = object.clone();
    merge(object_type, &mut merged, configuration)?;
    Ok(merged)
}
