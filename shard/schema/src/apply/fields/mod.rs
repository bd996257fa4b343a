//! Sets of field paths: the contents of `managedFields`.

mod element;
mod json;
mod order;
mod set;

pub use element::{InvalidPathElement, PathElement};
pub use set::{FieldSet, path_text};

pub(crate) use order::{equal_values, go_json, go_number};
pub(crate) use set::FieldNode;
