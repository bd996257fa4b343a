//! Values of expressions. JSON is read in place: strings, lists and maps of the input are borrowed.

mod arithmetic;
mod convert;
mod equality;
mod json;
mod list;
mod map;
mod object;
mod order;
mod show;
mod to_json;

use std::net::IpAddr;
use std::sync::Arc;

use crate::evaluate::Failure;
use crate::library::{
    AuthorizerValue, Cidr, Duration, NamedFormat, Quantity, SemanticVersion, Timestamp, Url,
};

pub(crate) use arithmetic::{add, divide, modulo, multiply, negate, subtract};
pub(crate) use convert::{
    to_bool, to_bytes, to_double, to_duration, to_int, to_string, to_timestamp, to_uint,
};
pub(crate) use equality::equal;
pub(crate) use json::from_json;
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
