//! Evaluates several programs with the same inputs.

use super::Program;
use crate::evaluate::{Budget, Evaluation, Inputs, NamedValues, evaluate};

/// Evaluates several programs of one environment with the same inputs. Each named expression is evaluated and charged
/// at most once.
#[derive(Debug)]
pub struct Session<'a> {
    inputs: &'a Inputs<'a>,
    named: NamedValues<'a>,
}

impl<'a> Session<'a> {
    /// A session in which no named expression is evaluated yet.
    #[must_use]
    pub fn new(inputs: &'a Inputs<'a>) -> Self {
        Self { inputs, named: NamedValues::default() }
    }

    /// Evaluates a program and charges its cost to the budget, with that of named expressions that it uses first.
    pub fn evaluate(&mut self, program: &'a Program, budget: &mut Budget) -> Evaluation<'a> {
        evaluate(program.plan(), self.inputs, &mut self.named, budget)
    }
}
