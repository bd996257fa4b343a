//! `==`: numbers of different types are compared by value, other values of different types are different.

use super::{Extension, Value, compare};
use crate::failure::Failure;

/// Whether two values are equal. Values of JSON cannot be compared with all others; that is an error, as in Kubernetes.
pub(crate) fn equal<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<bool, Failure> {
    Ok(match (left, right) {
        (Value::Null, other) | (other, Value::Null) => matches!(other, Value::Null),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => {
            // Numbers that are not comparable (NaN) are different.
            compare(left, right).is_ok_and(|order| order.is_eq())
        }
        (Value::String(a), Value::String(b)) => a.as_str() == b.as_str(),
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a.is_same_instant(b),
        (Value::List(a), b) => a.equals(b)?,
        (Value::Map(a), b) => a.equals(b)?,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b)?,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Preserved(a), Value::Preserved(b)) => a == b,
        (Value::Object(a), Value::Object(b)) => a.equals(b)?,
        (Value::Extension(a), Value::Extension(b)) => extensions_equal(a, b)?,
        (Value::Extension(_), _) => return Err(Failure::no_such_overload()),
        _ => false,
    })
}

fn extensions_equal(left: &Extension, right: &Extension) -> Result<bool, Failure> {
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
