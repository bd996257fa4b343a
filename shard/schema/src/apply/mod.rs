//! Server-side apply and the ownership of fields (KEP-555), over typed views of JSON objects.
//!
//! An [`ObjectType`] says how the values of a kind are merged. A [`FieldSet`] is a set of field paths. [`ManagedFields`]
//! says which manager owns which fields; [`apply`] and [`track_update`] change it. Nothing here knows of storage.

mod configuration;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod ownership;
mod typed;
mod types;

pub use configuration::{ConfigurationError, merge_configuration};
pub use fields::{FieldSet, InvalidPathElement, PathElement, path_text};
pub use ownership::{
    Applied, ApplyError, Conflict, Conflicts, ConversionFailure, InvalidManagedFields, LAST_APPLIED,
    ManagedFields, Manager, ObjectVersions, Operation, ReplicasPaths, apply, is_reset, track_create,
    track_update,
};
pub use typed::{TypeError, TypeErrors};
pub use types::{ObjectType, TypeTable};

pub(crate) use types::{FieldType, ListKey, ListRelation, ListType, MapType, ScalarType, Type, TypeRef};
