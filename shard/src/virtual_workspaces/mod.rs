//! The shard behind its virtual workspaces.

mod exports;
mod schemas;
mod slices;

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{LOGICAL_CLUSTER_NAME, TypeReference, WorkspaceTypeSpec};
use fairlead_apiserver::registry::{ObjectStore, ServedResource};
use fairlead_apiserver::{Action, ApiServer, Host, IdentityAssumption, Response, Scope};
use fairlead_authn::UserInfo;
use fairlead_names::ResourceName;
use fairlead_process::{RequestBody, Status};
use fairlead_virtual::{
    ExportWorkspaces, Exports, Lifecycle, LifecycleWorkspaces, ReplicationWorkspaces, RootServer,
    SchemaWorkspaces, Shard, VirtualWorkspace, VirtualWorkspaces,
};
use http::Request;
use serde_json::Value;

use self::exports::ExportAccess;
use self::schemas::SchemaAccess;
use self::slices::SliceAccess;
use crate::exports::ExportLookup;
use crate::host::ShardHost;
use crate::names::{CUSTOM, LOGICAL_CLUSTERS, WORKSPACE_TYPES};
use crate::virtual_storage::VirtualStorage;
use crate::workspace_types::TypeLookup;

/// The access of virtual workspaces to this shard.
pub(crate) struct ShardAccess {
    pub(crate) api: Arc<ApiServer<ShardHost>>,
    pub(crate) objects: ObjectStore,
    pub(crate) types: Arc<TypeLookup>,
    pub(crate) exports: Arc<ExportLookup>,
    pub(crate) storage: VirtualStorage,
}

impl ShardAccess {
    /// All virtual workspaces, for the shard's listener.
    pub(crate) fn into_workspaces(self) -> VirtualWorkspaces {
        let api = Arc::clone(&self.api);
        let authorizer = Arc::clone(&api.host().authorizer);
        let slices = SliceAccess::new(
            Arc::clone(&self.exports),
            Arc::clone(&api.host().definitions),
            self.storage.clone(),
        );
        let exports = ExportAccess::new(self.objects.clone(), Arc::clone(&self.exports), authorizer);
        let exports: Arc<dyn Exports> = Arc::new(exports);
        let schemas = SchemaAccess {
            objects: self.objects.clone(),
            lookup: Arc::clone(&self.exports),
            bindings: Arc::clone(api.host().definitions.bindings()),
        };
        let shard: Arc<dyn Shard> = Arc::new(self);
        let lifecycles = [Lifecycle::Initializing, Lifecycle::Terminating].into_iter();
        let workspaces = lifecycles.map(|lifecycle| -> Box<dyn VirtualWorkspace> {
            Box::new(LifecycleWorkspaces::new(lifecycle, Arc::clone(&shard)))
        });
        let mut workspaces: Vec<_> = workspaces.collect();
        workspaces.push(Box::new(ExportWorkspaces::new(Arc::clone(&shard), Arc::clone(&exports))));
        workspaces.push(Box::new(SchemaWorkspaces::new(Arc::clone(&shard), Arc::new(schemas))));
        workspaces.push(Box::new(ReplicationWorkspaces::new(exports, Arc::new(slices))));
        VirtualWorkspaces::new(&api, shard, workspaces)
    }
}

#[async_trait]
impl RootServer for ShardAccess {
    fn host(&self) -> &dyn Host {
        self.api.host()
    }

    fn readiness(&self) -> Result<(), String> {
        // They are known when the shard has read root's exports, the last thing on which a request depends.
        match self.api.host().definitions.exported(&WORKSPACE_TYPES) {
            Some(_) => Ok(()),
            None => Err("the shard is starting".to_owned()),
        }
    }

    async fn serve(&self, request: Request<RequestBody>) -> Response {
        self.api.handle(request).await
    }

    async fn serve_as(&self, request: Request<RequestBody>, assumption: &dyn IdentityAssumption) -> Response {
        self.api.handle_as(request, assumption).await
    }
}

#[async_trait]
impl Shard for ShardAccess {
    async fn permits(&self, user: &UserInfo, scope: &Scope, action: &Action<'_>) -> bool {
        self.api.host().authorizer.permits_deep(user, scope.as_str(), action).await
    }

    fn logical_cluster(&self, scope: &Scope) -> Result<Option<Value>, Status> {
        let found = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, scope, None, LOGICAL_CLUSTER_NAME)?;
        found.map(|stored| self.objects.tree(&stored)).transpose()
    }

    fn workspace_type(&self, scope: &Scope, name: &str) -> Result<Option<WorkspaceTypeSpec>, Status> {
        let reference = TypeReference { name: name.to_owned(), path: scope.as_str().to_owned() };
        Ok(self.types.find(&reference)?.map(|found| found.spec))
    }

    fn resource(&self, name: &ResourceName) -> Option<Arc<ServedResource>> {
        self.api.host().definitions.common_resource(name)
    }
}
