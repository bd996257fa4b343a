//! Match conditions of admission webhooks and policies, and the errors of their expressions.

use std::collections::BTreeSet;

use fairlead_cel::{ExpressionError, ExpressionKind, PolicyEnvironments};
use serde_json::Value;

use super::text;
use crate::field::{FieldError, FieldPath};
use crate::names::qualified_name;

const MAX_CONDITIONS: usize = 64;

/// Checks match conditions. Compiling costs some 20 µs per condition.
pub(super) fn validate_match_conditions(
    conditions: &[Value],
    has_params: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if conditions.is_empty() {
        return;
    }
    if conditions.len() > MAX_CONDITIONS {
        errors.push(FieldError::too_many(path.clone(), conditions.len(), MAX_CONDITIONS));
        // Kubernetes compiles them nevertheless; here the limit bounds the work.
        return;
    }
    let environments = PolicyEnvironments::new(has_params);
    let mut names = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression = text(condition, "expression").trim();
        let expression_path = path.child("expression");
        if expression.is_empty() {
            errors.push(FieldError::required(expression_path, ""));
        } else if let Err(error) = environments.compile(ExpressionKind::MatchCondition, expression) {
            errors.push(expression_error(expression_path, expression, &error));
        }
        let (name, path) = (text(condition, "name"), path.child("name"));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let problems = qualified_name(name);
        errors.extend(problems.iter().map(|problem| FieldError::invalid_str(path.clone(), name, problem)));
        if !names.insert(name) {
            errors.push(FieldError::duplicate(path, &Value::from(name)));
        }
    }
}

/// The field error of an expression that does not compile.
pub(super) fn expression_error(path: FieldPath, source: &str, error: &ExpressionError) -> FieldError {
    match error {
        ExpressionError::Invalid(detail) => FieldError::invalid_str(path, source, detail),
        ExpressionError::Internal(detail) => FieldError::internal(path, detail),
    }
}
