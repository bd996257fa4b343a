//! A stored object: bytes with splice offsets, and the few fields that are looked at without parsing
//! the rest.
//!
//! Neither the resourceVersion nor the scope is in the stored bytes: the first is known only at
//! commit, the second is in the key. Both are spliced in on the way out, so that the read path copies
//! bytes and never builds a tree.

mod encoding;
mod meta;

pub use encoding::{EncodedObject, MalformedObject, ObjectBytes, ScopeAnnotations, encode};
pub use meta::{ObjectMetaRef, OwnerReference};
