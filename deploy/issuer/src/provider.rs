//! The provider: the rules of the protocol, without HTTP.

use std::sync::Arc;
use std::time::Duration;

use fairlead_process::Reloadable;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::authorization::{AuthorizationError, AuthorizationRequest, CodeGrant};
use crate::clock::Time;
use crate::devices::{DEVICE_CODE_LIFETIME, Decision, Devices, POLL_INTERVAL, UserCode};
use crate::expiring_map::ExpiringMap;
use crate::form::Form;
use crate::oauth_error::OAuthError;
use crate::secret::secret;
use crate::tokens::{Scope, SignIn, TokenSigner};
use crate::users::Users;

/// Lifetime of a code.
const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of open codes.
const MAX_CODES: usize = 256;

/// A grant type of the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    Code,
    Refresh,
    Device,
}

/// The provider of one issuer.
pub(crate) struct Provider {
    signer: TokenSigner,
    users: Arc<Reloadable<Users>>,
    codes: Mutex<ExpiringMap<CodeGrant>>,
    devices: Mutex<Devices>,
}

impl Grant {
    /// The label in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Refresh => "refresh",
            Self::Device => "device",
        }
    }

    fn parse(text: &str) -> Result<Self, OAuthError> {
        match text {
            "authorization_code" => Ok(Self::Code),
            "refresh_token" => Ok(Self::Refresh),
            "urn:ietf:params:oauth:grant-type:device_code" => Ok(Self::Device),
            _ => Err(OAuthError::UnsupportedGrantType),
        }
    }
}

impl Provider {
    pub(crate) fn new(signer: TokenSigner, users: Arc<Reloadable<Users>>) -> Self {
        let codes = Mutex::new(ExpiringMap::new(CODE_LIFETIME, MAX_CODES));
        Self { signer, users, codes, devices: Mutex::new(Devices::new()) }
    }

    /// The issuer URL.
    pub(crate) fn issuer(&self) -> &str {
        &self.signer.issuer
    }

    /// The users.
    pub(crate) fn users(&self) -> Arc<Users> {
        self.users.load()
    }

    /// The discovery document (OpenID Connect Discovery 1.0, RFC 8414).
    pub(crate) fn discovery(&self) -> Value {
        let issuer = self.issuer();
        json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "device_authorization_endpoint": format!("{issuer}/device_authorization"),
            "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": [
                "authorization_code",
                "refresh_token",
                "urn:ietf:params:oauth:grant-type:device_code",
            ],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["openid", "offline_access"],
            "claims_supported": [
                "iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "preferred_username", "groups",
            ],
            "authorization_response_iss_parameter_supported": true,
            "request_uri_parameter_supported": false,
        })
    }

    /// The keys that verify tokens (RFC 7517).
    pub(crate) fn keys(&self) -> Value {
        json!({ "keys": [self.signer.key.jwk()] })
    }

    /// Checks an authorization request.
    pub(crate) fn authorize(&self, form: &Form) -> Result<AuthorizationRequest, AuthorizationError> {
        AuthorizationRequest::read(form, &self.signer.client_id, self.issuer())
    }

    /// Signs a user in. Returns the redirect with a code.
    pub(crate) fn sign_in(
        &self,
        now: Time,
        request: &AuthorizationRequest,
        user: &str,
    ) -> Result<String, AuthorizationError> {
        if self.users().named(user).is_none() {
            return Err(AuthorizationError::ShowToUser("The user no longer exists.".to_owned()));
        }
        let code = secret().map_err(|error| request.error_redirect(error.into(), self.issuer()))?;
        let code_grant = CodeGrant {
            redirect: request.redirect.clone(),
            challenge: request.challenge.clone(),
            sign_in: SignIn {
                user: user.to_owned(),
                at: now.unix,
                nonce: request.nonce.clone(),
                scope: request.scope,
            },
        };
        self.codes.lock().insert(now, code.clone(), code_grant);
        Ok(request.with_code(&code, self.issuer()))
    }

    /// Refuses a sign-in. Returns the redirect with the error.
    pub(crate) fn refuse(&self, request: &AuthorizationRequest) -> AuthorizationError {
        request.error_redirect(OAuthError::AccessDenied, self.issuer())
    }

    /// Starts a device grant.
    pub(crate) fn begin_device(&self, now: Time, form: &Form) -> Result<Value, OAuthError> {
        self.check_client(form)?;
        let scope = Scope::parse(form.get("scope"))?;
        let (device_code, user_code) = self.devices.lock().begin(now, scope)?;
        let (issuer, shown) = (self.issuer(), user_code.display());
        Ok(json!({
            "device_code": device_code,
            "user_code": shown,
            "verification_uri": format!("{issuer}/device"),
            "verification_uri_complete": format!("{issuer}/device?user_code={shown}"),
            "expires_in": DEVICE_CODE_LIFETIME.as_secs(),
            "interval": POLL_INTERVAL.as_secs(),
        }))
    }

    /// Whether a device with this code waits for a decision.
    pub(crate) fn is_device_pending(&self, now: Time, code: &UserCode) -> bool {
        self.devices.lock().is_pending(now, code)
    }

    /// Sets the decision about a device. Returns whether a device with this code was waiting for it and the user exists.
    pub(crate) fn decide(&self, now: Time, code: &UserCode, decision: Decision) -> bool {
        if let Decision::SignIn { user, .. } = &decision
            && self.users().named(user).is_none()
        {
            return false;
        }
        self.devices.lock().decide(now, code, decision)
    }

    /// The token endpoint.
    pub(crate) fn token(&self, now: Time, form: &Form) -> Result<(Grant, Value), OAuthError> {
        self.check_client(form)?;
        let grant = form.get("grant_type").ok_or(OAuthError::InvalidRequest("grant_type is missing"))?;
        let grant = Grant::parse(grant)?;
        let users = self.users();
        let tokens = match grant {
            Grant::Code => self.tokens(now, &users, &self.redeem(now, form)?)?,
            Grant::Device => {
                let code =
                    form.get("device_code").ok_or(OAuthError::InvalidRequest("device_code is missing"))?;
                let sign_in = self.devices.lock().poll(now, code)?;
                self.tokens(now, &users, &sign_in)?
            }
            Grant::Refresh => {
                let token = form
                    .get("refresh_token")
                    .ok_or(OAuthError::InvalidRequest("refresh_token is missing"))?;
                self.signer.for_refresh(now, token, |name| users.named(name))?
            }
        };
        Ok((grant, tokens))
    }

    fn tokens(&self, now: Time, users: &Users, sign_in: &SignIn) -> Result<Value, OAuthError> {
        let user = users.named(&sign_in.user);
        let user = user.ok_or(OAuthError::InvalidGrant("the user no longer exists"))?;
        self.signer.for_sign_in(now, sign_in, user)
    }

    /// Redeems a code. A code can be used once, even if the other parameters are wrong.
    fn redeem(&self, now: Time, form: &Form) -> Result<SignIn, OAuthError> {
        let need =
            |key: &str, missing: &'static str| form.get(key).ok_or(OAuthError::InvalidRequest(missing));
        let code = need("code", "code is missing")?;
        let redirect = need("redirect_uri", "redirect_uri is missing")?;
        let verifier = need("code_verifier", "code_verifier is missing")?;
        let code_grant = self.codes.lock().take(now, code);
        let code_grant =
            code_grant.ok_or(OAuthError::InvalidGrant("the code is unknown, used or expired"))?;
        if code_grant.redirect.to_string() != redirect {
            return Err(OAuthError::InvalidGrant("redirect_uri is not that of the code"));
        }
        if !code_grant.challenge.matches(verifier) {
            return Err(OAuthError::InvalidGrant("code_verifier does not match the code"));
        }
        Ok(code_grant.sign_in)
    }

    fn check_client(&self, form: &Form) -> Result<(), OAuthError> {
        if form.get("client_secret").or(form.get("client_assertion")).is_some() {
            return Err(OAuthError::InvalidClient("clients have no secrets here"));
        }
        match form.get("client_id") {
            Some(client) if client == self.signer.client_id => Ok(()),
            Some(_) => Err(OAuthError::InvalidClient("there is no such client")),
            None => Err(OAuthError::InvalidClient("client_id is missing")),
        }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
