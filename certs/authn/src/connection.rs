//! The client certificate of a TLS connection, and the cached results of its verification.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use rustls_pki_types::CertificateDer;

use crate::{
    CertificateAuthorities, CertificateError, ClientCertificate, Identity, TrustError, TrustPurpose,
};

/// A certificate is verified again after this time, because an intermediate certificate or an authority may expire before the
/// leaf does.
const EVALUATION_LIFETIME: Duration = Duration::from_secs(600);

/// The certificates that a peer has presented and proved to possess; one value per connection. They are not trusted yet:
/// they are verified once per connection and reload of the authorities, and the result is cached here.
pub struct ConnectionCredentials {
    chain: Arc<[CertificateDer<'static>]>,
    certificate: OnceLock<Result<ClientCertificate, CertificateError>>,
    evaluation: ArcSwapOption<CertificateEvaluation>,
}

/// The result of the verification with the authorities of one generation.
#[derive(Clone)]
pub(crate) struct CertificateEvaluation {
    generation: u64,
    evaluated_at: SystemTime,
    /// Validity period; `None` if the certificate does not parse.
    validity: Option<(SystemTime, SystemTime)>,
    /// The certificate's user; after the first use in a chain, the chain's result.
    pub(crate) client: Result<Arc<Identity>, Arc<str>>,
    /// Whether the certificate may assert identities.
    pub(crate) request_header: RequestHeaderTrust,
}

/// Whether the request-header CA trusts a certificate to assert identities.
#[derive(Clone)]
pub(crate) enum RequestHeaderTrust {
    /// The request-header CA has signed it for this common name.
    Trusted(Arc<str>),
    /// The request-header CA has not signed it.
    Foreign,
    /// The request-header CA has signed it, but it is not valid.
    Invalid(Arc<str>),
}

impl ConnectionCredentials {
    /// The credentials of a peer with these certificates, leaf first; empty without a certificate.
    #[must_use]
    pub fn new(chain: Arc<[CertificateDer<'static>]>) -> Self {
        Self { chain, certificate: OnceLock::new(), evaluation: ArcSwapOption::empty() }
    }

    /// The credentials of a peer without a certificate, or at a listener where certificates are for the transport only.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Arc::new([]))
    }

    /// Whether the peer has presented a certificate, valid or not.
    #[must_use]
    pub fn is_presented(&self) -> bool {
        !self.chain.is_empty()
    }

    /// The unverified contents of the leaf; `None` without a certificate. Parsed at the first call.
    pub fn certificate(&self) -> Option<Result<&ClientCertificate, CertificateError>> {
        let leaf = self.chain.first()?;
        let parsed = self.certificate.get_or_init(|| ClientCertificate::parse(leaf));
        Some(parsed.as_ref().map_err(|error| *error))
    }

    /// The certificate verified with `authorities`; `None` without a certificate.
    pub(crate) fn evaluation(
        &self,
        authorities: &CertificateAuthorities,
        now: SystemTime,
    ) -> Option<Arc<CertificateEvaluation>> {
        let certificate = self.certificate()?;
        if let Some(known) = self.evaluation.load_full()
            && known.is_current(authorities, now)
        {
            return Some(known);
        }
        // Several requests may get here at once after a reload. Their results are equal; the last one stays.
        let evaluation = Arc::new(CertificateEvaluation::new(certificate, &self.chain, authorities, now));
        self.evaluation.store(Some(Arc::clone(&evaluation)));
        Some(evaluation)
    }

    /// Applies a chain's group filters to an identity. The result replaces the certificate's identity, which saves memory per
    /// connection; another chain, which is rare, starts from the certificate again.
    pub(crate) fn post_process(
        &self,
        identity: Arc<Identity>,
        chain: u64,
        process: impl FnOnce(Arc<Identity>) -> Arc<Identity>,
    ) -> Arc<Identity> {
        if identity.is_processed_by(chain) {
            return identity;
        }
        let known = self.evaluation.load_full().filter(|known| known.has_identity(&identity));
        let (Some(evaluation), Some(Ok(certificate))) = (known, self.certificate()) else {
            // The identity is not of this certificate, or the certificate was verified again meanwhile. Then two chains
            // may filter one after the other, which drops more groups, never fewer.
            return identity.post_process(chain, process);
        };
        let start = if identity.is_processed() { Arc::new(certificate.identity()) } else { identity };
        let processed = process(start);
        processed.set_processed_by(chain);
        // The result of a newer verification is not replaced.
        let replaced = CertificateEvaluation {
            client: Ok(Arc::clone(&processed)),
            ..CertificateEvaluation::clone(&evaluation)
        };
        self.evaluation.compare_and_swap(&Some(evaluation), Some(Arc::new(replaced)));
        processed
    }
}

impl CertificateEvaluation {
    /// Whether this object is the evaluation's identity.
    fn has_identity(&self, identity: &Arc<Identity>) -> bool {
        self.client.as_ref().is_ok_and(|client| Arc::ptr_eq(client, identity))
    }

    fn new(
        certificate: Result<&ClientCertificate, CertificateError>,
        chain: &[CertificateDer<'static>],
        authorities: &CertificateAuthorities,
        now: SystemTime,
    ) -> Self {
        let (client, request_header) = match certificate {
            Err(error) => (Err(error.to_string().into()), RequestHeaderTrust::Foreign),
            Ok(certificate) => {
                let client = authorities
                    .verify(TrustPurpose::Client, chain, now)
                    .map(|()| Arc::new(certificate.identity()))
                    .map_err(|error| error.to_string().into());
                let request_header = match authorities.verify(TrustPurpose::RequestHeader, chain, now) {
                    Ok(()) => RequestHeaderTrust::Trusted(certificate.common_name.as_str().into()),
                    Err(TrustError::NotConfigured(_) | TrustError::UnknownIssuer(_)) => {
                        RequestHeaderTrust::Foreign
                    }
                    Err(error @ TrustError::Invalid { .. }) => {
                        RequestHeaderTrust::Invalid(error.to_string().into())
                    }
                };
                (client, request_header)
            }
        };
        Self {
            generation: authorities.generation(),
            evaluated_at: now,
            validity: certificate.ok().map(|certificate| (certificate.not_before, certificate.not_after)),
            client,
            request_header,
        }
    }

    fn is_current(&self, authorities: &CertificateAuthorities, now: SystemTime) -> bool {
        let is_fresh = now.duration_since(self.evaluated_at).is_ok_and(|age| age < EVALUATION_LIFETIME);
        // The result becomes wrong when the time crosses either end of the validity period.
        let is_on_same_side = self.validity.is_none_or(|(from, to)| {
            (self.evaluated_at < from, self.evaluated_at > to) == (now < from, now > to)
        });
        self.generation == authorities.generation() && is_fresh && is_on_same_side
    }
}

impl Default for ConnectionCredentials {
    fn default() -> Self {
        Self::none()
    }
}

impl fmt::Debug for ConnectionCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionCredentials")
            .field("certificate", &self.certificate())
            .finish_non_exhaustive()
    }
}
