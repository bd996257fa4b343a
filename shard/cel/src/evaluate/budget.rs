//! The cost that evaluations may have.

use std::time::Instant;

use crate::failure::EvaluationError;
use crate::limits::{MAX_MATCH_WORK, MAX_WORK, PER_CALL_LIMIT, RUNTIME_COST_BUDGET};
use crate::value::{Outcome, Value};
use crate::work::Work;

/// The remaining cost of all evaluations for one object.
#[derive(Debug, Clone)]
pub struct Budget {
    remaining: u64,
    call_limit: u64,
    deadline: Option<Instant>,
    /// The remaining work of matches of patterns.
    pub(super) match_work: u64,
    /// The remaining other work.
    pub(super) work: u64,
}

/// The result of an evaluation with its cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value.
    pub result: Result<Value<'a>, EvaluationError>,
    /// Its cost, also if it has failed.
    pub cost: u64,
}

impl Default for Budget {
    /// The budget of the rules of one object.
    fn default() -> Self {
        Self::new(RUNTIME_COST_BUDGET)
    }
}

impl Budget {
    /// A budget for several evaluations, each of which may cost up to [`PER_CALL_LIMIT`].
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self {
            remaining: total,
            call_limit: PER_CALL_LIMIT,
            deadline: None,
            match_work: MAX_MATCH_WORK,
            work: MAX_WORK,
        }
    }

    /// As [`new`](Self::new), with a share of the work that an object may cause besides the cost: that of the total in
    /// [`RUNTIME_COST_BUDGET`].
    #[must_use]
    pub fn proportional(total: u64) -> Self {
        let share =
            |limit: u64| limit / 1_000 * total.min(RUNTIME_COST_BUDGET) / (RUNTIME_COST_BUDGET / 1_000);
        Self { match_work: share(MAX_MATCH_WORK), work: share(MAX_WORK), ..Self::new(total) }
    }

    /// Sets the limit for one evaluation.
    #[must_use]
    pub fn with_call_limit(mut self, limit: u64) -> Self {
        self.call_limit = limit;
        self
    }

    /// Sets the time at which evaluations end.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The cost that is left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The work that was done, in units of cost: what an object may cause corresponds to [`RUNTIME_COST_BUDGET`]. Callers
    /// with a common budget for several objects charge it, because work is not part of the cost.
    #[must_use]
    pub fn work_as_cost(&self) -> u64 {
        let share = |remaining: u64, limit: u64| {
            let used = limit.saturating_sub(remaining);
            used.saturating_mul(RUNTIME_COST_BUDGET / 1_000) / (limit / 1_000)
        };
        share(self.match_work, MAX_MATCH_WORK).max(share(self.work, MAX_WORK))
    }

    pub(super) fn new_work(&self) -> Work {
        Work::new(self.work)
    }

    pub(super) fn call_limit(&self) -> u64 {
        self.call_limit.min(self.remaining)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Charges an evaluation.
    pub(super) fn settle<'a>(&mut self, cost: u64, result: Outcome<'a>) -> Evaluation<'a> {
        let is_exhausted = cost > self.remaining;
        self.remaining = self.remaining.saturating_sub(cost);
        let result = match result {
            _ if is_exhausted => Err(if cost > self.call_limit {
                EvaluationError::CostLimit
            } else {
                EvaluationError::BudgetExhausted
            }),
            result => result.map_err(EvaluationError::from),
        };
        Evaluation { result, cost }
    }
}
