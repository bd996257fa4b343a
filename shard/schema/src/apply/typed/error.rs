//! Errors of values that do not have their type, with the texts of Kubernetes.

use core::fmt;

use serde_json::Value;

use crate::apply::fields::{PathElement, go_number};
use crate::field::go_quote;

/// A value that does not have its type. The client is at fault.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TypeError {
    /// The path, written from its end while the recursion returns.
    path: String,
    message: String,
}

impl TypeError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { path: String::new(), message: message.into() }
    }

    pub(super) fn undeclared(name: &str) -> Self {
        Self::new("field not declared in schema").below(&PathElement::field(name))
    }

    /// A value of another type.
    pub(super) fn expected(what: &str, value: &Value, shown: Shown) -> Self {
        Self::new(format!("expected {what}, got {}", shown.text(value)))
    }

    /// The error, seen from one level above.
    pub(super) fn below(mut self, element: &PathElement) -> Self {
        self.path = format!("{element}{}", self.path);
        self
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => formatter.write_str(&self.message),
            path => write!(formatter, "{path}: {}", self.message),
        }
    }
}

/// All errors of a value: one line for one, a list for several.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct TypeErrors(pub(super) Vec<TypeError>);

impl fmt::Display for TypeErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(formatter, "{only}");
        }
        formatter.write_str("errors:")?;
        self.0.iter().try_for_each(|error| write!(formatter, "\n  {error}"))
    }
}

impl From<TypeError> for TypeErrors {
    fn from(error: TypeError) -> Self {
        Self(vec![error])
    }
}

/// The notation of a value in an error; clients have seen those of Go.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    /// `%v` of the wrapper in which Kubernetes keeps a value.
    Wrapped,
    /// `%#v` of the wrapper.
    WrappedWithTypes,
    /// `%T`.
    TypeOnly,
}

impl Shown {
    fn text(self, value: &Value) -> String {
        match self {
            Self::Wrapped => format!("&{{{}}}", plain(value)),
            Self::WrappedWithTypes => format!("&value.valueUnstructured{{Value:{}}}", typed(value)),
            Self::TypeOnly => match value {
                Value::Null => "<nil>",
                Value::Bool(_) => "bool",
                Value::Number(number) if number.is_i64() => "int64",
                Value::Number(_) => "float64",
                Value::String(_) => "string",
                Value::Array(_) => "[]interface {}",
                Value::Object(_) => "map[string]interface {}",
            }
            .to_owned(),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

fn typed(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => go_quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(typed).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}:{}", go_quote(name), typed(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}
