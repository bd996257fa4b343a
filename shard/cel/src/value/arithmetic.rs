//! `+`, `-`, `*`, `/`, `%`: overflow is an error.

use super::{Outcome, Text, Value};
use crate::failure::Failure;
use crate::limits::MAX_TEXT_SIZE;
use crate::work::Work;

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";
const DURATION_OVERFLOW: &str = "duration overflow";
const TIMESTAMP_OVERFLOW: &str = "timestamp overflow";

fn checked<'a, T>(result: Option<T>, wrap: impl FnOnce(T) -> Value<'a>, fault: &'static str) -> Outcome<'a> {
    result.map(wrap).ok_or_else(|| Failure::error(fault))
}

pub(crate) fn add<'a>(left: Value<'a>, right: &Value<'a>, work: &Work) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => checked(a.checked_add(*b), Value::Int, INT_OVERFLOW),
        (Value::Uint(a), Value::Uint(b)) => checked(a.checked_add(*b), Value::Uint, UINT_OVERFLOW),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => concat_text(&a, b, work),
        (Value::Bytes(a), Value::Bytes(b)) => {
            if a.len() + b.len() > MAX_TEXT_SIZE {
                return Err(Failure::too_large());
            }
            work.produce(a.len() + b.len())?;
            Ok(Value::Bytes([&*a, &**b].concat().into()))
        }
        (Value::Duration(a), Value::Duration(b)) => checked(a.add(*b), Value::Duration, DURATION_OVERFLOW),
        (Value::Duration(a), Value::Timestamp(b)) => checked(b.add(a), Value::Timestamp, TIMESTAMP_OVERFLOW),
        (Value::Timestamp(a), Value::Duration(b)) => checked(a.add(*b), Value::Timestamp, TIMESTAMP_OVERFLOW),
        (Value::List(a), Value::List(b)) => Ok(Value::List(a.concat(b, work)?)),
        _ => Err(Failure::no_such_overload()),
    }
}

fn concat_text<'a>(left: &Text<'a>, right: &Text<'a>, work: &Work) -> Outcome<'a> {
    let (left_text, right_text) = (left.as_str(), right.as_str());
    if left_text.len() + right_text.len() > MAX_TEXT_SIZE {
        return Err(Failure::too_large());
    }
    Ok(match (left_text.is_empty(), right_text.is_empty()) {
        (true, _) => Value::String(right.clone()),
        (_, true) => Value::String(left.clone()),
        _ => {
            work.produce(left_text.len() + right_text.len())?;
            Value::text([left_text, right_text].concat())
        }
    })
}

pub(crate) fn subtract<'a>(left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => checked(a.checked_sub(*b), Value::Int, INT_OVERFLOW),
        (Value::Uint(a), Value::Uint(b)) => checked(a.checked_sub(*b), Value::Uint, UINT_OVERFLOW),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => {
            checked(a.subtract(*b), Value::Duration, DURATION_OVERFLOW)
        }
        (Value::Timestamp(a), Value::Duration(b)) => {
            let negated = b.negate().and_then(|duration| a.add(duration));
            checked(negated, Value::Timestamp, TIMESTAMP_OVERFLOW)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => checked(a.since(b), Value::Duration, INT_OVERFLOW),
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn multiply<'a>(left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => checked(a.checked_mul(*b), Value::Int, INT_OVERFLOW),
        (Value::Uint(a), Value::Uint(b)) => checked(a.checked_mul(*b), Value::Uint, UINT_OVERFLOW),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn divide<'a>(left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(Failure::error("division by zero"))
        }
        (Value::Int(a), Value::Int(b)) => checked(a.checked_div(*b), Value::Int, INT_OVERFLOW),
        (Value::Uint(a), Value::Uint(b)) => checked(a.checked_div(*b), Value::Uint, UINT_OVERFLOW),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn modulo<'a>(left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(Failure::error("modulus by zero"))
        }
        (Value::Int(a), Value::Int(b)) => checked(a.checked_rem(*b), Value::Int, INT_OVERFLOW),
        (Value::Uint(a), Value::Uint(b)) => checked(a.checked_rem(*b), Value::Uint, UINT_OVERFLOW),
        _ => Err(Failure::no_such_overload()),
    }
}

pub(crate) fn negate<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Int(a) => checked(a.checked_neg(), Value::Int, INT_OVERFLOW),
        Value::Double(a) => Ok(Value::Double(-a)),
        Value::Duration(a) => checked(a.negate(), Value::Duration, DURATION_OVERFLOW),
        _ => Err(Failure::no_such_overload()),
    }
}
