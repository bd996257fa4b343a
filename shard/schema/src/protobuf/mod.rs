//! Decodes Kubernetes protobuf request bodies into JSON values.
//!
//! Typed clients from Kubernetes 1.32 on send built-in kinds as `application/vnd.kubernetes.protobuf` and do not fall
//! back to JSON, so the server must decode these bodies. Responses stay JSON, which the same clients accept. Tables
//! supply the facts that the wire format does not carry: names, types, and whether a zero is a value (see [`table`]).

mod table;
mod tables;
mod value;
mod wire;

#[cfg(test)]
mod tests;

use serde_json::Value;

use value::Budget;
use wire::{Payload, Reader};

/// The first four bytes of every Kubernetes protobuf body.
pub const PROTOBUF_MAGIC: &[u8; 4] = b"k8s\0";

/// Maximum length of a body (3 MiB, the limit of request bodies). Longer bodies are refused before they are read.
pub const MAX_PROTOBUF_BODY: usize = 3 << 20;

/// Reasons for which a protobuf body cannot be read. The client is at fault in every case; a retry with the same body
/// does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body has no Kubernetes envelope (400).
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    MissingMagic,
    /// The bytes violate the wire format or do not fit the kind's fields (400).
    #[error("invalid protobuf: {0}")]
    Malformed(&'static str),
    /// The body exceeds a limit of depth, length or number of values (413).
    #[error("the protobuf body exceeds the limit of {0}")]
    TooLarge(&'static str),
    /// The kind has no protobuf form here, for example a custom resource (415).
    #[error("no protobuf form of kind {kind:?} in apiVersion {api_version:?} is known")]
    UnknownKind {
        /// `apiVersion` of the envelope.
        api_version: String,
        /// `kind` of the envelope.
        kind: String,
    },
    /// The envelope contains something other than plain protobuf (415).
    #[error("unsupported content in the protobuf envelope: {0:?}")]
    UnsupportedContent(String),
}

/// Decodes a request body: the four magic bytes and a `runtime.Unknown` message.
///
/// `default_api_version` and `default_kind` are those of the endpoint; they apply if the envelope's type is empty. The
/// result has `apiVersion` and `kind` and equals what the same client would have sent as JSON. Unknown fields are
/// skipped. Linear in the body's length; the depth of recursion is bounded.
///
/// # Errors
/// See [`ProtobufError`].
pub fn decode_protobuf(
    body: &[u8],
    default_api_version: &str,
    default_kind: &str,
) -> Result<Value, ProtobufError> {
    if body.len() > MAX_PROTOBUF_BODY {
        return Err(ProtobufError::TooLarge("3145728 bytes"));
    }
    let Some(envelope) = body.strip_prefix(PROTOBUF_MAGIC) else {
        return Err(ProtobufError::MissingMagic);
    };
    let envelope = Envelope::read(envelope)?;
    if !envelope.content_encoding.is_empty() {
        return Err(ProtobufError::UnsupportedContent(envelope.content_encoding.to_owned()));
    }
    if !matches!(envelope.content_type, "" | "application/vnd.kubernetes.protobuf") {
        return Err(ProtobufError::UnsupportedContent(envelope.content_type.to_owned()));
    }
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let api_version = or(envelope.api_version, default_api_version);
    let kind = or(envelope.kind, default_kind);
    let Some(message) = tables::message_of(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = value::decode_message(message, envelope.raw, &mut Budget::default())?;
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), Value::String(api_version));
        fields.insert("kind".to_owned(), Value::String(kind));
    }
    Ok(object)
}

/// Whether a body of this kind can be decoded. If not, [`decode_protobuf`] returns [`ProtobufError::UnknownKind`].
#[must_use]
pub fn has_protobuf_form(api_version: &str, kind: &str) -> bool {
    tables::message_of(api_version, kind).is_some()
}

/// Whether a zero in this field of this OpenAPI definition differs from its absence. True for unknown fields.
pub(crate) fn keeps_zero(definition: &str, field: &str) -> bool {
    let Some(message) = tables::by_definition().get(definition) else { return true };
    let field = message.fields.iter().find(|known| known.name == field);
    field.is_none_or(|field| field.cardinality != table::Cardinality::Plain)
}

/// `k8s.io/apimachinery/pkg/runtime.Unknown`: typeMeta = 1, raw = 2, contentEncoding = 3, contentType = 4.
#[derive(Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    content_encoding: &'a str,
    content_type: &'a str,
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next_field()? {
            match number {
                1 => envelope.read_type_meta(payload.bytes()?)?,
                2 => envelope.raw = payload.bytes()?,
                3 => envelope.content_encoding = payload.text()?,
                4 => envelope.content_type = payload.text()?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type_meta(&mut self, bytes: &'a [u8]) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next_field()? {
            match (number, payload) {
                (1, payload @ Payload::Bytes(_)) => self.api_version = payload.text()?,
                (2, payload @ Payload::Bytes(_)) => self.kind = payload.text()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The fields of a message with their payload as bytes, for tests of encoders: varints have at most two bytes there.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) fn wire_fields(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut reader = wire::Reader::new(bytes);
    let mut fields = Vec::new();
    while let Some((number, payload)) = reader.next_field().unwrap() {
        let payload = match payload {
            wire::Payload::Varint(value) if value < 0x100 => vec![value.to_le_bytes()[0]],
            wire::Payload::Varint(value) => value.to_le_bytes()[..2].to_vec(),
            wire::Payload::Fixed64(value) => value.to_le_bytes().to_vec(),
            wire::Payload::Fixed32(value) => value.to_le_bytes().to_vec(),
            wire::Payload::Bytes(bytes) => bytes.to_vec(),
        };
        fields.push((number, payload));
    }
    fields
}
