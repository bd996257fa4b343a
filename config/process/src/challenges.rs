//! Answers to the challenge tls-alpn-01 (RFC 8737) at a server that others come to, too.

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

/// What an authority offers that looks whether a name is ours.
pub const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// A folder with certificates, with their keys, that answer challenges, each named as `<host>.pem`. They are there for
/// seconds, and small.
#[derive(Clone, Debug)]
pub struct ChallengeFolder(PathBuf);

impl ChallengeFolder {
    /// At this path, whether there is one or not.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Agrees on TLS with a client: with whoever offers `acme-tls/1` and nothing else as the answer to its challenge, and then
    /// the connection carries nothing; with everybody else as usual. Files are read where that holds up nobody.
    ///
    /// # Errors
    /// The client and we do not agree, or there is no such challenge.
    pub async fn accept<S>(&self, usual: Arc<ServerConfig>, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let hello = begun.client_hello();
        if !hello.alpn().is_some_and(|offered| offered.eq([ACME_PROTOCOL])) {
            return begun.into_stream(usual).await;
        }
        // A name is known to be a DNS name here.
        let name = hello.server_name().map(str::to_ascii_lowercase).ok_or(io::ErrorKind::InvalidData)?;
        let file = self.0.join(format!("{name}.pem"));
        let answer = tokio::task::spawn_blocking(move || answer(&file)).await.map_err(io::Error::other)??;
        begun.into_stream(Arc::new(answer)).await
    }
}

fn answer(file: &Path) -> io::Result<ServerConfig> {
    let leaf = CertificateDer::from_pem_file(file).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(file).map_err(io::Error::other)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = provider.key_provider.load_private_key(key).map_err(io::Error::other)?;
    // Whether they fit cannot be asked: the library does not read a certificate with this critical extension.
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
