//! Values of expressions. JSON is read in place: strings, lists and maps of the input are borrowed.

mod arithmetic;
mod convert;
mod equality;
mod list;
mod map;
mod members;
mod object;
mod order;
mod show;
mod to_json;

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Number, Value as Json};

use crate::failure::Failure;
use crate::library::{
    AuthorizerValue, Cidr, Duration, NamedFormat, Quantity, SemanticVersion, Timestamp, Url,
};

use crate::types::{DeclKind, DeclType, TextFormat};
use crate::work::Work;

pub(crate) use arithmetic::{add, divide, modulo, multiply, negate, subtract};
pub(crate) use convert::{
    to_bool, to_bytes, to_double, to_duration, to_int, to_string, to_timestamp, to_uint,
};
pub(crate) use equality::{equal, is_equal};
pub use list::List;
pub use map::{Map, OwnedMap};
pub use object::Object;
pub(crate) use order::compare;
pub(crate) use show::double_to_text;

/// The result of an operation.
pub(crate) type Outcome<'a> = Result<Value<'a>, Failure>;

/// A value. Cloning costs at most an increment of a counter.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`.
    Double(f64),
    /// `string`.
    String(Text<'a>),
    /// `bytes`.
    Bytes(Arc<[u8]>),
    /// `duration`.
    Duration(Duration),
    /// `timestamp`.
    Timestamp(Timestamp),
    /// `list`.
    List(List<'a>),
    /// `map`, or an object with fields.
    Map(Map<'a>),
    /// `optional_type`.
    Optional(Option<Arc<Value<'a>>>),
    /// A type, by its name.
    Type(Arc<str>),
    /// JSON without a declared type, which can only be compared.
    Preserved(&'a serde_json::Value),
    /// An object that the expression has made.
    Object(Arc<Object<'a>>),
    /// A value of the Kubernetes library.
    Extension(Extension),
}

/// A string, borrowed where possible.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// A part of the input or of the program.
    Borrowed(&'a str),
    /// A result of an operation.
    Shared(Arc<str>),
}

/// A value of the Kubernetes library.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants are named after the types of Kubernetes")]
pub enum Extension {
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Quantity(Quantity),
    Semver(Arc<SemanticVersion>),
    Format(NamedFormat),
    Authorizer(AuthorizerValue),
}

impl Text<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }

    /// The number of code points.
    pub(crate) fn size(&self) -> usize {
        let text = self.as_str();
        if text.is_ascii() { text.len() } else { text.chars().count() }
    }
}

impl<'a> Value<'a> {
    /// A string that is borrowed.
    #[must_use]
    pub fn borrowed(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// A string that is a result.
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::owned(items))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) const NONE: Self = Self::Optional(None);

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The value of a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// `size()` where it is defined.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => Some(text.size()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            _ => None,
        }
    }

    /// The size by which operations are charged; 1 for values without a size.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Self::Extension(Extension::Ip(IpAddr::V4(_))) => 4,
            Self::Extension(Extension::Ip(IpAddr::V6(_))) => 16,
            Self::Extension(Extension::Cidr(cidr)) => u64::from(cidr.prefix_length.div_ceil(8)),
            other => other.size().map_or(1, |size| size as u64),
        }
    }

    /// How deeply values that operations have made are nested. Values of the input are borrowed and count as one level.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::List(list) => list.depth() + 1,
            Self::Map(Map::Owned(map)) => map.depth() + 1,
            Self::Object(object) => object.depth() + 1,
            Self::Optional(Some(value)) => value.depth() + 1,
            _ => 0,
        }
    }

    /// The bytes of its text, as far as operations may read it as a whole.
    pub(crate) fn text_size(&self) -> usize {
        match self {
            Self::String(text) => text.as_str().len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Extension(extension) => extension.size(),
            _ => 0,
        }
    }

    /// The name of its type at run time.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Preserved(_) => "unknown",
            Self::Object(object) => object.name(),
            Self::Extension(extension) => extension.type_name(),
        }
    }

    /// Whether `optional.ofNonZeroValue` takes it as absent. Values that come from JSON objects and lists are never
    /// absent, as in Kubernetes.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.as_str().is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(duration) => duration.nanoseconds == 0,
            Self::Timestamp(timestamp) => timestamp.is_zero(),
            Self::List(list) => list.is_owned() && list.is_empty(),
            Self::Map(map) => map.is_owned() && map.is_empty(),
            Self::Object(object) => object.is_empty(),
            _ => false,
        }
    }
}

impl Extension {
    /// The bytes of its texts.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Url(url) => url.size(),
            Self::Semver(version) => version.size(),
            Self::Authorizer(value) => value.size(),
            Self::Ip(_) | Self::Cidr(_) | Self::Quantity(_) | Self::Format(_) => 0,
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(value) => value.type_name(),
        }
    }
}

/// The value of a part of the input, charged: a text may be decoded each time.
pub(crate) fn read_json<'a>(json: &'a Json, declared: &'a DeclType, work: &Work) -> Outcome<'a> {
    work.visit()?;
    if let (Json::String(text), DeclKind::Text(format)) = (json, declared.kind())
        && *format != TextFormat::Plain
    {
        work.produce(text.len())?;
    }
    from_json(json, declared)
}

/// The value of a JSON text. Only the outermost value is read; its parts are read when they are used.
pub(crate) fn from_json<'a>(json: &'a Json, declared: &'a DeclType) -> Outcome<'a> {
    if json.is_null() {
        return match declared.kind() {
            DeclKind::Any => Ok(Value::Null),
            _ if declared.is_nullable() => Ok(Value::Null),
            _ => Err(Failure::error("invalid data, got null for schema with nullable=false")),
        };
    }
    match (declared.kind(), json) {
        (DeclKind::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (DeclKind::Int, Json::Number(number)) => number
            .as_i64()
            .map(Value::Int)
            .ok_or_else(|| Failure::error("invalid data, expected int, got float64")),
        (DeclKind::Double, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
        (DeclKind::Text(format), Json::String(text)) => text_value(text, *format),
        (DeclKind::IntOrString, Json::String(text)) => Ok(Value::borrowed(text)),
        (DeclKind::IntOrString, Json::Number(number)) => number.as_i64().map(Value::Int).ok_or_else(|| {
            Failure::error("invalid data, expected XIntOrString value to be either a string or integer")
        }),
        (DeclKind::List { items, list }, Json::Array(values)) => {
            Ok(Value::List(List::json(values, items, list)))
        }
        (DeclKind::Map(values), Json::Object(entries)) => Ok(Value::Map(Map::json_map(entries, values))),
        (DeclKind::Object(object), Json::Object(entries)) => {
            Ok(Value::Map(Map::json_object(entries, object)))
        }
        (DeclKind::Any, json) => Ok(any(json, declared)),
        (kind, json) => Err(unexpected(kind, json)),
    }
}

/// JSON without a schema, or whose schema allows everything.
fn any<'a>(json: &'a Json, declared: &'a DeclType) -> Value<'a> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => number_value(number),
        Json::String(text) => Value::borrowed(text),
        Json::Array(values) => Value::List(List::json_any(values, declared)),
        Json::Object(entries) => Value::Map(Map::json_map(entries, declared)),
    }
}

/// Integers beyond 64 bits with a sign are numbers with a point, as in Kubernetes.
fn number_value<'a>(number: &Number) -> Value<'a> {
    match number.as_i64() {
        Some(value) => Value::Int(value),
        None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn text_value<'a>(text: &'a str, format: TextFormat) -> Outcome<'a> {
    match format {
        TextFormat::Plain => Ok(Value::borrowed(text)),
        // Kubernetes reads only the alphabet of URLs here, although validation accepts only the other one.
        TextFormat::Byte => STANDARD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .map(|bytes| Value::Bytes(bytes.into()))
            .map_err(|error| Failure::error(format!("Invalid byte formatted string {text}: {error}"))),
        TextFormat::Duration => Duration::parse_lenient(text).map(Value::Duration).ok_or_else(|| {
            Failure::error(format!("Invalid duration {text}: unable to parse {text} as duration"))
        }),
        TextFormat::Date => Timestamp::parse_date(text)
            .map(Value::Timestamp)
            .ok_or_else(|| Failure::error(format!("Invalid date formatted string {text}: cannot parse"))),
        TextFormat::DateTime => Timestamp::parse_lenient(text).map(Value::Timestamp).ok_or_else(|| {
            Failure::error(format!("Invalid date-time formatted string {text}: cannot parse"))
        }),
    }
}

fn unexpected(kind: &DeclKind, json: &Json) -> Failure {
    let found = match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    Failure::error(match kind {
        DeclKind::Bool => format!("invalid data, expected bool, got {found}"),
        DeclKind::Int => format!("invalid data, expected int, got {found}"),
        DeclKind::Double => format!("invalid data, expected float, got {found}"),
        DeclKind::Text(_) => format!("invalid data, expected string, got {found}"),
        DeclKind::IntOrString => {
            "invalid data, expected XIntOrString value to be either a string or integer".to_owned()
        }
        DeclKind::List { .. } => {
            "invalid data, expected an array for the provided schema with type=array".to_owned()
        }
        DeclKind::Map(_) | DeclKind::Object(_) | DeclKind::Any => {
            "invalid data, expected a map for the provided schema with type=object".to_owned()
        }
    })
}
