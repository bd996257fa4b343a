//! Types of expressions. Knows neither schemas nor values.

mod declaration;
mod escape;
mod schema;
mod unify;

use std::fmt;
use std::sync::Arc;

pub use declaration::{DeclKind, DeclType, Field, FieldType, ListKind, ObjectType, TextFormat};
pub use escape::{RESERVED as RESERVED_WORDS, escape, unescape};
pub(crate) use unify::{Substitutions, most_general};

/// A type of CEL. Cloning costs at most an increment of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Any value; checked when it is evaluated.
    Dyn,
    /// The type of an expression with an error; accepted everywhere, so that one mistake is reported once.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`.
    Bool,
    /// `int`, 64 bits.
    Int,
    /// `uint`, 64 bits.
    Uint,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `list(E)`.
    List(Arc<Type>),
    /// `map(K, V)`.
    Map(Arc<(Type, Type)>),
    /// An object with named fields, or a type of the Kubernetes library.
    Object(Arc<str>),
    /// A type with a name and parameters that supports no field selection, such as `optional_type(T)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// `type(T)`; without a parameter the type of all types.
    Type(Option<Arc<Type>>),
    /// A parameter of a declaration.
    Param(char),
    /// A type that inference has not determined yet.
    Variable(u32),
}

pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// `optional_type(T)`.
    #[must_use]
    pub fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::from([value]))
    }

    /// The type of the value of an optional.
    pub(crate) fn optional_value(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    pub(crate) fn is_variable(&self) -> bool {
        matches!(self, Self::Param(_) | Self::Variable(_))
    }

    /// Whether a part of the type is found by inference.
    pub(crate) fn contains_variable(&self) -> bool {
        self.is_variable() || self.parameters().iter().any(|part| part.contains_variable())
    }

    /// Whether values of the type are partly known only when they are evaluated.
    pub(crate) fn contains_dyn(&self) -> bool {
        matches!(self, Self::Dyn) || self.parameters().iter().any(|part| part.contains_dyn())
    }

    fn parameters(&self) -> Vec<&Self> {
        match self {
            Self::List(element) => vec![element],
            Self::Map(types) => vec![&types.0, &types.1],
            Self::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The name at run time, which is also the name in error messages of `format`.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "error",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(name) | Self::Opaque(name, _) => name,
            Self::Type(_) => "type",
            Self::Param(_) | Self::Variable(_) => "type_param",
        }
    }

    /// Whether two types describe the same values, whatever their parameters are called.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a.is_equivalent(b),
            (Self::Map(a), Self::Map(b)) => a.0.is_equivalent(&b.0) && a.1.is_equivalent(&b.1),
            (Self::Opaque(a, p), Self::Opaque(b, q)) => {
                a == b && p.len() == q.len() && p.iter().zip(q.iter()).all(|(p, q)| p.is_equivalent(q))
            }
            (Self::Type(Some(a)), Self::Type(Some(b))) => a.is_equivalent(b),
            (a, b) => a.is_variable() && b.is_variable() || a == b,
        }
    }
}

/// The form of cel-go's error messages.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(types) => write!(f, "map({}, {})", types.0, types.1),
            Self::Opaque(name, parameters) => {
                f.write_str(name)?;
                if parameters.is_empty() {
                    return Ok(());
                }
                for (index, parameter) in parameters.iter().enumerate() {
                    write!(f, "{}{parameter}", if index == 0 { "(" } else { ", " })?;
                }
                f.write_str(")")
            }
            Self::Type(Some(parameter)) => write!(f, "type({parameter})"),
            Self::Param(name) => write!(f, "{name}"),
            Self::Variable(number) => write!(f, "_var{number}"),
            other => f.write_str(other.runtime_name()),
        }
    }
}
