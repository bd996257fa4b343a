//! The total order of JSON values in field paths, and their texts in messages.

use core::cmp::Ordering;
use std::borrow::Cow;

use serde_json::{Number, Value};

use crate::field::go_quote;

/// Orders values: numbers by their value, then texts, booleans, lists, objects, null.
pub(crate) fn compare_values(one: &Value, two: &Value) -> Ordering {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => compare_numbers(one, two),
        (Value::String(one), Value::String(two)) => one.cmp(two),
        (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
        (Value::Array(one), Value::Array(two)) => {
            let items = one.iter().zip(two).map(|(one, two)| compare_values(one, two));
            items.fold(Ordering::Equal, Ordering::then).then(one.len().cmp(&two.len()))
        }
        (Value::Object(one), Value::Object(two)) => {
            let fields = one.iter().zip(two).map(|((name, value), (other_name, other_value))| {
                name.cmp(other_name).then_with(|| compare_values(value, other_value))
            });
            fields.fold(Ordering::Equal, Ordering::then).then(one.len().cmp(&two.len()))
        }
        _ => rank(one).cmp(&rank(two)),
    }
}

/// Whether two values are equal, where `1` equals `1.0`.
pub(crate) fn equal_values(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => compare_numbers(one, two).is_eq(),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| equal_values(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len()
                && one.iter().zip(two).all(|((name, value), (other_name, other_value))| {
                    name == other_name && equal_values(value, other_value)
                })
        }
        _ => one == two,
    }
}

fn compare_numbers(one: &Number, two: &Number) -> Ordering {
    match (one.as_i64(), two.as_i64()) {
        (Some(one), Some(two)) => one.cmp(&two),
        _ => {
            let number = |number: &Number| number.as_f64().unwrap_or_default();
            number(one).partial_cmp(&number(two)).unwrap_or(Ordering::Equal)
        }
    }
}

const fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// A value in a path in a message: texts are quoted.
pub(super) fn quote(value: &Value) -> Cow<'static, str> {
    match value {
        Value::Null => "null".into(),
        Value::Bool(true) => "true".into(),
        Value::Bool(false) => "false".into(),
        Value::Number(number) => go_number(number).into(),
        Value::String(text) => go_quote(text).into(),
        Value::Array(items) => format!("[{}]", items.iter().map(quote).collect::<Vec<_>>().join(",")).into(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect::<String>().into()
        }
    }
}

/// A text as JSON, in the notation of Go: characters of HTML are escaped.
pub(crate) fn escape_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A number in the notation of Go's `%v`: whole numbers have no fraction, large ones an exponent of two digits.
pub(crate) fn go_number(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    let value = number.as_f64().unwrap_or_default();
    if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) {
        return exponent(value);
    }
    value.to_string()
}

/// A number as JSON, as Go writes it.
pub(super) fn json_number(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    let value = number.as_f64().unwrap_or_default();
    if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) {
        return exponent(value);
    }
    value.to_string()
}

/// A value as JSON, as Go's encoder writes it: whole numbers have no fraction, and characters of HTML are escaped.
pub(crate) fn go_json(value: &Value) -> String {
    let mut out = String::new();
    write_go_json(value, &mut out);
    out
}

fn write_go_json(value: &Value, out: &mut String) {
    let text = |text: &str| escape_html(&Value::from(text).to_string());
    match value {
        // Go's encoder writes `1e-7`, other than in field paths.
        Value::Number(number) => out.push_str(&json_number(number).replace("e-0", "e-")),
        Value::String(string) => out.push_str(&text(string)),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_go_json(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (name, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&text(name));
                out.push(':');
                write_go_json(field, out);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

/// `1e+21`, `1e-07`.
fn exponent(value: f64) -> String {
    let text = format!("{value:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{mantissa}e{sign}{exponent:0>2}")
}
