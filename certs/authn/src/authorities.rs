//! The certificate authorities that are trusted for client certificates.

use std::{
    fmt,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::{ArcSwap, Guard};
use rustls::{
    CertificateError, DistinguishedName, RootCertStore,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use thiserror::Error;

/// The purposes for which a certificate authority is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrustPurpose {
    /// The holder is the user that the certificate names (`--client-ca-file`).
    Client,
    /// The holder may assert users in request headers (`--requestheader-client-ca-file`).
    RequestHeader,
}

impl fmt::Display for TrustPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::RequestHeader => "request-header",
        })
    }
}

/// Bundles of certificate authorities, one per purpose. Immutable: a reload builds new ones.
///
/// Without a bundle for a purpose, no certificate is trusted for it.
#[derive(Debug)]
pub struct CertificateAuthorities {
    generation: u64,
    client: Option<Bundle>,
    request_header: Option<Bundle>,
}

#[derive(Debug)]
struct Bundle {
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A bundle that cannot be used; its author has to correct it. The bundle in use should stay in use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The text is not PEM.
    #[error("the {0} CA bundle is not readable PEM")]
    Pem(TrustPurpose),
    /// The bundle contains no certificate, so it would lock out all clients.
    #[error("the {0} CA bundle holds no certificate")]
    Empty(TrustPurpose),
    /// A certificate of the bundle is not X.509.
    #[error("certificate {position} of the {purpose} CA bundle cannot be used: {problem}")]
    Certificate {
        /// The bundle.
        purpose: TrustPurpose,
        /// The position of the certificate, counted from 1.
        position: usize,
        /// The parser's error.
        problem: String,
    },
}

/// The reason why a certificate is not trusted for a purpose. For logs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// No authority is configured for the purpose.
    #[error("no {0} CA is configured")]
    NotConfigured(TrustPurpose),
    /// No authority for the purpose has signed the certificate.
    #[error("not signed by the {0} CA")]
    UnknownIssuer(TrustPurpose),
    /// The certificate is expired, not for clients, or malformed; its holder has to replace it.
    #[error("not accepted under the {purpose} CA: {problem}")]
    Invalid {
        /// The purpose.
        purpose: TrustPurpose,
        /// The verifier's error.
        problem: String,
    },
}

impl CertificateAuthorities {
    /// No trusted authorities.
    #[must_use]
    pub fn none() -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to be unique.
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { generation, client: None, request_header: None }
    }

    /// Adds the PEM bundle for a purpose. Any certificate of the bundle may be the end of a chain, self-signed or not.
    pub fn with(mut self, purpose: TrustPurpose, pem: &[u8]) -> Result<Self, BundleError> {
        let bundle = Bundle::parse(purpose, pem)?;
        match purpose {
            TrustPurpose::Client => self.client = Some(bundle),
            TrustPurpose::RequestHeader => self.request_header = Some(bundle),
        }
        Ok(self)
    }

    /// The authorities' names, which the TLS layer sends to clients: some clients present a certificate only if one of these
    /// has signed it.
    #[must_use]
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        let mut subjects: Vec<DistinguishedName> = Vec::new();
        for bundle in [&self.client, &self.request_header].into_iter().flatten() {
            for subject in bundle.verifier.root_hint_subjects() {
                if !subjects.iter().any(|known| known.as_ref() == subject.as_ref()) {
                    subjects.push(subject.clone());
                }
            }
        }
        subjects
    }

    /// Verifies that a presented chain (leaf first) leads to an authority for the purpose, is in its validity period and is
    /// for clients. Costs about 100 µs; [`ConnectionCredentials`](crate::ConnectionCredentials) caches the result.
    pub fn verify(
        &self,
        purpose: TrustPurpose,
        chain: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<(), TrustError> {
        let bundle = match purpose {
            TrustPurpose::Client => &self.client,
            TrustPurpose::RequestHeader => &self.request_header,
        };
        let bundle = bundle.as_ref().ok_or(TrustError::NotConfigured(purpose))?;
        let (leaf, intermediates) = chain.split_first().ok_or(TrustError::UnknownIssuer(purpose))?;
        let invalid = |problem: String| TrustError::Invalid { purpose, problem };
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_err(|_| invalid("the clock is before 1970".to_owned()))?;
        bundle
            .verifier
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(now))
            .map(drop)
            .map_err(|error| match error {
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                    TrustError::UnknownIssuer(purpose)
                }
                rustls::Error::InvalidCertificate(problem) => invalid(problem.to_string()),
                other => invalid(other.to_string()),
            })
    }

    /// Distinguishes the bundles before and after a reload.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Bundle {
    fn parse(purpose: TrustPurpose, pem: &[u8]) -> Result<Self, BundleError> {
        static PROVIDER: LazyLock<Arc<CryptoProvider>> =
            LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
        let mut roots = RootCertStore::empty();
        for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let certificate = certificate.map_err(|_| BundleError::Pem(purpose))?;
            roots.add(certificate).map_err(|error| BundleError::Certificate {
                purpose,
                position: index + 1,
                problem: error.to_string(),
            })?;
        }
        // Without revocation lists, the builder's only error is an empty bundle.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&PROVIDER))
            .build()
            .map_err(|_| BundleError::Empty(purpose))?;
        Ok(Self { verifier })
    }
}

/// The authorities in force, shared by the authenticators. Reading costs a few nanoseconds.
#[derive(Clone, Debug)]
pub struct SharedAuthorities {
    current: Arc<ArcSwap<CertificateAuthorities>>,
}

impl SharedAuthorities {
    /// Shares these authorities.
    #[must_use]
    pub fn new(authorities: CertificateAuthorities) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(authorities)) }
    }

    /// Replaces the authorities. Certificates of open connections are verified again at their next request.
    pub fn replace(&self, authorities: CertificateAuthorities) {
        self.current.store(Arc::new(authorities));
    }

    /// The authorities in force.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<CertificateAuthorities>> {
        self.current.load()
    }
}
