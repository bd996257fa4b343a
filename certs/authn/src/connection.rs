//! What a TLS connection shows about its peer, and what we have already made of it.

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

/// A judgement is made anew after this long, because an intermediate certificate or an authority may expire
/// before the leaf does.
const JUDGE_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// The certificates that a peer has presented and proved to possess; one value per connection. Nobody trusts
/// them yet: whether and for what they count is judged once per connection and reload of the authorities, and
/// remembered here.
pub struct ConnectionCredentials {
    chain: Arc<[CertificateDer<'static>]>,
    certificate: OnceLock<Result<ClientCertificate, CertificateError>>,
    judgement: ArcSwapOption<Judgement>,
}

/// What the authorities of one generation make of the certificate.
#[derive(Clone)]
pub(crate) struct Judgement {
    generation: u64,
    judged_at: SystemTime,
    /// Valid from and to; empty if the certificate does not parse.
    in_force: Option<(SystemTime, SystemTime)>,
    /// The user it stands for; once a chain has seen it, what that has made of it.
    pub(crate) client: Result<Arc<Identity>, Arc<str>>,
    /// Whether it may assert identities.
    pub(crate) request_header: Assertion,
}

/// Whether a certificate stands for somebody who may assert identities.
#[derive(Clone)]
pub(crate) enum Assertion {
    /// The request-header CA vouches for this common name.
    Trusted(Arc<str>),
    /// The request-header CA has nothing to do with it.
    Foreign,
    /// The request-header CA has signed it, but it is not good (any more).
    Invalid(Arc<str>),
}

impl ConnectionCredentials {
    /// The certificates of a peer, leaf first; empty if it has presented none.
    #[must_use]
    pub fn new(chain: Arc<[CertificateDer<'static>]>) -> Self {
        Self { chain, certificate: OnceLock::new(), judgement: ArcSwapOption::empty() }
    }

    /// A peer without certificate. Also for one whose certificate does not count as identity, because it
    /// comes through a door where certificates are for the transport only.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Arc::new([]))
    }

    /// Whether there is a certificate, good or bad.
    #[must_use]
    pub fn is_presented(&self) -> bool {
        !self.chain.is_empty()
    }

    /// What the presented leaf says, believed or not; `None` if there is none. Parsed at the first call.
    pub fn certificate(&self) -> Option<Result<&ClientCertificate, CertificateError>> {
        let leaf = self.chain.first()?;
        let parsed = self.certificate.get_or_init(|| ClientCertificate::parse(leaf));
        Some(parsed.as_ref().map_err(|error| *error))
    }

    /// What `authorities` make of the certificate; `None` if there is none.
    pub(crate) fn judgement(
        &self,
        authorities: &CertificateAuthorities,
        now: SystemTime,
    ) -> Option<Arc<Judgement>> {
        let certificate = self.certificate()?;
        if let Some(known) = self.judgement.load_full()
            && known.holds(authorities, now)
        {
            return Some(known);
        }
        // Several requests may come here at once after a reload; they find the same, and the last one's copy
        // stays.
        let judgement = Arc::new(Judgement::make(certificate, &self.chain, authorities, now));
        self.judgement.store(Some(Arc::clone(&judgement)));
        Some(judgement)
    }

    /// What a chain makes of an identity. That of the certificate is replaced by it, because connections are many, and
    /// another chain comes rarely: it begins with the certificate again.
    pub(crate) fn finish(
        &self,
        identity: Arc<Identity>,
        chain: u64,
        finish: impl FnOnce(Arc<Identity>) -> Arc<Identity>,
    ) -> Arc<Identity> {
        if identity.is_finished_by(chain) {
            return identity;
        }
        let known = self.judgement.load_full().filter(|known| known.is_of(&identity));
        let (Some(judgement), Some(Ok(certificate))) = (known, self.certificate()) else {
            // Not of this certificate; or judged anew meanwhile, and then two chains in a row take away more, never less.
            return identity.finish(chain, finish);
        };
        let begun = if identity.is_finished() { Arc::new(certificate.identity()) } else { identity };
        let finished = finish(begun);
        finished.set_finished_by(chain);
        // Whoever has judged anew meanwhile knows better.
        let replaced = Judgement { client: Ok(Arc::clone(&finished)), ..Judgement::clone(&judgement) };
        self.judgement.compare_and_swap(&Some(judgement), Some(Arc::new(replaced)));
        finished
    }
}

impl Judgement {
    /// Whether this very identity came from here.
    fn is_of(&self, identity: &Arc<Identity>) -> bool {
        self.client.as_ref().is_ok_and(|client| Arc::ptr_eq(client, identity))
    }

    fn make(
        certificate: Result<&ClientCertificate, CertificateError>,
        chain: &[CertificateDer<'static>],
        authorities: &CertificateAuthorities,
        now: SystemTime,
    ) -> Self {
        let (client, request_header) = match certificate {
            Err(error) => (Err(error.to_string().into()), Assertion::Foreign),
            Ok(certificate) => {
                let client = authorities
                    .verify(TrustPurpose::Client, chain, now)
                    .map(|()| Arc::new(certificate.identity()))
                    .map_err(|error| error.to_string().into());
                let request_header = match authorities.verify(TrustPurpose::RequestHeader, chain, now) {
                    Ok(()) => Assertion::Trusted(certificate.common_name.as_str().into()),
                    Err(TrustError::NotConfigured(_) | TrustError::UnknownIssuer(_)) => Assertion::Foreign,
                    Err(error @ TrustError::Invalid { .. }) => Assertion::Invalid(error.to_string().into()),
                };
                (client, request_header)
            }
        };
        Self {
            generation: authorities.generation(),
            judged_at: now,
            in_force: certificate.ok().map(|certificate| (certificate.not_before, certificate.not_after)),
            client,
            request_header,
        }
    }

    fn holds(&self, authorities: &CertificateAuthorities, now: SystemTime) -> bool {
        let fresh = now.duration_since(self.judged_at).is_ok_and(|age| age < JUDGE_AGAIN_AFTER);
        // Crossing either end of the certificate's own time makes the judgement wrong, whichever it was.
        let same_side = self
            .in_force
            .is_none_or(|(from, to)| (self.judged_at < from, self.judged_at > to) == (now < from, now > to));
        self.generation == authorities.generation() && fresh && same_side
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
