//! What can go wrong with a request, whose fault it is, and whether another try may help.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use serde::{Deserialize, Serialize};

use crate::credentials::CredentialsError;

/// A request that did not succeed. Cheap to clone, so that everybody who waited for one dial gets its outcome.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No TCP connection: unresolved name, refused, unreachable.
    #[error("cannot connect to {endpoint}: {source}")]
    Connect {
        /// `host:port` of the server.
        endpoint: Arc<str>,
        /// What the operating system said.
        source: Arc<std::io::Error>,
    },
    /// The TLS or HTTP handshake failed: an untrusted or expired certificate on either side, no common protocol.
    #[error("TLS handshake with {endpoint} failed: {source}")]
    Tls {
        /// `host:port` of the server.
        endpoint: Arc<str>,
        /// What the handshake failed with.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came back in time.
    #[error("no answer to {what} within {} ms", after.as_millis())]
    Timeout {
        /// What was being waited for, e.g. `GET https://host:6443/readyz`.
        what: Arc<str>,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection ended before the answer was complete. The server may have acted on the request.
    #[error("connection lost during {what}: {source}")]
    Closed {
        /// The request that was cut off.
        what: Arc<str>,
        /// What hyper saw.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered with an error.
    #[error("{0}")]
    Status(Box<KubeStatus>),
    /// The answer is not what was asked for.
    #[error("cannot decode {what}: {source}")]
    Decode {
        /// What was being decoded.
        what: Arc<str>,
        /// What was wrong with it.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The answer, or one watch event, is larger than this client accepts.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: Arc<str>,
        /// The limit in bytes.
        limit: usize,
    },
    /// The request cannot be expressed in HTTP: a bad path, header or body.
    #[error("cannot build the request {what}: {source}")]
    Request {
        /// The path that was asked for.
        what: Arc<str>,
        /// What was wrong with it.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] Arc<CredentialsError>),
}

/// Who has to act for the error to go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The request, or who sent it: fix it before trying again.
    Caller,
    /// The server answered, badly.
    Server,
    /// The way between: nobody answered, or the connection broke.
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

    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } | Self::Closed { .. } => Blame::Network,
            Self::Tls { .. } | Self::Decode { .. } | Self::TooLarge { .. } => Blame::Server,
            Self::Request { .. } | Self::Credentials(_) => Blame::Caller,
            Self::Status(status) if status.code >= 500 || status.code == 429 => Blame::Server,
            Self::Status(_) => Blame::Caller,
        }
    }

    /// The server's answer, if there was one.
    pub fn status(&self) -> Option<&KubeStatus> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code, if the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// How long the server asked to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(|status| status.retry_after)
    }

    /// 404.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 409 because a newer version of the object exists.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason != "AlreadyExists")
    }

    /// 409 because the object exists.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// 410: the resourceVersion or continue token is older than the server's history.
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(KubeStatus::is_gone)
    }

    pub(crate) fn decode(
        what: impl Into<Arc<str>>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Decode { what: what.into(), source: Arc::new(source) }
    }
}

/// An error answer: a Kubernetes `Status`, or one made from the HTTP status and the text of a plainer server.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}{message} ({code})", if reason.is_empty() { String::new() } else { format!("{reason}: ") })]
pub struct KubeStatus {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, e.g. `NotFound`; empty if the server gave none.
    pub reason: String,
    /// The text for people.
    pub message: String,
    /// Which object, and what about it.
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
    /// The text for people.
    pub message: String,
    /// The field, e.g. `spec.type`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl KubeStatus {
    /// Reads an error answer. A body that is not a `Status` becomes the message, cut to its first KiB.
    pub fn from_answer(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let mut status = Self::from_json(body).unwrap_or_else(|| Self::from_text(code, body));
        // The header is what HTTP clients obey; a Status without a code takes the one on the wire.
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

    /// The server has not reached the resourceVersion that was asked for: its history may have been replaced.
    pub fn is_resource_version_too_large(&self) -> bool {
        let cause = |c: &StatusCause| c.reason == "ResourceVersionTooLarge";
        self.details.as_ref().is_some_and(|d| d.causes.iter().any(cause))
            || (self.code == 504 && self.message.contains("Too large resource version"))
    }

    /// Whether the same request may succeed later: busy, unavailable, timed out, or told to come back.
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

    fn answer(code: u16, retry_after: Option<&str>, body: &str) -> ClientError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, value.parse().unwrap());
        }
        let code = StatusCode::from_u16(code).unwrap();
        ClientError::Status(Box::new(KubeStatus::from_answer(code, &headers, body.as_bytes())))
    }

    #[test]
    fn answers_say_whose_fault_they_are_and_whether_to_retry() {
        let conflict = r#"{"kind":"Status","code":409,"reason":"Conflict","message":"modified"}"#;
        let exists = r#"{"kind":"Status","code":409,"reason":"AlreadyExists","message":"exists"}"#;
        for (error, retryable, blame) in [
            (answer(404, None, "404 page not found\n"), false, Blame::Caller),
            (answer(409, None, conflict), false, Blame::Caller),
            (answer(429, Some("1"), ""), true, Blame::Server),
            (answer(500, None, "boom"), false, Blame::Server),
            (answer(500, Some("2"), "boom"), true, Blame::Server),
            (answer(503, None, "not yet"), true, Blame::Server),
        ] {
            assert_eq!((error.is_retryable(), error.blame()), (retryable, blame), "{error}");
        }
        assert!(
            answer(409, None, conflict).is_conflict() && !answer(409, None, conflict).is_already_exists()
        );
        assert!(answer(409, None, exists).is_already_exists() && !answer(409, None, exists).is_conflict());
        assert!(answer(404, None, "404 page not found\n").is_not_found());
        assert_eq!(answer(404, None, "404 page not found\n").to_string(), "404 page not found (404)");
    }

    #[test]
    fn the_retry_after_header_wins_over_the_details() {
        let body = r#"{"kind":"Status","code":429,"message":"slow down","details":{"retryAfterSeconds":7}}"#;
        assert_eq!(answer(429, None, body).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(answer(429, Some("3"), body).retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(answer(429, Some("soon"), "").retry_after(), None);
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
