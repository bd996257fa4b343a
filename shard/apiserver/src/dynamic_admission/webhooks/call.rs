//! The call of a webhook over HTTPS.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint as Server, Request, TrustRoots};
use http::Method;
use serde_json::Value;

use super::failure::CallError;

/// The largest response: a patch that replaces an object of the largest size, in base64.
const MAX_RESPONSE: usize = 6 << 20;

/// The server of a webhook. Connections are shared by its calls and closed when the configuration changes.
pub(super) struct Endpoint {
    /// An unusable configuration fails each call, so that the failure policy decides.
    server: Result<(Client, String), String>,
    url: String,
}

impl Endpoint {
    /// The server of a `clientConfig`.
    pub(super) fn new(config: &Value) -> Self {
        let Some(url) = config["url"].as_str() else {
            let reason = "a logical cluster has no services; clientConfig.url is required".to_owned();
            return Self { server: Err(reason), url: String::new() };
        };
        Self { server: connect(url, &config["caBundle"]), url: url.to_owned() }
    }

    /// Posts a review and returns the body of the response.
    pub(super) async fn call(&self, review: &Value, timeout: Duration) -> Result<Bytes, CallError> {
        let (client, path) =
            self.server.as_ref().map_err(|reason| CallError::Configuration(reason.clone()))?;
        let path = format!("{path}?timeout={}s", timeout.as_secs());
        let request =
            Request::new(Method::POST, path.clone()).with_body("application/json", review.to_string());
        let Ok(response) = tokio::time::timeout(timeout, client.request_any_status(request)).await else {
            let url = format!("{}?timeout={}s", self.url, timeout.as_secs());
            return Err(CallError::Timeout { url, after: timeout });
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

fn connect(url: &str, ca_bundle: &Value) -> Result<(Client, String), String> {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path_at = url[after_scheme..].find('/').map_or(url.len(), |at| after_scheme + at);
    let (server, path) = url.split_at(path_at);
    let server = Server::parse(server).map_err(|error| error.to_string())?;
    let roots = match ca_bundle.as_str().filter(|bundle| !bundle.is_empty()) {
        Some(bundle) => TrustRoots::Pem(
            STANDARD
                .decode(bundle)
                .map_err(|error| format!("clientConfig.caBundle is not base64: {error}"))?,
        ),
        None => TrustRoots::System,
    };
    let credentials = Credentials::new(roots).map_err(|error| format!("clientConfig.caBundle: {error}"))?;
    let options = ClientOptions { max_response_bytes: MAX_RESPONSE, ..ClientOptions::default() };
    let path = if path.is_empty() { "/" } else { path };
    Ok((Client::new(server, credentials, options), path.to_owned()))
}
