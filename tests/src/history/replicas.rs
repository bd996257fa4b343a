//! Replicas: what each of them has promised about one object.
//!
//! The successful writes of all replicas together are linearizable: each takes effect once, between its request and its
//! response, and only if its expectation holds. Everything else is served from a replica's own copy, also the refusals of
//! writes. The copy takes over the writes in the order of their revisions. It may be late with those of other replicas, but
//! has its own before it acknowledges them, and never goes back. So the responses of one replica are linearizable together
//! with the writes of the others, if these may take effect at any time after their request.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{Operation, Outcome};

/// The operations that must have an order, with the replica whose view they are. One replica alone must explain everything.
pub(super) fn views<'a>(operations: &[&'a Operation]) -> Vec<(Option<usize>, Vec<Cow<'a, Operation>>)> {
    let replicas: BTreeSet<usize> = operations.iter().map(|operation| operation.replica).collect();
    let mut views = Vec::new();
    if replicas.len() > 1 {
        let writes = operations.iter().filter(|operation| may_have_written(operation));
        views.push((None, writes.map(|operation| Cow::Borrowed(*operation)).collect()));
    }
    for replica in replicas {
        let seen = operations.iter().filter_map(|operation| {
            if operation.replica == replica {
                Some(Cow::Borrowed(*operation))
            } else if may_have_written(operation) {
                // The write is known to have happened if it has a response, but not when this replica has it.
                Some(Cow::Owned(Operation { end: u64::MAX, ..(*operation).clone() }))
            } else {
                None
            }
        });
        views.push((Some(replica), seen.collect()));
    }
    views
}

fn may_have_written(operation: &Operation) -> bool {
    match operation.outcome {
        Outcome::Written(_) | Outcome::Deleted => true,
        Outcome::Unknown => operation.action.is_write(),
        Outcome::Found(_) | Outcome::NotFound | Outcome::AlreadyExists | Outcome::Conflict => false,
    }
}

#[cfg(test)]
mod tests;
