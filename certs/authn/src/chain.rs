//! Asks one authenticator after the other.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use http::HeaderMap;

use crate::{
    Authenticator, BearerToken, ConnectionCredentials, CredentialKind, GroupFilter, Identity, Method,
    Observer, Presented, Reason, Verdict, WorkspaceAuthenticator, authenticator::in_one_line,
};

/// Authenticators in the order in which they are asked; the first that accepts decides.
pub struct Chain {
    id: u64,
    authenticators: Vec<Box<dyn Authenticator>>,
    groups: Option<GroupFilter>,
    /// For identities from bearer tokens, in addition.
    token_groups: Option<GroupFilter>,
}

/// What a chain makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The user is known and, unless it is `system:anonymous`, in group `system:authenticated`.
    Identified(Arc<Identity>),
    /// There is no credential. Whether that is all right is for the server to say; if so, the user is
    /// [`Identity::anonymous`].
    Anonymous,
    /// There is one and nobody accepts it: the answer is 401.
    Rejected(Rejection),
}

/// Why nobody has accepted a credential. `Display` is one line for logs, without secrets; clients should not
/// see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reasons: Vec<(&'static str, Reason)>,
    /// Whether nobody else may be asked.
    is_final: bool,
}

impl Chain {
    /// Begins with an empty chain.
    #[must_use]
    pub fn builder() -> ChainBuilder {
        ChainBuilder { authenticators: Vec::new(), groups: None, token_groups: None }
    }

    /// Whether any authenticator judges bearer tokens. If none does, a proxy may leave requests without
    /// certificate to the next server instead of asking this chain.
    #[must_use]
    pub fn judges_tokens(&self) -> bool {
        self.authenticators.iter().any(|authenticator| authenticator.judges() == CredentialKind::BearerToken)
    }

    /// Who sends a request. For a connection with a known certificate this allocates nothing.
    pub fn authenticate<'a>(
        &'a self,
        connection: &'a ConnectionCredentials,
        headers: &'a HeaderMap,
        now: SystemTime,
    ) -> impl Future<Output = Outcome> + Send + 'a {
        self.authenticate_before(None, connection, headers, now)
    }

    /// The same before an observer, who hears why.
    pub async fn authenticate_before(
        &self,
        observer: Option<&dyn Observer>,
        connection: &ConnectionCredentials,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Outcome {
        // Boxed, because it is large, and a server's task would have room for it for as long as a request is open.
        let token = match BearerToken::from_headers(headers) {
            Ok(token) => token.map(Box::new),
            Err(error) => return Rejection::of("bearer token", error.into()),
        };
        let request = Presented { connection, headers, token: token.as_deref(), now, observer };
        let mut reasons = Vec::new();
        for authenticator in &self.authenticators {
            match request.ask(&**authenticator).await {
                Verdict::Accepted(identity) => {
                    let before = observer.map(|_| Arc::clone(&identity));
                    // Only this one is never the same object at the next request.
                    let identity = match identity.method() {
                        Method::RequestHeader => self.finish(identity),
                        Method::ClientCertificate => {
                            connection.finish(identity, self.id, |identity| self.finish(identity))
                        }
                        Method::Anonymous | Method::BearerToken => {
                            identity.finish(self.id, |identity| self.finish(identity))
                        }
                    };
                    if let (Some(observer), Some(before)) = (observer, before) {
                        observer.finished(&before, &identity);
                    }
                    return Outcome::Identified(identity);
                }
                Verdict::NoOpinion => {}
                Verdict::Declined(reason) => reasons.push((authenticator.name(), reason)),
                Verdict::Refused(reason) => return Rejection::of(authenticator.name(), reason),
            }
        }
        if token.is_none() && !connection.is_presented() {
            return Outcome::Anonymous;
        }
        if reasons.is_empty() {
            reasons.push(("chain", Reason::NobodyJudges));
        }
        Outcome::Rejected(Rejection { reasons, is_final: false })
    }

    /// Who sends a request to a logical cluster whose workspace trusts issuers of its own. They are asked
    /// about tokens that nobody in the chain accepts, whatever the reason; those whom they name do not pass
    /// the chain's group filter, because they have none of the system's groups.
    ///
    /// If nobody, here or there, judges the token ([`Rejection::is_unjudged`]) and the chain
    /// [judges none](Chain::judges_tokens), a proxy may leave it to the next server.
    pub async fn authenticate_in(
        &self,
        observer: Option<&dyn Observer>,
        connection: &ConnectionCredentials,
        headers: &HeaderMap,
        now: SystemTime,
        workspace: &WorkspaceAuthenticator,
        cluster: &str,
    ) -> Outcome {
        let rejection = match self.authenticate_before(observer, connection, headers, now).await {
            Outcome::Rejected(rejection) if !rejection.is_final => rejection,
            outcome => return outcome,
        };
        let Ok(Some(token)) = BearerToken::from_headers(headers) else {
            return Outcome::Rejected(rejection);
        };
        let request = Presented { connection, headers, token: Some(&token), now, observer };
        let verdict = workspace.authenticate(&request, cluster).await;
        if let Some(observer) = observer {
            observer.heard("workspace", &verdict);
        }
        match verdict {
            Verdict::Accepted(identity) => Outcome::Identified(identity),
            Verdict::NoOpinion => Outcome::Rejected(rejection),
            Verdict::Declined(reason) | Verdict::Refused(reason) => {
                Outcome::Rejected(rejection.and("workspace", reason))
            }
        }
    }

    /// What happens to everybody who is accepted.
    fn finish(&self, identity: Arc<Identity>) -> Arc<Identity> {
        let identity = identity.in_group_authenticated();
        let is_token = identity.method() == Method::BearerToken;
        let filters = [self.token_groups.as_ref().filter(|_| is_token), self.groups.as_ref()];
        filters.into_iter().flatten().fold(identity, |identity, filter| filter.apply(identity))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.authenticators.iter().map(|authenticator| authenticator.name()).collect();
        f.debug_struct("Chain")
            .field("authenticators", &names)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// Puts a chain together.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "short-lived")]
pub struct ChainBuilder {
    authenticators: Vec<Box<dyn Authenticator>>,
    groups: Option<GroupFilter>,
    /// For identities from bearer tokens, in addition.
    token_groups: Option<GroupFilter>,
}

impl ChainBuilder {
    /// Asks this one after those before. The usual order is request headers, client certificates, tokens.
    #[must_use]
    pub fn with(mut self, authenticator: impl Authenticator + 'static) -> Self {
        self.authenticators.push(Box::new(authenticator));
        self
    }

    /// Takes groups away from everybody who is accepted.
    #[must_use]
    pub fn filter_groups(mut self, filter: GroupFilter) -> Self {
        self.groups = Some(filter);
        self
    }

    /// Filters the groups of identities from bearer tokens, whichever authenticator they come from.
    #[must_use]
    pub fn filter_token_groups(mut self, filter: GroupFilter) -> Self {
        self.token_groups = Some(filter);
        self
    }

    /// The chain.
    #[must_use]
    pub fn build(self) -> Chain {
        static IDS: AtomicU64 = AtomicU64::new(0);
        // Only uniqueness counts; nothing is published through this number.
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let Self { authenticators, groups, token_groups } = self;
        Chain { id, authenticators, groups, token_groups }
    }
}

impl Rejection {
    fn of(authenticator: &'static str, reason: Reason) -> Outcome {
        Outcome::Rejected(Self { reasons: vec![(authenticator, reason)], is_final: true })
    }

    fn and(mut self, authenticator: &'static str, reason: Reason) -> Self {
        self.reasons.retain(|(_, reason)| *reason != Reason::NobodyJudges);
        self.reasons.push((authenticator, reason));
        self
    }

    /// Whether nobody has looked at the credential, because there is no authenticator for its kind.
    #[must_use]
    pub fn is_unjudged(&self) -> bool {
        self.reasons.iter().all(|(_, reason)| *reason == Reason::NobodyJudges)
    }

    /// Who has said what, in the order of the chain.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, &Reason)> {
        self.reasons.iter().map(|(name, reason)| (*name, reason))
    }

    /// Whether the same credential might be accepted later, because somebody could not be asked.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.reasons.iter().any(|(_, reason)| reason.is_retryable())
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_one_line(&self.reasons))
    }
}
