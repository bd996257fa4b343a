//! A client of an OpenID issuer: OpenID Connect Core 1.0 with discovery.

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
use super::http_client::{HttpError, IssuerHttpClient};

/// An issuer, with this program as its public client: a client on the machines of users cannot keep a secret.
pub(super) struct Issuer {
    http: IssuerHttpClient,
    url: String,
    client: RelyingParty,
    device: Option<DeviceAuthorizationUrl>,
    scopes: Vec<Scope>,
}

/// A started code flow.
pub(super) struct CodeFlow {
    /// Address for the browser.
    pub(super) url: Url,
    /// State that must come back with the code.
    pub(super) state: CsrfToken,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
}

/// A started device flow.
pub(super) struct DeviceFlow(CoreDeviceAuthorizationResponse);

/// Errors of an issuer.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerError {
    #[error("{0:?} is not the URL of an issuer: {1}")]
    Url(String, url::ParseError),
    #[error("the issuer {0} cannot be reached: {1}")]
    Unreachable(String, String),
    #[error("{0} is not an issuer: {1}")]
    NoIssuer(String, String),
    #[error("the issuer {0} has no {1}")]
    Unsupported(String, &'static str),
    /// A new sign-in is required.
    #[error("the issuer refuses: {0}")]
    Refused(String),
    #[error("the response of the issuer is not understood: {0}")]
    Response(String),
    #[error("the response of the issuer has no ID token: another scope may be needed")]
    NoIdToken,
    #[error("the token of the issuer is invalid: {0}")]
    BadToken(String),
}

type RelyingParty = CoreClient<
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

/// Discovery metadata of the device flow (RFC 8628 4).
#[derive(Clone, Debug, Deserialize, Serialize)]
struct DeviceEndpoint {
    device_authorization_endpoint: Option<DeviceAuthorizationUrl>,
}

impl AdditionalProviderMetadata for DeviceEndpoint {}

impl Issuer {
    /// Fetches the metadata and the keys of the issuer. `scopes` are requested besides `openid`.
    pub(super) async fn discover(
        url: &str,
        client_id: &str,
        scopes: &[String],
        credentials: Credentials,
    ) -> Result<Self, IssuerError> {
        let parsed =
            IssuerUrl::new(url.to_owned()).map_err(|error| IssuerError::Url(url.to_owned(), error))?;
        let http = IssuerHttpClient::new(credentials);
        let metadata = Metadata::discover_async(parsed, &http).await.map_err(|error| match error {
            DiscoveryError::Request(error) => unreachable(url, &error),
            DiscoveryError::Response(status, ..) => {
                IssuerError::NoIssuer(url.to_owned(), format!("its discovery document is {status}"))
            }
            // The response is not printed: its content is unknown.
            DiscoveryError::Parse(error) => IssuerError::NoIssuer(url.to_owned(), at(&error)),
            DiscoveryError::UrlParse(error) => IssuerError::Url(url.to_owned(), error),
            error => IssuerError::NoIssuer(url.to_owned(), error.to_string()),
        })?;
        let device = metadata.additional_metadata().device_authorization_endpoint.clone();
        let client = CoreClient::from_provider_metadata(metadata, ClientId::new(client_id.to_owned()), None);
        let scopes = scopes.iter().cloned().map(Scope::new).collect();
        Ok(Self { http, url: url.to_owned(), client, device, scopes })
    }

    /// Starts a code flow with this redirect URI.
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

    /// Redeems the code.
    pub(super) async fn finish_code(&self, flow: CodeFlow, code: String) -> Result<Tokens, IssuerError> {
        let request = self.client.exchange_code(AuthorizationCode::new(code));
        let response = request
            .map_err(|error| self.no_token_endpoint(&error))?
            .set_pkce_verifier(flow.verifier)
            .set_redirect_uri(std::borrow::Cow::Borrowed(&flow.redirect))
            .request_async(&self.http)
            .await
            .map_err(|error| self.failed(error))?;
        self.tokens(&response, &flow.nonce, None)
    }

    /// Starts a device flow.
    pub(super) async fn begin_device(&self) -> Result<DeviceFlow, IssuerError> {
        let device = self.device.clone();
        let device = device.ok_or_else(|| IssuerError::Unsupported(self.url.clone(), "device flow"))?;
        let client = self.client.clone().set_device_authorization_url(device);
        let request = client.exchange_device_code().add_scopes(self.scopes.iter().cloned());
        let response: CoreDeviceAuthorizationResponse =
            request.request_async(&self.http).await.map_err(|error| self.failed(error))?;
        Ok(DeviceFlow(response))
    }

    /// Polls until the user has decided, or the device code has expired.
    pub(super) async fn finish_device(&self, flow: &DeviceFlow) -> Result<Tokens, IssuerError> {
        let request = self.client.exchange_device_access_token(&flow.0);
        let response = request
            .map_err(|error| self.no_token_endpoint(&error))?
            .request_async(&self.http, pause, Some(flow.0.expires_in()))
            .await
            .map_err(|error| self.failed(error))?;
        self.tokens(&response, no_nonce, None)
    }

    /// Fetches new tokens with a refresh token.
    pub(super) async fn refresh(&self, refresh_token: &str) -> Result<Tokens, IssuerError> {
        let token = RefreshToken::new(refresh_token.to_owned());
        let request = self.client.exchange_refresh_token(&token);
        let response = request
            .map_err(|error| self.no_token_endpoint(&error))?
            .request_async(&self.http)
            .await
            .map_err(|error| self.failed(error))?;
        // Without a new refresh token in the response the old one stays valid (RFC 6749 6).
        self.tokens(&response, no_nonce, Some(refresh_token))
    }

    fn tokens(
        &self,
        response: &CoreTokenResponse,
        nonce: impl NonceVerifier,
        refresh_token: Option<&str>,
    ) -> Result<Tokens, IssuerError> {
        let id_token = response.id_token().ok_or(IssuerError::NoIdToken)?;
        let claims: &CoreIdTokenClaims = id_token
            .claims(&self.client.id_token_verifier(), nonce)
            .map_err(|error| IssuerError::BadToken(error.to_string()))?;
        let refresh_token = response.refresh_token().map(|token| token.secret().as_str()).or(refresh_token);
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
            // The response may contain tokens, so only the position of the error is printed.
            RequestTokenError::Parse(error, _) => IssuerError::Response(at(&error)),
            RequestTokenError::Other(error) => IssuerError::Response(error),
        }
    }

    fn no_token_endpoint(&self, _error: &ConfigurationError) -> IssuerError {
        IssuerError::Unsupported(self.url.clone(), "token endpoint")
    }
}

impl DeviceFlow {
    /// Instructions for the user: the address and the code.
    pub(super) fn instructions(&self) -> String {
        let (uri, code) = (self.0.verification_uri().as_str(), self.0.user_code().secret());
        match self.0.verification_uri_complete() {
            Some(complete) => format!(
                "To sign in, open\n  {}\nand check that it shows the code {code}, or open {uri} and type it.\n",
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
        "." => "unexpected content".to_owned(),
        path => format!("unexpected content at {path}"),
    }
}

/// Accepts any nonce: only the code flow sends one.
fn no_nonce(_: Option<&Nonce>) -> Result<(), String> {
    Ok(())
}

fn pause(duration: Duration) -> impl Future<Output = ()> {
    tokio::time::sleep(duration)
}
