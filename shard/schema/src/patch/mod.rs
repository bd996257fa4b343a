//! Patches: JSON patch, JSON merge patch and strategic merge patch.

mod client_scheme;
mod json;
mod merge;
mod strategic;

pub use client_scheme::{apply_client_scheme_patch, is_client_scheme_group};
pub use json::{JsonPatch, JsonPatchError, MAX_JSON_PATCH_OPERATIONS};
pub use merge::apply_merge_patch;
pub use strategic::{StrategicPatchError, apply_strategic_merge_patch};
