//! ID tokens and refresh tokens.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::Time;
use crate::key::SigningKey;
use crate::oauth_error::OAuthError;
use crate::secret::secret;
use crate::users::User;

/// Signs tokens. They are not stored, and valid until they expire.
pub(crate) struct TokenSigner {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) key: SigningKey,
    /// Lifetime of an ID token.
    pub(crate) token_lifetime: Duration,
    /// Lifetime of a sign-in, within which it can be refreshed.
    pub(crate) sign_in_lifetime: Duration,
}

/// A sign-in of a user.
#[derive(Clone, Debug)]
pub(crate) struct SignIn {
    /// Name of the user.
    pub(crate) user: String,
    /// Time in seconds since 1970.
    pub(crate) at: u64,
    /// Nonce of the client, for the ID token.
    pub(crate) nonce: Option<String>,
    pub(crate) scope: Scope,
}

/// The requested scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// An ID token.
    Once,
    /// An ID token and a refresh token (`offline_access`).
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

/// A refresh token. Its audience is the issuer. It can be used repeatedly until the sign-in ends, because several processes
/// of a user may refresh at once.
#[derive(Clone, Serialize, Deserialize)]
struct RefreshClaims {
    iss: String,
    sub: String,
    /// The issuer, so that servers, which expect the client as audience, reject refresh tokens.
    aud: String,
    azp: String,
    exp: u64,
    auth_time: u64,
}

/// The header `typ` of ID tokens and of refresh tokens.
const ID: &str = "JWT";
const REFRESH: &str = "refresh+jwt";

impl Scope {
    /// Parses the parameter; unknown scopes are ignored (RFC 6749 3.3).
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, OAuthError> {
        let mut words = text.unwrap_or_default().split(' ');
        if !words.clone().any(|word| word == "openid") {
            return Err(OAuthError::InvalidScope);
        }
        Ok(if words.any(|word| word == "offline_access") { Self::Refreshable } else { Self::Once })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Once => "openid",
            Self::Refreshable => "openid offline_access",
        }
    }
}

impl TokenSigner {
    /// The token response of a new sign-in.
    pub(crate) fn for_sign_in(&self, now: Time, sign_in: &SignIn, user: &User) -> Result<Value, OAuthError> {
        let end = sign_in.at.saturating_add(self.sign_in_lifetime.as_secs());
        self.response(now, sign_in, user, end)
    }

    /// The token response for a refresh token; `find` looks a user up.
    pub(crate) fn for_refresh<'u>(
        &self,
        now: Time,
        token: &str,
        find: impl FnOnce(&str) -> Option<&'u User>,
    ) -> Result<Value, OAuthError> {
        let claims: RefreshClaims = self
            .key
            .verify(REFRESH, token)
            .ok_or(OAuthError::InvalidGrant("the refresh token is not from this issuer"))?;
        if claims.iss != self.issuer || claims.aud != self.issuer || claims.azp != self.client_id {
            return Err(OAuthError::InvalidGrant("the refresh token is for another client"));
        }
        if claims.exp <= now.unix {
            return Err(OAuthError::InvalidGrant("the sign-in has expired"));
        }
        let user = find(&claims.sub).ok_or(OAuthError::InvalidGrant("the user no longer exists"))?;
        let sign_in =
            SignIn { user: claims.sub, at: claims.auth_time, nonce: None, scope: Scope::Refreshable };
        self.response(now, &sign_in, user, claims.exp)
    }

    /// `end` is the end of the sign-in.
    fn response(&self, now: Time, sign_in: &SignIn, user: &User, end: u64) -> Result<Value, OAuthError> {
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
        let mut response = json!({
            // Required by OAuth. No endpoint accepts it.
            "access_token": secret()?,
            "token_type": "Bearer",
            "expires_in": lifetime,
            "id_token": id_token,
            "scope": sign_in.scope.as_str(),
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
            response["refresh_token"] = self.signed(REFRESH, &claims)?.into();
        }
        Ok(response)
    }

    fn signed<T: Serialize>(&self, kind: &str, claims: &T) -> Result<String, OAuthError> {
        self.key.sign(kind, claims).ok_or(OAuthError::ServerError)
    }
}
