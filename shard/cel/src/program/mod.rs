//! Programs: checked expressions in the form in which they are evaluated.

mod cost_rule;
mod function;
mod node;
mod plan;

use std::sync::Arc;

pub(crate) use cost_rule::CostRule;
pub(crate) use function::Function;
pub(crate) use node::{
    Attribute, Base, Call, ConstantSet, Fold, FoldBody, MapStep, Node, Qualifier, QualifierKey,
};

use crate::check::{Checked, CompileError, Declared, Environment, NamedExpression, Reference};
use crate::estimate::{CostEstimate, estimate};
use crate::evaluate::{Budget, Evaluation, Inputs, NamedValues, evaluate};
use crate::limits::MAX_TREE_DEPTH;
use crate::types::Type;

/// A checked expression that can be evaluated any number of times, by several threads at once.
#[derive(Debug)]
pub struct Program {
    root: Node,
    slots: usize,
    output: Type,
    /// Variables of the environment that the expression refers to, by their place.
    references: Vec<bool>,
    variables: Arc<Vec<Declared>>,
    /// The named expressions that it can use.
    named: Arc<Vec<NamedExpression>>,
    /// The nesting of the expression and of the named expressions that it uses.
    depth: usize,
    estimate: CostEstimate,
}

impl Program {
    pub(crate) fn new(environment: &Environment, checked: Checked) -> Result<Self, CompileError> {
        let named = Arc::clone(environment.named_expressions());
        let planned =
            plan::plan(&checked, environment.variables(), &named).map_err(CompileError::Constant)?;
        let plan::Plan { root, slots, used } = planned;
        let below = used.iter().filter_map(|place| Some(named.get(*place)?.program.depth)).max();
        let depth = checked.tree.depth() + below.unwrap_or(0);
        if depth > MAX_TREE_DEPTH {
            return Err(CompileError::Constant(
                "the expression and its variables are nested too deeply".to_owned(),
            ));
        }
        let mut references = vec![false; environment.variables().len()];
        for reference in checked.references() {
            if let Reference::Variable(place) = reference
                && let Some(is_used) = references.get_mut(*place)
            {
                *is_used = true;
            }
        }
        let output = checked.type_of(checked.tree.root).clone();
        let variables = environment.shared_variables();
        // Kubernetes reads all paths as paths of `self`, also those of `oldSelf`.
        let estimate =
            estimate(&checked, variables.iter().find_map(|declared| declared.variable.json()).map(|d| &**d));
        Ok(Self { root, slots, output, references, variables, named, depth, estimate })
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
        evaluate(self, inputs, &mut NamedValues::default(), budget)
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn named(&self) -> &[NamedExpression] {
        &self.named
    }
}
