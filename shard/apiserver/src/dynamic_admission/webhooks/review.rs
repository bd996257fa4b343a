//! AdmissionReview: the request that a webhook gets, and what its response means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_process::{Status, StatusCause, StatusDetails, StatusReason};
use serde_json::{Map, Value, json};

use super::super::matching::Operation;
use super::super::request::admission_request;
use super::configuration::{ReviewVersion, Webhook, WebhookKind};
use super::failure::ResponseError;
use crate::registry::AdmissionRequest;

/// The longest warning that is passed on, as in Kubernetes.
const MAX_WARNING: usize = 256;
const MAX_WARNINGS: usize = 16;

/// A write, as one webhook reviews it.
pub(super) struct Review<'r> {
    pub(super) webhook: &'r Webhook,
    /// The version of `object` and `old`.
    pub(super) version: &'r str,
    pub(super) operation: Operation,
    pub(super) write: &'r AdmissionRequest<'r>,
    pub(super) object: Option<&'r Value>,
    pub(super) old: Option<&'r Value>,
    /// Identifies the review in the response.
    pub(super) uid: String,
}

/// The form that the response of a webhook must have.
pub(super) struct ExpectedResponse<'r> {
    pub(super) kind: WebhookKind,
    pub(super) version: ReviewVersion,
    pub(super) uid: &'r str,
}

/// The response of a webhook.
#[derive(Debug)]
pub(super) struct Verdict {
    /// `None` if the write is admitted.
    pub(super) refusal: Option<Refusal>,
    /// The JSON patch of a mutating webhook.
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// The `status` of a response that does not admit the write.
#[derive(Debug)]
pub(super) struct Refusal(Value);

impl Review<'_> {
    /// The body of the request.
    pub(super) fn request(&self) -> Value {
        let mut request = admission_request(self.write, self.version, self.operation);
        request["uid"] = (*self.uid).into();
        request["object"] = json!(self.object);
        request["oldObject"] = json!(self.old);
        let version = self.expected().api_version();
        json!({"kind": "AdmissionReview", "apiVersion": version, "request": request})
    }

    /// What the body of the response means.
    pub(super) fn verdict(&self, body: &[u8]) -> Result<Verdict, ResponseError> {
        self.expected().verdict(body)
    }

    fn expected(&self) -> ExpectedResponse<'_> {
        ExpectedResponse { kind: self.webhook.kind, version: self.webhook.review_version, uid: &self.uid }
    }
}

impl ExpectedResponse<'_> {
    /// What the body of the response means.
    pub(super) fn verdict(&self, body: &[u8]) -> Result<Verdict, ResponseError> {
        let mut review: Value = serde_json::from_slice(body)?;
        let Some(Value::Object(mut response)) = review.get_mut("response").map(Value::take) else {
            return Err(ResponseError::Absent);
        };
        if self.version == ReviewVersion::V1 {
            self.check_answer(&review, &response)?;
        }
        let patch = self.patch(&response)?;
        let warnings = match response.remove("warnings") {
            Some(Value::Array(warnings)) => warnings,
            _ => Vec::new(),
        };
        let warnings = warnings.iter().filter_map(Value::as_str).take(MAX_WARNINGS).map(shortened).collect();
        let is_allowed = response.get("allowed") == Some(&Value::Bool(true));
        let refusal = (!is_allowed).then(|| Refusal(response.remove("status").unwrap_or_default()));
        Ok(Verdict { refusal, patch, warnings })
    }

    /// Whether the response answers this review in this version.
    fn check_answer(&self, review: &Value, response: &Map<String, Value>) -> Result<(), ResponseError> {
        let got = response.get("uid").and_then(Value::as_str).unwrap_or_default();
        if got != self.uid {
            return Err(ResponseError::Uid { expected: self.uid.to_owned(), got: got.to_owned() });
        }
        let (version, kind) = (&review["apiVersion"], &review["kind"]);
        if *version != self.api_version() || *kind != "AdmissionReview" {
            let got = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(ResponseError::Kind(format!("{}, Kind={}", got(version), got(kind))));
        }
        Ok(())
    }

    fn patch(&self, response: &Map<String, Value>) -> Result<Option<Value>, ResponseError> {
        let text = |field: &str| response.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (patch, patch_type) = (text("patch"), text("patchType"));
        if self.kind == WebhookKind::Validating {
            return match (patch, patch_type) {
                (Some(_), _) => Err(ResponseError::PatchOfValidating),
                (None, Some(_)) => Err(ResponseError::TypeOfValidating),
                (None, None) => Ok(None),
            };
        }
        let patch = match (patch, patch_type) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(ResponseError::TypeWithoutPatch),
            // The older version had one type only.
            (Some(_), None) if self.version == ReviewVersion::V1 => {
                return Err(ResponseError::PatchWithoutType);
            }
            (Some(_), Some(other)) if other != "JSONPatch" => {
                return Err(ResponseError::PatchType(other.to_owned()));
            }
            (Some(patch), _) => patch,
        };
        let decoded = STANDARD.decode(patch).map_err(|_| ResponseError::Patch)?;
        serde_json::from_slice(&decoded).map(Some).map_err(|_| ResponseError::Patch)
    }

    fn api_version(&self) -> &'static str {
        match self.version {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

impl Refusal {
    /// The `Status` for the client: that of the webhook with its name before the message, and at least 400.
    pub(super) fn into_status(self, webhook: &str) -> Status {
        const REASONS: [StatusReason; 18] = [
            StatusReason::Unauthorized,
            StatusReason::Forbidden,
            StatusReason::NotFound,
            StatusReason::AlreadyExists,
            StatusReason::Conflict,
            StatusReason::Gone,
            StatusReason::Invalid,
            StatusReason::ServerTimeout,
            StatusReason::Timeout,
            StatusReason::TooManyRequests,
            StatusReason::BadRequest,
            StatusReason::MethodNotAllowed,
            StatusReason::NotAcceptable,
            StatusReason::RequestEntityTooLarge,
            StatusReason::UnsupportedMediaType,
            StatusReason::InternalError,
            StatusReason::Expired,
            StatusReason::ServiceUnavailable,
        ];
        let text = |field: &str| self.0[field].as_str().unwrap_or_default();
        let (message, reason) = (text("message"), text("reason"));
        let denied = format!("admission webhook {webhook:?} denied the request");
        let message = match (message, reason) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = self.0["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
        let code = if (400..600).contains(&code) { code } else { 400 };
        let reason = REASONS.into_iter().find(|known| known.as_str() == reason);
        let status = Status::new(code, reason.unwrap_or(StatusReason::Unknown), message);
        match self.0["details"].as_object() {
            Some(_) => status.with_details(details(&self.0["details"])),
            None => status,
        }
    }
}

fn details(details: &Value) -> StatusDetails {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().into_iter().flatten();
    StatusDetails {
        name: text(details, "name"),
        group: text(details, "group"),
        kind: text(details, "kind"),
        uid: text(details, "uid"),
        causes: causes
            .map(|cause| StatusCause {
                reason: text(cause, "reason").into(),
                message: text(cause, "message"),
                field: text(cause, "field"),
            })
            .collect(),
        retry_after_seconds: details["retryAfterSeconds"]
            .as_u64()
            .and_then(|seconds| u32::try_from(seconds).ok())
            .unwrap_or_default(),
    }
}

fn shortened(warning: &str) -> String {
    match warning.char_indices().nth(MAX_WARNING) {
        Some((end, _)) => warning[..end].to_owned(),
        None => warning.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn refusals_become_statuses_in_the_words_of_kubernetes() {
        let denied = "admission webhook \"w.example.com\" denied the request";
        for (status, code, reason, message) in [
            (json!(null), 400, "", format!("{denied} without explanation")),
            (json!({"message": "no", "code": 403}), 403, "", format!("{denied}: no")),
            (json!({"reason": "Forbidden", "code": 200}), 400, "Forbidden", format!("{denied}: Forbidden")),
            (json!({"message": "full", "reason": "Own", "code": 422}), 422, "", format!("{denied}: full")),
        ] {
            let got = Refusal(status).into_status("w.example.com");
            assert_eq!((got.code, got.reason.as_str(), &got.message), (code, reason, &message));
        }
    }

    #[test]
    fn long_warnings_are_shortened_between_characters() {
        assert_eq!(shortened(&"é".repeat(300)).chars().count(), MAX_WARNING);
        assert_eq!(shortened("short"), "short");
    }
}
