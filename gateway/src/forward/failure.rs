//! Failures of an exchange: which side is to blame, and the response that the client gets.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::forward::downstream::BodyError;
use crate::forward::headers::HeaderRewriteError;
use crate::request::response::LocalResponse;
use crate::telemetry::metrics::TlsErrorKind;
use crate::upstream::{Overloaded, StreamPermit, Unreachable, Upstream, UpstreamError};

/// The reason why an exchange was not completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The client's fault; it cannot get a response.
    #[error("the client has disconnected")]
    ClientDisconnected,
    /// The client's fault: 408.
    #[error("the request body arrives too slowly")]
    SlowBody,
    /// The client's fault; it does not read, so it gets no response.
    #[error("the client does not read its response")]
    SlowReader,
    /// The shard reads nothing of this upload, and too many of the connection's uploads wait like this.
    #[error("the shard does not read the request body, and its connection has too much unread upload data")]
    StalledUpload,
    /// The client's fault: 400.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// Nothing reached the shard.
    #[error("the shard cannot be reached")]
    Unreachable,
    /// Nothing reached the shard, which is at its concurrency limit.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// A retry helps once the shard is less busy.
    #[error("the shard was silent for too long")]
    Timeout,
    /// The shard hangs: it does not even answer pings.
    #[error("the shard does not answer pings")]
    Hung,
    /// The shard has not processed the request (RFC 9113, 6.8 and 8.7).
    #[error("the shard refuses new streams")]
    Refused,
    /// The stream or its connection ended before the response did.
    #[error("the connection to the shard broke: {0}")]
    Shard(#[source] Broken),
    /// The credential has expired or the process drains.
    #[error("the watch has ended")]
    StreamEnded,
    /// The gateway's fault.
    #[error("the request cannot be written for the upstream: {0}")]
    Internal(#[from] HeaderRewriteError),
}

/// How an upstream broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Http2(h2::Error),
    #[error(transparent)]
    Http1(hyper::Error),
    #[error("the shard switches protocols without an upgrade request")]
    Switched,
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::ClientDisconnected(_) => Self::ClientDisconnected,
            BodyError::Malformed(reason) => Self::Malformed(reason),
        }
    }
}

impl Failure {
    /// The error of a stream, with the state of its connection.
    pub(crate) fn of_stream(error: h2::Error, permit: &StreamPermit) -> Self {
        if permit.is_silent() {
            Self::Hung
        } else if is_refusal(&error) {
            Self::Refused
        } else {
            Self::Shard(Broken::Http2(error))
        }
    }

    /// The response to the client, if none has started; `None` if the client cannot get one.
    pub(crate) fn response(&self, unreachable: Unreachable) -> Option<LocalResponse> {
        Some(match self {
            Self::ClientDisconnected | Self::SlowReader => return None,
            Self::SlowBody => LocalResponse::request_timeout(),
            Self::Malformed(reason) => {
                LocalResponse::bad_request(format!("the request is malformed: {reason}"))
            }
            Self::Unreachable => unreachable_response(unreachable),
            Self::Overloaded(overloaded) => {
                LocalResponse::too_many(overloaded.to_string(), Duration::from_secs(1), "overloaded")
            }
            Self::StalledUpload => LocalResponse::unavailable(
                "the shard does not read the request body, and the connection has too much unread upload data",
                "stalled_uploads",
            ),
            Self::Timeout | Self::Hung => LocalResponse::gateway_timeout(),
            Self::Refused => LocalResponse::unavailable("the shard refuses new streams", "refused"),
            Self::Shard(_) => match unreachable {
                Unreachable::ServiceUnavailable => LocalResponse::bad_gateway(),
                Unreachable::BadGateway => empty_bad_gateway("bad_gateway"),
            },
            Self::StreamEnded => LocalResponse::unavailable(
                "the gateway shuts down or the credential has expired",
                "stream_deadline",
            ),
            Self::Internal(_) => {
                let status = fairlead_process::Status::internal("the gateway could not forward the request");
                LocalResponse::status(&status, "internal")
            }
        })
    }
}

/// Nothing reached the shard, so a retry is safe whatever the method: 503, where kcp has an empty 502.
pub(crate) fn unreachable_response(unreachable: Unreachable) -> LocalResponse {
    match unreachable {
        Unreachable::ServiceUnavailable => {
            LocalResponse::unavailable("the shard cannot be reached", "connect_failed")
        }
        Unreachable::BadGateway => empty_bad_gateway("connect_failed"),
    }
}

/// kcp's response for a shard that did not answer, whatever the reason.
fn empty_bad_gateway(reason: &'static str) -> LocalResponse {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    LocalResponse::new(response, reason)
}

/// Whether the shard is known not to have processed the request.
fn is_refusal(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Counts and logs a failed connection to a shard.
pub(crate) fn record_connect_failure(upstream: &Upstream, error: &UpstreamError) {
    if let UpstreamError::Dial(cause) | UpstreamError::Tls(cause) = error
        && let Some(kind) = tls_cause(cause).map(tls_error_kind)
    {
        upstream.metrics.tls_error(kind);
    }
    tracing::debug!(shard = %upstream.name, %error, "cannot connect to the shard");
}

fn tls_error_kind(error: &rustls::Error) -> TlsErrorKind {
    use rustls::{CertificateError, Error as Tls};
    match error {
        Tls::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsErrorKind::UnknownCa,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => TlsErrorKind::ExpiredCertificate,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsErrorKind::HostnameMismatch
            }
            _ => TlsErrorKind::Other,
        },
        Tls::InvalidMessage(_) => TlsErrorKind::CipherMismatch,
        _ => TlsErrorKind::Other,
    }
}

/// rustls' own error inside the errors that wrap it.
fn tls_cause<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(found) = current.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        if let Some(io) = current.downcast_ref::<std::io::Error>()
            && let Some(inner) = io.get_ref()
            && let Some(found) = inner.downcast_ref::<rustls::Error>()
        {
            return Some(found);
        }
        cause = current.source();
    }
    None
}
