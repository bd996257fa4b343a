//! Server-side TLS: a `rustls::ServerConfig` made from files and replaced as a whole.
//!
//! A new certificate always gets a new configuration, because sessions that resume from an old configuration would skip the
//! replaced part. Client certificates are requested but not verified against authorities here: the handshake proves that the peer
//! has the private key, and the chain is passed on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_config::{ListenerTlsConfig, ServerTlsConfig, ServingConfig, TlsVersion};
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

use crate::certificates::{Certificates, NamedCertificate, ProvisionalCertificate, load_certified_key};
use crate::reload::{LoadError, Reloadable, Reloads};
use crate::tls_error::TlsError;

/// The TLS configuration of a listener, replaced when its files change. Each connection keeps its configuration.
pub type ReloadableTls = Reloadable<ServerConfig>;

/// Files and policy from which a TLS configuration is made.
#[derive(Clone, Debug)]
pub struct TlsSource {
    /// PEM file with the certificate and its intermediates.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub private_key: PathBuf,
    /// Whether peers are requested to present a certificate.
    pub client_certificates: ClientCertificates,
    /// ALPN protocols by preference; the first that the peer also supports is selected.
    pub alpn: Vec<Vec<u8>>,
    /// The oldest supported version.
    pub minimum_version: TlsVersion,
    /// IANA names of cipher suites for TLS 1.2; empty means all safe ones.
    pub cipher_suites: Vec<String>,
    /// Certificates by requested server name.
    pub named: Vec<NamedCertificate>,
    /// PEM bundles of the authorities that the certificate request names. Go clients and browsers do not present certificates of
    /// other authorities. Empty: the request names none, and any certificate may be presented.
    pub announced: Vec<PathBuf>,
    /// PEM bundle: authorities of a certificate that every peer must present. It does not authenticate a user.
    pub required: Option<PathBuf>,
    /// Certificate that is presented until the files can be loaded for the first time.
    pub provisional: Option<ProvisionalCertificate>,
}

/// Whether a listener requests client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Requested; none or any is accepted. Authentication happens after the handshake.
    Requested,
    /// Not requested (browsers would prompt their users).
    NotRequested,
}

/// The certificates that a peer presented, leaf first. The peer has the private key of the leaf; nothing else is verified.
#[derive(Clone, Debug, Default)]
pub struct PeerChain(pub Option<Arc<[CertificateDer<'static>]>>);

impl PeerChain {
    /// The certificate whose key the peer holds.
    pub fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.0.as_deref()?.first()
    }

    /// The chain of an established session.
    pub fn of(connection: &rustls::ServerConnection) -> Self {
        let chain = connection.peer_certificates().filter(|chain| !chain.is_empty());
        Self(chain.map(|chain| chain.iter().map(|c| c.clone().into_owned()).collect()))
    }
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
        self.required = policy.transport_client_ca.as_deref().map(Path::to_owned);
        self.with_server_policy(&ServerTlsConfig {
            minimum_version: policy.minimum_version,
            cipher_suites: policy.cipher_suites.clone(),
            http2: policy.http2,
            server_names: policy.server_names.clone(),
        })
    }

    /// The same with these versions, cipher suites and further certificates.
    #[must_use]
    pub fn with_server_policy(mut self, policy: &ServerTlsConfig) -> Self {
        if !policy.http2 {
            self.alpn.retain(|protocol| protocol != b"h2");
        }
        self.minimum_version = policy.minimum_version;
        self.cipher_suites.clone_from(&policy.cipher_suites);
        let named = policy.server_names.iter().map(|named| NamedCertificate {
            certificate: named.certificate.to_path_buf(),
            private_key: named.private_key.to_path_buf(),
            names: named.names.clone(),
        });
        self.named = named.collect();
        self
    }

    /// The same, with the authorities that the certificate request names.
    #[must_use]
    pub fn announcing<'p>(mut self, bundles: impl IntoIterator<Item = &'p Path>) -> Self {
        self.announced = bundles.into_iter().map(Path::to_owned).collect();
        self
    }

    /// Reads the files and makes a configuration with a ticket key of its own.
    pub fn load(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(self.provider()?);
        let loaded = load_certified_key(&self.certificate, &self.private_key, &provider);
        let default = match &self.provisional {
            Some(provisional) => provisional.loaded_or_provisional(loaded, &provider)?,
            None => loaded?,
        };
        let certificates = Certificates::load(default, &self.named, &provider)?;
        let mut config = self.with_client_verifier(provider)?.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols.clone_from(&self.alpn);
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Library)?;
        // Tickets suffice; a session cache in memory would be redundant.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    /// Loads the configuration, and loads it again whenever a file changes.
    pub fn watch(self, object: &str, reloads: &Reloads) -> Result<Arc<ReloadableTls>, LoadError> {
        let mut files = vec![self.certificate.clone(), self.private_key.clone()];
        files.extend(self.announced.iter().chain(&self.required).cloned());
        files.extend(
            self.named.iter().flat_map(|named| [named.certificate.clone(), named.private_key.clone()]),
        );
        reloads.register(object, files, move || self.load())
    }

    fn provider(&self) -> Result<CryptoProvider, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        if !self.cipher_suites.is_empty() {
            let is_allowed = |suite: &SupportedCipherSuite| {
                let name = format!("{:?}", suite.suite());
                suite.version() == &rustls::version::TLS13 || self.cipher_suites.contains(&name)
            };
            provider.cipher_suites.retain(is_allowed);
            let has_tls12_suite =
                provider.cipher_suites.iter().any(|suite| suite.version() == &rustls::version::TLS12);
            if !has_tls12_suite && self.minimum_version == TlsVersion::Tls12 {
                return Err(TlsError::CipherSuites(self.cipher_suites.join(", ")));
            }
        }
        Ok(provider)
    }

    fn with_client_verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, TlsError> {
        let required =
            self.required.as_ref().map(|bundle| required_client_verifier(bundle, &provider)).transpose()?;
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

/// Accepts any certificate or none, but requires a signature with the key of the presented one.
#[derive(Debug)]
struct ProofOfPossession {
    algorithms: WebPkiSupportedAlgorithms,
    /// Names of the authorities for the certificate request.
    names: Vec<DistinguishedName>,
}

impl ProofOfPossession {
    fn new(provider: &CryptoProvider, names: Vec<DistinguishedName>) -> Self {
        Self { algorithms: provider.signature_verification_algorithms, names }
    }
}

/// A verifier that requires a certificate of these authorities in the handshake.
fn required_client_verifier(
    bundle: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
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
        verified.or_else(|invalid| {
            // A version 1 certificate, for example (`openssl x509 -req` creates them): webpki rejects it, but its key can be used.
            // It authenticates no user, and the client gets a 401 rather than a failed handshake.
            let rustls::Error::InvalidCertificate(reason) = &invalid else { return Err(invalid) };
            let Some(key) = matches!(reason, CertificateError::BadEncoding | CertificateError::Other(_))
                .then(|| public_key(leaf))
                .flatten()
            else {
                return Err(invalid);
            };
            verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
