//! What an authenticator is asked and may answer.

use std::{fmt, pin::Pin, sync::Arc, time::SystemTime};

use http::{HeaderMap, HeaderName};
use thiserror::Error;

use crate::{BearerToken, ConnectionCredentials, Identity, MalformedToken, TokenFault};

/// Knows one kind of credential.
///
/// Those that need no I/O answer [`Answer::Ready`] and cost no allocation; those that ask another server
/// (webhook, key sets) answer [`Answer::Pending`].
pub trait Authenticator: Send + Sync {
    /// A name for logs and metrics.
    fn name(&self) -> &'static str;

    /// Which part of a request it looks at.
    fn judges(&self) -> CredentialKind;

    /// Judges one request. It has its say only if no authenticator before it has accepted or refused the
    /// request.
    fn authenticate<'a>(&'a self, request: &Presented<'a>) -> Answer<'a>;
}

impl<A: Authenticator + ?Sized> Authenticator for Arc<A> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn judges(&self) -> CredentialKind {
        (**self).judges()
    }

    fn authenticate<'a>(&'a self, request: &Presented<'a>) -> Answer<'a> {
        (**self).authenticate(request)
    }
}

/// The credentials that authenticators look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// The connection's certificate, and headers that count only together with it.
    Certificate,
    /// The request's bearer token.
    BearerToken,
}

/// All that a request shows about who sends it.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// Its connection.
    pub connection: &'a ConnectionCredentials,
    /// Its headers, as the client has sent them.
    pub headers: &'a HeaderMap,
    /// The bearer token among the headers.
    pub token: Option<&'a BearerToken<'a>>,
    /// The time of the request.
    pub now: SystemTime,
    /// Who wants to hear what each authenticator says, if anybody does.
    pub observer: Option<&'a dyn Observer>,
}

/// Hears how a request is judged. What is judged before one leaves no trace: nobody is remembered for it.
pub trait Observer: fmt::Debug + Send + Sync {
    /// An authenticator has been asked. One that asks others in turn is heard after them.
    fn heard(&self, authenticator: &'static str, verdict: &Verdict);

    /// An authenticator was not asked, because it has accepted the same credential a moment ago.
    fn remembered(&self, authenticator: &'static str, identity: &Identity);

    /// Somebody was accepted, and `after` is what the chain makes of everybody who is.
    fn finished(&self, before: &Identity, after: &Identity);
}

impl<'a> Presented<'a> {
    /// Asks one authenticator, and lets the observer hear it.
    pub(crate) async fn ask(&self, authenticator: &'a dyn Authenticator) -> Verdict {
        let verdict = match authenticator.authenticate(self) {
            Answer::Ready(verdict) => verdict,
            Answer::Pending(verdict) => verdict.await,
        };
        if let Some(observer) = self.observer {
            observer.heard(authenticator.name(), &verdict);
        }
        verdict
    }
}

/// A verdict, now or later.
pub enum Answer<'a> {
    /// It was enough to look.
    Ready(Verdict),
    /// Somebody else has to be asked. The asking has a deadline of its own.
    Pending(Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>),
}

/// What an authenticator makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is this user; nobody else is asked.
    Accepted(Arc<Identity>),
    /// There is no credential of its kind.
    NoOpinion,
    /// There is one, and it is not good. Others may still accept it, or another one.
    Declined(Reason),
    /// Something is so wrong that nobody else may be asked.
    Refused(Reason),
}

/// Why a credential does not count. For logs, not for clients, who could learn from it; holds no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The certificate is not trusted, not in force, or names nobody.
    #[error("{0}")]
    Certificate(Arc<str>),
    /// The certificate is trusted to assert identities, but its holder is not on the list of those who may.
    #[error("{0:?} may not assert identities")]
    NotAllowedToAssert(Arc<str>),
    /// A header that must not be repeated is.
    #[error("header {0} is repeated")]
    RepeatedHeader(HeaderName),
    /// A header is not UTF-8, or its name does not make sense.
    #[error("header {0} is malformed")]
    MalformedHeader(HeaderName),
    /// The token cannot be read.
    #[error(transparent)]
    MalformedToken(#[from] MalformedToken),
    /// The token is not known here.
    #[error("the bearer token is not known")]
    UnknownToken,
    /// The token was meant for us, and is not good.
    #[error(transparent)]
    InvalidToken(#[from] TokenFault),
    /// What each of several authenticators has to say about it.
    #[error("{}", in_one_line(.0))]
    Several(Arc<[(&'static str, Reason)]>),
    /// There is no authenticator for its kind.
    #[error("no authenticator judges this credential")]
    NobodyJudges,
    /// Whoever would know could not be asked. A retry may help.
    #[error("cannot be judged now: {0}")]
    Unavailable(Arc<str>),
}

impl Reason {
    /// Whether the same credential might be accepted later, because somebody could not be asked.
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
