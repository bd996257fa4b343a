//! Named expressions (`variables.<name>`): evaluated at their first use.

use rustc_hash::FxHashMap;

use super::{Evaluator, Slot};
use crate::failure::{Abort, EvaluationError, Failure};
use crate::limits::MAX_COMPILED_PATTERNS;
use crate::value::Outcome;

/// The values of named expressions by their place, as far as they are evaluated.
#[derive(Debug, Default)]
pub(crate) struct NamedValues<'a> {
    values: Vec<Option<Outcome<'a>>>,
    /// The cost of those that are not charged to the budget yet.
    cost: u64,
}

impl NamedValues<'_> {
    pub(super) fn take_cost(&mut self) -> u64 {
        std::mem::take(&mut self.cost)
    }
}

impl<'a> Evaluator<'a> {
    /// The value of a named expression. Its cost has a limit of its own, as in Kubernetes.
    pub(super) fn named_value(&mut self, place: usize) -> Outcome<'a> {
        if let Some(Some(known)) = self.named.values.get(place) {
            return known.clone();
        }
        let Some(expression) = self.named_plans.get(place) else {
            return Err(Failure::error("no such attribute(s)"));
        };
        let plan = &*expression.plan;
        let mut evaluator = Evaluator {
            inputs: self.inputs,
            named_plans: &plan.named,
            named: std::mem::take(&mut self.named),
            remaining: self.remaining,
            slots: Vec::new(),
            cost: 0,
            limit: self.limit,
            deadline: self.deadline,
            steps: 0,
            patterns: FxHashMap::default(),
            pattern_budget: MAX_COMPILED_PATTERNS,
            match_work: self.match_work,
            work: self.work.clone(),
        };
        evaluator.slots.resize_with(plan.slots, || Slot::Empty);
        let result = evaluator.node(&plan.root);
        let cost = evaluator.cost;
        self.named = evaluator.named;
        self.match_work = evaluator.match_work;
        self.work = evaluator.work;
        self.named.cost = self.named.cost.saturating_add(cost);
        if self.named.cost.saturating_add(self.cost) > self.remaining {
            return Err(Failure::Abort(Abort::CostLimit));
        }
        let fault = |error: &dyn std::fmt::Display| {
            Failure::error(format!("composited variable {:?} fails to evaluate: {error}", expression.name))
        };
        let result = match result {
            Err(Failure::Abort(Abort::Deadline)) => return Err(Failure::Abort(Abort::Deadline)),
            Err(Failure::Abort(Abort::CostLimit)) => Err(fault(&EvaluationError::CostLimit)),
            Err(Failure::Error(error)) => Err(fault(&error)),
            Ok(value) => Ok(value),
        };
        if self.named.values.len() <= place {
            self.named.values.resize_with(place + 1, || None);
        }
        if let Some(value) = self.named.values.get_mut(place) {
            *value = Some(result.clone());
        }
        result
    }
}
