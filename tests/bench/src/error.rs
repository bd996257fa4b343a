//! Why a measurement could not be made.

use fairlead_tests::harness::HarnessError;
use fairlead_tests::load::LoadError;

/// Who is to blame is in the message; another try seldom helps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A process or a certificate.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A process could not be observed.
    #[error(transparent)]
    Observed(#[from] LoadError),
    /// The machine.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The TLS settings are not accepted.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A file of the certificates.
    #[error("certificate: {0}")]
    Certificate(#[from] rustls_pki_types::pem::Error),
    /// Authorities of clients.
    #[error("client verification: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// What was measured did not answer as it must.
    #[error("{0}")]
    Answer(String),
}

impl BenchError {
    /// For `map_err` of I/O.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    /// For answers that are not what was asked for.
    pub(crate) fn answer(what: impl Into<String>) -> Self {
        Self::Answer(what.into())
    }
}
