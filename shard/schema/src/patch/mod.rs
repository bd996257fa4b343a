//! Patches: JSON patch, JSON merge patch and strategic merge patch.

mod json;
mod merge;
mod strategic;

pub use json::{JsonPatch, JsonPatchError, MAX_JSON_PATCH_OPERATIONS};
pub use merge::apply_merge_patch;
pub use strategic::{StrategicPatchError, apply_strategic_merge_patch};
