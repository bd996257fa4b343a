//! The cost that all policies of one request may have together.

use fairlead_cel::{Budget, RUNTIME_COST_BUDGET};

/// Kubernetes limits the cost per policy, binding and parameter only. A selector with thousands of parameters would use
/// seconds of a shard that other workspaces share.
const REQUEST_COST_BUDGET: u64 = 5 * RUNTIME_COST_BUDGET;

/// The remaining cost of one request.
#[derive(Debug)]
pub(super) struct RequestBudget {
    remaining: u64,
}

impl Default for RequestBudget {
    fn default() -> Self {
        Self { remaining: REQUEST_COST_BUDGET }
    }
}

impl RequestBudget {
    /// The budget of one policy with one parameter.
    pub(super) fn of_policy(&self) -> Budget {
        Budget::new(self.remaining.min(RUNTIME_COST_BUDGET))
    }

    /// Charges what a policy has used of a budget, the work included that Kubernetes does not charge.
    pub(super) fn charge(&mut self, before: u64, budget: &Budget) {
        let cost = before.saturating_sub(budget.remaining());
        self.remaining = self.remaining.saturating_sub(cost.max(budget.work_as_cost()));
    }
}
