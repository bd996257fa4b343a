//! Revisions of a store that have no batch, as on an etcd that others write to as well.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_names::{KeyCodec, Origin, ResourceName};
use fairlead_store::{
    CommitError, CompactError, Follower, Mutation, Range, ReadError, Record, RecordRef, Replica,
    ReplicaOptions, ReplicaWriter, ReplicatedCommit, Revision, Stats, Store,
};

use super::{Hub, HubOptions, Interest};
use crate::scope::ScopeSelector;

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

/// A copy of another store as a store of its own, without writes.
struct CopiedStore(Replica);

#[async_trait]
impl Store for CopiedStore {
    async fn commit(&self, _: Vec<Mutation>) -> Result<Revision, CommitError> {
        Err(CommitError::Unavailable {
            cause: Arc::new(std::io::Error::from(std::io::ErrorKind::Unsupported)),
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        self.0.get(key)
    }

    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.0.scan(range, at, visit)
    }

    fn revision(&self) -> Revision {
        self.0.revision()
    }

    fn compacted(&self) -> Revision {
        self.0.compacted()
    }

    fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.0.follow(after)
    }

    async fn compact(&self, _: Revision) -> Result<(), CompactError> {
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

#[tokio::test]
async fn waits_and_backlogs_pass_a_revision_without_a_commit() {
    let origin = fairlead_store::Origin { cluster: 1, part: 1 };
    let (replica, mut writer) = ReplicaWriter::open(None, origin, ReplicaOptions::default()).unwrap();
    let changes = vec![("/elsewhere".into(), Some("1".into()))];
    writer.apply(vec![ReplicatedCommit { revision: Revision(3), changes }]).unwrap();
    let codec = KeyCodec::new("/registry", 1, |_, _| true);
    let hub = Hub::new(Arc::new(CopiedStore(replica)), codec, HubOptions::default());
    let following = hub.clone();
    let running = tokio::spawn(async move { following.run().await });

    writer.set_position(Revision(8)).unwrap();
    tokio::time::timeout(LIMIT, hub.wait(Revision(8))).await.expect("the hub does not pass it").unwrap();
    let interest = Interest {
        resource: ResourceName::new("", "configmaps"),
        origin: Some(Origin::BuiltIn),
        scopes: ScopeSelector::all(),
        namespace: None,
        label: None,
    };
    let backlog = hub.backlog(interest, Range::prefix("/registry/"), Revision(0), hub.revision());
    let backlog = tokio::time::timeout(LIMIT, backlog).await.expect("the backlog does not pass it");
    assert_eq!(backlog.unwrap().count(), 0);
    running.abort();
}
