//! Hash of a schema's content.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Dialect;

/// The first 128 bits of the SHA-256 of a schema's canonical JSON (keys sorted, no white space).
///
/// `Display` prints 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SchemaHash(u128);

impl SchemaHash {
    /// The hash of any JSON value, computed as for schemas. `context` separates hashes of different uses.
    pub fn of(context: &str, value: &Value) -> Self {
        let mut digest = Sha256::new();
        digest.update(context.as_bytes());
        digest.update([0]);
        feed(&mut digest, value);
        let bytes = digest.finalize();
        let mut head = [0; 16];
        head.copy_from_slice(&bytes[..16]);
        Self(u128::from_be_bytes(head))
    }

    /// The hash as a number.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// Converts a stored number into a hash.
    pub const fn from_u128(value: u128) -> Self {
        Self(value)
    }
}

impl fmt::Display for SchemaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SchemaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchemaHash({self})")
    }
}

pub(super) fn hash_of(schema: &Value, dialect: Dialect) -> SchemaHash {
    let context = match dialect {
        Dialect::Structural => "structural",
        Dialect::StructuralDefaults => "structural-defaults",
        Dialect::OpenApi => "openapi",
    };
    SchemaHash::of(context, schema)
}

/// Hashes every value with its kind and length, so that two different trees never produce the same bytes. Keys are
/// sorted here, because the map of `serde_json` keeps insertion order if any crate enables that feature.
fn feed(digest: &mut Sha256, value: &Value) {
    match value {
        Value::Null => digest.update(b"n"),
        Value::Bool(true) => digest.update(b"t"),
        Value::Bool(false) => digest.update(b"f"),
        Value::Number(number) => feed_text(digest, b'#', &number.to_string()),
        Value::String(text) => feed_text(digest, b'"', text),
        Value::Array(items) => {
            feed_length(digest, b'[', items.len());
            for item in items {
                feed(digest, item);
            }
        }
        Value::Object(fields) => {
            feed_length(digest, b'{', fields.len());
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, field) in sorted {
                feed_text(digest, b'k', name);
                feed(digest, field);
            }
        }
    }
}

fn feed_text(digest: &mut Sha256, kind: u8, text: &str) {
    feed_length(digest, kind, text.len());
    digest.update(text.as_bytes());
}

fn feed_length(digest: &mut Sha256, kind: u8, length: usize) {
    digest.update([kind]);
    digest.update((length as u64).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_hash_depends_on_content_only() {
        let one = json!({"b": 1, "a": {"d": [1, 2], "c": null}});
        let other: Value = serde_json::from_str(r#"{"a":{"c":null,"d":[1,2]},"b":1}"#).unwrap();
        assert_eq!(SchemaHash::of("x", &one), SchemaHash::of("x", &other));
        assert_ne!(SchemaHash::of("x", &one), SchemaHash::of("y", &one));
        for different in
            [json!({"a": "1"}), json!({"a": 1}), json!({"a": [1]}), json!({"a": 1.0}), json!({"a1": 0})]
        {
            assert_ne!(SchemaHash::of("x", &one), SchemaHash::of("x", &different));
        }
    }

    #[test]
    fn the_hash_is_stable_across_releases() {
        let hash = SchemaHash::of("structural", &json!({"type": "object"}));
        assert_eq!(hash.to_string(), "4348d1a59542da8790d282c24f8b7958");
        assert_eq!(SchemaHash::from_u128(hash.as_u128()), hash);
    }
}
