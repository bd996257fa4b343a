//! Whom we trust to vouch for others.

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

/// What the holder of a certificate may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrustPurpose {
    /// Be the user that it names (`--client-ca-file`).
    Client,
    /// Say in request headers who the user is (`--requestheader-client-ca-file`).
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
/// Without a bundle for a purpose nobody is trusted for it.
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

/// A bundle that cannot be used. Its author is to blame; the bundle in use should stay in use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The text is not PEM.
    #[error("the {0} CA bundle is not readable PEM")]
    Pem(TrustPurpose),
    /// There is no certificate in it, which would lock out everybody.
    #[error("the {0} CA bundle holds no certificate")]
    Empty(TrustPurpose),
    /// One of its certificates is no X.509 certificate.
    #[error("certificate {position} of the {purpose} CA bundle cannot be used: {problem}")]
    Certificate {
        /// The bundle.
        purpose: TrustPurpose,
        /// Which certificate of it, counted from 1.
        position: usize,
        /// The parser's reason.
        problem: String,
    },
}

/// Why a certificate is not trusted for a purpose. For logs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// Nobody is trusted for it.
    #[error("no {0} CA is configured")]
    NotConfigured(TrustPurpose),
    /// No authority that is trusted for it has signed the certificate.
    #[error("not signed by the {0} CA")]
    UnknownIssuer(TrustPurpose),
    /// It is out of date, not meant for clients, or broken. Its holder is to blame.
    #[error("not accepted under the {purpose} CA: {problem}")]
    Invalid {
        /// What it was to be trusted for.
        purpose: TrustPurpose,
        /// The verifier's reason.
        problem: String,
    },
}

impl CertificateAuthorities {
    /// Trusts nobody.
    #[must_use]
    pub fn none() -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        // Only uniqueness counts; nothing is published through this number.
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { generation, client: None, request_header: None }
    }

    /// Trusts, for one more purpose, whatever the authorities in a PEM bundle vouch for. Any certificate of
    /// the bundle may be the end of a chain, self-signed or not.
    pub fn with(mut self, purpose: TrustPurpose, pem: &[u8]) -> Result<Self, BundleError> {
        let bundle = Bundle::parse(purpose, pem)?;
        match purpose {
            TrustPurpose::Client => self.client = Some(bundle),
            TrustPurpose::RequestHeader => self.request_header = Some(bundle),
        }
        Ok(self)
    }

    /// The authorities' names, which the TLS layer tells its clients: some send a certificate only if one of
    /// these has signed it.
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

    /// Whether a presented chain (leaf first) leads to an authority that is trusted for a purpose, is in
    /// force and is meant for clients. Costs about 100 µs; see
    /// [`ConnectionCredentials`](crate::ConnectionCredentials), which remembers it.
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

    /// Tells apart the bundles before and after a reload.
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
        // The builder's only complaint about a bundle without revocation lists is that it is empty.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&PROVIDER))
            .build()
            .map_err(|_| BundleError::Empty(purpose))?;
        Ok(Self { verifier })
    }
}

/// The authorities in force, shared by all authenticators that ask them. Reading costs a few nanoseconds.
#[derive(Clone, Debug)]
pub struct SharedAuthorities {
    current: Arc<ArcSwap<CertificateAuthorities>>,
}

impl SharedAuthorities {
    /// Starts with these.
    #[must_use]
    pub fn new(authorities: CertificateAuthorities) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(authorities)) }
    }

    /// Puts others in force. Connections that are open are judged anew at their next request.
    pub fn replace(&self, authorities: CertificateAuthorities) {
        self.current.store(Arc::new(authorities));
    }

    /// Those in force.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<CertificateAuthorities>> {
        self.current.load()
    }
}
