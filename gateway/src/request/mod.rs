//! What a request asks for, read once and purely: path, query and header sizes in, a typed target out.

mod class;
mod clean;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod headers;
mod path;
mod priority;
mod resource;

pub(crate) use class::RequestClass;
pub(crate) use headers::{
    HeaderLimits, begins_alike, connection_nominations, is_alike, is_hop_by_hop, target_size,
};
pub(crate) use path::{
    AdminFile, ClusterPaths, ClusterTarget, LocalEndpoint, OtherPath, PathError, Reference, RequestPath,
    cluster_path, cluster_within,
};
pub(crate) use priority::Priority;
pub(crate) use resource::within_cluster;
