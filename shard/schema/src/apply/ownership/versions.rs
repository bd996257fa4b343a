//! The versions of a kind, as tracking of fields needs them.

use std::borrow::Cow;

use serde_json::Value;

use super::super::fields::FieldSet;
use super::super::types::ObjectType;

/// The versions of a kind. Field paths refer to a version, and conversions may move fields.
pub trait ObjectVersions {
    /// The type of the objects in a version (`group/version`); `None` if it does not exist any more.
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>>;

    /// Converts an object to a version that exists.
    ///
    /// # Errors
    /// The reason why it cannot be converted.
    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Result<Cow<'v, Value>, ConversionFailure>;

    /// The fields that this write cannot change in a version: they are restored before the object is stored.
    fn reset_fields(&self, api_version: &str) -> Option<&FieldSet>;
}

/// An object that cannot be converted to another version.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ConversionFailure(pub String);
