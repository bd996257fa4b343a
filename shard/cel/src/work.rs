//! The work that evaluations may cause apart from their cost. Kubernetes charges a comparison of two lists by their length
//! alone, although their items may be large, or the same large item many times.

use std::cell::Cell;

use crate::failure::{Abort, Failure};
use crate::limits::{ITEM_WORK, MAX_WORK, PRODUCED_BYTE_WORK, READ_BYTES_PER_WORK, VISIT_WORK};

/// The remaining work of all evaluations for one object.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    remaining: Cell<u64>,
}

impl Default for Work {
    fn default() -> Self {
        Self::new(MAX_WORK)
    }
}

impl Work {
    pub(crate) fn new(remaining: u64) -> Self {
        Self { remaining: Cell::new(remaining) }
    }

    /// For results that a caller reads once.
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.remaining.get()
    }

    /// Charges some work. Once it is too much, nothing more can be done with this object.
    #[inline]
    pub(crate) fn charge(&self, amount: u64) -> Result<(), Failure> {
        let remaining = self.remaining.get();
        self.remaining.set(remaining.saturating_sub(amount));
        if amount > remaining { Err(Failure::Abort(Abort::CostLimit)) } else { Ok(()) }
    }

    /// Charges a look at one value.
    #[inline]
    pub(crate) fn visit(&self) -> Result<(), Failure> {
        self.charge(VISIT_WORK)
    }

    /// Charges looks at several values.
    pub(crate) fn visits(&self, count: usize) -> Result<(), Failure> {
        self.charge((count as u64).saturating_mul(VISIT_WORK))
    }

    /// Charges the items of a new list or map.
    pub(crate) fn items(&self, count: usize) -> Result<(), Failure> {
        self.charge((count as u64).saturating_mul(ITEM_WORK))
    }

    /// Charges a look at a text.
    #[inline]
    pub(crate) fn read(&self, bytes: usize) -> Result<(), Failure> {
        self.charge(bytes as u64 / READ_BYTES_PER_WORK)
    }

    /// Charges a new text.
    pub(crate) fn produce(&self, bytes: usize) -> Result<(), Failure> {
        self.charge((bytes as u64).saturating_mul(PRODUCED_BYTE_WORK))
    }
}
