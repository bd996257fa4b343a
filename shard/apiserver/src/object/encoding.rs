//! The stored form of an object, and its conversion to the wire form.
//!
//! ```text
//! offset  size  content
//! 0       1     format (1, or 2 with managedFields)
//! 1       8     content hash of the schema it was written with, little endian; 0 = built in
//! 9       4     JSON offset just after `"metadata":{`
//! 13      4     JSON offset just after `"annotations":{`, 0 when there are no annotations
//! 17      4     format 2: length of the JSON
//! 17, 21  …     JSON: apiVersion, kind, metadata, then the other fields in alphabetical order
//! …       …     format 2: JSON of metadata.managedFields
//! ```
//!
//! An object without managedFields is written in format 1.

use bytes::{BufMut as _, Bytes, BytesMut};
use fairlead_schema::metadata::remove_absent;
use fairlead_store::Revision;
use serde_json::{Map, Value};

const FORMAT: u8 = 1;
const HEADER: usize = 17;
/// The format of objects with managedFields.
const MANAGED_FORMAT: u8 = 2;
const MANAGED_HEADER: usize = 21;

/// The annotation keys that carry the scope, one for each segment: `["kcp.io/cluster"]` in a shard.
pub type ScopeAnnotations = &'static [&'static str];

/// Encodes an object for the store.
///
/// The caller must have removed `metadata.resourceVersion` and the scope annotations with
/// [`EncodedObject::strip`]. Costs one serialization.
///
/// # Errors
/// [`MalformedObject`] when it is not an object with apiVersion, kind and metadata.
pub fn encode(object: &Value, schema_hash: u64) -> Result<EncodedObject, MalformedObject> {
    encode_managed(object, schema_hash, b"")
}

/// [`encode`] with `metadata.managedFields` as JSON; empty for an object whose fields have no owners.
///
/// # Errors
/// As [`encode`].
pub fn encode_managed(
    object: &Value,
    schema_hash: u64,
    managed_fields: &[u8],
) -> Result<EncodedObject, MalformedObject> {
    let is_managed = !managed_fields.is_empty();
    let header = if is_managed { MANAGED_HEADER } else { HEADER };
    let fields = object.as_object().ok_or(MalformedObject)?;
    let metadata = fields.get("metadata").and_then(Value::as_object).ok_or(MalformedObject)?;
    let mut out = Vec::with_capacity(1024 + managed_fields.len());
    out.put_u8(if is_managed { MANAGED_FORMAT } else { FORMAT });
    out.put_u64_le(schema_hash);
    out.put_bytes(0, header - 9);
    for (index, name) in ["apiVersion", "kind"].into_iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b"," });
        write_field(
            &mut out,
            name,
            fields.get(name).filter(|value| value.is_string()).ok_or(MalformedObject)?,
        )?;
    }
    out.extend_from_slice(b",\"metadata\":{");
    let metadata_at = out.len() - header;
    let mut annotations_at = 0;
    let mut separator: &[u8] = b"";
    for (name, value) in metadata {
        if name == "annotations" && value.as_object().is_none_or(Map::is_empty) {
            continue;
        }
        out.extend_from_slice(separator);
        write_field(&mut out, name, value)?;
        if name == "annotations" {
            annotations_at = out.len() - serialized_len(value)? - header + 1;
        }
        separator = b",";
    }
    out.extend_from_slice(b"}");
    for (name, value) in fields {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            out.extend_from_slice(b",");
            write_field(&mut out, name, value)?;
        }
    }
    out.extend_from_slice(b"}");
    let length = out.len() - header;
    out.extend_from_slice(managed_fields);
    let offsets = [(9, metadata_at), (13, annotations_at), (17, length)];
    for (at, offset) in offsets.into_iter().take(if is_managed { 3 } else { 2 }) {
        let offset = u32::try_from(offset).map_err(|_| MalformedObject)?;
        out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
    }
    Ok(EncodedObject(out.into()))
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &Value) -> Result<(), MalformedObject> {
    serde_json::to_writer(&mut *out, name).map_err(|_| MalformedObject)?;
    out.push(b':');
    serde_json::to_writer(out, value).map_err(|_| MalformedObject)
}

fn serialized_len(value: &Value) -> Result<usize, MalformedObject> {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_err(|_| MalformedObject)?;
    Ok(count.0)
}

/// A stored object as an owned, shared value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedObject(Bytes);

impl EncodedObject {
    /// Wraps a stored value and checks its header.
    ///
    /// # Errors
    /// [`MalformedObject`] when the bytes are not in this format.
    pub fn parse(stored: Bytes) -> Result<Self, MalformedObject> {
        ObjectBytes::parse(&stored)?;
        Ok(Self(stored))
    }

    /// Copies a borrowed object.
    pub fn copied(object: ObjectBytes<'_>) -> Self {
        Self(Bytes::copy_from_slice(object.0))
    }

    /// The bytes to store.
    pub fn stored(&self) -> &Bytes {
        &self.0
    }

    /// A borrowed view.
    pub fn as_object(&self) -> ObjectBytes<'_> {
        ObjectBytes(&self.0)
    }

    /// Removes the metadata that is not in the JSON: resourceVersion, the scope annotations, selfLink, `managedFields`,
    /// which are stored behind it, and empty fields.
    pub fn strip(object: &mut Value, scope_annotations: ScopeAnnotations) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        for name in ["resourceVersion", "managedFields", "selfLink"] {
            metadata.remove(name);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            for key in scope_annotations {
                annotations.remove(*key);
            }
        }
        remove_absent(metadata);
    }
}

/// A borrowed stored object. Parsing checks only the header.
#[derive(Clone, Copy, Debug)]
pub struct ObjectBytes<'a>(&'a [u8]);

impl<'a> ObjectBytes<'a> {
    /// Wraps a stored value and checks its header.
    ///
    /// # Errors
    /// [`MalformedObject`] when the header is not of this format.
    pub fn parse(stored: &'a [u8]) -> Result<Self, MalformedObject> {
        let object = Self(stored);
        let header = object.header();
        let end = match stored.first() {
            Some(&FORMAT) if stored.len() > HEADER + 2 => stored.len(),
            Some(&MANAGED_FORMAT) if stored.len() > MANAGED_HEADER + 2 => header + object.offset(17),
            _ => return Err(MalformedObject),
        };
        let in_bounds = |offset: usize| offset < end.saturating_sub(header);
        let valid = end <= stored.len() && in_bounds(object.offset(9)) && in_bounds(object.offset(13));
        if valid { Ok(object) } else { Err(MalformedObject) }
    }

    fn header(&self) -> usize {
        if self.0.first() == Some(&MANAGED_FORMAT) { MANAGED_HEADER } else { HEADER }
    }

    /// The JSON text without resourceVersion, scope annotations and managedFields.
    pub fn json(&self) -> &'a [u8] {
        match self.header() {
            MANAGED_HEADER => &self.0[MANAGED_HEADER..MANAGED_HEADER + self.offset(17)],
            _ => &self.0[HEADER..],
        }
    }

    /// `metadata.managedFields` as JSON; empty if it has none.
    pub fn managed_fields(&self) -> &'a [u8] {
        match self.header() {
            MANAGED_HEADER => &self.0[MANAGED_HEADER + self.offset(17)..],
            _ => b"",
        }
    }

    /// Whether another object has the same content, apart from managedFields.
    pub fn is_same(&self, other: ObjectBytes<'_>) -> bool {
        self.schema_hash() == other.schema_hash() && self.json() == other.json()
    }

    /// The hash of the schema it was written with; 0 for built-in kinds.
    pub fn schema_hash(&self) -> u64 {
        let mut hash = [0; 8];
        hash.copy_from_slice(&self.0[1..9]);
        u64::from_le_bytes(hash)
    }

    /// The version part of its apiVersion, without parsing more than the first field.
    pub fn version(&self) -> &'a str {
        let text = self.json();
        // Written by `encode`: the text begins with `{"apiVersion":"group/version"`.
        let value = text.get(15..).unwrap_or_default();
        let end = memchr(value, b'"');
        let value = core::str::from_utf8(&value[..end]).unwrap_or_default();
        value.rsplit('/').next().unwrap_or(value)
    }

    /// Appends the object as clients see it, with managedFields, resourceVersion (unless it is 0: not stored) and
    /// scope annotations inserted. Copies the bytes once.
    pub fn splice(&self, revision: Revision, scope: &str, annotations: ScopeAnnotations, out: &mut Vec<u8>) {
        out.reserve(self.0.len() + 128 + scope.len());
        out.extend_from_slice(&self.json()[..self.offset(9)]);
        self.splice_metadata(revision, scope, annotations, out);
    }

    /// Appends the object without apiVersion and kind, as in lists of built-in kinds.
    pub fn splice_item(
        &self,
        revision: Revision,
        scope: &str,
        annotations: ScopeAnnotations,
        out: &mut Vec<u8>,
    ) {
        out.reserve(self.0.len() + 128 + scope.len());
        out.extend_from_slice(b"{\"metadata\":{");
        self.splice_metadata(revision, scope, annotations, out);
    }

    fn splice_metadata(
        &self,
        revision: Revision,
        scope: &str,
        annotations: ScopeAnnotations,
        out: &mut Vec<u8>,
    ) {
        let json = self.json();
        let managed = self.managed_fields();
        let metadata_at = self.offset(9);
        let annotations_at = self.offset(13);
        if annotations_at == 0 {
            if !annotations.is_empty() {
                out.extend_from_slice(b"\"annotations\":{");
                write_scope(scope, annotations, out);
                let ends = revision.0 == 0 && managed.is_empty() && json[metadata_at] == b'}';
                out.extend_from_slice(if ends { b"}" } else { b"}," });
            }
            write_managed(managed, revision, json[metadata_at], out);
            write_revision(revision, json[metadata_at], out);
            out.extend_from_slice(&json[metadata_at..]);
        } else {
            write_managed(managed, revision, json[metadata_at], out);
            write_revision(revision, json[metadata_at], out);
            out.extend_from_slice(&json[metadata_at..annotations_at]);
            if !annotations.is_empty() {
                write_scope(scope, annotations, out);
                out.push(b',');
            }
            out.extend_from_slice(&json[annotations_at..]);
        }
    }

    /// The object as a tree, with resourceVersion and scope annotations, without managedFields. For the write path and
    /// for conversions only.
    ///
    /// # Errors
    /// [`MalformedObject`] when the stored text is not JSON.
    pub fn to_value(
        &self,
        revision: Revision,
        scope: &str,
        annotations: ScopeAnnotations,
    ) -> Result<Value, MalformedObject> {
        let mut object: Value = serde_json::from_slice(self.json()).map_err(|_| MalformedObject)?;
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).ok_or(MalformedObject)?;
        if revision.0 > 0 {
            metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
        }
        if !annotations.is_empty() {
            let existing = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
            if let Some(existing) = existing.as_object_mut() {
                for (key, segment) in annotations.iter().zip(scope.split('/')) {
                    existing.insert((*key).into(), Value::String(segment.into()));
                }
            }
        }
        Ok(object)
    }

    fn offset(&self, at: usize) -> usize {
        let mut offset = [0; 4];
        offset.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(offset) as usize
    }
}

fn write_managed(managed: &[u8], revision: Revision, next: u8, out: &mut Vec<u8>) {
    if managed.is_empty() {
        return;
    }
    out.extend_from_slice(b"\"managedFields\":");
    out.extend_from_slice(managed);
    if revision.0 > 0 || next != b'}' {
        out.push(b',');
    }
}

fn write_revision(revision: Revision, next: u8, out: &mut Vec<u8>) {
    if revision.0 == 0 {
        return;
    }
    out.extend_from_slice(b"\"resourceVersion\":\"");
    out.extend_from_slice(itoa::Buffer::new().format(revision.0).as_bytes());
    out.extend_from_slice(if next == b'}' { b"\"" } else { b"\"," });
}

/// The name parsers guarantee that scopes need no JSON escapes.
fn write_scope(scope: &str, annotations: ScopeAnnotations, out: &mut Vec<u8>) {
    for (index, (key, segment)) in annotations.iter().zip(scope.split('/')).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        for part in ["\"", key, "\":\"", segment, "\""] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

fn memchr(bytes: &[u8], wanted: u8) -> usize {
    bytes.iter().position(|byte| *byte == wanted).unwrap_or(bytes.len())
}

/// A stored value that is not an object: a bug or a foreign file. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[error("a stored object is malformed")]
pub struct MalformedObject;

impl From<EncodedObject> for Bytes {
    fn from(object: EncodedObject) -> Self {
        object.0
    }
}

impl From<BytesMut> for EncodedObject {
    fn from(bytes: BytesMut) -> Self {
        Self(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CLUSTER: ScopeAnnotations = &["kcp.io/cluster"];
    const CACHE: ScopeAnnotations = &["kcp.io/shard", "kcp.io/cluster"];

    #[test]
    fn splicing_equals_editing_the_tree() {
        for object in [
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "é\n"}}),
            json!({"kind": "K", "apiVersion": "g.io/v1beta1", "metadata": {"name": "a", "annotations": {"a/b": "\"q\""}, "uid": "u"}, "spec": {}, "aFirst": 1}),
            json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": "a", "annotations": {}}}),
            json!({"kind": "K", "apiVersion": "v1", "metadata": {"annotations": {"only": "this"}}}),
            json!({"kind": "K", "apiVersion": "v1", "metadata": {}}),
        ] {
            for (scope, annotations) in [("root", CLUSTER), ("s1/root", CACHE), ("", &[] as ScopeAnnotations)]
            {
                let encoded = encode(&object, 7).unwrap();
                let mut out = Vec::new();
                encoded.as_object().splice(Revision(42), scope, annotations, &mut out);
                let wire: Value = serde_json::from_slice(&out)
                    .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)));
                assert_eq!(wire, encoded.as_object().to_value(Revision(42), scope, annotations).unwrap());
                assert_eq!(wire["metadata"]["resourceVersion"], "42");
                assert_eq!(encoded.as_object().schema_hash(), 7);

                let mut item = Vec::new();
                encoded.as_object().splice_item(Revision(42), scope, annotations, &mut item);
                let mut expected = wire;
                for name in ["apiVersion", "kind"] {
                    expected.as_object_mut().unwrap().remove(name);
                }
                assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), expected);

                let mut unsaved = Vec::new();
                encoded.as_object().splice(Revision(0), scope, annotations, &mut unsaved);
                let unsaved: Value = serde_json::from_slice(&unsaved).unwrap();
                assert_eq!(unsaved, encoded.as_object().to_value(Revision(0), scope, annotations).unwrap());
                assert_eq!(unsaved["metadata"].get("resourceVersion"), None);
            }
        }
    }

    #[test]
    fn managed_fields_are_stored_beside_the_object() {
        let managed = br#"[{"manager":"m"}]"#;
        for object in [
            json!({"kind": "K", "apiVersion": "g.io/v1", "metadata": {"name": "a", "annotations": {"a": "b"}}, "spec": {}}),
            json!({"kind": "K", "apiVersion": "g.io/v1", "metadata": {"name": "a"}}),
            json!({"kind": "K", "apiVersion": "g.io/v1", "metadata": {"annotations": {"only": "this"}}}),
            json!({"kind": "K", "apiVersion": "g.io/v1", "metadata": {}}),
        ] {
            let encoded = encode_managed(&object, 7, managed).unwrap();
            let parsed = EncodedObject::parse(encoded.stored().clone()).unwrap();
            let bytes = parsed.as_object();
            assert_eq!(
                (bytes.managed_fields(), bytes.schema_hash(), bytes.version()),
                (&managed[..], 7, "v1")
            );
            assert_eq!(bytes.json(), encode(&object, 7).unwrap().as_object().json());
            for (revision, annotations) in
                [(0, CLUSTER), (42, CLUSTER), (0, &[] as ScopeAnnotations), (42, &[])]
            {
                let scope = if annotations.is_empty() { "" } else { "root" };
                let mut expected = bytes.to_value(Revision(revision), scope, annotations).unwrap();
                assert_eq!(expected["metadata"].get("managedFields"), None);
                expected["metadata"]["managedFields"] = json!([{"manager": "m"}]);
                let mut out = Vec::new();
                bytes.splice(Revision(revision), scope, annotations, &mut out);
                let wire: Value = serde_json::from_slice(&out)
                    .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)));
                assert_eq!(wire, expected);
            }
        }
    }

    #[test]
    fn a_stored_object_with_a_wrong_length_is_refused() {
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {}});
        let mut bytes = encode_managed(&object, 0, b"[]").unwrap().stored().to_vec();
        bytes[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(ObjectBytes::parse(&bytes).is_err());
        bytes[17..21].copy_from_slice(&0u32.to_le_bytes());
        assert!(ObjectBytes::parse(&bytes).is_err());
    }

    #[test]
    fn the_version_is_read_without_parsing() {
        for (api_version, version) in [("v1", "v1"), ("tenancy.kcp.io/v1alpha1", "v1alpha1")] {
            let object = json!({"apiVersion": api_version, "kind": "K", "metadata": {"name": "a"}});
            assert_eq!(encode(&object, 0).unwrap().as_object().version(), version);
        }
    }

    #[test]
    fn stripping_removes_the_resource_version_the_scope_annotations_and_empty_fields() {
        let mut object = json!({"metadata": {"name": "a", "resourceVersion": "3", "managedFields": [],
            "annotations": {"kcp.io/cluster": "root"}, "labels": {}, "ownerReferences": [], "finalizers": []}});
        EncodedObject::strip(&mut object, CLUSTER);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for bytes in [&b""[..], b"{}", b"\x02aaaaaaaaaaaaaaaaaaaaaaaaa", b"\x01aaaaaaaaaaaaaaaaaaaaaaaaa"] {
            assert!(ObjectBytes::parse(bytes).is_err());
        }
    }
}
