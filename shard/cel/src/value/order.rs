//! `<` and its relatives.

use std::cmp::Ordering;

use super::Value;
use crate::failure::Failure;
use crate::work::Work;

/// The order of two values of one type, or of two numbers.
pub(crate) fn compare(left: &Value<'_>, right: &Value<'_>, work: &Work) -> Result<Ordering, Failure> {
    Ok(match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
        (Value::Int(a), Value::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Uint(a), Value::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Double(a), Value::Double(b)) => doubles(*a, *b)?,
        (Value::Double(a), Value::Int(b)) => double_and_integer(*a, i128::from(*b))?,
        (Value::Double(a), Value::Uint(b)) => double_and_integer(*a, i128::from(*b))?,
        (Value::Int(a), Value::Double(b)) => double_and_integer(*b, i128::from(*a))?.reverse(),
        (Value::Uint(a), Value::Double(b)) => double_and_integer(*b, i128::from(*a))?.reverse(),
        (Value::String(a), Value::String(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            work.read(a.len().min(b.len()))?;
            a.cmp(b)
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            work.read(a.len().min(b.len()))?;
            a.cmp(b)
        }
        (Value::Duration(a), Value::Duration(b)) => a.nanoseconds.cmp(&b.nanoseconds),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.instant().cmp(&b.instant()),
        _ => return Err(Failure::no_such_overload()),
    })
}

fn doubles(left: f64, right: f64) -> Result<Ordering, Failure> {
    left.partial_cmp(&right).ok_or_else(|| Failure::error("NaN values cannot be ordered"))
}

/// Beyond the range of integers a double is smaller or larger than all of them; within it, the integer is rounded, as in
/// cel-go.
fn double_and_integer(double: f64, integer: i128) -> Result<Ordering, Failure> {
    doubles(double, integer as f64)
}
