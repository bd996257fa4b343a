//! Credentials of a client and the certificate authorities that it trusts.

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use rustls::RootCertStore;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::server_certificate::ServerCertificateVerifier;

/// A client's identity and trust, ready for use: the TLS configuration is built once, so that sessions are resumed
/// across connections. Replace the whole value to rotate; `Debug` shows no secret.
///
/// Two credentials are equal if they were made of the same material, so that a reload without a change is detected.
#[derive(Clone)]
pub struct Credentials {
    spec: CredentialsSpec,
    tls: Arc<rustls::ClientConfig>,
    headers: Arc<HeaderMap>,
}

/// The parts of [`Credentials`], before they are checked.
#[derive(Clone, PartialEq, Eq)]
struct CredentialsSpec {
    roots: TrustRoots,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
    token: Option<Token>,
    impersonation: Option<Impersonation>,
}

/// Trusted server certificates.
#[derive(Clone, PartialEq, Eq)]
pub enum TrustRoots {
    /// Those that chain to one of these PEM certificates.
    Pem(Vec<u8>),
    /// Those that chain to the roots of the operating system (`SSL_CERT_FILE`, else the usual bundle files).
    System,
    /// No certificate: only for servers without TLS.
    Nothing,
    /// Any certificate. An attacker on the network can read and change everything; see [`UnverifiedTls`].
    Unverified,
}

/// Whether a kubeconfig's `insecure-skip-tls-verify` is obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnverifiedTls {
    /// It is an error. Servers use this.
    Refuse,
    /// It is obeyed. Only for interactive commands.
    Allow,
}

/// A bearer token; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The impersonated user (`Impersonate-User`, `Impersonate-Group`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonation {
    /// User name.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

/// Credentials that cannot be used. Never contains key material.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file could not be read.
    #[error("cannot read {item} {path}: {source}")]
    Read {
        /// Expected content, e.g. `client key`.
        item: &'static str,
        /// Its path.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A PEM text without the expected content.
    #[error("the {item} is not usable: {reason}")]
    Pem {
        /// Expected content.
        item: &'static str,
        /// The fault.
        reason: String,
    },
    /// Certificate and key do not fit each other or TLS.
    #[error("the client certificate and key are not usable: {0}")]
    Identity(rustls::Error),
    /// `insecure-skip-tls-verify` where it is not allowed.
    #[error("cluster {0:?} has insecure-skip-tls-verify, which is refused: set its certificate-authority")]
    UnverifiedTls(String),
    /// A feature that this client does not implement.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// A token or impersonated name that cannot be sent in a header, or an invalid server name.
    #[error("the {0} contains characters that cannot be used there")]
    Malformed(&'static str),
    /// No root certificates were found.
    #[error("no certificate authority is given and no root certificates of the system were found")]
    NoSystemRoots,
}

impl Credentials {
    /// Trust only: an anonymous client.
    pub fn new(roots: TrustRoots) -> Result<Self, CredentialsError> {
        let spec =
            CredentialsSpec { roots, certificate: None, server_name: None, token: None, impersonation: None };
        spec.build()
    }

    /// The same trust, identified by a client certificate (PEM chain, leaf first) and its key (PEM).
    pub fn with_certificate(self, chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, CredentialsError> {
        CredentialsSpec { certificate: Some((chain_pem.to_vec(), key_pem.to_vec())), ..self.spec }.build()
    }

    /// The same, sending a bearer token.
    pub fn with_token(self, token: Token) -> Result<Self, CredentialsError> {
        CredentialsSpec { token: Some(token), ..self.spec }.build()
    }

    /// The same, expecting this name in the server's certificate instead of the host of the URL.
    pub fn with_server_name(self, name: &str) -> Result<Self, CredentialsError> {
        CredentialsSpec { server_name: Some(name.to_owned()), ..self.spec }.build()
    }

    /// The same, impersonating another user.
    pub fn with_impersonation(self, impersonation: Impersonation) -> Result<Self, CredentialsError> {
        CredentialsSpec { impersonation: Some(impersonation), ..self.spec }.build()
    }

    /// The TLS configuration; ALPN offers `h2` and `http/1.1`.
    pub fn tls_config(&self) -> &Arc<rustls::ClientConfig> {
        &self.tls
    }

    /// The name to expect in the certificate of the server at `host`.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, CredentialsError> {
        let name = self.spec.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned()).map_err(|_| CredentialsError::Malformed("server name"))
    }

    /// The headers that carry the identity: `Authorization`, `Impersonate-*`.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("roots", &self.spec.roots)
            .field("certificate", &self.spec.certificate.is_some())
            .field("token", &self.spec.token.is_some())
            .field("server_name", &self.spec.server_name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TrustRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pem(_) => "Pem(..)",
            Self::System => "System",
            Self::Nothing => "Nothing",
            Self::Unverified => "Unverified",
        })
    }
}

impl Token {
    /// Wraps a token; surrounding white space (files end with a new line) is dropped.
    pub fn new(token: &str) -> Self {
        Self(token.trim().to_owned())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl CredentialsSpec {
    fn build(self) -> Result<Credentials, CredentialsError> {
        Ok(Credentials { tls: Arc::new(self.tls()?), headers: Arc::new(self.headers()?), spec: self })
    }

    fn tls(&self) -> Result<rustls::ClientConfig, CredentialsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(CredentialsError::Identity)?;
        let verified_by = |verifier| builder.clone().dangerous().with_custom_certificate_verifier(verifier);
        let builder = match &self.roots {
            TrustRoots::Pem(pem) => verified_by(Arc::new(verifier(pem, provider)?)),
            TrustRoots::System => verified_by(Arc::new(system_verifier(provider)?)),
            TrustRoots::Nothing => builder.with_root_certificates(RootCertStore::empty()),
            TrustRoots::Unverified => verified_by(Arc::new(AcceptAnyServer { provider })),
        };
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(certificates(chain, "client certificate")?, private_key(key)?)
                .map_err(CredentialsError::Identity)?,
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn headers(&self) -> Result<HeaderMap, CredentialsError> {
        let mut headers = HeaderMap::new();
        if let Some(Token(token)) = &self.token {
            headers.insert(http::header::AUTHORIZATION, sensitive(&format!("Bearer {token}"), "token")?);
        }
        if let Some(Impersonation { user, groups }) = &self.impersonation {
            headers
                .insert(HeaderName::from_static("impersonate-user"), sensitive(user, "impersonated user")?);
            for group in groups {
                headers.append(
                    HeaderName::from_static("impersonate-group"),
                    sensitive(group, "impersonated group")?,
                );
            }
        }
        Ok(headers)
    }
}

fn sensitive(text: &str, item: &'static str) -> Result<HeaderValue, CredentialsError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| CredentialsError::Malformed(item))?;
    value.set_sensitive(true);
    Ok(value)
}

fn certificates(pem: &[u8], item: &'static str) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let refuse = |reason: String| CredentialsError::Pem { item, reason };
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refuse(error.to_string()))?;
    if chain.is_empty() {
        return Err(refuse("it contains no PEM certificate".to_owned()));
    }
    Ok(chain)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    // The cause is omitted, because it might quote the key.
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| CredentialsError::Pem {
        item: "client key",
        reason: "it contains no PEM private key".to_owned(),
    })
}

fn verifier(
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<ServerCertificateVerifier, CredentialsError> {
    let item = "certificate authority";
    let trusted = certificates(pem, item)?;
    let refuse = |reason: String| CredentialsError::Pem { item, reason };
    for certificate in &trusted {
        RootCertStore::empty().add(certificate.clone()).map_err(|error| refuse(error.to_string()))?;
    }
    ServerCertificateVerifier::new(trusted, provider).ok_or_else(|| refuse("it cannot be parsed".to_owned()))
}

fn system_verifier(provider: Arc<CryptoProvider>) -> Result<ServerCertificateVerifier, CredentialsError> {
    const BUNDLES: [&str; 4] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let chosen = std::env::var("SSL_CERT_FILE").ok();
    let pem = chosen
        .as_deref()
        .into_iter()
        .chain(BUNDLES)
        .find_map(|path| std::fs::read(path).ok())
        .ok_or(CredentialsError::NoSystemRoots)?;
    // A system bundle may hold old roots that this library does not parse; the others are still trusted.
    ServerCertificateVerifier::new(certificates(&pem, "system's root bundle")?, provider)
        .ok_or(CredentialsError::NoSystemRoots)
}

/// Checks that the server has the key of the certificate it presents, and nothing else.
#[derive(Debug)]
struct AcceptAnyServer {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
