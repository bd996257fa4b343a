//! Authentication by client certificate.

use std::time::SystemTime;

use crate::{
    Authenticator, ConnectionCredentials, CredentialKind, Reason, RequestCredentials, SharedAuthorities,
    Verdict, VerdictFuture,
};

/// Accepts clients with a certificate of the client CA: the common name is the user, the organisations are its groups.
#[derive(Clone, Debug)]
pub struct ClientCertificateAuthenticator {
    authorities: SharedAuthorities,
}

impl ClientCertificateAuthenticator {
    /// Uses the authorities in force at the time of each request.
    #[must_use]
    pub fn new(authorities: SharedAuthorities) -> Self {
        Self { authorities }
    }
}

impl Authenticator for ClientCertificateAuthenticator {
    fn name(&self) -> &'static str {
        "client certificate"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::Certificate
    }

    fn accepts_certificate(&self, connection: &ConnectionCredentials, now: SystemTime) -> bool {
        connection.evaluation(&self.authorities.load(), now).is_some_and(|one| one.client.is_ok())
    }

    /// Costs two atomic loads and a reference count once the connection's certificate is verified.
    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        let Some(evaluation) = request.connection.evaluation(&self.authorities.load(), request.now) else {
            return VerdictFuture::Ready(Verdict::NoOpinion);
        };
        VerdictFuture::Ready(match &evaluation.client {
            Ok(identity) => Verdict::Accepted(identity.clone()),
            Err(problem) => Verdict::Declined(Reason::Certificate(problem.clone())),
        })
    }
}
