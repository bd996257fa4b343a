//! Authentication by tokens of service accounts, legacy and bound, of all logical clusters.

mod claims;
mod keys;
mod liveness;
mod lookup;
mod signer;

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    AuthenticationMethod, Authenticator, BearerToken, CredentialKind, Identity, Reason, RequestCredentials,
    TokenError, Verdict, VerdictFuture,
    jwt::{CompactToken, KeyChoice, Leeway, VerificationError},
};

use self::claims::ServiceAccount;
pub(crate) use self::claims::{add_credential_id, cluster_extras};
use self::liveness::LivenessChecker;
pub use self::{
    keys::{ServiceAccountKeyError, ServiceAccountKeys, SharedKeys},
    liveness::LookupPolicy,
    lookup::{
        FoundObject, LookupError, MalformedObject, ObjectReference, ReferencedKind, ServiceAccountLookup,
    },
    signer::{ServiceAccountSigner, SigningError},
};

/// The issuer that kcp uses if none is configured.
pub const DEFAULT_SERVICE_ACCOUNT_ISSUER: &str = "https://kcp.default.svc";

/// The issuer of legacy tokens, which are stored in secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// The clock skew that go-jose, and so Kubernetes, allows.
const CLOCK_SKEW: Leeway = Leeway {
    after_expiry: Duration::from_secs(60),
    before_start: Duration::from_secs(60),
    before_issue: Some(Duration::from_secs(60)),
};

/// Accepts tokens of service accounts that one of the keys has signed.
///
/// A token of another issuer costs a comparison. A token of a configured issuer costs a signature check (40 to 60 µs), and
/// a look-up at the owning shard for each object that it depends on, unless it was looked up in the last 10 s. The cache of a
/// [`TokenUnion`](crate::TokenUnion) saves most of that.
pub struct ServiceAccountTokens {
    keys: SharedKeys,
    issuers: Vec<String>,
    audiences: Vec<String>,
    liveness: LivenessChecker,
}

/// Conditions for tokens of service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountSettings {
    /// Issuers of bound tokens (`--service-account-issuer`).
    pub issuers: Vec<String>,
    /// Accepted audiences (`--api-audiences`); the issuers if empty. A token without audiences is accepted.
    pub audiences: Vec<String>,
}

impl Default for ServiceAccountSettings {
    fn default() -> Self {
        Self { issuers: vec![DEFAULT_SERVICE_ACCOUNT_ISSUER.to_owned()], audiences: Vec::new() }
    }
}

impl ServiceAccountTokens {
    /// Verifies with the keys in force at the time of each request, and looks up accounts by `lookup_policy`.
    #[must_use]
    pub fn new(keys: SharedKeys, settings: ServiceAccountSettings, lookup_policy: LookupPolicy) -> Self {
        let ServiceAccountSettings { issuers, audiences } = settings;
        let audiences = if audiences.is_empty() { issuers.clone() } else { audiences };
        Self { keys, issuers, audiences, liveness: LivenessChecker::new(lookup_policy) }
    }

    /// Whether the token claims one of the configured issuers.
    fn is_from_known_issuer(&self, token: &BearerToken<'_>) -> bool {
        token
            .unverified()
            .and_then(|claims| claims.issuer.as_deref())
            .is_some_and(|issuer| issuer == LEGACY_ISSUER || self.issuers.iter().any(|ours| ours == issuer))
    }

    async fn verify_and_look_up(&self, request: RequestCredentials<'_>, token: &BearerToken<'_>) -> Verdict {
        let (identity, account) = match self.verify(&request, token) {
            Ok(verified) => verified,
            Err(fault) => return Verdict::Declined(fault.into()),
        };
        match self.liveness.check(&account, token, request.now).await {
            Ok(()) => Verdict::Accepted(Arc::new(identity)),
            Err(reason) => Verdict::Declined(reason),
        }
    }

    fn verify(
        &self,
        request: &RequestCredentials<'_>,
        token: &BearerToken<'_>,
    ) -> Result<(Identity, ServiceAccount), TokenError> {
        let token = CompactToken::parse(token.as_str())?;
        self.keys.load().verify(&token, KeyChoice::AnyIfUnknown).map_err(|unverified| match unverified {
            VerificationError::NoSuchKey => TokenError::UnknownKey,
            VerificationError::WrongSignature => TokenError::Signature,
        })?;
        let claims = token.claims()?;
        let expires = claims.check_times(request.now, CLOCK_SKEW)?;
        let audiences = claims.audiences()?;
        let accepted = request.audiences.unwrap_or(&self.audiences);
        if !audiences.is_empty()
            && !audiences.iter().any(|audience| accepted.iter().any(|own| own == audience))
        {
            return Err(TokenError::Audience);
        }
        let account = if claims.text("iss")? == LEGACY_ISSUER {
            ServiceAccount::legacy(&claims)?
        } else {
            ServiceAccount::bound(&claims)?
        };
        Ok((Identity::new(account.user(), AuthenticationMethod::ServiceAccount, expires), account))
    }
}

impl Authenticator for ServiceAccountTokens {
    fn name(&self) -> &'static str {
        "service account"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn names_audiences(&self) -> bool {
        true
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        match request.token {
            Some(token) if self.is_from_known_issuer(token) => {
                VerdictFuture::Pending(Box::pin(self.verify_and_look_up(*request, token)))
            }
            Some(_) | None => VerdictFuture::Ready(Verdict::NoOpinion),
        }
    }
}

impl fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccountTokens")
            .field("issuers", &self.issuers)
            .field("audiences", &self.audiences)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl From<LookupError> for Reason {
    fn from(failed: LookupError) -> Self {
        Self::Unavailable(failed.to_string().into())
    }
}
