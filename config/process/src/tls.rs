//! The server's side of TLS: a whole `rustls::ServerConfig` made from files, replaced as a whole.
//!
//! A new certificate always comes with a new configuration, never a new part in an old one: sessions resumed from an
//! old configuration would skip whatever was replaced. Client certificates are asked for but never judged here: the
//! handshake proves that the peer has the private key, and the chain is handed on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_config::{ListenerTlsConfig, ServingConfig, TlsVersion};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WantsServerCert, WebPkiClientVerifier};
use rustls::{
    CertificateError, ConfigBuilder, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificates::{Certificates, NamedCertificate, Provisional, pair};
use crate::reload::{LoadError, Reloadable, Reloads};

/// The TLS configuration of a listener, replaced when its files change. Each connection keeps the one it began with.
pub type ReloadableTls = Reloadable<ServerConfig>;

/// What a listener's TLS is made from.
#[derive(Clone, Debug)]
pub struct TlsSource {
    /// PEM file with the certificate and its intermediates.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub private_key: PathBuf,
    /// Whether peers are asked for a certificate.
    pub client_certificates: ClientCertificates,
    /// Protocols by preference; the first that the peer also speaks is taken.
    pub alpn: Vec<Vec<u8>>,
    /// The oldest version spoken.
    pub minimum_version: TlsVersion,
    /// Names of suites for TLS 1.2, as IANA has them; empty means all that are safe.
    pub cipher_suites: Vec<String>,
    /// Certificates for clients that ask for certain names.
    pub named: Vec<NamedCertificate>,
    /// PEM bundles of authorities that clients are told to have certificates of. A client of Go's keeps one of any other to
    /// itself, and a browser does not offer it. Empty: nothing is said, and any may come.
    pub announced: Vec<PathBuf>,
    /// PEM bundle: authorities of a certificate without which there is no connection. What it says is of no account.
    pub required: Option<PathBuf>,
    /// Shown until there is a certificate in the file.
    pub provisional: Option<Provisional>,
}

/// Whether a listener asks its peers for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Asked for; none or any is accepted. Who it is, is judged after the handshake.
    Requested,
    /// Not asked for (browsers would bother their users).
    NotRequested,
}

/// The certificates that a peer presented, leaf first: it holds the leaf's private key, nothing else is known.
#[derive(Clone, Debug, Default)]
pub struct PeerChain(pub Option<Arc<[CertificateDer<'static>]>>);

impl PeerChain {
    /// The certificate whose key the peer holds.
    pub fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.0.as_deref()?.first()
    }

    /// Takes the chain out of an established session.
    pub fn of(connection: &rustls::ServerConnection) -> Self {
        let chain = connection.peer_certificates().filter(|chain| !chain.is_empty());
        Self(chain.map(|chain| chain.iter().map(|c| c.clone().into_owned()).collect()))
    }
}

/// The files do not make a TLS configuration; the operator has to mend them.
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
    /// What was made here to show meanwhile cannot be read.
    #[error("the provisional certificate cannot be read")]
    Provisional(#[source] rustls_pki_types::pem::Error),
    /// A bundle of authorities cannot be read.
    #[error("the authorities in {0} cannot be read")]
    Authorities(PathBuf, #[source] rustls_pki_types::pem::Error),
    /// One of them is none.
    #[error("an authority in {0} cannot be used")]
    Authority(PathBuf, #[source] rustls::Error),
    /// The certificate and the key do not fit together or are of an unknown kind.
    #[error("the certificate {certificate} cannot be used with the key {private_key}")]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        private_key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// None of the suites that are listed is safe enough to be known here.
    #[error("none of the cipher suites {0} is known")]
    CipherSuites(String),
    /// The cryptography library failed.
    #[error("TLS cannot be set up")]
    Library(#[source] rustls::Error),
}

impl TlsSource {
    /// HTTP/2 and HTTP/1.1, client certificates requested.
    pub fn https(serving: &ServingConfig) -> Self {
        Self::new(&*serving.certificate, &*serving.private_key)
    }

    /// The same for these files.
    pub fn new(certificate: impl Into<PathBuf>, private_key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            private_key: private_key.into(),
            client_certificates: ClientCertificates::Requested,
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            minimum_version: TlsVersion::Tls12,
            cipher_suites: Vec::new(),
            named: Vec::new(),
            announced: Vec::new(),
            required: None,
            provisional: None,
        }
    }

    /// The same under a listener's own policy.
    #[must_use]
    pub fn with_policy(mut self, policy: &ListenerTlsConfig) -> Self {
        if !policy.http2 {
            self.alpn.retain(|protocol| protocol != b"h2");
        }
        self.minimum_version = policy.minimum_version;
        self.cipher_suites.clone_from(&policy.cipher_suites);
        self.required = policy.transport_client_ca.as_deref().map(Path::to_owned);
        let named = policy.server_names.iter().map(|named| NamedCertificate {
            certificate: named.certificate.to_path_buf(),
            private_key: named.private_key.to_path_buf(),
            names: named.names.clone(),
        });
        self.named = named.collect();
        self
    }

    /// The same, telling clients whose certificates are of use.
    #[must_use]
    pub fn announcing<'p>(mut self, bundles: impl IntoIterator<Item = &'p Path>) -> Self {
        self.announced = bundles.into_iter().map(Path::to_owned).collect();
        self
    }

    /// Reads the files and makes a configuration with its own ticket key.
    pub fn load(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(self.provider()?);
        let held = pair(&self.certificate, &self.private_key, &provider);
        let default = match &self.provisional {
            Some(provisional) => provisional.unless(held, &provider)?,
            None => held?,
        };
        let certificates = Certificates::load(default, &self.named, &provider)?;
        let mut config = self.asking_for_certificates(provider)?.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols.clone_from(&self.alpn);
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Library)?;
        // Tickets do; a cache in memory would be a second place with sessions.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    /// Loads now and again whenever a file changes.
    pub fn watch(self, what: &str, reloads: &Reloads) -> Result<Arc<ReloadableTls>, LoadError> {
        let mut files = vec![self.certificate.clone(), self.private_key.clone()];
        files.extend(self.announced.iter().chain(&self.required).cloned());
        files.extend(
            self.named.iter().flat_map(|named| [named.certificate.clone(), named.private_key.clone()]),
        );
        reloads.register(what, files, move || self.load())
    }

    fn provider(&self) -> Result<CryptoProvider, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        if !self.cipher_suites.is_empty() {
            let listed = |suite: &SupportedCipherSuite| {
                let name = format!("{:?}", suite.suite());
                suite.version() == &rustls::version::TLS13 || self.cipher_suites.contains(&name)
            };
            provider.cipher_suites.retain(listed);
            let any = provider.cipher_suites.iter().any(|suite| suite.version() == &rustls::version::TLS12);
            if !any && self.minimum_version == TlsVersion::Tls12 {
                return Err(TlsError::CipherSuites(self.cipher_suites.join(", ")));
            }
        }
        Ok(provider)
    }

    fn asking_for_certificates(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, TlsError> {
        let required = self.required.as_ref().map(|bundle| required(bundle, &provider)).transpose()?;
        let verifier = ProofOfPossession::new(&provider, roots_of(&self.announced)?.subjects());
        let versions: &[_] = match self.minimum_version {
            TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(TlsError::Library)?;
        if let Some(verifier) = required {
            return Ok(builder.with_client_cert_verifier(verifier));
        }
        Ok(match self.client_certificates {
            ClientCertificates::Requested => builder.with_client_cert_verifier(Arc::new(verifier)),
            ClientCertificates::NotRequested => builder.with_no_client_auth(),
        })
    }
}

/// Accepts any certificate or none, but insists that the peer can sign with the key of the one it presents.
#[derive(Debug)]
struct ProofOfPossession {
    algorithms: WebPkiSupportedAlgorithms,
    /// Of the authorities that clients are told of.
    names: Vec<DistinguishedName>,
}

impl ProofOfPossession {
    fn new(provider: &CryptoProvider, names: Vec<DistinguishedName>) -> Self {
        Self { algorithms: provider.signature_verification_algorithms, names }
    }
}

/// Judges the certificate of every peer in the handshake.
fn required(bundle: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(roots_of(&[bundle.to_owned()])?);
    if roots.is_empty() {
        return Err(TlsError::NoCertificate(bundle.to_owned()));
    }
    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| TlsError::Library(rustls::Error::General(error.to_string())))
}

/// All authorities in these bundles.
fn roots_of(bundles: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for bundle in bundles {
        let unreadable = |error| TlsError::Authorities(bundle.clone(), error);
        let certificates: Vec<_> =
            CertificateDer::pem_file_iter(bundle).and_then(Iterator::collect).map_err(unreadable)?;
        for certificate in certificates {
            roots.add(certificate).map_err(|error| TlsError::Authority(bundle.clone(), error))?;
        }
    }
    Ok(roots)
}

/// The public key of any certificate that can be parsed.
fn public_key<'c>(leaf: &'c CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'c>> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    Some(SubjectPublicKeyInfoDer::from(certificate.tbs_certificate.subject_pki.raw))
}

impl ClientCertVerifier for ProofOfPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verified = verify_tls13_signature(message, leaf, signature, &self.algorithms);
        verified.or_else(|unreadable| {
            // A certificate of version 1, for example (`openssl x509 -req` makes them): not for the library's eyes, but
            // its key is. It will be nobody's identity, and its bearer is told so by a 401.
            let rustls::Error::InvalidCertificate(why) = &unreadable else { return Err(unreadable) };
            let Some(key) = matches!(why, CertificateError::BadEncoding | CertificateError::Other(_))
                .then(|| public_key(leaf))
                .flatten()
            else {
                return Err(unreadable);
            };
            verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
