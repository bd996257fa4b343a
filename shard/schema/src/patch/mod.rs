//! Changing an object by a patch.

mod json;
mod merge;

pub use json::{JsonPatch, JsonPatchError, MAX_JSON_PATCH_OPERATIONS};
pub use merge::apply_merge_patch;
