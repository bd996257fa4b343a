//! One compiled expression, and its evaluation within a budget.

use fairlead_cel::{
    Budget, EvaluationError, ExpressionKind, PolicyEnvironments, Program, Session, Value as CelValue,
};

/// A compiled expression.
#[derive(Debug)]
pub(in crate::dynamic_admission) struct Expression {
    source: Box<str>,
    /// Stored expressions were compiled when they were written; those of other versions of the server may not compile.
    program: Result<Program, String>,
}

/// The reason why an expression has no value, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::dynamic_admission) enum ExpressionFailure {
    #[error("{0}")]
    Failed(String),
    /// No further expression of the policy is evaluated.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
}

impl Expression {
    pub(in crate::dynamic_admission) fn compile(
        environments: &PolicyEnvironments,
        kind: ExpressionKind,
        source: &str,
    ) -> Self {
        let program = environments.compile(kind, source).map_err(|error| error.to_string());
        Self { source: source.into(), program }
    }

    pub(in crate::dynamic_admission) fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression and charges its cost.
    pub(in crate::dynamic_admission) fn evaluate<'a>(
        &'a self,
        session: &mut Session<'a>,
        budget: &mut Budget,
    ) -> Result<CelValue<'a>, ExpressionFailure> {
        let program = self
            .program
            .as_ref()
            .map_err(|error| ExpressionFailure::Failed(format!("compilation error: {error}")))?;
        let remaining = budget.remaining();
        let evaluation = session.evaluate(program, budget);
        match evaluation.result {
            Ok(value) => Ok(value),
            Err(EvaluationError::BudgetExhausted) => Err(ExpressionFailure::OutOfBudget),
            Err(_) if evaluation.cost > remaining => Err(ExpressionFailure::OutOfBudget),
            Err(error) => Err(ExpressionFailure::Failed(format!(
                "expression '{}' resulted in error: {error}",
                self.source
            ))),
        }
    }
}
