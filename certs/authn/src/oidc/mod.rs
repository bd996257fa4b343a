//! JSON Web Tokens of issuers outside: OpenID Connect by flags, and structured authentication configuration.
//!
//! Behaves as Kubernetes but for this: redirects of issuers are not followed and no proxies of the environment
//! are used; a token whose groups are kept elsewhere (distributed claims) is declined; RSA keys have 2048 bits
//! at least; expressions have no dates and none of Kubernetes' own libraries (URLs, addresses, quantities,
//! sets), which is said when the configuration is read.

mod configuration;
mod expression;
mod expression_check;
mod fields;
mod key_source;
mod mapping;
mod outline;
mod settings;

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fairlead_client::TrustRoots;

use self::key_source::{Issuer, KeySource};
pub use self::{
    configuration::{AnonymousAccess, AuthenticationConfiguration, ConfigurationError, Place},
    fields::Fault,
    key_source::KeyPatience,
    settings::{JwtSettings, OidcFlags},
};
use crate::{
    Answer, Authenticator, BearerToken, CredentialKind, Identity, Method, Presented, Reason, TokenFault,
    Verdict,
    jwt::{CompactToken, Leeway},
};

/// As Kubernetes: a token ends when it says so, but may begin a little early, and when it was issued does not
/// matter.
const CLOCK_SKEW: Leeway =
    Leeway { after_expiry: Duration::ZERO, before_start: Duration::from_secs(60), before_issue: None };

const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Accepts the tokens of some issuers.
///
/// A token of another issuer costs one look-up; one of these a signature check (40 to 60 µs) and what the
/// expressions of its issuer cost (about 20 µs each). A [`TokenUnion`](crate::TokenUnion) in front saves
/// that. Whoever drops it ends the tasks that keep the keys fresh.
pub struct JwtAuthenticator {
    issuers: HashMap<String, Vec<Trusted>>,
}

/// One issuer and what its tokens mean.
struct Trusted {
    settings: JwtSettings,
    keys: Arc<KeySource>,
}

/// How it stands with the keys of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerStatus {
    /// The issuer.
    pub issuer: String,
    /// How many keys are in use; with none of them no token of this issuer is accepted.
    pub keys: usize,
    /// Why the last look at its keys has failed, if it has.
    pub problem: Option<Arc<str>>,
}

impl JwtAuthenticator {
    /// Knows these issuers. One that comes several times, as in workspaces, may mean different things: the
    /// first that accepts a token decides.
    #[must_use]
    pub fn new(issuers: impl IntoIterator<Item = JwtSettings>) -> Self {
        Self::with_patience(issuers, &KeyPatience::default())
    }

    /// The same with other times.
    #[must_use]
    pub fn with_patience(issuers: impl IntoIterator<Item = JwtSettings>, patience: &KeyPatience) -> Self {
        let mut known: HashMap<String, Vec<Trusted>> = HashMap::new();
        for settings in issuers {
            let keys = Arc::new(KeySource::new(settings.key_issuer(), patience.clone()));
            known.entry(settings.issuer.clone()).or_default().push(Trusted { settings, keys });
        }
        Self { issuers: known }
    }

    /// Goes on with the keys of another one, where issuers are the same and asked in the same way. For a
    /// reload: tokens are accepted all the while, were an issuer down just then.
    #[must_use]
    pub fn with_keys_of(mut self, before: &Self) -> Self {
        for trusted in self.issuers.values_mut().flatten() {
            let same = |known: &&Trusted| known.keys.issuer() == trusted.keys.issuer();
            if let Some(known) = before.issuers.values().flatten().find(same) {
                trusted.keys = Arc::clone(&known.keys);
            }
        }
        self
    }

    /// Starts to look for keys, so that the first token need not wait for them. Without this, the first
    /// token of an issuer does it.
    pub fn start(&self) {
        self.issuers.values().flatten().for_each(|trusted| trusted.keys.start());
    }

    /// How it stands with each issuer, for metrics and probes.
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

    fn concerned(&self, token: &BearerToken<'_>) -> Option<&[Trusted]> {
        let issuer = token.unverified()?.issuer.as_deref()?;
        Some(self.issuers.get(canonical(issuer))?.as_slice())
    }
}

impl Authenticator for JwtAuthenticator {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn judges(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    fn authenticate<'a>(&'a self, request: &Presented<'a>) -> Answer<'a> {
        let Some(token) = request.token else {
            return Answer::Ready(Verdict::NoOpinion);
        };
        match self.concerned(token) {
            Some(concerned) => Answer::Pending(Box::pin(judge(concerned, token, request.now))),
            None => Answer::Ready(Verdict::NoOpinion),
        }
    }
}

async fn judge(concerned: &[Trusted], token: &BearerToken<'_>, now: SystemTime) -> Verdict {
    let token = match CompactToken::parse(token.as_str()) {
        Ok(token) => token,
        Err(fault) => return Verdict::Declined(fault.into()),
    };
    let mut reasons = Vec::new();
    for trusted in concerned {
        match trusted.judge(&token, now).await {
            Ok(identity) => return Verdict::Accepted(Arc::new(identity)),
            Err(reason) => reasons.push(reason),
        }
    }
    Verdict::Declined(match reasons.len() {
        1 => reasons.remove(0),
        _ => Reason::Several(reasons.into_iter().map(|reason| ("jwt", reason)).collect()),
    })
}

impl Trusted {
    async fn judge(&self, token: &CompactToken<'_>, now: SystemTime) -> Result<Identity, Reason> {
        if !self.settings.algorithms.contains(&token.algorithm) {
            return Err(TokenFault::Algorithm.into());
        }
        self.keys.verify(token).await?;
        Ok(self.settings.identity(token, now)?)
    }
}

impl JwtSettings {
    /// Whom a token stands for whose signature was verified.
    fn identity(&self, token: &CompactToken<'_>, now: SystemTime) -> Result<Identity, TokenFault> {
        let claims = token.claims()?;
        if canonical(claims.text("iss")?) != self.issuer {
            return Err(TokenFault::claim("iss", "is another issuer"));
        }
        let audiences = claims.audiences()?;
        if !self.audiences.iter().any(|ours| audiences.contains(&ours.as_str())) {
            return Err(TokenFault::Audience);
        }
        let expires = claims.in_force(now, CLOCK_SKEW)?;
        let expires = expires.ok_or_else(|| TokenFault::claim("exp", "is missing"))?;
        let user = self.mappings.user(&self.rules, &claims)?;
        Ok(Identity::new(user, Method::BearerToken, Some(expires)))
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

/// Google is known under two names (OpenID Connect Core 1.0, section 15.6.2).
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
