//! What went wrong between the gateway and a shard, and what the client is told.

use pingora::{Error, ErrorSource, ErrorType};

use super::context::Connect;
use super::watch::WATCH_IS_OVER;
use crate::answer::Answer;
use crate::observe::TlsErrorKind;
use crate::upstream::{StreamPermit, Upstream, UpstreamError};

/// The answer for a failed request that has not been answered yet; `None` if nobody is there to read it.
pub(super) fn answer_for(error: &Error, connect: Connect) -> Option<Answer> {
    // Nothing reached the shard, so a retry is safe whatever the method: 503, where kcp has an empty 502.
    if connect == Connect::Failed {
        return Some(Answer::unavailable("the shard cannot be reached", "connect_failed"));
    }
    if *error.etype() == WATCH_IS_OVER {
        return Some(Answer::unavailable("the gateway is going away or the credential has expired", "over"));
    }
    match (error.esource(), error.etype()) {
        (
            ErrorSource::Downstream,
            ErrorType::WriteError | ErrorType::ReadError | ErrorType::ConnectionClosed,
        ) => None,
        (ErrorSource::Downstream, ErrorType::H2Error) => None,
        (ErrorSource::Downstream, _) => Some(Answer::bad_request("the request is malformed")),
        (ErrorSource::Upstream, ErrorType::ReadTimedout | ErrorType::WriteTimedout) => {
            Some(Answer::gateway_timeout())
        }
        (ErrorSource::Upstream, _) => Some(Answer::bad_gateway()),
        (ErrorSource::Internal | ErrorSource::Unset, _) => Some(internal()),
    }
}

fn internal() -> Answer {
    let status = fairlead_process::Status::internal("the gateway could not forward the request");
    Answer::status(&status, "internal")
}

/// Why an exchange over HTTP/2 did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// There is nobody to tell.
    #[error("the client has left")]
    ClientLeft,
    /// The client's fault.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// Nothing reached the shard.
    #[error("the shard cannot be reached")]
    Unreachable,
    /// A retry helps once the shard is less busy.
    #[error("the shard was silent for too long")]
    Timeout,
    /// It hangs: it does not even answer pings.
    #[error("the shard does not answer pings")]
    Hung,
    /// The stream or its connection ended before the answer did.
    #[error("the shard broke off: {0}")]
    Shard(#[source] h2::Error),
    /// The credential has expired or the process ends.
    #[error("the watch is over")]
    Over,
    /// Ours.
    #[error("the request could not be made")]
    Internal,
}

impl Failure {
    /// The failure, knowing more about the connection.
    pub(super) fn of(self, permit: &StreamPermit) -> Self {
        match self {
            Self::Shard(_) if permit.is_silent() => Self::Hung,
            failure => failure,
        }
    }

    /// What the client is told, if nothing was answered yet; `None` if nobody is there to read it.
    pub(super) fn answer(&self) -> Option<Answer> {
        Some(match self {
            Self::ClientLeft => return None,
            Self::Malformed(why) => Answer::bad_request(format!("the request is malformed: {why}")),
            Self::Unreachable => Answer::unavailable("the shard cannot be reached", "connect_failed"),
            Self::Timeout | Self::Hung => Answer::gateway_timeout(),
            // It has seen nothing of the request (RFC 9113, 6.8 and 8.7).
            Self::Shard(error) if is_refusal(error) => {
                Answer::unavailable("the shard takes no more requests", "refused")
            }
            Self::Shard(_) => Answer::bad_gateway(),
            Self::Over => {
                Answer::unavailable("the gateway is going away or the credential has expired", "over")
            }
            Self::Internal => internal(),
        })
    }
}

/// Whether the shard is known not to have looked at the request.
pub(super) fn is_refusal(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Counts and logs that a shard could not be connected to.
pub(super) fn note_connect(upstream: &Upstream, error: &UpstreamError) {
    if let UpstreamError::Dial(cause) = error
        && let Some(kind) = tls_cause(cause).map(tls_error_kind)
    {
        upstream.metrics.tls_error(kind);
    }
    tracing::debug!(shard = %upstream.name, %error, "cannot connect to the shard");
}

/// The kind of a failed handshake with a shard; `None` if TLS was not the reason.
pub(super) fn tls_error(error: &Error) -> Option<TlsErrorKind> {
    if !matches!(
        error.etype(),
        ErrorType::TLSHandshakeFailure
            | ErrorType::InvalidCert
            | ErrorType::HandshakeError
            | ErrorType::TLSHandshakeTimedout
    ) {
        return None;
    }
    Some(tls_cause(error.root_cause()).map_or(TlsErrorKind::Other, tls_error_kind))
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

/// rustls' own error, which others have wrapped.
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
