//! A stored object: JSON bytes with offsets for insertions, its managedFields, and a parser of its metadata alone.
//!
//! Neither the resourceVersion nor the scope is in the stored bytes: the first is known only at
//! commit, the second is in the key. Both are inserted when the object is read, so that the read path
//! copies bytes and never builds a tree.

mod encoding;
mod meta;

pub use encoding::{EncodedObject, MalformedObject, ObjectBytes, ScopeAnnotations, encode, encode_managed};
pub use meta::{ObjectMetaRef, OwnerReference};
