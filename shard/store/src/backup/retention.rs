//! Revisions whose history is in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::record::Revision;
use crate::store::Store;

/// Revisions that must stay readable. The compaction of a store asks for them; a store itself does not know them.
#[derive(Clone, Debug, Default)]
pub struct RetainedRevisions(Arc<Mutex<BTreeMap<Revision, usize>>>);

/// Keeps a revision readable until it is dropped. The store keeps all values that are superseded meanwhile.
#[derive(Debug)]
pub struct RetainedRevision {
    all: RetainedRevisions,
    revision: Revision,
}

impl RetainedRevisions {
    /// Retains the latest revision of a store. Compaction never goes beyond the latest revision, so it is readable.
    pub fn retain_latest(&self, store: &dyn Store) -> RetainedRevision {
        let mut revisions = self.0.lock();
        let revision = store.revision();
        *revisions.entry(revision).or_default() += 1;
        RetainedRevision { all: self.clone(), revision }
    }

    /// The point up to which history may be compacted, at most `below`.
    pub fn limit(&self, below: Revision) -> Revision {
        self.0.lock().keys().next().map_or(below, |oldest| below.min(*oldest))
    }
}

impl RetainedRevision {
    /// The revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }
}

impl Drop for RetainedRevision {
    fn drop(&mut self) {
        let mut revisions = self.all.0.lock();
        if let Some(count) = revisions.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                revisions.remove(&self.revision);
            }
        }
    }
}
