//! Faults of the files that a TLS configuration is made from.

use std::path::PathBuf;

/// A TLS configuration cannot be made from the files; the operator has to repair them.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate file cannot be read.
    #[error("the certificate file {0} cannot be read")]
    Certificate(PathBuf, #[source] rustls_pki_types::pem::Error),
    /// The certificate file has no certificate.
    #[error("the file {0} has no PEM certificate")]
    NoCertificate(PathBuf),
    /// The key file cannot be read.
    #[error("the private key file {0} cannot be read")]
    PrivateKey(PathBuf, #[source] rustls_pki_types::pem::Error),
    /// The provisional certificate cannot be read.
    #[error("the provisional certificate cannot be read")]
    Provisional(#[source] rustls_pki_types::pem::Error),
    /// A bundle of authorities cannot be read.
    #[error("the authorities in {0} cannot be read")]
    Authorities(PathBuf, #[source] rustls_pki_types::pem::Error),
    /// An authority certificate is invalid.
    #[error("an authority in {0} cannot be used")]
    Authority(PathBuf, #[source] rustls::Error),
    /// The certificate and the key do not match, or are of an unsupported kind.
    #[error("the certificate {certificate} cannot be used with the key {private_key}")]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        private_key: PathBuf,
        /// The reason.
        #[source]
        source: rustls::Error,
    },
    /// None of the listed cipher suites is supported.
    #[error("none of the cipher suites {0} is supported")]
    CipherSuites(String),
    /// The cryptography library failed.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
}
