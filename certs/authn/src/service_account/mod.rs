//! Tokens of service accounts, legacy and bound, of whichever logical cluster.

mod claims;
mod keys;
mod lookup;
mod standing;

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Answer, Authenticator, BearerToken, CredentialKind, Identity, Method, Presented, Reason, TokenFault,
    Verdict,
    jwt::{CompactToken, KeyChoice, Leeway, Unverified},
};

use self::claims::ServiceAccount;
pub(crate) use self::claims::{add_credential_id, tied_to};
use self::standing::Standing;
pub use self::{
    keys::{ServiceAccountKeyError, ServiceAccountKeys, SharedKeys},
    lookup::{
        FoundObject, LookupFailed, MalformedObject, ObjectReference, ReferencedKind, ServiceAccountLookup,
    },
    standing::LookUp,
};

/// The issuer that kcp uses if none is configured.
pub const DEFAULT_SERVICE_ACCOUNT_ISSUER: &str = "https://kcp.default.svc";

/// The issuer of all tokens that stand in secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// What go-jose, and with it Kubernetes, grants to clocks that differ.
const CLOCK_SKEW: Leeway = Leeway {
    after_expiry: Duration::from_secs(60),
    before_start: Duration::from_secs(60),
    before_issue: Some(Duration::from_secs(60)),
};

/// Accepts tokens of service accounts that one of the keys has signed.
///
/// A token of another issuer costs a comparison; one of ours a signature check (40 to 60 µs), and a question
/// to the owning shard for each object that it depends on, if that was not asked in the last 10 s. A
/// [`TokenUnion`](crate::TokenUnion) in front saves most of that.
pub struct ServiceAccountTokens {
    keys: SharedKeys,
    issuers: Vec<String>,
    audiences: Vec<String>,
    standing: Standing,
}

/// Which tokens of service accounts are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountSettings {
    /// Issuers of bound tokens (`--service-account-issuer`).
    pub issuers: Vec<String>,
    /// For whom a token must be meant, one of these (`--api-audiences`); the issuers if that is empty. A token
    /// that names no audience is meant for all of them.
    pub audiences: Vec<String>,
}

impl Default for ServiceAccountSettings {
    fn default() -> Self {
        Self { issuers: vec![DEFAULT_SERVICE_ACCOUNT_ISSUER.to_owned()], audiences: Vec::new() }
    }
}

impl ServiceAccountTokens {
    /// Verifies with the keys in force at the time of each request, and asks about accounts as `look_up`
    /// says.
    #[must_use]
    pub fn new(keys: SharedKeys, settings: ServiceAccountSettings, look_up: LookUp) -> Self {
        let ServiceAccountSettings { issuers, audiences } = settings;
        let audiences = if audiences.is_empty() { issuers.clone() } else { audiences };
        Self { keys, issuers, audiences, standing: Standing::new(look_up) }
    }

    /// Whether the token says to be one that we judge.
    fn concerns(&self, token: &BearerToken<'_>) -> bool {
        token
            .unverified()
            .and_then(|claims| claims.issuer.as_deref())
            .is_some_and(|issuer| issuer == LEGACY_ISSUER || self.issuers.iter().any(|ours| ours == issuer))
    }

    async fn judge(&self, request: Presented<'_>, token: &BearerToken<'_>) -> Verdict {
        let (identity, account) = match self.verify(&request, token) {
            Ok(verified) => verified,
            Err(fault) => return Verdict::Declined(fault.into()),
        };
        match self.standing.check(&account, token, request.now).await {
            Ok(()) => Verdict::Accepted(Arc::new(identity)),
            Err(reason) => Verdict::Declined(reason),
        }
    }

    fn verify(
        &self,
        request: &Presented<'_>,
        token: &BearerToken<'_>,
    ) -> Result<(Identity, ServiceAccount), TokenFault> {
        let token = CompactToken::parse(token.as_str())?;
        self.keys.load().verify(&token, KeyChoice::AnyIfUnknown).map_err(|unverified| match unverified {
            Unverified::NoSuchKey => TokenFault::UnknownKey,
            Unverified::WrongSignature => TokenFault::Signature,
        })?;
        let claims = token.claims()?;
        let expires = claims.in_force(request.now, CLOCK_SKEW)?;
        let audiences = claims.audiences()?;
        if !audiences.is_empty()
            && !audiences.iter().any(|audience| self.audiences.iter().any(|a| a == audience))
        {
            return Err(TokenFault::Audience);
        }
        let account = if claims.text("iss")? == LEGACY_ISSUER {
            ServiceAccount::legacy(&claims)?
        } else {
            ServiceAccount::bound(&claims)?
        };
        Ok((Identity::new(account.user(), Method::BearerToken, expires), account))
    }
}

impl Authenticator for ServiceAccountTokens {
    fn name(&self) -> &'static str {
        "service account"
    }

    fn judges(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &Presented<'a>) -> Answer<'a> {
        match request.token {
            Some(token) if self.concerns(token) => Answer::Pending(Box::pin(self.judge(*request, token))),
            Some(_) | None => Answer::Ready(Verdict::NoOpinion),
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

impl From<LookupFailed> for Reason {
    fn from(failed: LookupFailed) -> Self {
        Self::Unavailable(failed.to_string().into())
    }
}
