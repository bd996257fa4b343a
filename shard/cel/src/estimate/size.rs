//! Ranges of sizes and costs, with arithmetic that ends at the largest number.

/// The smallest and largest cost that an evaluation may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CostEstimate {
    /// Cost of the cheapest evaluation.
    pub min: u64,
    /// Cost of the most expensive evaluation.
    pub max: u64,
}

/// A range of sizes. It has the arithmetic of costs.
pub(super) type Size = CostEstimate;

impl CostEstimate {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) fn fixed(value: u64) -> Self {
        Self { min: value, max: value }
    }

    fn both(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        Self { min: operation(self.min, other.min), max: operation(self.max, other.max) }
    }

    pub(super) fn add(self, other: Self) -> Self {
        self.both(other, u64::saturating_add)
    }

    pub(super) fn multiply(self, other: Self) -> Self {
        self.both(other, u64::saturating_mul)
    }

    /// Multiplied by a factor and rounded up.
    pub(super) fn scale(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    /// The range of both.
    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

fn scale(value: u64, factor: f64) -> u64 {
    const LIMIT: f64 = u64::MAX as f64;
    let value = value as f64;
    if value > 0.0 && factor > 0.0 && value > LIMIT / factor {
        return u64::MAX;
    }
    let product = (value * factor).ceil();
    if product >= LIMIT { u64::MAX } else { product as u64 }
}
