//! Failed measurements.

use fairlead_tests::harness::HarnessError;
use fairlead_tests::load::LoadError;

/// A failed measurement. Repeating it seldom helps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A process or a certificate is not available.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A process cannot be observed.
    #[error(transparent)]
    Observed(#[from] LoadError),
    /// An operation of the operating system failed.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The TLS settings are not accepted.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A certificate file cannot be parsed.
    #[error("certificate: {0}")]
    Certificate(#[from] rustls_pki_types::pem::Error),
    /// The authorities of clients cannot be used.
    #[error("client verification: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A response or another result is not as required.
    #[error("{0}")]
    Unexpected(String),
}

impl BenchError {
    /// For `map_err` of I/O errors.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    /// For results that are not as required.
    pub(crate) fn unexpected(what: impl Into<String>) -> Self {
        Self::Unexpected(what.into())
    }
}
