//! Virtual workspaces: filtered and transformed views of the objects of a shard, served as Kubernetes APIs.
//!
//! A [`VirtualWorkspace`] is served below `/services/<name>`. It parses a *domain* from the path, for example one
//! initializer or one API export, and opens what serves the request: a [`View`] with its own resources and permissions,
//! or the content of a logical cluster under another identity. Everything else (discovery, OpenAPI, tables, watches,
//! audit, metrics, limits) is the work of the API server of the process, to which a view is a host.
//!
//! Registries are wrapped and not rewritten: [`filtered`] restricts a resource to the objects that [`ViewRules`] select,
//! for reads, watches and writes. A request never leaves the process. The crate reaches the shard only through the
//! trait [`Shard`].
//!
//! To build another virtual workspace, implement [`VirtualWorkspace`] and [`View`], make the catalog of the view with
//! [`filtered`], and give both to [`VirtualWorkspaces::new`].

mod apiexport;
mod apiresourceschema;
mod domain;
mod filtered;
mod host;
mod lifecycle;
mod replication;
mod server;
mod shard;
#[cfg(test)]
mod testing;
mod workspace;

pub use apiexport::{Binding, Export, ExportWorkspaces, Exports};
pub use apiresourceschema::{BoundSchemas, SchemaWorkspaces};
pub use domain::{DomainPath, SERVICES};
pub use filtered::{ViewRules, filtered};
pub use lifecycle::{Lifecycle, LifecycleWorkspaces};
pub use replication::{CachedSlice, CachedSlices, ReplicationWorkspaces};
pub use server::VirtualWorkspaces;
pub use shard::Shard;
pub use workspace::{Service, View, VirtualRequest, VirtualWorkspace};
