//! Errors of the configuration. The caller has to correct them; a retry does not help.

/// A configuration that leads to no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL of an endpoint is invalid.
    #[error("the endpoint {url:?} is no URL: {source}")]
    Url {
        /// The URL of the slice.
        url: String,
        /// The fault.
        source: http::uri::InvalidUri,
    },
    /// The credentials cannot be used.
    #[error("no client for {url}: {source}")]
    Client {
        /// The URL of the server.
        url: String,
        /// The fault.
        source: Box<kube::Error>,
    },
}
