//! Bound resources whose objects are not stored on the shards of their consumers, but read from another endpoint.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{
    Change, DeleteResult, DeletedCollection, ListCursor, OpenWatch, Registry, ServedResource, StoredObject,
    Target, WatchEnd, WriteResult,
};
use fairlead_apiserver::request::{DeleteOptions, ListOptions, WriteOptions};
use fairlead_apiserver::resource::{Verb, Verbs};
use fairlead_process::{GroupResource, Status, StatusReason};
use fairlead_store::Revision;
use serde_json::Value;

const READS: Verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);

/// The resource as its consumers see it: read-only.
pub(super) fn virtual_resource(bound: &ServedResource) -> Arc<ServedResource> {
    Arc::new(bound.view(READS, |_| None, Arc::new(VirtualStorage)))
}

/// Reads from the endpoint are not implemented: all requests are refused, so that no client takes the absence of objects for a fact.
struct VirtualStorage;

#[async_trait]
impl Registry for VirtualStorage {
    async fn get(
        &self,
        target: &Target,
        _name: &str,
        _at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        Err(unsupported(target))
    }

    async fn list(&self, target: &Target, _options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        Err(unsupported(target))
    }

    async fn watch(
        &self,
        target: &Target,
        _options: &ListOptions,
        _until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        Err(unsupported(target))
    }

    async fn create(
        &self,
        target: &Target,
        _object: Value,
        _options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        Err(unsupported(target))
    }

    async fn update(
        &self,
        target: &Target,
        _name: &str,
        _change: &Change<'_>,
        _options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        Err(unsupported(target))
    }

    async fn delete(
        &self,
        target: &Target,
        _name: &str,
        _options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        Err(unsupported(target))
    }

    async fn delete_collection(
        &self,
        target: &Target,
        _selection: &ListOptions,
        _options: &DeleteOptions,
    ) -> Result<DeletedCollection, Status> {
        Err(unsupported(target))
    }
}

fn unsupported(target: &Target) -> Status {
    let name = &target.resource.name;
    let resource = GroupResource::new(&name.group, &name.resource);
    // Not 503: clients would repeat the request.
    Status::new(501, StatusReason::Unknown, format!("virtual storage of {resource} is not supported yet"))
}
