//! Paths that are not routed: malformed, not canonical, or without a valid logical cluster.

/// The reason why a path is not routed.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PathError {
    /// Not a path; a retry does not help: 400.
    #[error("malformed request path: {0}")]
    Malformed(&'static str),
    /// The same resource has a clean path: 307. Percent-encoded, without the query.
    #[error("the path is not canonical")]
    Unclean(String),
    /// The segment after `/clusters/` cannot name a logical cluster (or is `*`, which only shards serve).
    /// The response is that for an unknown workspace.
    #[error("not a logical cluster: {0:?}")]
    InvalidCluster(String),
}
