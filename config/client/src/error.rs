//! Errors of requests: their origin, and whether a retry may help.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use serde::{Deserialize, Serialize};

use crate::credentials::CredentialsError;

/// A failed request. Cheap to clone, so that all callers that waited for one dial get its result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No TCP connection: unresolved name, refused, unreachable.
    #[error("cannot connect to {endpoint}: {source}")]
    Connect {
        /// `host:port` of the server.
        endpoint: Arc<str>,
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// The TLS or HTTP handshake failed: an untrusted or expired certificate on either side, no common protocol.
    #[error("TLS handshake with {endpoint} failed: {source}")]
    Tls {
        /// `host:port` of the server.
        endpoint: Arc<str>,
        /// The error of the handshake.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// No response in time.
    #[error("no response to {subject} within {} ms", after.as_millis())]
    Timeout {
        /// The operation, e.g. `GET https://host:6443/readyz`.
        subject: Arc<str>,
        /// The time limit.
        after: Duration,
    },
    /// The connection ended before the response was complete. The server may have acted on the request.
    #[error("connection lost during {subject}: {source}")]
    Closed {
        /// The interrupted request.
        subject: Arc<str>,
        /// The error of hyper.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The server responded with an error.
    #[error("{0}")]
    Status(Box<KubeStatus>),
    /// The response does not have the expected form.
    #[error("cannot decode {subject}: {source}")]
    Decode {
        /// The decoded item.
        subject: Arc<str>,
        /// The fault.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The response, or one watch event, is larger than this client accepts.
    #[error("{subject} is larger than {limit} bytes")]
    TooLarge {
        /// The item that is too large.
        subject: Arc<str>,
        /// The limit in bytes.
        limit: usize,
    },
    /// The request cannot be expressed in HTTP: a bad path, header or body.
    #[error("cannot build the request {subject}: {source}")]
    Request {
        /// The requested path.
        subject: Arc<str>,
        /// The fault.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] Arc<CredentialsError>),
}

/// The party that has to act for the error to disappear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The caller: the request has to be corrected before a retry.
    Caller,
    /// The server: it responded with a failure.
    Server,
    /// The network: no response, or the connection broke.
    Network,
}

impl ClientError {
    /// Whether the same request may succeed later. Says nothing about whether repeating it is *safe*: after
    /// [`ClientError::Closed`] and [`ClientError::Timeout`] a write may have happened.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } | Self::Closed { .. } => true,
            Self::Status(status) => status.is_retryable(),
            // Certificates are rotated on both sides: a handshake that fails now may pass a moment later.
            Self::Tls { .. } => true,
            Self::Decode { .. } | Self::TooLarge { .. } | Self::Request { .. } | Self::Credentials(_) => {
                false
            }
        }
    }

    /// The origin of the error.
    pub fn origin(&self) -> ErrorOrigin {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } | Self::Closed { .. } => ErrorOrigin::Network,
            Self::Tls { .. } | Self::Decode { .. } | Self::TooLarge { .. } => ErrorOrigin::Server,
            Self::Request { .. } | Self::Credentials(_) => ErrorOrigin::Caller,
            Self::Status(status) if status.code >= 500 || status.code == 429 => ErrorOrigin::Server,
            Self::Status(_) => ErrorOrigin::Caller,
        }
    }

    /// The error response of the server, if there was one.
    pub fn status(&self) -> Option<&KubeStatus> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code, if the server responded.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Delay before a retry that the server requires (`Retry-After`).
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(|status| status.retry_after)
    }

    /// Whether the object or resource does not exist (404).
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether a newer version of the object exists (409 without reason `AlreadyExists`).
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason != "AlreadyExists")
    }

    /// Whether the object exists already (409, reason `AlreadyExists`).
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// Whether the resourceVersion or continue token is older than the server's history (410).
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(KubeStatus::is_gone)
    }

    pub(crate) fn decode(
        subject: impl Into<Arc<str>>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Decode { subject: subject.into(), source: Arc::new(source) }
    }
}

/// An error response: a Kubernetes `Status`, or one made from the status code and text of a server other than Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}{message} ({code})", if reason.is_empty() { String::new() } else { format!("{reason}: ") })]
pub struct KubeStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, e.g. `NotFound`; empty if the server gave none.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The object and the causes.
    pub details: Option<StatusDetails>,
    /// From the `Retry-After` header or `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
}

/// `Status.details`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource (not kind, despite the name) of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single causes.
    #[serde(deserialize_with = "crate::object::null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds to wait before the next try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

/// One of `Status.details.causes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// E.g. `FieldValueInvalid`.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The field, e.g. `spec.type`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl KubeStatus {
    /// Reads an error response. A body that is no `Status` becomes the message, truncated to 1 KiB.
    pub fn from_response(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let mut status = Self::from_json(body).unwrap_or_else(|| Self::from_text(code, body));
        // The header takes precedence over the body, as in other HTTP clients. A Status without a code gets the HTTP status code.
        if status.code == 0 {
            status.code = code.as_u16();
        }
        if let Some(seconds) = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.trim().parse().ok())
        {
            status.retry_after = Some(Duration::from_secs(seconds));
        }
        status
    }

    /// Reads a `Status` object, e.g. that of a watch's `ERROR` event. `None` if it is something else.
    pub fn from_json(body: &[u8]) -> Option<Self> {
        let wire: WireStatus = serde_json::from_slice(body).ok()?;
        if wire.kind != "Status" {
            return None;
        }
        let retry_after = wire.details.as_ref().and_then(|d| d.retry_after_seconds).filter(|s| *s > 0);
        Some(Self {
            code: wire.code,
            reason: wire.reason,
            message: wire.message,
            retry_after: retry_after.map(Duration::from_secs),
            details: wire.details,
        })
    }

    /// 410, or its reasons without the code.
    pub fn is_gone(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }

    /// The server has not reached the requested resourceVersion: its history may have been replaced.
    pub fn is_resource_version_too_large(&self) -> bool {
        let cause = |c: &StatusCause| c.reason == "ResourceVersionTooLarge";
        self.details.as_ref().is_some_and(|d| d.causes.iter().any(cause))
            || (self.code == 504 && self.message.contains("Too large resource version"))
    }

    /// Whether the same request may succeed later: busy, unavailable, timed out, or with a Retry-After.
    pub fn is_retryable(&self) -> bool {
        matches!(self.code, 429 | 502 | 503 | 504)
            || (self.code >= 500 && self.retry_after.is_some())
            || matches!(
                self.reason.as_str(),
                "ServerTimeout" | "Timeout" | "TooManyRequests" | "ServiceUnavailable"
            )
    }

    fn from_text(code: StatusCode, body: &[u8]) -> Self {
        const LONGEST_MESSAGE: usize = 1024;
        let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST_MESSAGE)]);
        let text = text.trim();
        let message =
            if text.is_empty() { code.canonical_reason().unwrap_or("no reason given") } else { text };
        Self { code: code.as_u16(), message: message.to_owned(), ..Self::default() }
    }
}

#[derive(Deserialize)]
struct WireStatus {
    kind: String,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<StatusDetails>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(code: u16, retry_after: Option<&str>, body: &str) -> ClientError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, value.parse().unwrap());
        }
        let code = StatusCode::from_u16(code).unwrap();
        ClientError::Status(Box::new(KubeStatus::from_response(code, &headers, body.as_bytes())))
    }

    #[test]
    fn error_responses_are_classified_by_cause_and_retryability() {
        let conflict = r#"{"kind":"Status","code":409,"reason":"Conflict","message":"modified"}"#;
        let exists = r#"{"kind":"Status","code":409,"reason":"AlreadyExists","message":"exists"}"#;
        for (error, retryable, blame) in [
            (response(404, None, "404 page not found\n"), false, ErrorOrigin::Caller),
            (response(409, None, conflict), false, ErrorOrigin::Caller),
            (response(429, Some("1"), ""), true, ErrorOrigin::Server),
            (response(500, None, "boom"), false, ErrorOrigin::Server),
            (response(500, Some("2"), "boom"), true, ErrorOrigin::Server),
            (response(503, None, "not yet"), true, ErrorOrigin::Server),
        ] {
            assert_eq!((error.is_retryable(), error.origin()), (retryable, blame), "{error}");
        }
        assert!(
            response(409, None, conflict).is_conflict() && !response(409, None, conflict).is_already_exists()
        );
        assert!(
            response(409, None, exists).is_already_exists() && !response(409, None, exists).is_conflict()
        );
        assert!(response(404, None, "404 page not found\n").is_not_found());
        assert_eq!(response(404, None, "404 page not found\n").to_string(), "404 page not found (404)");
    }

    #[test]
    fn the_retry_after_header_takes_precedence_over_the_details() {
        let body = r#"{"kind":"Status","code":429,"message":"slow down","details":{"retryAfterSeconds":7}}"#;
        assert_eq!(response(429, None, body).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(response(429, Some("3"), body).retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(response(429, Some("soon"), "").retry_after(), None);
    }

    #[test]
    fn a_status_is_recognised_by_its_kind_only() {
        assert!(KubeStatus::from_json(br#"{"kind":"ConfigMap","code":3}"#).is_none());
        let gone =
            KubeStatus::from_json(br#"{"kind":"Status","reason":"Expired","message":"too old"}"#).unwrap();
        assert!(gone.is_gone());
        let future = br#"{"kind":"Status","code":504,"message":"Too large resource version: 9, current: 3"}"#;
        assert!(KubeStatus::from_json(future).unwrap().is_resource_version_too_large());
    }
}
