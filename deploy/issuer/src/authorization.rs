//! Authorization requests of the code flow (RFC 6749 4.1, RFC 7636, RFC 9207).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::form::Form;
use crate::oauth_error::OAuthError;
use crate::redirect::RedirectUri;
use crate::secret::is_secret;
use crate::tokens::{Scope, SignIn};

/// A valid authorization request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizationRequest {
    pub(crate) redirect: RedirectUri,
    pub(crate) state: Option<String>,
    pub(crate) nonce: Option<String>,
    pub(crate) scope: Scope,
    pub(crate) challenge: Challenge,
}

/// Errors of an authorization request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthorizationError {
    /// There is no valid redirect URI, so a page shows this sentence.
    ShowToUser(String),
    /// The browser is redirected to this address of the client.
    RedirectToClient(String),
}

/// The PKCE challenge: SHA-256 of the client's verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge(String);

/// The grant of a code.
#[derive(Clone, Debug)]
pub(crate) struct CodeGrant {
    pub(crate) redirect: RedirectUri,
    pub(crate) challenge: Challenge,
    pub(crate) sign_in: SignIn,
}

/// Maximum length of state and nonce.
const MAX_LENGTH: usize = 2_048;

impl AuthorizationRequest {
    /// Checks the parameters. Errors are sent to the redirect URI only after client and URI have been validated.
    pub(crate) fn read(form: &Form, client_id: &str, issuer: &str) -> Result<Self, AuthorizationError> {
        match form.get("client_id") {
            Some(client) if client == client_id => {}
            Some(_) => {
                return Err(AuthorizationError::ShowToUser("The client is unknown.".to_owned()));
            }
            None => {
                return Err(AuthorizationError::ShowToUser("The parameter client_id is missing.".to_owned()));
            }
        }
        let redirect = form.get("redirect_uri").unwrap_or_default();
        let redirect = RedirectUri::parse(redirect).map_err(|error| {
            AuthorizationError::ShowToUser(format!("The redirect URI {redirect:?} {error}."))
        })?;
        let state = form.get("state").map(str::to_owned);
        let rest = Self::read_rest(form);
        let (nonce, scope, challenge) =
            rest.map_err(|error| AuthorizationError::redirect(&redirect, state.as_deref(), issuer, error))?;
        Ok(Self { redirect, state, nonce, scope, challenge })
    }

    fn read_rest(form: &Form) -> Result<(Option<String>, Scope, Challenge), OAuthError> {
        let own = |key: &str| form.get(key).map(str::to_owned);
        if ["state", "nonce"].into_iter().filter_map(own).any(|value| value.len() > MAX_LENGTH) {
            return Err(OAuthError::InvalidRequest("state or nonce is too long"));
        }
        if form.get("request").or(form.get("request_uri")).is_some() {
            return Err(OAuthError::RequestNotSupported);
        }
        if form.get("response_type") != Some("code") {
            return Err(OAuthError::UnsupportedResponseType);
        }
        if form.get("response_mode").is_some_and(|mode| mode != "query") {
            return Err(OAuthError::InvalidRequest("the only response_mode is query"));
        }
        let scope = Scope::parse(form.get("scope"))?;
        if form.get("code_challenge_method") != Some("S256") {
            return Err(OAuthError::InvalidRequest("code_challenge_method has to be S256"));
        }
        let challenge = form.get("code_challenge").filter(|challenge| is_secret(challenge));
        let challenge = challenge.ok_or(OAuthError::InvalidRequest(
            "code_challenge has to be a SHA-256 in base64url without padding",
        ))?;
        if form.get("prompt") == Some("none") {
            return Err(OAuthError::LoginRequired);
        }
        Ok((own("nonce"), scope, Challenge(challenge.to_owned())))
    }

    /// The redirect with a code.
    pub(crate) fn with_code(&self, code: &str, issuer: &str) -> String {
        let mut parameters = vec![("code", code)];
        parameters.extend(self.state.as_deref().map(|state| ("state", state)));
        parameters.push(("iss", issuer));
        self.redirect.with(&parameters)
    }

    /// The redirect with an error.
    pub(crate) fn error_redirect(&self, error: OAuthError, issuer: &str) -> AuthorizationError {
        AuthorizationError::redirect(&self.redirect, self.state.as_deref(), issuer, error)
    }
}

impl AuthorizationError {
    fn redirect(redirect: &RedirectUri, state: Option<&str>, issuer: &str, error: OAuthError) -> Self {
        let mut parameters = vec![("error", error.code()), ("error_description", error.description())];
        parameters.extend(state.filter(|state| state.len() <= MAX_LENGTH).map(|state| ("state", state)));
        parameters.push(("iss", issuer));
        Self::RedirectToClient(redirect.with(&parameters))
    }
}

impl Challenge {
    /// Whether a verifier matches.
    pub(crate) fn matches(&self, verifier: &str) -> bool {
        let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        (43..=128).contains(&verifier.len())
            && verifier.bytes().all(unreserved)
            && URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == self.0
    }
}
