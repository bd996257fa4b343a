//! Types of the tables: the fields of each message, with the facts that the wire format does not carry.

/// A protobuf message and the JSON object that it represents.
#[derive(Debug)]
pub(super) struct Message {
    /// Name of the OpenAPI definition of the same type.
    pub(super) definition: &'static str,
    pub(super) fields: &'static [Field],
}

/// A field of a message. The Go encoder writes every non-pointer field. An empty string, 0 or false on the wire therefore means
/// "absent" for a plain field and "set to zero" for a pointer field, and the `.proto` files do not tell them apart.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) cardinality: Cardinality,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cardinality {
    /// A plain field: zero means absent.
    Plain,
    /// A pointer, or a plain field that JSON always contains: zero is kept.
    KeepZero,
    List,
    /// A map with string keys: repeated entries of key = 1 and value = 2.
    Map,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    /// Bytes; base64 in JSON.
    Bytes,
    Message(&'static Message),
    /// A message whose fields are fields of the object itself (an embedded Go struct). The field has no name.
    Inline(&'static Message),
    /// Seconds = 1, nanos = 2. JSON has RFC 3339 in whole seconds.
    Time,
    /// Like `Time`. JSON has RFC 3339 in microseconds.
    MicroTime,
    /// A message whose field 1 is a string. JSON has the string instead (`Quantity`).
    WrappedText,
    /// A message whose field 1 is a list of strings. JSON has the list instead (`ExtraValue`).
    WrappedTexts,
    /// A message whose field 1 is JSON text (`FieldsV1`, `JSON`, `RawExtension`).
    Json,
    /// A schema = 1, or a list of schemas = 2.
    SchemaOrList(&'static Message),
    /// A boolean `allows` = 1, a schema = 2.
    SchemaOrBool(&'static Message),
    /// A schema = 1, or a list of strings = 2.
    SchemaOrTexts(&'static Message),
}

impl Kind {
    /// The message of a nested field.
    pub(super) const fn nested(self) -> Option<&'static Message> {
        match self {
            Kind::Message(message)
            | Kind::Inline(message)
            | Kind::SchemaOrList(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrTexts(message) => Some(message),
            _ => None,
        }
    }
}

pub(super) const fn plain(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, cardinality: Cardinality::Plain }
}

pub(super) const fn keep_zero(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, cardinality: Cardinality::KeepZero }
}

pub(super) const fn list(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, cardinality: Cardinality::List }
}

pub(super) const fn map(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, cardinality: Cardinality::Map }
}
