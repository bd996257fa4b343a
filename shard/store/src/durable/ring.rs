//! Recent batches in memory, so that a follower that keeps up never touches the file.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::follow::Batch;
use crate::record::Revision;

/// Batches that a follower reads at once.
const CHUNK: usize = 64;

/// The last batches, without gap, bounded in bytes and number.
#[derive(Debug)]
pub(super) struct Ring {
    recent: Mutex<Recent>,
    max_bytes: usize,
    max_batches: usize,
}

#[derive(Debug)]
struct Recent {
    /// The ring holds every batch after this revision.
    floor: Revision,
    batches: VecDeque<(Arc<Batch>, usize)>,
    bytes: usize,
}

impl Ring {
    /// An empty ring of a store whose last commit is `revision`.
    pub(super) fn new(revision: Revision, max_bytes: usize, max_batches: usize) -> Self {
        let recent = Recent { floor: revision, batches: VecDeque::new(), bytes: 0 };
        Self { recent: Mutex::new(recent), max_bytes, max_batches }
    }

    /// Appends the batches that follow the last one, and drops the oldest.
    pub(super) fn push(&self, batches: impl IntoIterator<Item = Arc<Batch>>) {
        let mut recent = self.recent.lock();
        for batch in batches {
            let bytes = batch.bytes();
            recent.bytes += bytes;
            recent.batches.push_back((batch, bytes));
        }
        while recent.batches.len() > self.max_batches || recent.bytes > self.max_bytes {
            let Some((batch, bytes)) = recent.batches.pop_front() else {
                break;
            };
            recent.bytes -= bytes;
            recent.floor = batch.revision;
        }
    }

    /// The first batches after `after`, none if there are none yet; `None` if the ring does not reach back that far.
    pub(super) fn after(&self, after: Revision) -> Option<VecDeque<Arc<Batch>>> {
        let recent = self.recent.lock();
        if after < recent.floor {
            return None;
        }
        // Revisions increase, but a store on a shared etcd has gaps between them.
        let skip = recent.batches.partition_point(|(batch, _)| batch.revision <= after);
        Some(recent.batches.iter().skip(skip).take(CHUNK).map(|(batch, _)| Arc::clone(batch)).collect())
    }

    /// Drops every batch: what follows continues from `revision`.
    pub(super) fn restart(&self, revision: Revision) {
        *self.recent.lock() = Recent { floor: revision, batches: VecDeque::new(), bytes: 0 };
    }

    /// Number of batches, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let recent = self.recent.lock();
        (recent.batches.len(), recent.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::Event;

    fn batch(revision: u64) -> Arc<Batch> {
        let event = Event { key: "k".into(), value: Some(vec![0; 1000].into()), previous: None };
        Arc::new(Batch { revision: Revision(revision), events: vec![event] })
    }

    fn revisions(ring: &Ring, after: u64) -> Option<Vec<u64>> {
        Some(ring.after(Revision(after))?.iter().map(|batch| batch.revision.0).collect())
    }

    #[test]
    fn keeps_the_last_batches_within_both_bounds() {
        for (ring, kept) in
            [(Ring::new(Revision(10), 1 << 20, 3), 3), (Ring::new(Revision(10), 2500, 100), 2)]
        {
            assert_eq!(revisions(&ring, 10), Some(vec![]), "nothing is missing yet");
            assert_eq!(revisions(&ring, 9), None);
            ring.push((11..=15).map(batch));
            assert_eq!(ring.size().0, kept);
            let floor = 15 - kept as u64;
            assert_eq!(revisions(&ring, floor - 1), None);
            assert_eq!(revisions(&ring, floor), Some((floor + 1..=15).collect()));
            assert_eq!(revisions(&ring, 14), Some(vec![15]));
            assert_eq!(revisions(&ring, 15), Some(vec![]));
        }
    }

    #[test]
    fn revisions_may_have_gaps() {
        let ring = Ring::new(Revision(10), 1 << 20, 3);
        ring.push([20, 21, 30].map(batch));
        for (after, found) in
            [(10, vec![20, 21, 30]), (15, vec![20, 21, 30]), (20, vec![21, 30]), (29, vec![30])]
        {
            assert_eq!(revisions(&ring, after), Some(found), "after {after}");
        }
        ring.push([batch(31)]);
        assert_eq!(revisions(&ring, 19), None);
        assert_eq!(revisions(&ring, 20), Some(vec![21, 30, 31]));
        ring.restart(Revision(50));
        assert_eq!((revisions(&ring, 31), revisions(&ring, 50)), (None, Some(vec![])));
    }

    #[test]
    fn a_batch_larger_than_the_ring_leaves_it_empty_but_consistent() {
        let ring = Ring::new(Revision(0), 100, 100);
        ring.push([batch(1)]);
        assert_eq!(ring.size(), (0, 0));
        assert_eq!(revisions(&ring, 0), None);
        assert_eq!(revisions(&ring, 1), Some(vec![]));
    }
}
