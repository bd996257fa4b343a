//! Responses to the ACME challenge tls-alpn-01 (RFC 8737) on a listener that also serves other clients.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{Acceptor, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The ALPN protocol of an authority that validates a name (RFC 8737).
pub const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// A folder of challenge certificates with their keys, each named `<host>.pem`. They are small and exist for seconds.
#[derive(Clone, Debug)]
pub struct ChallengeFolder(PathBuf);

impl ChallengeFolder {
    /// The folder at this path, which need not exist.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Performs the TLS handshake. A client that offers `acme-tls/1` and no other protocol gets the certificate of its challenge;
    /// that connection carries no requests. Other clients get `default_config`. Files are read on a blocking thread.
    ///
    /// # Errors
    /// The handshake fails, or there is no such challenge.
    pub async fn accept<S>(&self, default_config: Arc<ServerConfig>, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let hello = handshake.client_hello();
        if !hello.alpn().is_some_and(|offered| offered.eq([ACME_PROTOCOL])) {
            return handshake.into_stream(default_config).await;
        }
        // rustls accepts DNS names only here.
        let name = hello.server_name().map(str::to_ascii_lowercase).ok_or(io::ErrorKind::InvalidData)?;
        let file = self.0.join(format!("{name}.pem"));
        let challenge = tokio::task::spawn_blocking(move || challenge_config(&file))
            .await
            .map_err(io::Error::other)??;
        handshake.into_stream(Arc::new(challenge)).await
    }
}

fn challenge_config(file: &Path) -> io::Result<ServerConfig> {
    let leaf = CertificateDer::from_pem_file(file).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(file).map_err(io::Error::other)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = provider.key_provider.load_private_key(key).map_err(io::Error::other)?;
    // Whether key and certificate match is not checked: rustls cannot parse a certificate with this critical extension.
    let certificate = SingleCertAndKey::from(CertifiedKey::new(vec![leaf], key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![ACME_PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}
