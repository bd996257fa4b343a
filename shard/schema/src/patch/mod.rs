//! Patches: JSON patch, JSON merge patch and strategic merge patch.

mod element_order;
mod json;
mod merge;
mod strategic;
mod strategic_error;

pub use json::{JsonPatch, JsonPatchError, MAX_JSON_PATCH_OPERATIONS};
pub use merge::apply_merge_patch;
pub use strategic::apply_strategic_merge_patch;
pub use strategic_error::StrategicPatchError;
