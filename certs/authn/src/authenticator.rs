//! The interface of authenticators: credentials in, verdict out.

use std::{fmt, pin::Pin, sync::Arc, time::SystemTime};

use http::{HeaderMap, HeaderName};
use thiserror::Error;

use crate::{BearerToken, ConnectionCredentials, Identity, MalformedToken, TokenError};

/// Authenticates one kind of credential.
///
/// An authenticator without I/O returns [`VerdictFuture::Ready`] and does not allocate; one that calls another server
/// (webhook, key sets) returns [`VerdictFuture::Pending`].
pub trait Authenticator: Send + Sync {
    /// The authenticator's name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The part of a request that it authenticates.
    fn credential_kind(&self) -> CredentialKind;

    /// Whether its tokens name their audiences, so that they may be valid for other servers than this one.
    fn names_audiences(&self) -> bool {
        false
    }

    /// Whether the peer of a connection is a proxy, such as a gateway, by its verified certificate.
    fn is_proxy(&self, _connection: &ConnectionCredentials, _now: SystemTime) -> bool {
        false
    }

    /// Whether the verified certificate of a connection alone authenticates a client.
    fn accepts_certificate(&self, _connection: &ConnectionCredentials, _now: SystemTime) -> bool {
        false
    }

    /// Authenticates one request. The chain calls it only if no earlier authenticator has accepted or refused the request.
    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a>;
}

impl<A: Authenticator + ?Sized> Authenticator for Arc<A> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn credential_kind(&self) -> CredentialKind {
        (**self).credential_kind()
    }

    fn names_audiences(&self) -> bool {
        (**self).names_audiences()
    }

    fn is_proxy(&self, connection: &ConnectionCredentials, now: SystemTime) -> bool {
        (**self).is_proxy(connection, now)
    }

    fn accepts_certificate(&self, connection: &ConnectionCredentials, now: SystemTime) -> bool {
        (**self).accepts_certificate(connection, now)
    }

    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        (**self).authenticate(request)
    }
}

/// The kinds of credentials of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// The connection's certificate, and headers that are trusted only together with it.
    Certificate,
    /// The request's bearer token.
    BearerToken,
}

/// The credentials of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestCredentials<'a> {
    /// Credentials of its connection.
    pub connection: &'a ConnectionCredentials,
    /// Its headers as the client sent them.
    pub headers: &'a HeaderMap,
    /// The bearer token among the headers.
    pub token: Option<&'a BearerToken<'a>>,
    /// The audiences of which a token must have one; `None` for those of this server.
    pub audiences: Option<&'a [String]>,
    /// The time of the request.
    pub now: SystemTime,
    /// Receives the verdict of each authenticator.
    pub observer: Option<&'a dyn Observer>,
}

/// Receives the steps of an authentication. Results of observed authentications are not cached.
pub trait Observer: fmt::Debug + Send + Sync {
    /// An authenticator has returned a verdict. A union reports after its members.
    fn on_verdict(&self, authenticator: &'static str, verdict: &Verdict);

    /// An authenticator was not called, because it has accepted the same credential recently.
    fn on_cached_identity(&self, authenticator: &'static str, identity: &Identity);

    /// The credential was accepted. `after` is the identity with the groups that the chain adds and drops.
    fn on_accepted(&self, before: &Identity, after: &Identity);
}

impl<'a> RequestCredentials<'a> {
    /// Calls one authenticator and reports its verdict to the observer.
    pub(crate) async fn evaluate(&self, authenticator: &'a dyn Authenticator) -> Verdict {
        let verdict = match authenticator.authenticate(self) {
            VerdictFuture::Ready(verdict) => verdict,
            VerdictFuture::Pending(verdict) => verdict.await,
        };
        if let Some(observer) = self.observer {
            observer.on_verdict(authenticator.name(), &verdict);
        }
        verdict
    }
}

/// A verdict, now or later.
pub enum VerdictFuture<'a> {
    /// The verdict, without I/O.
    Ready(Verdict),
    /// Another server has to be called. The call has a deadline of its own.
    Pending(Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>),
}

/// The result of one authenticator for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is of this user; no further authenticator is called.
    Accepted(Arc<Identity>),
    /// The request has no credential of this kind.
    NoOpinion,
    /// The credential is not valid here. Another authenticator may accept it, or another credential.
    Declined(Reason),
    /// The request is rejected; no further authenticator is called.
    Refused(Reason),
}

/// The reason why a credential is not accepted. It is for logs only, because clients could learn from it; it contains
/// no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The certificate is not trusted, not in its validity period, or without a usable name.
    #[error("{0}")]
    Certificate(Arc<str>),
    /// The certificate is of the request-header CA, but its common name is not allowed to assert identities.
    #[error("{0:?} may not assert identities")]
    NotAllowedToAssert(Arc<str>),
    /// A header that must be single is repeated.
    #[error("header {0} is repeated")]
    RepeatedHeader(HeaderName),
    /// A header is not UTF-8, or its name is malformed.
    #[error("header {0} is malformed")]
    MalformedHeader(HeaderName),
    /// The token is malformed.
    #[error(transparent)]
    MalformedToken(#[from] MalformedToken),
    /// The token file does not contain the token.
    #[error("the bearer token is not known")]
    UnknownToken,
    /// The token is for this server and not valid.
    #[error(transparent)]
    InvalidToken(#[from] TokenError),
    /// The reasons of several authenticators.
    #[error("{}", in_one_line(.0))]
    Several(Arc<[(&'static str, Reason)]>),
    /// No authenticator exists for this kind of credential.
    #[error("no authenticator exists for this credential")]
    NoAuthenticator,
    /// Another server could not be called. A retry may help.
    #[error("cannot be verified now: {0}")]
    Unavailable(Arc<str>),
}

impl Reason {
    /// Whether a retry may help, because another server could not be called.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Several(reasons) => reasons.iter().any(|(_, reason)| reason.is_retryable()),
            _ => false,
        }
    }
}

/// `name: reason; name: reason`.
pub(crate) fn in_one_line(reasons: &[(&'static str, Reason)]) -> String {
    let each: Vec<String> = reasons.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    each.join("; ")
}
