//! What went wrong between the gateway and a shard, and what the client is told.

use pingora::{Error, ErrorSource, ErrorType};

use super::context::Connect;
use super::watch::WATCH_IS_OVER;
use crate::answer::Answer;
use crate::observe::TlsErrorKind;

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
        (ErrorSource::Internal | ErrorSource::Unset, _) => Some(Answer::status(
            &fairlead_process::Status::internal("the gateway could not forward the request"),
            "internal",
        )),
    }
}

/// The kind of a failed handshake with a shard; `None` if TLS was not the reason.
pub(super) fn tls_error(error: &Error) -> Option<TlsErrorKind> {
    use rustls::{CertificateError, Error as Tls};
    if !matches!(
        error.etype(),
        ErrorType::TLSHandshakeFailure
            | ErrorType::InvalidCert
            | ErrorType::HandshakeError
            | ErrorType::TLSHandshakeTimedout
    ) {
        return None;
    }
    Some(match tls_cause(error) {
        Some(Tls::InvalidCertificate(certificate)) => match certificate {
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
        Some(Tls::InvalidMessage(_)) => TlsErrorKind::CipherMismatch,
        _ => TlsErrorKind::Other,
    })
}

/// rustls' own error, which pingora and the I/O layer have wrapped.
fn tls_cause(error: &Error) -> Option<&rustls::Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error.root_cause());
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
