//! Match conditions (KEP-3716): expressions that limit which writes a webhook or policy reviews.

use fairlead_cel::{Budget, ExpressionKind, MATCH_CONDITIONS_COST_BUDGET, PolicyEnvironments, Session};
use serde_json::Value;

use super::{Expression, ExpressionFailure, RequestVariables};

/// The compiled match conditions of a webhook or policy.
#[derive(Debug)]
pub(in crate::dynamic_admission) struct MatchConditions {
    environments: PolicyEnvironments,
    conditions: Vec<Expression>,
    ignores_failure: bool,
}

/// What match conditions say about a write.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::dynamic_admission) enum ConditionsResult {
    /// All are true.
    Match,
    /// One is false, or one fails and the failure policy is `Ignore`.
    NoMatch,
    /// One fails, and the failure policy is `Fail`.
    Failure(String),
}

impl MatchConditions {
    /// Compiles `matchConditions`.
    pub(in crate::dynamic_admission) fn compile(
        conditions: &Value,
        has_params: bool,
        ignores_failure: bool,
    ) -> Self {
        let environments = PolicyEnvironments::new(has_params);
        let conditions = conditions.as_array().into_iter().flatten();
        let conditions = conditions.map(|condition| {
            let source = condition["expression"].as_str().unwrap_or_default().trim();
            Expression::compile(&environments, ExpressionKind::MatchCondition, source)
        });
        Self { conditions: conditions.collect(), environments, ignores_failure }
    }

    /// Whether there are none.
    pub(in crate::dynamic_admission) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Evaluates all conditions. One that is false decides, whatever the others are.
    pub(in crate::dynamic_admission) fn evaluate(
        &self,
        variables: &RequestVariables,
        params: &Value,
    ) -> ConditionsResult {
        let inputs = variables.condition_inputs(self.environments.of(ExpressionKind::MatchCondition), params);
        let mut session = Session::new(&inputs);
        let mut budget = Budget::new(MATCH_CONDITIONS_COST_BUDGET);
        let mut failures = Vec::new();
        let mut is_false = false;
        for condition in &self.conditions {
            match condition.evaluate(&mut session, &mut budget) {
                Ok(value) => is_false |= value.as_bool() == Some(false),
                Err(failure @ ExpressionFailure::OutOfBudget) => return self.failure(failure.to_string()),
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        match failures.as_slice() {
            _ if is_false => ConditionsResult::NoMatch,
            [] => ConditionsResult::Match,
            [failure] => self.failure(failure.clone()),
            failures => self.failure(format!("[{}]", failures.join(", "))),
        }
    }

    fn failure(&self, failure: String) -> ConditionsResult {
        if self.ignores_failure { ConditionsResult::NoMatch } else { ConditionsResult::Failure(failure) }
    }
}
