//! Conversions: `int()`, `string()` and their relatives.

use super::{Extension, Outcome, Value, double_to_text};
use crate::failure::Failure;
use crate::library::{Duration, Timestamp};

fn parsed<'a, T>(result: Option<T>, wrap: impl FnOnce(T) -> Value<'a>, to: &str) -> Outcome<'a> {
    result.map(wrap).ok_or_else(|| Failure::error(format!("type conversion error from 'string' to '{to}'")))
}

pub(crate) fn to_int<'a>(value: &Value<'a>) -> Outcome<'a> {
    let overflow = || Failure::error("integer overflow");
    match value {
        Value::Int(value) => Ok(Value::Int(*value)),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        // The bounds are excluded because they are no exact doubles.
        Value::Double(value) if *value > i64::MIN as f64 && *value < i64::MAX as f64 => {
            Ok(Value::Int(*value as i64))
        }
        Value::Double(_) => Err(overflow()),
        Value::Duration(duration) => Ok(Value::Int(duration.nanoseconds)),
        Value::Timestamp(timestamp) => Ok(Value::Int(timestamp.seconds)),
        Value::String(text) => parsed(text.as_str().parse().ok(), Value::Int, "int"),
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_uint<'a>(value: &Value<'a>) -> Outcome<'a> {
    let overflow = || Failure::error("unsigned integer overflow");
    match value {
        Value::Uint(value) => Ok(Value::Uint(*value)),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(value) if *value >= 0.0 && *value < u64::MAX as f64 => Ok(Value::Uint(*value as u64)),
        Value::Double(_) => Err(overflow()),
        Value::String(text) => {
            let digits = Some(text.as_str()).filter(|text| !text.starts_with('+'));
            parsed(digits.and_then(|text| text.parse().ok()), Value::Uint, "uint")
        }
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_double<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Double(value) => Ok(Value::Double(*value)),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => {
            let text = text.as_str();
            let is_named = text.to_ascii_lowercase().contains("inf");
            let number = text.parse::<f64>().ok().filter(|number| !number.is_infinite() || is_named);
            parsed(number, Value::Double, "double")
        }
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_bool<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => {
            let truth = match text.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            };
            parsed(truth, Value::Bool, "bool")
        }
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_bytes<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_str().as_bytes().into())),
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_duration<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Duration(duration) => Ok(Value::Duration(*duration)),
        Value::String(text) => {
            parsed(Duration::parse(text.as_str()), Value::Duration, "google.protobuf.Duration")
        }
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_timestamp<'a>(value: &Value<'a>) -> Outcome<'a> {
    let overflow = || Failure::error("timestamp overflow");
    match value {
        Value::Timestamp(timestamp) => Ok(Value::Timestamp(*timestamp)),
        Value::Int(seconds) => Timestamp::from_seconds(*seconds).map(Value::Timestamp).ok_or_else(overflow),
        Value::String(text) => match Timestamp::parse(text.as_str()) {
            Some(timestamp) => timestamp.in_range().map(Value::Timestamp).ok_or_else(overflow),
            None => parsed(None, Value::Timestamp, "google.protobuf.Timestamp"),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn to_string<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::String(text) => Ok(Value::String(text.clone())),
        Value::Bool(value) => Ok(Value::borrowed(if *value { "true" } else { "false" })),
        Value::Int(value) => Ok(Value::text(value.to_string())),
        Value::Uint(value) => Ok(Value::text(value.to_string())),
        Value::Double(value) => Ok(Value::text(double_to_text(*value))),
        Value::Duration(duration) => Ok(Value::text(duration.to_string())),
        Value::Timestamp(timestamp) => Ok(Value::text(timestamp.to_string())),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::text(text)),
            Err(_) => Err(Failure::error("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Extension(Extension::Ip(address)) => Ok(Value::text(address.to_string())),
        Value::Extension(Extension::Cidr(cidr)) => Ok(Value::text(cidr.to_string())),
        _ => Err(Failure::no_such_overload()),
    }
}
