//! An OpenID issuer, seen from a client: any that speaks OpenID Connect Core 1.0, found by discovery.

use std::future::Future;
use std::time::Duration;

use fairlead_client::Credentials;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClient, CoreClientAuthMethod,
    CoreDeviceAuthorizationResponse, CoreGrantType, CoreIdTokenClaims, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreResponseMode, CoreResponseType,
    CoreSubjectIdentifierType, CoreTokenResponse,
};
use openidconnect::{
    AdditionalProviderMetadata, AuthorizationCode, ClientId, ConfigurationError, CsrfToken,
    DeviceAuthorizationUrl, DiscoveryError, EndpointMaybeSet, EndpointNotSet, EndpointSet, ErrorResponse,
    IssuerUrl, Nonce, NonceVerifier, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier,
    ProviderMetadata, RedirectUrl, RefreshToken, RequestTokenError, Scope, TokenResponse,
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::cache::Tokens;
use super::http::{Http, HttpError};

/// An issuer and this program as its client. A public client: it has no secret, because nobody could keep it.
pub(super) struct Issuer {
    http: Http,
    url: String,
    client: Relying,
    device: Option<DeviceAuthorizationUrl>,
    scopes: Vec<Scope>,
}

/// A sign-in by code that a browser has to go through.
pub(super) struct CodeFlow {
    /// Where the browser goes.
    pub(super) url: Url,
    /// What has to come back with the code.
    pub(super) state: CsrfToken,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
}

/// A sign-in that somebody goes through elsewhere.
pub(super) struct DeviceFlow(CoreDeviceAuthorizationResponse);

/// No token. Whether another try helps, its variants say.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerError {
    #[error("{0:?} is not the URL of an issuer: {1}")]
    Url(String, url::ParseError),
    #[error("the issuer {0} cannot be reached: {1}")]
    Unreachable(String, String),
    #[error("{0} is no issuer: {1}")]
    NoIssuer(String, String),
    #[error("the issuer {0} has no {1}")]
    Lacks(String, &'static str),
    /// The way out is another sign-in.
    #[error("the issuer refuses: {0}")]
    Refused(String),
    #[error("the issuer's answer is not understood: {0}")]
    Answer(String),
    #[error("the issuer gives no ID token: it may need another scope")]
    NoIdToken,
    #[error("the issuer's token is not good: {0}")]
    BadToken(String),
}

type Relying = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

type Metadata = ProviderMetadata<
    DeviceEndpoint,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// RFC 8628 4.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct DeviceEndpoint {
    device_authorization_endpoint: Option<DeviceAuthorizationUrl>,
}

impl AdditionalProviderMetadata for DeviceEndpoint {}

impl Issuer {
    /// Asks the issuer about itself and for its keys. `scopes` are asked for besides `openid`.
    pub(super) async fn discover(
        url: &str,
        client_id: &str,
        scopes: &[String],
        credentials: Credentials,
    ) -> Result<Self, IssuerError> {
        let parsed =
            IssuerUrl::new(url.to_owned()).map_err(|error| IssuerError::Url(url.to_owned(), error))?;
        let http = Http::trusting(credentials);
        let metadata = Metadata::discover_async(parsed, &http).await.map_err(|error| match error {
            DiscoveryError::Request(error) => unreachable(url, &error),
            DiscoveryError::Response(status, ..) => {
                IssuerError::NoIssuer(url.to_owned(), format!("its discovery document is {status}"))
            }
            // The answer itself is not shown: nobody knows what it is.
            DiscoveryError::Parse(error) => IssuerError::NoIssuer(url.to_owned(), at(&error)),
            DiscoveryError::UrlParse(error) => IssuerError::Url(url.to_owned(), error),
            error => IssuerError::NoIssuer(url.to_owned(), error.to_string()),
        })?;
        let device = metadata.additional_metadata().device_authorization_endpoint.clone();
        let client = CoreClient::from_provider_metadata(metadata, ClientId::new(client_id.to_owned()), None);
        let scopes = scopes.iter().cloned().map(Scope::new).collect();
        Ok(Self { http, url: url.to_owned(), client, device, scopes })
    }

    /// Begins a sign-in whose code comes to `redirect`.
    pub(super) fn begin_code(&self, redirect: &str) -> Result<CodeFlow, IssuerError> {
        let redirect = RedirectUrl::new(redirect.to_owned())
            .map_err(|error| IssuerError::Url(redirect.to_owned(), error))?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let (url, state, nonce) = self
            .client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                CsrfToken::new_random,
                Nonce::new_random,
            )
            .set_redirect_uri(std::borrow::Cow::Borrowed(&redirect))
            .set_pkce_challenge(challenge)
            .add_scopes(self.scopes.iter().cloned())
            .url();
        Ok(CodeFlow { url, state, nonce, verifier, redirect })
    }

    /// Ends it with the code.
    pub(super) async fn finish_code(&self, flow: CodeFlow, code: String) -> Result<Tokens, IssuerError> {
        let request = self.client.exchange_code(AuthorizationCode::new(code));
        let answer = request
            .map_err(|error| self.lacks(&error))?
            .set_pkce_verifier(flow.verifier)
            .set_redirect_uri(std::borrow::Cow::Borrowed(&flow.redirect))
            .request_async(&self.http)
            .await
            .map_err(|error| self.failed(error))?;
        self.tokens(&answer, &flow.nonce, None)
    }

    /// Begins a sign-in that somebody goes through on any device.
    pub(super) async fn begin_device(&self) -> Result<DeviceFlow, IssuerError> {
        let device = self.device.clone();
        let device = device.ok_or_else(|| IssuerError::Lacks(self.url.clone(), "device flow"))?;
        let client = self.client.clone().set_device_authorization_url(device);
        let request = client.exchange_device_code().add_scopes(self.scopes.iter().cloned());
        let answer: CoreDeviceAuthorizationResponse =
            request.request_async(&self.http).await.map_err(|error| self.failed(error))?;
        Ok(DeviceFlow(answer))
    }

    /// Waits until the person has decided, or the issuer's patience ends.
    pub(super) async fn finish_device(&self, flow: &DeviceFlow) -> Result<Tokens, IssuerError> {
        let request = self.client.exchange_device_access_token(&flow.0);
        let answer = request
            .map_err(|error| self.lacks(&error))?
            .request_async(&self.http, pause, Some(flow.0.expires_in()))
            .await
            .map_err(|error| self.failed(error))?;
        self.tokens(&answer, no_nonce, None)
    }

    /// New tokens without a person.
    pub(super) async fn refresh(&self, refresh_token: &str) -> Result<Tokens, IssuerError> {
        let token = RefreshToken::new(refresh_token.to_owned());
        let request = self.client.exchange_refresh_token(&token);
        let answer = request
            .map_err(|error| self.lacks(&error))?
            .request_async(&self.http)
            .await
            .map_err(|error| self.failed(error))?;
        // An issuer that sends no new one means that the old one stays (RFC 6749 6).
        self.tokens(&answer, no_nonce, Some(refresh_token))
    }

    fn tokens(
        &self,
        answer: &CoreTokenResponse,
        nonce: impl NonceVerifier,
        refresh_token: Option<&str>,
    ) -> Result<Tokens, IssuerError> {
        let id_token = answer.id_token().ok_or(IssuerError::NoIdToken)?;
        let claims: &CoreIdTokenClaims = id_token
            .claims(&self.client.id_token_verifier(), nonce)
            .map_err(|error| IssuerError::BadToken(error.to_string()))?;
        let refresh_token = answer.refresh_token().map(|token| token.secret().as_str()).or(refresh_token);
        Ok(Tokens {
            id_token: id_token.to_string(),
            expires: claims.expiration().timestamp(),
            refresh_token: refresh_token.map(str::to_owned),
            user: claims.subject().to_string(),
        })
    }

    fn failed<E: ErrorResponse + 'static>(&self, error: RequestTokenError<HttpError, E>) -> IssuerError {
        match error {
            RequestTokenError::ServerResponse(refusal) => IssuerError::Refused(refusal.to_string()),
            RequestTokenError::Request(error) => unreachable(&self.url, &error),
            // The answer may hold tokens, so only the place of the fault is told.
            RequestTokenError::Parse(error, _) => IssuerError::Answer(at(&error)),
            RequestTokenError::Other(error) => IssuerError::Answer(error),
        }
    }

    fn lacks(&self, _error: &ConfigurationError) -> IssuerError {
        IssuerError::Lacks(self.url.clone(), "token endpoint")
    }
}

impl DeviceFlow {
    /// What the person is told: where to go, and with which code.
    pub(super) fn told(&self) -> String {
        let (uri, code) = (self.0.verification_uri().as_str(), self.0.user_code().secret());
        match self.0.verification_uri_complete() {
            Some(complete) => format!(
                "To sign in, open\n  {}\nand see that it shows the code {code}, or open {uri} and type it.\n",
                complete.secret()
            ),
            None => format!("To sign in, open\n  {uri}\nand type the code {code}\n"),
        }
    }
}

fn unreachable(url: &str, error: &HttpError) -> IssuerError {
    IssuerError::Unreachable(url.to_owned(), error.to_string())
}

fn at(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        "." => "it is not what it should be".to_owned(),
        path => format!("it is not what it should be at {path}"),
    }
}

/// Only the code flow sends one.
fn no_nonce(_: Option<&Nonce>) -> Result<(), String> {
    Ok(())
}

fn pause(duration: Duration) -> impl Future<Output = ()> {
    tokio::time::sleep(duration)
}
