//! Bound resources with virtual storage. Their objects are the copies that a ClusterCachedResource publishes in the cache server.
//!
//! [`SourceLookup`] finds the copies that a logical cluster may read: those that the export of its binding refers to. A shard mirrors
//! the copies that its logical clusters read ([`PublishedCopies`]), once for all of them, and serves them as objects of the logical
//! cluster of the request ([`VirtualStorage`]).

mod changes;
mod copies;
mod registry;
mod sources;
#[cfg(test)]
mod tests;

pub(crate) use copies::{NewMirrors, PublishedCopies};
pub(crate) use registry::VirtualStorage;
pub(crate) use sources::SourceLookup;
