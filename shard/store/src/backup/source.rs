//! Whether the source of a copy changes meanwhile.

use crate::follow::Advance;
use crate::record::Revision;
use crate::store::Store;

/// Whether a store has a commit after a revision, or has compacted it. Its own revision does not tell: on etcd it also grows
/// without commits. Costs nothing while it has not grown, otherwise a look at the log.
pub async fn has_commits_after(store: &dyn Store, revision: Revision) -> bool {
    let Ok(mut follower) = store.follow(revision) else { return true };
    let latest = store.revision();
    while follower.position() < latest {
        if !matches!(follower.advance().await, Ok(Advance::Position(_))) {
            return true;
        }
    }
    false
}
