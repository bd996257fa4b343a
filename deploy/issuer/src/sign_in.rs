//! The code flow: what a client may ask for, and codes that are good once (RFC 6749 4.1, RFC 7636, RFC 9207).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::form::Form;
use crate::redirect::RedirectUri;
use crate::refusal::Refusal;
use crate::secret::is_secret;
use crate::tokens::{Scope, SignIn};

/// A request for a code that can be granted, if the person wants so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizationRequest {
    pub(crate) redirect: RedirectUri,
    pub(crate) state: Option<String>,
    pub(crate) nonce: Option<String>,
    pub(crate) scope: Scope,
    pub(crate) challenge: Challenge,
}

/// Why somebody's browser gets no page to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It is not known where to send the browser, so the person is told: a sentence.
    Here(String),
    /// The client is told: the address to send the browser to.
    Back(String),
}

/// What only the client knows that has begun a sign-in: SHA-256 of its verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge(String);

/// What a code stands for.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) redirect: RedirectUri,
    pub(crate) challenge: Challenge,
    pub(crate) sign_in: SignIn,
}

/// What of a client's state and nonce is carried; they are its own and may be anything.
const LONGEST: usize = 2_048;

impl AuthorizationRequest {
    /// Judges the parameters. Nobody is sent to an address before client and address are known to be good.
    pub(crate) fn read(form: &Form, client_id: &str, issuer: &str) -> Result<Self, Turned> {
        match form.get("client_id") {
            Some(client) if client == client_id => {}
            Some(_) => {
                return Err(Turned::Here("The program that wants to sign in is not known here.".to_owned()));
            }
            None => {
                return Err(Turned::Here(
                    "The program that wants to sign in does not say which it is.".to_owned(),
                ));
            }
        }
        let redirect = form.get("redirect_uri").unwrap_or_default();
        let redirect = RedirectUri::parse(redirect).map_err(|error| {
            Turned::Here(format!("The address {redirect:?} {error}: nobody is sent there."))
        })?;
        let state = form.get("state").map(str::to_owned);
        let rest = Self::read_rest(form);
        let (nonce, scope, challenge) =
            rest.map_err(|refusal| Turned::back(&redirect, state.as_deref(), issuer, refusal))?;
        Ok(Self { redirect, state, nonce, scope, challenge })
    }

    fn read_rest(form: &Form) -> Result<(Option<String>, Scope, Challenge), Refusal> {
        let own = |key: &str| form.get(key).map(str::to_owned);
        if ["state", "nonce"].into_iter().filter_map(own).any(|value| value.len() > LONGEST) {
            return Err(Refusal::InvalidRequest("state or nonce is too long"));
        }
        if form.get("request").or(form.get("request_uri")).is_some() {
            return Err(Refusal::RequestNotSupported);
        }
        if form.get("response_type") != Some("code") {
            return Err(Refusal::UnsupportedResponseType);
        }
        if form.get("response_mode").is_some_and(|mode| mode != "query") {
            return Err(Refusal::InvalidRequest("the only response_mode is query"));
        }
        let scope = Scope::parse(form.get("scope"))?;
        if form.get("code_challenge_method") != Some("S256") {
            return Err(Refusal::InvalidRequest("code_challenge_method has to be S256"));
        }
        let challenge = form.get("code_challenge").filter(|challenge| is_secret(challenge));
        let challenge = challenge.ok_or(Refusal::InvalidRequest(
            "code_challenge has to be a SHA-256 in base64url without padding",
        ))?;
        if form.get("prompt") == Some("none") {
            return Err(Refusal::LoginRequired);
        }
        Ok((own("nonce"), scope, Challenge(challenge.to_owned())))
    }

    /// Where the browser goes with a code.
    pub(crate) fn with_code(&self, code: &str, issuer: &str) -> String {
        let mut parameters = vec![("code", code)];
        parameters.extend(self.state.as_deref().map(|state| ("state", state)));
        parameters.push(("iss", issuer));
        self.redirect.with(&parameters)
    }

    /// Where the browser goes without one.
    pub(crate) fn refused(&self, refusal: Refusal, issuer: &str) -> Turned {
        Turned::back(&self.redirect, self.state.as_deref(), issuer, refusal)
    }
}

impl Turned {
    fn back(redirect: &RedirectUri, state: Option<&str>, issuer: &str, refusal: Refusal) -> Self {
        let mut parameters = vec![("error", refusal.code()), ("error_description", refusal.description())];
        parameters.extend(state.filter(|state| state.len() <= LONGEST).map(|state| ("state", state)));
        parameters.push(("iss", issuer));
        Self::Back(redirect.with(&parameters))
    }
}

impl Challenge {
    /// Whether a client's verifier answers it.
    pub(crate) fn is_answered_by(&self, verifier: &str) -> bool {
        let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        (43..=128).contains(&verifier.len())
            && verifier.bytes().all(unreserved)
            && URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == self.0
    }
}
