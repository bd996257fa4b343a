//! The issuer of service-account tokens: its key, its public keys and its discovery documents.

use std::sync::Arc;

use fairlead_apiserver::{Response, content};
use fairlead_authn::{ServiceAccountSigner, VerificationKeys};
use fairlead_process::{Reloadable, Status};
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::legacy_token::legacy_claims;

/// The issuer of a shard. All shards of an installation have the same key, so that each accepts the tokens of all.
pub(crate) struct TokenIssuer {
    /// Issuers that are accepted; tokens are issued by the first.
    pub(crate) issuers: Vec<String>,
    /// Audiences of a token that requests none.
    pub(crate) audiences: Vec<String>,
    /// The longest validity, in seconds; `None`: no limit.
    pub(crate) max_seconds: Option<u64>,
    /// The URL of the public keys.
    pub(crate) keys_url: String,
    pub(crate) signer: Option<Arc<Reloadable<ServiceAccountSigner>>>,
    pub(crate) keys: Arc<Reloadable<VerificationKeys>>,
}

impl TokenIssuer {
    /// The issuer's URL.
    pub(crate) fn name(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }

    /// The document at `/.well-known/openid-configuration` (OpenID Connect Discovery 1.0), in the form of Kubernetes; `None`
    /// without keys.
    pub(crate) fn configuration(&self) -> Option<Response> {
        let keys = self.keys.load().to_jwks();
        let keys = keys["keys"].as_array().filter(|keys| !keys.is_empty())?;
        let mut algorithms: Vec<&str> = keys.iter().filter_map(|key| key["alg"].as_str()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let document = json!({
            "issuer": self.name(),
            "jwks_uri": self.keys_url,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        });
        Some(cacheable("application/json", &document))
    }

    /// The token of a secret; `None` without a signing key.
    ///
    /// # Errors
    /// 500 if it cannot be signed.
    pub(crate) async fn legacy_token(
        &self,
        cluster: &str,
        namespace: &str,
        account: &Value,
        secret: &str,
    ) -> Result<Option<String>, Status> {
        let Some(signer) = &self.signer else { return Ok(None) };
        let claims = legacy_claims(cluster, namespace, account, secret);
        let signer = signer.load();
        // With RSA of 4096 bits a signature takes 4 ms.
        let token = tokio::task::spawn_blocking(move || signer.sign(&claims)).await;
        token.map_err(Status::internal)?.map(Some).map_err(Status::internal)
    }

    /// The document at `/openid/v1/jwks`; `None` without keys.
    pub(crate) fn key_set(&self) -> Option<Response> {
        let keys = self.keys.load();
        (!keys.is_empty()).then(|| cacheable("application/jwk-set+json", &keys.to_jwks()))
    }
}

/// A public document that rarely changes.
fn cacheable(content_type: &'static str, document: &Value) -> Response {
    let mut response = content(StatusCode::OK, content_type, document.to_string());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}
