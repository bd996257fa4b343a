//! Paths that are not dispatched: malformed, not canonical, or without a valid logical cluster.

/// The reason why a path is not dispatched.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PathError {
    /// Not a path at all; the client is to blame, a retry does not help. Answered with 400.
    #[error("malformed request path: {0}")]
    Malformed(&'static str),
    /// The same resource has a clean path; answered with 307. Percent-encoded, without the query.
    #[error("the path is not clean")]
    Unclean(String),
    /// What follows `/clusters/` cannot name a logical cluster (or is `*`, which only shards serve).
    /// Answered like an unknown workspace.
    #[error("not a logical cluster: {0:?}")]
    InvalidCluster(String),
}
