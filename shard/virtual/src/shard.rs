//! The access of virtual workspaces to the shard.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::WorkspaceTypeSpec;
use fairlead_apiserver::registry::ServedResource;
use fairlead_apiserver::{Action, Scope};
use fairlead_authn::UserInfo;
use fairlead_names::ResourceName;
use fairlead_process::Status;
use serde_json::Value;

use crate::root_server::RootServer;

/// The shard whose objects virtual workspaces show.
#[async_trait]
pub trait Shard: RootServer {
    /// Whether a user has a permission in a logical cluster of any shard, whether or not it has access to its content.
    async fn permits(&self, user: &UserInfo, scope: &Scope, action: &Action<'_>) -> bool;

    /// The LogicalCluster object of a logical cluster of this shard.
    ///
    /// # Errors
    /// 500 if it cannot be read.
    fn logical_cluster(&self, scope: &Scope) -> Result<Option<Value>, Status>;

    /// The spec of a WorkspaceType of any shard.
    ///
    /// # Errors
    /// 500 if it cannot be read.
    fn workspace_type(&self, scope: &Scope, name: &str) -> Result<Option<WorkspaceTypeSpec>, Status>;

    /// A resource that every logical cluster serves.
    fn resource(&self, name: &ResourceName) -> Option<Arc<ServedResource>>;
}
