//! Virtual workspaces: filtered and transformed views of the objects of a shard, served as Kubernetes APIs.
//!
//! A [`VirtualWorkspace`] is served below `/services/<name>`. It parses a *domain* from the path, for example one
//! initializer or one API export, and opens what serves the request: a [`View`] with its own resources and permissions,
//! or the content of a logical cluster under another identity. Everything else (discovery, OpenAPI, tables, watches,
//! audit, metrics, limits) is the work of the API server of the process, to which a view is a host.
//!
//! Registries are wrapped and not rewritten: [`filtered`] restricts a resource to the objects that [`ViewRules`] select,
//! for reads, watches and writes. In a shard a request never leaves the process; the crate reaches the shard only through
//! the trait [`Shard`].
//!
//! # Build your own
//!
//! A virtual workspace of your own runs in a process of its own, behind the gateway. A [`VirtualServer`] is that process: it
//! replicates resources of a workspace and serves views of the replicas. `deploy/examples/labelled.rs` is a whole program.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use fairlead_apiserver::registry::Catalog;
//! use fairlead_apiserver::request::LabelSelector;
//! use fairlead_apiserver::resource::{Verb, Verbs};
//! use fairlead_apiserver::{Attributes, Authorization};
//! use fairlead_process::Status;
//! use fairlead_virtual::{
//!     DomainPath, Replica, Service, ServerError, View, VirtualRequest, VirtualServer, VirtualWorkspace, filtered,
//! };
//!
//! struct Public {
//!     replica: Replica,
//!     view: Arc<PublicView>,
//! }
//!
//! // `/services/public/clusters/<logical cluster, or *>/…`
//! impl VirtualWorkspace for Public {
//!     fn name(&self) -> &str {
//!         "public"
//!     }
//!
//!     fn readiness(&self) -> Result<(), String> {
//!         self.replica.readiness()
//!     }
//!
//!     fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status> {
//!         let path = DomainPath::parse(request.segments(), 0);
//!         let view = self.view.clone();
//!         Ok(path.map(|path| Service::View { view, scopes: path.scopes, length: path.length }))
//!     }
//! }
//!
//! struct PublicView(Arc<Catalog>);
//!
//! #[async_trait]
//! impl View for PublicView {
//!     fn catalog(&self) -> Result<Arc<Catalog>, Status> {
//!         Ok(self.0.clone())
//!     }
//!
//!     async fn authorize(&self, _attributes: &Attributes<'_>) -> Authorization {
//!         Authorization::allow("public", "everybody may read it")
//!     }
//! }
//!
//! # async fn run(config: fairlead_config::VirtualWorkspacesConfig) -> Result<(), ServerError> {
//! let server = VirtualServer::new(config)?;
//! let replica = server.replicate("v1", "configmaps").await?;
//! let labels = Arc::new(LabelSelector::of_labels([("example.com/public", "true")]));
//! let verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);
//! let shown = filtered(replica.resource(), verbs, |_| None, labels);
//! let view = Arc::new(PublicView(Arc::new(Catalog::new(vec![Arc::new(shown)]))));
//! server.run(vec![Box::new(Public { replica, view })]).await
//! # }
//! ```

mod apiexport;
mod apiresourceschema;
mod domain;
mod filtered;
mod host;
mod lifecycle;
mod replication;
mod root_server;
mod server;
mod shard;
mod standalone;
#[cfg(test)]
mod testing;
mod workspace;

pub use apiexport::{Binding, Export, ExportWorkspaces, Exports};
pub use apiresourceschema::{BoundSchemas, SchemaWorkspaces};
pub use domain::{DomainPath, SERVICES};
pub use filtered::{ViewRules, filtered};
pub use lifecycle::{Lifecycle, LifecycleWorkspaces};
pub use replication::{CachedSlice, CachedSlices, ReplicationWorkspaces};
pub use root_server::RootServer;
pub use server::VirtualWorkspaces;
pub use shard::Shard;
pub use standalone::{Replica, ServerError, VirtualServer, main};
pub use workspace::{Service, View, VirtualRequest, VirtualWorkspace};
