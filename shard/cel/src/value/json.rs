//! Reads JSON as a value of its declared type.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Number, Value as Json};

use super::{List, Map, Outcome, Value};
use crate::evaluate::Failure;
use crate::library::{Duration, Timestamp};
use crate::types::{DeclKind, DeclType, TextFormat};

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
