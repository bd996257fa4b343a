//! The authenticators of bearer tokens, combined into one with a cache of accepted tokens.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    Authenticator, BearerToken, CredentialKind, Identity, Reason, RequestCredentials, Verdict, VerdictFuture,
    ttl_cache::TtlCache,
};

/// The same time as in Kubernetes.
const ACCEPTED_TTL: Duration = Duration::from_secs(10);
/// Number of cached tokens; each needs about 1 KiB.
const CACHE_SIZE: usize = 16_384;

/// Calls authenticators of bearer tokens in order; the first that accepts the token decides.
///
/// An accepted token is cached for 10 s, but not beyond its expiry; a token that is not accepted is not cached. A cached
/// token costs one SHA-256 over its text, one read lock and one reference count, and allocates nothing: 2 µs for a whole
/// request with a token of 1 KiB. Authenticating it anew costs 40 µs and more.
///
/// The usual order is [`TokenFile`](crate::TokenFile), [`ServiceAccountTokens`](crate::ServiceAccountTokens),
/// issuers of JWTs, webhook.
pub struct TokenUnion {
    authenticators: Vec<Box<dyn Authenticator>>,
    accepted: TtlCache<Arc<Identity>>,
}

impl TokenUnion {
    /// A union without authenticators.
    #[must_use]
    pub fn new() -> Self {
        Self { authenticators: Vec::new(), accepted: TtlCache::with_capacity(CACHE_SIZE) }
    }

    /// Appends an authenticator.
    #[must_use]
    pub fn with(mut self, authenticator: impl Authenticator + 'static) -> Self {
        self.authenticators.push(Box::new(authenticator));
        self
    }

    /// Whether there is no authenticator. An empty union should not be part of a chain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.authenticators.is_empty()
    }

    async fn authenticate_uncached<'a>(
        &'a self,
        request: &RequestCredentials<'a>,
        token: &BearerToken<'_>,
    ) -> Verdict {
        let mut reasons = Vec::new();
        for authenticator in &self.authenticators {
            match request.evaluate(&**authenticator).await {
                Verdict::Accepted(identity) => {
                    if request.observer.is_none() {
                        self.cache_accepted(token, &identity, request.now);
                    }
                    return Verdict::Accepted(identity);
                }
                Verdict::NoOpinion => {}
                Verdict::Declined(reason) => reasons.push((authenticator.name(), reason)),
                Verdict::Refused(reason) => return Verdict::Refused(reason),
            }
        }
        match reasons.len() {
            0 => Verdict::NoOpinion,
            _ => Verdict::Declined(Reason::Several(reasons.into())),
        }
    }

    fn cache_accepted(&self, token: &BearerToken<'_>, identity: &Arc<Identity>, now: SystemTime) {
        self.accepted.insert(*token.digest(), Arc::clone(identity), now, ACCEPTED_TTL, identity.expires());
    }
}

impl Authenticator for TokenUnion {
    fn name(&self) -> &'static str {
        "bearer token"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        let Some(token) = request.token else {
            return VerdictFuture::Ready(Verdict::NoOpinion);
        };
        if let Some(identity) = self.accepted.get(token.digest(), request.now) {
            if let Some(observer) = request.observer {
                observer.on_cached_identity(self.name(), &identity);
            }
            return VerdictFuture::Ready(Verdict::Accepted(identity));
        }
        let request = *request;
        VerdictFuture::Pending(Box::pin(async move { self.authenticate_uncached(&request, token).await }))
    }
}

impl Default for TokenUnion {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for TokenUnion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.authenticators.iter().map(|authenticator| authenticator.name()).collect();
        f.debug_tuple("TokenUnion").field(&names).finish()
    }
}
