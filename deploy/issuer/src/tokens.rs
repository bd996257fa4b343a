//! Tokens: what they say, and how new ones are had for old ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::key::SigningKey;
use crate::moment::Moment;
use crate::refusal::Refusal;
use crate::secret::secret;
use crate::users::User;

/// Makes tokens. They are not remembered: what has been signed is good until its time is over.
pub(crate) struct Mint {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) key: SigningKey,
    /// How long a token proves an identity.
    pub(crate) token_lifetime: Duration,
    /// How long a sign-in can be refreshed.
    pub(crate) sign_in_lifetime: Duration,
}

/// Somebody has just signed in.
#[derive(Clone, Debug)]
pub(crate) struct SignIn {
    /// The user's name.
    pub(crate) user: String,
    /// When, in seconds since 1970.
    pub(crate) at: u64,
    /// What the client wants to find in the token.
    pub(crate) nonce: Option<String>,
    pub(crate) scope: Scope,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A token.
    Once,
    /// Tokens for as long as the sign-in lasts (`offline_access`).
    Refreshable,
}

/// An ID token (OpenID Connect Core 2).
#[derive(Serialize)]
struct IdClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    exp: u64,
    iat: u64,
    auth_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    preferred_username: &'a str,
    groups: &'a [String],
}

/// A refresh token: for us, and for nobody else. Not used up by its use, because several processes of a person may refresh
/// at once; it ends with the sign-in.
#[derive(Clone, Serialize, Deserialize)]
struct RefreshClaims {
    iss: String,
    sub: String,
    /// Us. Whoever expects tokens for a client takes none of these.
    aud: String,
    azp: String,
    exp: u64,
    auth_time: u64,
}

/// The header `typ` of ID tokens and of refresh tokens.
const ID: &str = "JWT";
const REFRESH: &str = "refresh+jwt";

impl Scope {
    /// Reads the parameter; scopes that are not known are ignored (RFC 6749 3.3).
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        let mut words = text.unwrap_or_default().split(' ');
        if !words.clone().any(|word| word == "openid") {
            return Err(Refusal::InvalidScope);
        }
        Ok(if words.any(|word| word == "offline_access") { Self::Refreshable } else { Self::Once })
    }

    fn granted(self) -> &'static str {
        match self {
            Self::Once => "openid",
            Self::Refreshable => "openid offline_access",
        }
    }
}

impl Mint {
    /// The answer of the token endpoint to somebody who has just signed in.
    pub(crate) fn for_sign_in(&self, now: Moment, sign_in: &SignIn, user: &User) -> Result<Value, Refusal> {
        let end = sign_in.at.saturating_add(self.sign_in_lifetime.as_secs());
        self.answer(now, sign_in, user, end)
    }

    /// The answer for a refresh token; `find` knows the users that there are.
    pub(crate) fn for_refresh<'u>(
        &self,
        now: Moment,
        token: &str,
        find: impl FnOnce(&str) -> Option<&'u User>,
    ) -> Result<Value, Refusal> {
        let claims: RefreshClaims = self
            .key
            .verify(REFRESH, token)
            .ok_or(Refusal::InvalidGrant("the refresh token is not from here"))?;
        if claims.iss != self.issuer || claims.aud != self.issuer || claims.azp != self.client_id {
            return Err(Refusal::InvalidGrant("the refresh token is not for this"));
        }
        if claims.exp <= now.unix {
            return Err(Refusal::InvalidGrant("the sign-in is over"));
        }
        let user = find(&claims.sub).ok_or(Refusal::InvalidGrant("there is no such user any more"))?;
        let sign_in =
            SignIn { user: claims.sub, at: claims.auth_time, nonce: None, scope: Scope::Refreshable };
        self.answer(now, &sign_in, user, claims.exp)
    }

    /// `end` is that of the sign-in.
    fn answer(&self, now: Moment, sign_in: &SignIn, user: &User, end: u64) -> Result<Value, Refusal> {
        let lifetime = self.token_lifetime.as_secs();
        let id_token = self.signed(
            ID,
            &IdClaims {
                iss: &self.issuer,
                sub: &user.name,
                aud: &self.client_id,
                exp: now.unix.saturating_add(lifetime),
                iat: now.unix,
                auth_time: sign_in.at,
                nonce: sign_in.nonce.as_deref(),
                preferred_username: &user.name,
                groups: &user.groups,
            },
        )?;
        let mut answer = json!({
            // Required by OAuth; there is nothing here that takes it.
            "access_token": secret()?,
            "token_type": "Bearer",
            "expires_in": lifetime,
            "id_token": id_token,
            "scope": sign_in.scope.granted(),
        });
        if sign_in.scope == Scope::Refreshable {
            let claims = RefreshClaims {
                iss: self.issuer.clone(),
                sub: user.name.clone(),
                aud: self.issuer.clone(),
                azp: self.client_id.clone(),
                exp: end,
                auth_time: sign_in.at,
            };
            answer["refresh_token"] = self.signed(REFRESH, &claims)?.into();
        }
        Ok(answer)
    }

    fn signed<T: Serialize>(&self, kind: &str, claims: &T) -> Result<String, Refusal> {
        self.key.sign(kind, claims).ok_or(Refusal::ServerError)
    }
}
