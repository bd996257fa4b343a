//! Calls of webhooks over HTTPS, for admission and for conversion.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fairlead_client::{
    Client, ClientError, ClientOptions, Credentials, Endpoint as Server, Request, TrustRoots,
};
use fairlead_process::Status;
use http::Method;
use serde_json::Value;

use crate::concurrency::{TooManyWaiting, without_permit};

/// The largest response: a patch that replaces an object of the largest size, in base64.
const MAX_RESPONSE: usize = 6 << 20;

/// The longest time-out that a webhook may have.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// The server of a webhook. Connections are shared by its calls and closed when the configuration changes.
pub(crate) struct Endpoint {
    /// An unusable configuration fails each call, so that a failure policy decides.
    server: Result<(Client, String), String>,
    url: String,
}

impl Endpoint {
    /// The server of a `clientConfig`.
    pub(crate) fn new(config: &Value) -> Self {
        let Some(url) = config["url"].as_str() else {
            let reason = "a logical cluster has no services; clientConfig.url is required".to_owned();
            return Self { server: Err(reason), url: String::new() };
        };
        Self { server: connect(url, &config["caBundle"]), url: url.to_owned() }
    }

    /// Posts a review and returns the body of the response. The request for which it is called gives up its permit meanwhile.
    pub(crate) async fn call(&self, review: &Value, timeout: Duration) -> Result<Bytes, CallError> {
        let (client, path) =
            self.server.as_ref().map_err(|reason| CallError::Configuration(reason.clone()))?;
        let path = format!("{path}{}", query(timeout));
        let request =
            Request::new(Method::POST, path.clone()).with_body("application/json", review.to_string());
        // Boxed, because the futures of all writes would reserve its 4 KiB, and most writes call no webhook.
        let call = Box::pin(tokio::time::timeout(timeout, client.request_any_status(request)));
        let Ok(response) = without_permit(call).await? else {
            return Err(CallError::Timeout { url: self.url(timeout), after: timeout });
        };
        let response = response?;
        // A redirect is not followed: the tenant has named the server.
        if response.status.is_success() {
            Ok(response.body)
        } else {
            Err(CallError::Status { code: response.status.as_u16(), body: response.body })
        }
    }
}

impl Endpoint {
    /// The URL of a call with this time-out, for messages.
    pub(crate) fn url(&self, timeout: Duration) -> String {
        format!("{}{}", self.url, query(timeout))
    }
}

fn query(timeout: Duration) -> String {
    format!("?timeout={}s", timeout.as_secs())
}

fn connect(url: &str, ca_bundle: &Value) -> Result<(Client, String), String> {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path_at = url[after_scheme..].find('/').map_or(url.len(), |at| after_scheme + at);
    let (server, path) = url.split_at(path_at);
    let server = Server::parse(server).map_err(|error| error.to_string())?;
    let bundle = STANDARD
        .decode(ca_bundle.as_str().unwrap_or_default())
        .map_err(|error| format!("clientConfig.caBundle is not base64: {error}"))?;
    // Generators of CRDs write a line break as a placeholder.
    let roots = if bundle.trim_ascii().is_empty() { TrustRoots::System } else { TrustRoots::Pem(bundle) };
    let credentials = Credentials::new(roots).map_err(|error| format!("clientConfig.caBundle: {error}"))?;
    let options = ClientOptions {
        max_response_bytes: MAX_RESPONSE,
        // Each call has a time-out of its own.
        request_timeout: MAX_TIMEOUT * 2,
        ..ClientOptions::default()
    };
    let path = if path.is_empty() { "/" } else { path };
    Ok((Client::new(server, credentials, options), path.to_owned()))
}

/// A call that has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0}")]
    Configuration(String),
    #[error(transparent)]
    Connection(#[from] ClientError),
    #[error(transparent)]
    TooManyWaiting(#[from] TooManyWaiting),
    #[error("Post {url:?}: context deadline exceeded (no response within {} s)", after.as_secs())]
    Timeout { url: String, after: Duration },
    #[error("the server responded with status {code}{}", excerpt(body))]
    Status { code: u16, body: Bytes },
}

impl CallError {
    /// The 429 of a call that was not made, because too many requests wait. No failure policy decides about it: the webhook has
    /// not failed.
    pub(crate) fn refusal(&self) -> Option<Status> {
        match self {
            Self::TooManyWaiting(refused) => Some(Status::too_many_requests(refused.to_string(), 1)),
            Self::Configuration(_) | Self::Connection(_) | Self::Timeout { .. } | Self::Status { .. } => None,
        }
    }
}

/// The beginning of an error page.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
