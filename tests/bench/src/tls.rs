//! The same TLS settings for all contestants: TLS 1.3, ECDSA P-256, no resumption by clients.

use std::path::Path;
use std::sync::Arc;

use fairlead_certs::CertificateFiles;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::BenchError;

/// HTTP/2 in ALPN.
pub(crate) const H2: &[u8] = b"h2";
/// HTTP/1.1 in ALPN.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// A client that trusts this authority and offers one protocol.
pub(crate) fn client(
    authority: &Path,
    identity: Option<&CertificateFiles>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, BenchError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(&[authority])?);
    let mut config = match identity {
        Some(files) => builder.with_client_auth_cert(chain(&files.certificate)?, key(&files.key)?)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A server that requests client certificates of these authorities, and accepts clients without one.
pub(crate) fn server(
    files: &CertificateFiles,
    authorities: &[&Path],
) -> Result<Arc<ServerConfig>, BenchError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(&files.certificate)?, key(&files.key)?)?;
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(Arc::new(config))
}

fn roots(authorities: &[&Path]) -> Result<RootCertStore, BenchError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        for certificate in chain(authority)? {
            roots.add(certificate)?;
        }
    }
    Ok(roots)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, BenchError> {
    Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, BenchError> {
    Ok(PrivateKeyDer::from_pem_file(path)?)
}
