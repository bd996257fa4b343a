//! `==`: numbers of different types are compared by value, other values of different types are different.

use serde_json::Value as Json;

use super::{Extension, Value, compare};
use crate::failure::Failure;
use crate::work::Work;

/// Whether two values are equal. Values of JSON cannot be compared with all others; that is an error, as in Kubernetes.
///
/// Each part is charged. Equal pointers prove nothing: NaN is different from itself.
pub(crate) fn equal<'a>(left: &Value<'a>, right: &Value<'a>, work: &Work) -> Result<bool, Failure> {
    work.visit()?;
    Ok(match (left, right) {
        (Value::Null, other) | (other, Value::Null) => matches!(other, Value::Null),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => {
            // Numbers that are not comparable (NaN) are different.
            compare(left, right, work).is_ok_and(|order| order.is_eq())
        }
        (Value::String(a), Value::String(b)) => {
            bytes_equal(a.as_str().as_bytes(), b.as_str().as_bytes(), work)?
        }
        (Value::Bytes(a), Value::Bytes(b)) => bytes_equal(a, b, work)?,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a.is_same_instant(b),
        (Value::List(a), b) => a.equals(b, work)?,
        (Value::Map(a), b) => a.equals(b, work)?,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b, work)?,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Preserved(a), Value::Preserved(b)) => json_equal(a, b, work)?,
        (Value::Object(a), Value::Object(b)) => a.equals(b, work)?,
        (Value::Extension(a), Value::Extension(b)) => extensions_equal(a, b, work)?,
        (Value::Extension(_), _) => return Err(Failure::no_such_overload()),
        _ => false,
    })
}

/// Whether two values are equal; values that cannot be compared are different.
pub(crate) fn is_equal<'a>(left: &Value<'a>, right: &Value<'a>, work: &Work) -> Result<bool, Failure> {
    match equal(left, right, work) {
        Err(Failure::Error(_)) => Ok(false),
        result => result,
    }
}

fn bytes_equal(left: &[u8], right: &[u8], work: &Work) -> Result<bool, Failure> {
    if left.len() != right.len() {
        return Ok(false);
    }
    work.read(left.len())?;
    Ok(left == right)
}

/// Equality of JSON, in which `1` and `1.0` are different.
pub(super) fn json_equal(left: &Json, right: &Json, work: &Work) -> Result<bool, Failure> {
    work.visit()?;
    match (left, right) {
        (Json::String(a), Json::String(b)) => bytes_equal(a.as_bytes(), b.as_bytes(), work),
        (Json::Array(a), Json::Array(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                if !json_equal(a, b, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Json::Object(a), Json::Object(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, a) in a {
                work.read(key.len())?;
                match b.get(key) {
                    Some(b) if json_equal(a, b, work)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => Ok(left == right),
    }
}

fn extensions_equal(left: &Extension, right: &Extension, work: &Work) -> Result<bool, Failure> {
    work.charge((left.size() + right.size()) as u64)?;
    Ok(match (left, right) {
        (Extension::Url(a), Extension::Url(b)) => a.text() == b.text(),
        (Extension::Ip(a), Extension::Ip(b)) => a == b,
        (Extension::Cidr(a), Extension::Cidr(b)) => a == b,
        (Extension::Quantity(a), Extension::Quantity(b)) => a.compare(b).is_eq(),
        (Extension::Semver(a), Extension::Semver(b)) => a.compare(b).is_eq(),
        (Extension::Format(a), Extension::Format(b)) => a == b,
        (Extension::Authorizer(a), Extension::Authorizer(b)) => a.is_same(b),
        _ => return Err(Failure::no_such_overload()),
    })
}
