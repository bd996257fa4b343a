//! Indexes of the store: logical clusters, workspace paths, roles, and served resources.
//!
//! Indexes follow the hub and never write. A writer that depends on an index waits for the
//! hub's revision ([`Hub::wait`](fairlead_apiserver::hub::Hub::wait)).

mod bindings;
mod bound_definitions;
mod cluster_cache;
mod clusters;
mod compiled;
mod contents;
mod defined_resources;
mod definitions;
mod paths;
mod policies;
mod resources;
mod virtual_storage;

pub(crate) use bindings::BindingIndex;
pub(crate) use cluster_cache::ClusterCache;
pub(crate) use clusters::ClusterIndex;
pub(crate) use definitions::{Definitions, DefinitionsError, Identities};
pub(crate) use paths::{PathIndex, Resolution};
pub(crate) use policies::PolicyIndex;
pub(crate) use virtual_storage::virtual_resource;
