//! The registry over a store.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_process::Status;
use fairlead_store::Revision;
use serde_json::Value;

use super::admission::Admission;
use super::{
    AppliedConfiguration, Change, DeleteResult, DeletedCollection, ListCursor, ObjectStore, OpenWatch,
    Proposal, Registry, StoredObject, SubresourceCreator, Target, WatchEnd, WriteResult,
};
use crate::hub::Hub;
use crate::request::{DeleteOptions, ListOptions, WriteOptions};

/// Serves resources from a store, watches from its hub.
pub struct StoreRegistry {
    pub(super) objects: ObjectStore,
    pub(super) hub: Hub,
    pub(super) admission: Arc<dyn Admission>,
    pub(super) authority: Authority,
    pub(super) subresources: Option<Arc<dyn SubresourceCreator>>,
}

/// The authority for an object's identity (UID, creation time, generation).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Authority {
    /// This server: it assigns UIDs, generations and timestamps, and honours finalizers.
    Origin,
    /// The writer, if the object carries the scope annotation: it is a copy of an object whose origin has assigned the
    /// identity. Deletion is immediate.
    Replica,
}

impl StoreRegistry {
    /// A registry whose server is the origin of its objects.
    pub fn new(objects: ObjectStore, hub: Hub, admission: Arc<dyn Admission>) -> Self {
        Self { objects, hub, admission, authority: Authority::Origin, subresources: None }
    }

    /// A registry of replicas.
    pub fn replica(objects: ObjectStore, hub: Hub, admission: Arc<dyn Admission>) -> Self {
        Self { objects, hub, admission, authority: Authority::Replica, subresources: None }
    }

    /// The same registry with subresources that are created without being stored.
    pub fn with_subresources(self, subresources: Arc<dyn SubresourceCreator>) -> Self {
        Self { subresources: Some(subresources), ..self }
    }
}

impl StoreRegistry {
    /// After a write of a resource that an index depends on: waits until the index has processed it, so that the
    /// next request of the writer uses the new state. Costs the delay of the hub, well below a millisecond.
    pub(super) async fn wait_for_index(&self, target: &Target, revision: Revision) {
        if self.hub.is_observed(target.resource.storage_name()) {
            // A closed hub means that the process is shutting down; the write itself is durable.
            let _ = self.hub.wait(revision).await;
        }
    }

    /// Waits until all indexes have seen what is in the store.
    pub(super) async fn wait_for_indexes(&self) {
        // A closed hub means that the process is shutting down; the next commit fails then.
        let _ = self.hub.wait(self.objects.store().revision()).await;
    }
}

impl StoreRegistry {
    async fn written_in_version(&self, target: &Target, written: WriteResult) -> Result<WriteResult, Status> {
        Ok(match written {
            WriteResult::Created(stored) => WriteResult::Created(self.in_version(target, stored).await?),
            WriteResult::Updated(stored) => WriteResult::Updated(self.in_version(target, stored).await?),
            WriteResult::NotStored(value) => WriteResult::NotStored(value),
        })
    }
}

#[async_trait]
impl Registry for StoreRegistry {
    async fn get(
        &self,
        target: &Target,
        name: &str,
        at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        self.read_one(target, name, at_least).await
    }

    async fn list(&self, target: &Target, options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        self.open_list(target, options).await
    }

    async fn watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        self.open_watch(target, options, until).await
    }

    async fn create(
        &self,
        target: &Target,
        object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        if let Some(subresource) = &target.subresource {
            return self.create_subresource(target, subresource, object, options).await;
        }
        let written = self.write_new(target, object, options).await?;
        self.written_in_version(target, written).await
    }

    async fn update(
        &self,
        target: &Target,
        name: &str,
        change: &Change<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        self.wait_for_base(options.base).await;
        let written = self.write_change(target, name, &Proposal::Change(change), options).await?;
        self.written_in_version(target, written).await
    }

    async fn apply(
        &self,
        target: &Target,
        name: &str,
        configuration: &AppliedConfiguration<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let proposal = Proposal::Apply(configuration);
        self.wait_for_base(options.base).await;
        let written = self.write_change(target, name, &proposal, options).await?;
        self.written_in_version(target, written).await
    }

    async fn delete(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        self.wait_for_base(options.base()).await;
        Ok(match self.remove(target, name, options).await? {
            DeleteResult::Marked(stored) => DeleteResult::Marked(self.in_version(target, stored).await?),
            // Only its UID is shown.
            DeleteResult::Gone(stored) => DeleteResult::Gone(stored),
        })
    }

    async fn delete_collection(
        &self,
        target: &Target,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<DeletedCollection, Status> {
        self.wait_for_base(options.base()).await;
        self.remove_many(target, selection, options).await
    }
}
