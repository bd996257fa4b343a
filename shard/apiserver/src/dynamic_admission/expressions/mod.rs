//! Expressions of webhooks and policies: their variables and evaluation.

mod authorizer;
mod conditions;
mod expression;
mod variables;

pub(super) use conditions::{ConditionsResult, MatchConditions};
pub(super) use expression::{Expression, ExpressionFailure};
pub(super) use variables::RequestVariables;
