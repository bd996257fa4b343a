//! Writes of replicas to the cache server.

use fairlead_client::{Client, ClientError, DeleteOptions, Preconditions, WriteOptions};
use serde_json::Value;

use super::plan::{ContentHash, Plan};
use super::replicas::{ObjectLocation, Replicas};
use crate::global::CacheResource;

/// Where the replicas of a resource are written.
pub(crate) struct ReplicaTarget<'t> {
    pub(crate) client: &'t Client,
    /// The name of this shard.
    pub(crate) shard: &'t str,
    pub(crate) resource: &'t CacheResource,
    pub(crate) replicas: &'t Replicas,
}

/// A write that was carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReplicaWrite {
    Created,
    Updated,
    /// There may be a new object with the same name, which needs another replica.
    Deleted,
    /// There was nothing to delete. There may be a new object, too.
    Gone,
}

impl ReplicaWrite {
    /// Whether the object has to be compared again.
    pub(crate) fn is_removal(self) -> bool {
        matches!(self, Self::Deleted | Self::Gone)
    }

    /// The verb of the request, if it changed something.
    pub(crate) fn verb(self) -> Option<&'static str> {
        match self {
            Self::Created => Some("create"),
            Self::Updated => Some("update"),
            Self::Deleted => Some("delete"),
            Self::Gone => None,
        }
    }
}

impl ReplicaTarget<'_> {
    /// Executes a plan that was made from the state after this number of lists. `None`: there was nothing to do.
    ///
    /// # Errors
    /// Those of the client.
    pub(crate) async fn execute(
        &self,
        location: &ObjectLocation,
        lists: u64,
        plan: Plan,
    ) -> Result<Option<ReplicaWrite>, ClientError> {
        let (cluster, name) = location;
        let path = self.resource.object(self.shard, cluster, name);
        let options = WriteOptions::default();
        Ok(Some(match plan {
            Plan::Nothing => return Ok(None),
            Plan::Create(body) => {
                let collection = self.resource.collection(self.shard, cluster);
                let response: Value = self.client.create(&collection, &body, &options).await?;
                self.replicas.written(lists, location.clone(), ContentHash::of(&body), &response);
                ReplicaWrite::Created
            }
            Plan::Update(body) => {
                let response: Value = self.client.replace(&path, &body, &options).await?;
                self.replicas.written(lists, location.clone(), ContentHash::of(&body), &response);
                ReplicaWrite::Updated
            }
            Plan::Delete { uid } => {
                let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
                let options =
                    DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
                let write = match self.client.delete(&path, &options).await {
                    Ok(()) => ReplicaWrite::Deleted,
                    Err(error) if error.is_not_found() => ReplicaWrite::Gone,
                    Err(error) => return Err(error),
                };
                self.replicas.removed(location, &uid);
                write
            }
        }))
    }
}
