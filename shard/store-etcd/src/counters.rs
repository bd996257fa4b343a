//! What a store counts for its statistics.

use std::sync::atomic::AtomicU64;

use fairlead_store::{CommitTimer, DurationHistogram};

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    /// Transactions that etcd has executed, and the time until their responses.
    pub(crate) transactions: AtomicU64,
    pub(crate) transaction_nanoseconds: AtomicU64,
    pub(crate) unavailable: AtomicU64,
    /// Commits with [`CommitError::Unknown`].
    pub(crate) unknown: AtomicU64,
    pub(crate) timer: CommitTimer,
    pub(crate) compactions: DurationHistogram,
}
