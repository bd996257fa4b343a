//! Failures of a webhook, which its failure policy decides on.

use crate::webhook_client::CallError;

/// A review that has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("failed to call webhook: {0}")]
    Call(#[from] CallError),
    #[error("received invalid webhook response: {0}")]
    Response(#[from] ResponseError),
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
