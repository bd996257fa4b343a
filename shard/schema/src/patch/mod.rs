//! Patches: JSON patch, JSON merge patch and strategic merge patch.

mod client_scheme;
mod element_order;
mod json;
mod list_merge;
mod merge;
mod strategic;
mod strategic_error;

pub use client_scheme::{apply_client_scheme_patch, is_client_scheme_group};
pub use json::{JsonPatch, JsonPatchError, MAX_JSON_PATCH_OPERATIONS};
pub use merge::apply_merge_patch;
pub use strategic::apply_strategic_merge_patch;
pub use strategic_error::StrategicPatchError;
