//! Capacity that admission reserves for a write until the write is committed or refused.
//!
//! Admission decides before the commit. Without reservations, concurrent writes that each fit into a limit could exceed
//! it together.

use std::sync::Arc;

use fairlead_store::{CommitError, Mutation, Revision};
use parking_lot::Mutex;

use super::ObjectStore;

/// A reserved share of a limit. Dropping it returns the share.
pub trait Reservation: Send {
    /// The write is committed. The share is used from now on.
    fn keep(self: Box<Self>);
}

/// The reservations of one attempt of a write.
#[derive(Default)]
pub struct Reservations(Mutex<Vec<Box<dyn Reservation>>>);

impl Reservations {
    /// Holds a reservation until the outcome of the write is known.
    pub fn hold(&self, reservation: Box<dyn Reservation>) {
        self.0.lock().push(reservation);
    }

    /// Commits the write and settles its reservations. Costs nothing if there are none.
    pub(super) async fn commit(
        self,
        objects: &ObjectStore,
        mutations: Vec<Mutation>,
    ) -> Result<Revision, CommitError> {
        let reservations = self.0.into_inner();
        if reservations.is_empty() {
            return objects.commit(mutations).await;
        }
        let objects = objects.clone();
        // A commit cannot be withdrawn: if the client disconnects, its outcome still decides about the reservations.
        let commit = tokio::spawn(async move {
            let outcome = objects.commit(mutations).await;
            if outcome.is_ok() {
                reservations.into_iter().for_each(Reservation::keep);
            }
            outcome
        });
        commit.await.unwrap_or_else(|error| Err(CommitError::Unavailable { cause: Arc::new(error) }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_names::KeyCodec;
    use fairlead_store::MemoryStore;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    struct Probe {
        outcome: Option<&'static str>,
        report: UnboundedSender<&'static str>,
    }

    impl Reservation for Probe {
        fn keep(mut self: Box<Self>) {
            self.outcome = Some("kept");
        }
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            let _ = self.report.send(self.outcome.unwrap_or("returned"));
        }
    }

    fn objects() -> ObjectStore {
        let codec = KeyCodec::new("/registry", 1, |_, _| true);
        ObjectStore::new(Arc::new(MemoryStore::new()), codec, &["kcp.io/cluster"])
    }

    fn reservations() -> (Reservations, UnboundedReceiver<&'static str>) {
        let (report, outcomes) = unbounded_channel();
        let reservations = Reservations::default();
        reservations.hold(Box::new(Probe { outcome: None, report }));
        (reservations, outcomes)
    }

    #[tokio::test]
    async fn a_committed_write_keeps_its_share_and_a_failed_one_returns_it() {
        let objects = objects();
        for expected in ["kept", "returned"] {
            let (reservations, mut outcomes) = reservations();
            let outcome = reservations.commit(&objects, vec![Mutation::create("a", "v")]).await;
            assert_eq!(outcome.is_ok(), expected == "kept");
            assert_eq!(outcomes.recv().await, Some(expected));
        }
        let (unused, mut outcomes) = reservations();
        drop(unused);
        assert_eq!(outcomes.recv().await, Some("returned"));
    }

    #[tokio::test]
    async fn the_outcome_of_an_abandoned_write_decides() {
        let objects = objects();
        let (reservations, mut outcomes) = reservations();
        let mut write = Box::pin(reservations.commit(&objects, vec![Mutation::create("a", "v")]));
        // The client disconnects after the commit has begun.
        assert!(futures_util::poll!(&mut write).is_pending());
        drop(write);
        assert_eq!(outcomes.recv().await, Some("kept"));
        assert!(objects.store().get(b"a").unwrap().is_some());
    }
}
