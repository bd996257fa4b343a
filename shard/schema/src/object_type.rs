//! The types by which server-side apply merges the objects of each kind.

use crate::apply::ObjectType;
use crate::builtin::{BuiltinKind, builtin_merge_type, builtin_merge_types};
use crate::structural::Schema;

impl BuiltinKind {
    /// The type by which objects of the kind are merged.
    #[must_use]
    pub fn merge_type(&self) -> ObjectType<'static> {
        definition_merge_type(self.definition)
    }
}

/// The type by which objects of an OpenAPI definition are merged, for example the body of a subresource.
#[must_use]
pub fn definition_merge_type(definition: &str) -> ObjectType<'static> {
    builtin_merge_type(definition).unwrap_or_else(untyped_merge_type)
}

/// The type of objects without schema: objects are merged, lists are replaced.
#[must_use]
pub fn untyped_merge_type() -> ObjectType<'static> {
    ObjectType::untyped(builtin_merge_types())
}

/// The type by which objects of a structural schema are merged. Built by the first call, then shared by all users of the
/// schema.
#[must_use]
pub fn schema_merge_type(schema: &Schema) -> ObjectType<'_> {
    schema.merge_type(builtin_merge_types())
}
