//! Built-in kinds, which exist without a CRD: discovery data, OpenAPI definitions, normalization, validation and
//! tables.

mod definitions;
mod kind;
mod normalize;
mod overlay;
mod reference;
mod semantics;
mod shape;
mod table;

pub use definitions::{definition_json, open_api_components, structural_schema};
pub use kind::{
    BuiltinKind, BuiltinSubresource, builtin_by_kind, builtin_by_resource, builtin_kinds,
    storage_version_hash,
};
pub use normalize::{NormalizeError, normalize_definition};
pub use semantics::{NAMESPACE_NAME_LABEL, Semantics, event_to_core_form, event_to_events_form};
pub use table::{ColumnFormat, TableColumn};

pub(crate) use definitions::{builtin_merge_type, builtin_merge_types, builtin_shapes, list_definition};
pub(crate) use reference::REFERENCE_PREFIX;
pub(crate) use shape::{FieldShape, ListMerge, PATCH_STRATEGY, Shape, ShapeTable, shape_table};
