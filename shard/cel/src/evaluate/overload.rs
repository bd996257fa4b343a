//! The error of a call whose operands fit no overload of the function.

use crate::failure::Failure;
use crate::plan::Call;
use crate::value::{Outcome, Value};

/// In the words of cel-go, with the types of the operands.
pub(super) fn no_such_overload(call: &Call, operands: &[Outcome<'_>]) -> Failure {
    let types: Vec<&str> =
        operands.iter().map(|operand| operand.as_ref().map_or("error", Value::type_name)).collect();
    if matches!(&*call.name, name if name.contains('_') || name.starts_with('@') || name.ends_with("With") || name == "contains")
    {
        return Failure::no_such_overload();
    }
    Failure::error(format!("no such overload: {}({})", call.name, types.join(", ")))
}
