//! What the shard remembers of its store: which logical clusters there are, where paths lead, who may do
//! what, which resources are served.
//!
//! Indexes follow the hub and never write. They run on every replica. A writer that depends on one waits
//! for it ([`Hub::wait`](fairlead_apiserver::hub::Hub::wait)).

mod cluster_cache;
mod clusters;
mod definitions;
mod paths;
mod policies;
mod resources;

pub(crate) use clusters::ClusterIndex;
pub(crate) use definitions::{Definitions, Identities};
pub(crate) use paths::{PathIndex, Resolution};
pub(crate) use policies::PolicyIndex;
