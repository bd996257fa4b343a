//! A client of an OpenID issuer: OpenID Connect Core 1.0 with discovery.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use fairlead_client::Credentials;
use http::{Method, StatusCode};
use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AsyncHttpClient, AuthUrl, AuthorizationCode, ClientId, CsrfToken, DeviceAuthorizationUrl, EndpointNotSet,
    EndpointSet, ErrorResponse, ExtraTokenFields, HttpRequest, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, RefreshToken, RequestTokenError, Scope, StandardDeviceAuthorizationResponse,
    StandardRevocableToken, StandardTokenResponse, TokenResponse, TokenUrl,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::cache::Tokens;
use super::http_client::{HttpError, IssuerHttpClient};
use super::id_token::IdTokenVerifier;

/// An issuer, with this program as its public client: a client on the machines of users cannot keep a secret.
pub(super) struct Issuer {
    http: IssuerHttpClient,
    url: String,
    client: OAuthClient,
    verifier: IdTokenVerifier,
    device: Option<DeviceAuthorizationUrl>,
    scopes: Vec<Scope>,
}

/// A started code flow.
pub(super) struct CodeFlow {
    /// Address for the browser.
    pub(super) url: Url,
    /// State that must come back with the code.
    pub(super) state: CsrfToken,
    nonce: CsrfToken,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
}

/// A started device flow.
pub(super) struct DeviceFlow(StandardDeviceAuthorizationResponse);

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
    #[error("the issuer has refused the request: {0}")]
    Refused(String),
    #[error("the response of the issuer cannot be parsed: {0}")]
    Response(String),
    #[error("the response of the issuer has no ID token: another scope may be needed")]
    NoIdToken,
    #[error("the token of the issuer is invalid: {0}")]
    BadToken(String),
}

type OAuthClient = oauth2::Client<
    BasicErrorResponse,
    OidcTokenResponse,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

type OidcTokenResponse = StandardTokenResponse<IdTokenField, BasicTokenType>;

/// The member that OpenID Connect adds to a token response (Core 1.0, 3.1.3.3).
#[derive(Clone, Deserialize, Serialize)]
struct IdTokenField {
    id_token: Option<String>,
}

impl ExtraTokenFields for IdTokenField {}

impl fmt::Debug for IdTokenField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IdTokenField")
    }
}

/// The discovery document (OpenID Connect Discovery 1.0, 3; RFC 8628, 4).
#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: AuthUrl,
    token_endpoint: Option<TokenUrl>,
    jwks_uri: Url,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
    device_authorization_endpoint: Option<DeviceAuthorizationUrl>,
}

#[derive(Debug, Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl Issuer {
    /// Fetches the metadata and the keys of the issuer. `scopes` are requested besides `openid`.
    pub(super) async fn discover(
        url: &str,
        client_id: &str,
        scopes: &[String],
        credentials: Credentials,
    ) -> Result<Self, IssuerError> {
        let address = format!("{}/.well-known/openid-configuration", url.trim_end_matches('/'));
        let address = Url::parse(&address).map_err(|error| IssuerError::Url(url.to_owned(), error))?;
        let http = IssuerHttpClient::new(credentials);
        let metadata: Metadata = fetch(&http, url, &address, "discovery document").await?;
        if metadata.issuer != url {
            let why = format!("its discovery document is of the issuer {:?}", metadata.issuer);
            return Err(IssuerError::NoIssuer(url.to_owned(), why));
        }
        let token_endpoint = metadata.token_endpoint;
        let token_endpoint =
            token_endpoint.ok_or_else(|| IssuerError::Unsupported(url.to_owned(), "token endpoint"))?;
        let keys: KeySet = fetch(&http, url, &metadata.jwks_uri, "set of keys").await?;
        let algorithms = &metadata.id_token_signing_alg_values_supported;
        let verifier = IdTokenVerifier::new(metadata.issuer, client_id.to_owned(), algorithms, keys.keys);
        let client: OAuthClient = oauth2::Client::new(ClientId::new(client_id.to_owned()))
            .set_auth_uri(metadata.authorization_endpoint)
            .set_token_uri(token_endpoint);
        let openid = std::iter::once("openid".to_owned());
        let scopes = openid.chain(scopes.iter().cloned()).map(Scope::new).collect();
        let device = metadata.device_authorization_endpoint;
        Ok(Self { http, url: url.to_owned(), client, verifier, device, scopes })
    }

    /// Starts a code flow with this redirect URI.
    pub(super) fn begin_code(&self, redirect: &str) -> Result<CodeFlow, IssuerError> {
        let redirect = RedirectUrl::new(redirect.to_owned())
            .map_err(|error| IssuerError::Url(redirect.to_owned(), error))?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let nonce = CsrfToken::new_random();
        let (url, state) = self
            .client
            .authorize_url(CsrfToken::new_random)
            .set_redirect_uri(Cow::Borrowed(&redirect))
            .set_pkce_challenge(challenge)
            .add_scopes(self.scopes.iter().cloned())
            .add_extra_param("nonce", nonce.secret())
            .url();
        Ok(CodeFlow { url, state, nonce, verifier, redirect })
    }

    /// Redeems the code.
    pub(super) async fn finish_code(&self, flow: CodeFlow, code: String) -> Result<Tokens, IssuerError> {
        let request = self.client.exchange_code(AuthorizationCode::new(code));
        let response = request
            .set_pkce_verifier(flow.verifier)
            .set_redirect_uri(Cow::Borrowed(&flow.redirect))
            .request_async(&self.http)
            .await
            .map_err(|error| self.failed(error))?;
        self.tokens(&response, Some(flow.nonce.secret()), None)
    }

    /// Starts a device flow.
    pub(super) async fn begin_device(&self) -> Result<DeviceFlow, IssuerError> {
        let device = self.device.clone();
        let device = device.ok_or_else(|| IssuerError::Unsupported(self.url.clone(), "device flow"))?;
        let client = self.client.clone().set_device_authorization_url(device);
        let request = client.exchange_device_code().add_scopes(self.scopes.iter().cloned());
        let response: StandardDeviceAuthorizationResponse =
            request.request_async(&self.http).await.map_err(|error| self.failed(error))?;
        Ok(DeviceFlow(response))
    }

    /// Polls until the user has decided, or the device code has expired.
    pub(super) async fn finish_device(&self, flow: &DeviceFlow) -> Result<Tokens, IssuerError> {
        let request = self.client.exchange_device_access_token(&flow.0);
        let response = request
            .request_async(&self.http, pause, Some(flow.0.expires_in()))
            .await
            .map_err(|error| self.failed(error))?;
        self.tokens(&response, None, None)
    }

    /// Fetches new tokens with a refresh token.
    pub(super) async fn refresh(&self, refresh_token: &str) -> Result<Tokens, IssuerError> {
        let token = RefreshToken::new(refresh_token.to_owned());
        let request = self.client.exchange_refresh_token(&token);
        let response = request.request_async(&self.http).await.map_err(|error| self.failed(error))?;
        // Without a new refresh token in the response the old one stays valid (RFC 6749 6).
        self.tokens(&response, None, Some(refresh_token))
    }

    fn tokens(
        &self,
        response: &OidcTokenResponse,
        nonce: Option<&str>,
        refresh_token: Option<&str>,
    ) -> Result<Tokens, IssuerError> {
        let id_token = response.extra_fields().id_token.as_deref().ok_or(IssuerError::NoIdToken)?;
        let claims = self.verifier.verify(id_token, nonce);
        let claims = claims.map_err(|error| IssuerError::BadToken(error.to_string()))?;
        let refresh_token = response.refresh_token().map(|token| token.secret().as_str()).or(refresh_token);
        Ok(Tokens {
            id_token: id_token.to_owned(),
            expires: claims.exp,
            refresh_token: refresh_token.map(str::to_owned),
            user: claims.sub,
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

/// Fetches a JSON document of the issuer.
async fn fetch<T: DeserializeOwned>(
    http: &IssuerHttpClient,
    issuer: &str,
    address: &Url,
    name: &str,
) -> Result<T, IssuerError> {
    let no_issuer = |why: String| IssuerError::NoIssuer(issuer.to_owned(), why);
    let request = http::Request::builder()
        .method(Method::GET)
        .uri(address.as_str())
        .header(http::header::ACCEPT, "application/json")
        .body(Vec::new());
    let request: HttpRequest = request.map_err(|error| no_issuer(error.to_string()))?;
    let response = http.call(request).await.map_err(|error| unreachable(issuer, &error))?;
    if response.status() != StatusCode::OK {
        return Err(no_issuer(format!("its {name} is {}", response.status())));
    }
    // The response is not printed: its content is unknown.
    let mut json = serde_json::Deserializer::from_slice(response.body());
    serde_path_to_error::deserialize(&mut json).map_err(|error| no_issuer(at(&error)))
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

fn pause(duration: Duration) -> impl Future<Output = ()> {
    tokio::time::sleep(duration)
}
