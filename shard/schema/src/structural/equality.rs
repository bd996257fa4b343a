//! Equality of JSON values as Kubernetes defines it: numbers are compared by value.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::field::go_quote;

/// JSON equality in which numbers are compared by value: `1` and `1.0` are equal.
pub(super) fn json_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other) == Ordering::Equal,
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| json_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, field)| other.get(name).is_some_and(|other| json_equal(field, other)))
        }
        _ => one == other,
    }
}

/// A text that is equal for equal values; `1` and `1.0` are equal.
pub(super) fn identity(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 2f64.powi(53) => {
                (float as i64).to_string()
            }
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(identity).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            // Sorted here, because `serde_json` keeps insertion order if any crate enables that feature.
            let mut texts: Vec<String> = fields
                .iter()
                .map(|(name, field)| format!("{}:{}", go_quote(name), identity(field)))
                .collect();
            texts.sort_unstable();
            format!("{{{}}}", texts.join(","))
        }
        Value::String(text) => go_quote(text),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// Compares integers exactly, even if an `f64` cannot represent them.
pub(super) fn compare(one: &Number, other: &Number) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let one = one.as_f64().unwrap_or(f64::NAN);
            let other = other.as_f64().unwrap_or(f64::NAN);
            one.partial_cmp(&other).unwrap_or(Ordering::Equal)
        }
    }
}
