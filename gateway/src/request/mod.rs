//! Requests and responses as pure values: path, class, headers, priority, the log of decisions, and the gateway's own responses.
//!
//! A leaf: it uses nothing else of the gateway, and does no I/O.

mod class;
mod clean;
pub(crate) mod decision_log;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod headers;
pub(crate) mod host;
pub(crate) mod identity_headers;
mod path;
mod path_error;
mod priority;
mod resource;
pub(crate) mod response;
pub(crate) mod resume;

pub(crate) use class::RequestClass;
pub(crate) use headers::{
    HeaderLimits, MOUNT_HOPS, REFUSED, REVISION, has_header_prefix, is_hop_by_hop, is_same_header,
    nominated_headers, target_size,
};
pub(crate) use path::{
    AdminFile, ClusterPaths, ClusterTarget, LocalEndpoint, OtherPath, Reference, RequestPath,
    cluster_below_prefix, cluster_path,
};
pub(crate) use path_error::PathError;
pub(crate) use priority::Priority;
pub(crate) use resource::within_cluster;
