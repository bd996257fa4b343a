//! The provider: every rule of the protocol, without HTTP.

use std::sync::Arc;
use std::time::Duration;

use fairlead_process::Reloadable;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::devices::{Decision, Devices, INTERVAL, PATIENCE, UserCode};
use crate::expiring::Expiring;
use crate::form::Form;
use crate::moment::Moment;
use crate::refusal::Refusal;
use crate::secret::secret;
use crate::sign_in::{AuthorizationRequest, Granted, Turned};
use crate::tokens::{Mint, Scope, SignIn};
use crate::users::Users;

/// How long a client has to come with its code.
const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Codes that wait at the same time.
const MOST_CODES: usize = 256;

/// What the token endpoint gives tokens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    Code,
    Refresh,
    Device,
}

/// One issuer.
pub(crate) struct Provider {
    mint: Mint,
    users: Arc<Reloadable<Users>>,
    codes: Mutex<Expiring<Granted>>,
    devices: Mutex<Devices>,
}

impl Grant {
    /// Its name in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Refresh => "refresh",
            Self::Device => "device",
        }
    }

    fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "authorization_code" => Ok(Self::Code),
            "refresh_token" => Ok(Self::Refresh),
            "urn:ietf:params:oauth:grant-type:device_code" => Ok(Self::Device),
            _ => Err(Refusal::UnsupportedGrantType),
        }
    }
}

impl Provider {
    pub(crate) fn new(mint: Mint, users: Arc<Reloadable<Users>>) -> Self {
        let codes = Mutex::new(Expiring::new(CODE_LIFETIME, MOST_CODES));
        Self { mint, users, codes, devices: Mutex::new(Devices::new()) }
    }

    /// Its URL, to the letter.
    pub(crate) fn issuer(&self) -> &str {
        &self.mint.issuer
    }

    /// Who can sign in.
    pub(crate) fn users(&self) -> Arc<Users> {
        self.users.load()
    }

    /// What others need to know to sign in here (OpenID Connect Discovery 1.0, RFC 8414).
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
        json!({ "keys": [self.mint.key.published()] })
    }

    /// Judges a request for a code.
    pub(crate) fn authorize(&self, form: &Form) -> Result<AuthorizationRequest, Turned> {
        AuthorizationRequest::read(form, &self.mint.client_id, self.issuer())
    }

    /// A person has chosen a user: where the browser goes now.
    pub(crate) fn sign_in(
        &self,
        now: Moment,
        request: &AuthorizationRequest,
        user: &str,
    ) -> Result<String, Turned> {
        if self.users().named(user).is_none() {
            return Err(Turned::Here("There is no such user any more.".to_owned()));
        }
        let code = secret().map_err(|error| request.refused(error.into(), self.issuer()))?;
        let granted = Granted {
            redirect: request.redirect.clone(),
            challenge: request.challenge.clone(),
            sign_in: SignIn {
                user: user.to_owned(),
                at: now.unix,
                nonce: request.nonce.clone(),
                scope: request.scope,
            },
        };
        self.codes.lock().insert(now, code.clone(), granted);
        Ok(request.with_code(&code, self.issuer()))
    }

    /// A person wants nobody to be signed in.
    pub(crate) fn refuse(&self, request: &AuthorizationRequest) -> Turned {
        request.refused(Refusal::AccessDenied, self.issuer())
    }

    /// A program without a browser begins.
    pub(crate) fn begin_device(&self, now: Moment, form: &Form) -> Result<Value, Refusal> {
        self.check_client(form)?;
        let scope = Scope::parse(form.get("scope"))?;
        let (device_code, user_code) = self.devices.lock().begin(now, scope)?;
        let (issuer, shown) = (self.issuer(), user_code.shown());
        Ok(json!({
            "device_code": device_code,
            "user_code": shown,
            "verification_uri": format!("{issuer}/device"),
            "verification_uri_complete": format!("{issuer}/device?user_code={shown}"),
            "expires_in": PATIENCE.as_secs(),
            "interval": INTERVAL.as_secs(),
        }))
    }

    /// Whether a program waits under this code.
    pub(crate) fn device_waits(&self, now: Moment, code: &UserCode) -> bool {
        self.devices.lock().waits(now, code)
    }

    /// A person decides about a program that waits. False if none does any more.
    pub(crate) fn decide(&self, now: Moment, code: &UserCode, decision: Decision) -> bool {
        if let Decision::SignIn { user, .. } = &decision
            && self.users().named(user).is_none()
        {
            return false;
        }
        self.devices.lock().decide(now, code, decision)
    }

    /// The token endpoint.
    pub(crate) fn token(&self, now: Moment, form: &Form) -> Result<(Grant, Value), Refusal> {
        self.check_client(form)?;
        let grant = form.get("grant_type").ok_or(Refusal::InvalidRequest("grant_type is missing"))?;
        let grant = Grant::parse(grant)?;
        let users = self.users();
        let tokens = match grant {
            Grant::Code => self.tokens(now, &users, &self.redeem(now, form)?)?,
            Grant::Device => {
                let code =
                    form.get("device_code").ok_or(Refusal::InvalidRequest("device_code is missing"))?;
                let sign_in = self.devices.lock().ask(now, code)?;
                self.tokens(now, &users, &sign_in)?
            }
            Grant::Refresh => {
                let token =
                    form.get("refresh_token").ok_or(Refusal::InvalidRequest("refresh_token is missing"))?;
                self.mint.for_refresh(now, token, |name| users.named(name))?
            }
        };
        Ok((grant, tokens))
    }

    fn tokens(&self, now: Moment, users: &Users, sign_in: &SignIn) -> Result<Value, Refusal> {
        let user = users.named(&sign_in.user);
        let user = user.ok_or(Refusal::InvalidGrant("there is no such user any more"))?;
        self.mint.for_sign_in(now, sign_in, user)
    }

    /// A code is used up by the first who comes with it, whether or not the rest is right.
    fn redeem(&self, now: Moment, form: &Form) -> Result<SignIn, Refusal> {
        let need = |key: &str, what: &'static str| form.get(key).ok_or(Refusal::InvalidRequest(what));
        let code = need("code", "code is missing")?;
        let redirect = need("redirect_uri", "redirect_uri is missing")?;
        let verifier = need("code_verifier", "code_verifier is missing")?;
        let granted = self.codes.lock().take(now, code);
        let granted = granted.ok_or(Refusal::InvalidGrant("the code is unknown, used or over"))?;
        if granted.redirect.to_string() != redirect {
            return Err(Refusal::InvalidGrant("redirect_uri is not that of the code"));
        }
        if !granted.challenge.is_answered_by(verifier) {
            return Err(Refusal::InvalidGrant("code_verifier is not the one of the code"));
        }
        Ok(granted.sign_in)
    }

    fn check_client(&self, form: &Form) -> Result<(), Refusal> {
        if form.get("client_secret").or(form.get("client_assertion")).is_some() {
            return Err(Refusal::InvalidClient("clients have no secrets here"));
        }
        match form.get("client_id") {
            Some(client) if client == self.mint.client_id => Ok(()),
            Some(_) => Err(Refusal::InvalidClient("there is no such client")),
            None => Err(Refusal::InvalidClient("client_id is missing")),
        }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
