//! Programs: checked expressions with what callers ask about them.

mod planner;
mod session;

use std::sync::Arc;

pub use session::Session;

use crate::check::{Checked, CompileError, Declarations, Declared, Reference};
use crate::estimate::{CostEstimate, estimate};
use crate::evaluate::{Budget, Evaluation, Inputs, NamedValues, evaluate};
use crate::plan::{NamedPlan, Plan};
use crate::types::Type;

/// A checked expression that can be evaluated any number of times, by several threads at once.
#[derive(Debug)]
pub struct Program {
    plan: Arc<Plan>,
    output: Type,
    /// Variables of the environment that the expression refers to, by their place.
    references: Vec<bool>,
    variables: Arc<Vec<Declared>>,
    estimate: CostEstimate,
}

impl Program {
    pub(crate) fn new(
        declarations: &Declarations,
        named: &Arc<Vec<NamedPlan>>,
        checked: Checked,
        pattern_budget: &mut usize,
    ) -> Result<Self, CompileError> {
        let variables = Arc::clone(declarations.variable_list());
        let plan =
            planner::plan(&checked, &variables, named, pattern_budget).map_err(CompileError::Constant)?;
        let mut references = vec![false; variables.len()];
        for reference in checked.references() {
            if let Reference::Variable(place) = reference
                && let Some(is_used) = references.get_mut(*place)
            {
                *is_used = true;
            }
        }
        let output = checked.type_of(checked.tree.root).clone();
        // Kubernetes reads all paths as paths of `self`, also those of `oldSelf`.
        let root = variables.iter().find_map(|declared| declared.variable.json()).map(|declared| &**declared);
        let estimate = estimate(&checked, root);
        Ok(Self { plan: Arc::new(plan), output, references, variables, estimate })
    }

    /// The type of its result.
    #[must_use]
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Whether it refers to a variable, such as `oldSelf`.
    #[must_use]
    pub fn uses(&self, variable: &str) -> bool {
        let mut places = self.variables.iter().zip(&self.references);
        places.any(|(declared, is_used)| *is_used && *declared.name == *variable)
    }

    /// The cost of an evaluation, from the bounds that the first JSON variable of the environment declares.
    ///
    /// Kubernetes multiplies the larger cost by the cardinality of the place of the rule and compares it with
    /// [`STATIC_COST_LIMIT`](crate::STATIC_COST_LIMIT).
    #[must_use]
    pub fn estimate(&self) -> CostEstimate {
        self.estimate
    }

    /// Evaluates it and charges the cost to the budget.
    ///
    /// The cost of a usual rule is some 100 ns per operation; the budget bounds that of all others.
    pub fn evaluate<'a>(&'a self, inputs: &'a Inputs<'a>, budget: &mut Budget) -> Evaluation<'a> {
        evaluate(&self.plan, inputs, &mut NamedValues::default(), budget)
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}
