//! JSON Web Tokens of external issuers: OpenID Connect by flags, and structured authentication configuration.
//!
//! Differences from Kubernetes: redirects of issuers are not followed and proxies of the environment are not used; tokens
//! with distributed groups claims are declined; RSA keys must have at least 2048 bits.

mod configuration;
mod expression;
mod fields;
mod key_source;
mod mapping;
mod settings;
mod yaml_lines;

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fairlead_client::TrustRoots;

use self::key_source::{Issuer, KeySource};
pub use self::{
    configuration::{AnonymousAccess, AuthenticationConfiguration, ConfigurationError, LineNumber},
    fields::FieldError,
    key_source::KeyFetchSettings,
    settings::{JwtSettings, OidcFlags},
};
use crate::{
    AuthenticationMethod, Authenticator, BearerToken, CredentialKind, Identity, Reason, RequestCredentials,
    TokenError, Verdict, VerdictFuture,
    jwt::{CompactToken, Leeway},
};

/// The same as in Kubernetes: no leeway after the expiry, some before the start; the time of issue is ignored.
const CLOCK_SKEW: Leeway =
    Leeway { after_expiry: Duration::ZERO, before_start: Duration::from_secs(60), before_issue: None };

const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Accepts the tokens of the configured issuers.
///
/// A token of another issuer costs one look-up. A token of a configured issuer costs a signature check (40 to 60 µs) and the
/// evaluation of its expressions (some µs each). The cache of a [`TokenUnion`](crate::TokenUnion) saves that. Dropping
/// the authenticator ends the tasks that refresh the keys.
pub struct JwtAuthenticator {
    issuers: HashMap<String, Vec<TrustedIssuer>>,
}

/// One issuer and its keys.
struct TrustedIssuer {
    settings: JwtSettings,
    keys: Arc<KeySource>,
}

/// The state of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerStatus {
    /// The issuer.
    pub issuer: String,
    /// Number of keys in use; without keys no token of this issuer is accepted.
    pub keys: usize,
    /// The error of the last fetch.
    pub problem: Option<Arc<str>>,
}

impl JwtAuthenticator {
    /// Trusts these issuers. An issuer may occur several times with different settings, as in workspaces: the first settings
    /// that accept a token decide.
    #[must_use]
    pub fn new(issuers: impl IntoIterator<Item = JwtSettings>) -> Self {
        Self::with_key_settings(issuers, &KeyFetchSettings::default())
    }

    /// Trusts these issuers, with other settings for fetching keys.
    #[must_use]
    pub fn with_key_settings(
        issuers: impl IntoIterator<Item = JwtSettings>,
        key_settings: &KeyFetchSettings,
    ) -> Self {
        let mut known: HashMap<String, Vec<TrustedIssuer>> = HashMap::new();
        for settings in issuers {
            let keys = Arc::new(KeySource::new(settings.key_issuer(), key_settings.clone()));
            known.entry(settings.issuer.clone()).or_default().push(TrustedIssuer { settings, keys });
        }
        Self { issuers: known }
    }

    /// Takes over the keys of another authenticator for equal issuers. For a reload: tokens are accepted without interruption,
    /// even if an issuer is down.
    #[must_use]
    pub fn with_keys_of(mut self, before: &Self) -> Self {
        for trusted in self.issuers.values_mut().flatten() {
            let same = |known: &&TrustedIssuer| known.keys.issuer() == trusted.keys.issuer();
            if let Some(known) = before.issuers.values().flatten().find(same) {
                trusted.keys = Arc::clone(&known.keys);
            }
        }
        self
    }

    /// Starts to fetch keys, so that the first token does not wait for them.
    pub fn start(&self) {
        self.issuers.values().flatten().for_each(|trusted| trusted.keys.start());
    }

    /// The state of each issuer, for metrics and probes.
    pub fn status(&self) -> impl Iterator<Item = IssuerStatus> {
        self.issuers.values().flatten().map(|trusted| {
            let state = trusted.keys.state();
            IssuerStatus {
                issuer: trusted.settings.issuer.clone(),
                keys: state.keys.map_or(0, |keys| keys.len()),
                problem: state.problem,
            }
        })
    }

    fn trusted_issuers(&self, token: &BearerToken<'_>) -> Option<&[TrustedIssuer]> {
        let issuer = token.unverified()?.issuer.as_deref()?;
        Some(self.issuers.get(canonical(issuer))?.as_slice())
    }
}

impl Authenticator for JwtAuthenticator {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        let Some(token) = request.token else {
            return VerdictFuture::Ready(Verdict::NoOpinion);
        };
        match self.trusted_issuers(token) {
            Some(candidates) => {
                VerdictFuture::Pending(Box::pin(authenticate(candidates, token, request.now)))
            }
            None => VerdictFuture::Ready(Verdict::NoOpinion),
        }
    }
}

async fn authenticate(candidates: &[TrustedIssuer], token: &BearerToken<'_>, now: SystemTime) -> Verdict {
    let token = match CompactToken::parse(token.as_str()) {
        Ok(token) => token,
        Err(fault) => return Verdict::Declined(fault.into()),
    };
    let mut reasons = Vec::new();
    for trusted in candidates {
        match trusted.verify(&token, now).await {
            Ok(identity) => return Verdict::Accepted(Arc::new(identity)),
            Err(reason) => reasons.push(reason),
        }
    }
    Verdict::Declined(match reasons.len() {
        1 => reasons.remove(0),
        _ => Reason::Several(reasons.into_iter().map(|reason| ("jwt", reason)).collect()),
    })
}

impl TrustedIssuer {
    async fn verify(&self, token: &CompactToken<'_>, now: SystemTime) -> Result<Identity, Reason> {
        if !self.settings.algorithms.contains(&token.algorithm) {
            return Err(TokenError::Algorithm.into());
        }
        self.keys.verify(token).await?;
        Ok(self.settings.identity(token, now)?)
    }
}

impl JwtSettings {
    /// The identity of a token whose signature is verified.
    fn identity(&self, token: &CompactToken<'_>, now: SystemTime) -> Result<Identity, TokenError> {
        let claims = token.claims()?;
        if canonical(claims.text("iss")?) != self.issuer {
            return Err(TokenError::claim("iss", "is another issuer"));
        }
        let audiences = claims.audiences()?;
        if !self.audiences.iter().any(|ours| audiences.contains(&ours.as_str())) {
            return Err(TokenError::Audience);
        }
        let expires = claims.check_times(now, CLOCK_SKEW)?;
        let expires = expires.ok_or_else(|| TokenError::claim("exp", "is missing"))?;
        let user = self.mappings.user(&self.rules, &claims)?;
        Ok(Identity::new(user, AuthenticationMethod::Jwt, Some(expires)))
    }

    fn key_issuer(&self) -> Issuer {
        let well_known = || format!("{}{WELL_KNOWN}", self.issuer.trim_end_matches('/'));
        Issuer {
            url: self.issuer.as_str().into(),
            discovery_url: self.discovery_url.clone().unwrap_or_else(well_known).into(),
            roots: match &self.certificate_authority {
                Some(pem) => TrustRoots::Pem(pem.clone().into_bytes()),
                None => TrustRoots::System,
            },
        }
    }
}

/// Google has two issuer names (OpenID Connect Core 1.0, section 15.6.2).
fn canonical(issuer: &str) -> &str {
    match issuer {
        "accounts.google.com" => "https://accounts.google.com",
        issuer => issuer,
    }
}

impl fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JwtAuthenticator").field(&self.issuers.keys()).finish()
    }
}
