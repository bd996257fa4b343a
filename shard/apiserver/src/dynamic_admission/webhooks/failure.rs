//! Failures of a webhook, which its failure policy decides on.

use std::time::Duration;

use bytes::Bytes;
use fairlead_client::ClientError;

/// A call that has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("failed to call webhook: {0}")]
    Configuration(String),
    #[error("failed to call webhook: {0}")]
    Connection(#[from] ClientError),
    #[error("failed to call webhook: Post {url:?}: context deadline exceeded (no response within {} s)", after.as_secs())]
    Timeout { url: String, after: Duration },
    #[error("failed to call webhook: the server responded with status {code}{}", excerpt(body))]
    Status { code: u16, body: Bytes },
    #[error("received invalid webhook response: {0}")]
    Response(ResponseError),
}

/// A response that is not an answer to the review; the webhook is at fault.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("webhook response was absent")]
    Absent,
    #[error("expected response.uid={expected:?}, got {got:?}")]
    Uid { expected: String, got: String },
    #[error("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {0}")]
    Kind(String),
    #[error("webhook returned response.patch but not response.patchType")]
    PatchWithoutType,
    #[error("webhook returned response.patchType but not response.patch")]
    TypeWithoutPatch,
    #[error("webhook returned invalid response.patchType of {0:?}")]
    PatchType(String),
    #[error("validating webhook may not return response.patch")]
    PatchOfValidating,
    #[error("validating webhook may not return response.patchType")]
    TypeOfValidating,
    #[error("response.patch is not a JSON patch in base64")]
    Patch,
}

/// The beginning of an error page.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
