//! The form in which expressions are evaluated: operations with their costs, without names and types.

mod cost_rule;
mod function;
mod node;

use std::sync::Arc;

pub(crate) use cost_rule::CostRule;
pub(crate) use function::Function;
pub(crate) use node::{
    Attribute, Base, Call, ConstantSet, Fold, FoldBody, MapStep, Node, Qualifier, QualifierKey,
};

/// An expression that can be evaluated.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: Node,
    /// The number of variables of comprehensions.
    pub(crate) slots: usize,
    /// The named expressions that it can use, by their place.
    pub(crate) named: Arc<Vec<NamedPlan>>,
    /// The nesting of the expression and of the named expressions that it uses.
    pub(crate) depth: usize,
}

/// A named expression, evaluated at its first use: `variables.<name>`.
#[derive(Debug, Clone)]
pub(crate) struct NamedPlan {
    pub(crate) name: Box<str>,
    pub(crate) plan: Arc<Plan>,
}
