//! The gateway's client certificate for shards, and the authorities that their serving certificates are checked against.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use fairlead_config::PemFault;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Paths of the credential's files.
#[derive(Clone, Debug)]
pub(crate) struct CredentialFiles {
    /// PEM: the certificate with which shards accept identity headers, and its intermediates.
    pub(crate) certificate: PathBuf,
    /// PEM: its private key.
    pub(crate) private_key: PathBuf,
    /// PEM: the certificate authorities of the shards' serving certificates.
    pub(crate) authorities: PathBuf,
    /// Name that serving certificates must contain, in place of the host of a URL.
    pub(crate) server_name: Option<String>,
}

/// A client certificate and the certificate authorities of the servers, parsed. Immutable: a reload makes a new one, and
/// new connections use it.
#[derive(Clone)]
pub(crate) struct UpstreamCredential {
    /// Hash of all of the material, so that a connection of one credential is never used for another.
    pub(super) group_key: u64,
    /// For streams: HTTP/2 if the server supports it.
    pub(super) stream_tls: Arc<rustls::ClientConfig>,
    /// For tunnels: HTTP/1.1 only.
    pub(super) tunnel_tls: Arc<rustls::ClientConfig>,
    /// Name that the server's certificate must contain, in place of the host of its URL.
    pub(super) server_name: Option<ServerName<'static>>,
}

impl fmt::Debug for UpstreamCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UpstreamCredential").finish_non_exhaustive()
    }
}

/// The files are not a valid credential; the operator must fix them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    /// A file cannot be read or is not PEM.
    #[error("{object} {path} cannot be read: {reason}")]
    Read {
        /// Content that the file should have.
        object: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A file is damaged.
    #[error("{object}: {fault}")]
    Damaged {
        /// Content that the file should have.
        object: &'static str,
        /// The position and the kind of the error.
        fault: PemFault,
    },
    /// A file contains no certificate, or an invalid one.
    #[error("{0} contains no usable certificate")]
    NoCertificate(PathBuf),
    /// The server name is invalid.
    #[error("{0:?} is not a server name")]
    ServerName(String),
    /// Certificate and key do not match.
    #[error("the certificate {certificate} cannot be used with its key")]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

impl UpstreamCredential {
    /// True if both were made of the same material.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.group_key == other.group_key
    }
}

impl CredentialFiles {
    /// The files, for a file watcher.
    pub(crate) fn files(&self) -> [PathBuf; 3] {
        [self.certificate.clone(), self.private_key.clone(), self.authorities.clone()]
    }

    /// Reads and checks all files.
    ///
    /// # Errors
    /// [`CredentialError`] names the file.
    pub(crate) fn load(&self) -> Result<UpstreamCredential, CredentialError> {
        let chain = certificates("the client certificate", &self.certificate)?;
        let authorities = certificates("the CA bundle", &self.authorities)?;
        let key = PrivateKeyDer::from_pem_file(&self.private_key).map_err(|error| CredentialError::Read {
            object: "the private key",
            path: self.private_key.clone(),
            reason: reason(&self.private_key, &error),
        })?;
        let mut stream_tls = self.check(&chain, &authorities, key.clone_key())?;
        let mut tunnel_tls = stream_tls.clone();
        stream_tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        tunnel_tls.alpn_protocols = vec![b"http/1.1".to_vec()];

        let mut hasher = GROUP_KEYS.build_hasher();
        for part in chain.iter().chain(&authorities) {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.write(key.secret_der());
        hasher.write(self.server_name.as_deref().unwrap_or_default().as_bytes());
        let server_name = self
            .server_name
            .clone()
            .map(|name| ServerName::try_from(name.clone()).map_err(|_| CredentialError::ServerName(name)));
        Ok(UpstreamCredential {
            server_name: server_name.transpose()?,
            group_key: hasher.finish(),
            stream_tls: Arc::new(stream_tls),
            tunnel_tls: Arc::new(tunnel_tls),
        })
    }

    /// Checks at load time everything that would otherwise fail at every handshake.
    fn check(
        &self,
        chain: &[Vec<u8>],
        authorities: &[Vec<u8>],
        key: PrivateKeyDer<'static>,
    ) -> Result<rustls::ClientConfig, CredentialError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots
                .add(CertificateDer::from_slice(authority))
                .map_err(|_| CredentialError::NoCertificate(self.authorities.clone()))?;
        }
        let chain = chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
        rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, key))
            .map_err(|source| CredentialError::Pair { certificate: self.certificate.clone(), source })
    }
}

/// One seed for the lifetime of the process, so that equal material has equal keys.
static GROUP_KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The certificates of a PEM file; each has been parsed successfully.
fn certificates(object: &'static str, path: &Path) -> Result<Vec<Vec<u8>>, CredentialError> {
    let unreadable = |error: rustls_pki_types::pem::Error| CredentialError::Read {
        object,
        path: path.to_owned(),
        reason: reason(path, &error),
    };
    let parsed: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(unreadable)?;
    if parsed.is_empty() || parsed.iter().any(|der| X509Certificate::from_der(der).is_err()) {
        return Err(match PemFault::first_in(path) {
            Some(fault) => CredentialError::Damaged { object, fault },
            None => CredentialError::NoCertificate(path.to_owned()),
        });
    }
    Ok(parsed.into_iter().map(|der| der.to_vec()).collect())
}

/// The error's text, with the line number if there is one.
fn reason(path: &Path, error: &rustls_pki_types::pem::Error) -> String {
    PemFault::first_in(path).map_or_else(|| error.to_string(), |fault| fault.to_string())
}
