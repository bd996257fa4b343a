//! The chain of authenticators of a server.

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
    AuthenticationMethod, Authenticator, BearerToken, ConnectionCredentials, CredentialKind, GroupFilter,
    Identity, Observer, Reason, RequestCredentials, Verdict, WorkspaceAuthenticator,
    authenticator::in_one_line, jwt::CompactToken,
};

/// Authenticators in the order in which they are called; the first that accepts decides.
pub struct Chain {
    id: u64,
    authenticators: Vec<Box<dyn Authenticator>>,
    groups: Option<GroupFilter>,
    /// An additional filter for identities from bearer tokens.
    token_groups: Option<GroupFilter>,
}

/// The result of a chain for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The user is authenticated and, unless it is `system:anonymous`, in group `system:authenticated`.
    Identified(Arc<Identity>),
    /// The request has no credential. The server decides whether to admit it, as [`Identity::anonymous`].
    Anonymous,
    /// No authenticator accepts the credential: the response is 401.
    Rejected(Rejection),
}

/// The reasons why no authenticator has accepted a credential. `Display` is one line for logs, without secrets; clients
/// should not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reasons: Vec<(&'static str, Reason)>,
    /// Whether no further authenticator may be called.
    is_final: bool,
}

impl Chain {
    /// An empty chain.
    #[must_use]
    pub fn builder() -> ChainBuilder {
        ChainBuilder::default()
    }

    /// Whether any authenticator is for bearer tokens. If none is, a proxy may forward requests without a certificate to the
    /// next server without calling this chain.
    #[must_use]
    pub fn authenticates_tokens(&self) -> bool {
        self.authenticators
            .iter()
            .any(|authenticator| authenticator.credential_kind() == CredentialKind::BearerToken)
    }

    /// Whether the peer of a connection is a proxy, such as a gateway. The certificate is verified once per connection.
    #[must_use]
    pub fn is_proxy(&self, connection: &ConnectionCredentials, now: SystemTime) -> bool {
        self.authenticators.iter().any(|authenticator| authenticator.is_proxy(connection, now))
    }

    /// Whether the certificate of a connection alone authenticates a client. It is verified once per connection.
    #[must_use]
    pub fn accepts_certificate(&self, connection: &ConnectionCredentials, now: SystemTime) -> bool {
        self.authenticators.iter().any(|authenticator| authenticator.accepts_certificate(connection, now))
    }

    /// Authenticates a request. For a connection with a known certificate this allocates nothing.
    pub fn authenticate<'a>(
        &'a self,
        connection: &'a ConnectionCredentials,
        headers: &'a HeaderMap,
        now: SystemTime,
    ) -> impl Future<Output = Outcome> + Send + 'a {
        self.authenticate_observed(None, connection, headers, now)
    }

    /// Authenticates a request and reports each step to an observer.
    pub async fn authenticate_observed(
        &self,
        observer: Option<&dyn Observer>,
        connection: &ConnectionCredentials,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Outcome {
        // Boxed: it is large, and the future would reserve space for it as long as the request is open.
        let token = match BearerToken::from_headers(headers) {
            Ok(token) => token.map(Box::new),
            Err(error) => return Rejection::of("bearer token", error.into()),
        };
        let request = RequestCredentials {
            connection,
            headers,
            token: token.as_deref(),
            audiences: None,
            now,
            observer,
        };
        let mut reasons = Vec::new();
        for authenticator in &self.authenticators {
            match request.evaluate(&**authenticator).await {
                Verdict::Accepted(identity) => {
                    let before = observer.map(|_| Arc::clone(&identity));
                    // Identities of request headers are new objects for each request, so the result is not cached.
                    let identity = match identity.method() {
                        AuthenticationMethod::RequestHeader => self.post_process(identity),
                        AuthenticationMethod::ClientCertificate => {
                            connection.post_process(identity, self.id, |identity| self.post_process(identity))
                        }
                        AuthenticationMethod::Anonymous
                        | AuthenticationMethod::TokenFile
                        | AuthenticationMethod::ServiceAccount
                        | AuthenticationMethod::Jwt
                        | AuthenticationMethod::Webhook => {
                            identity.post_process(self.id, |identity| self.post_process(identity))
                        }
                    };
                    if let (Some(observer), Some(before)) = (observer, before) {
                        observer.on_accepted(&before, &identity);
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
            reasons.push(("chain", Reason::NoAuthenticator));
        }
        Outcome::Rejected(Rejection { reasons, is_final: false })
    }

    /// Authenticates a request to a logical cluster whose workspace trusts issuers of its own. These issuers get the tokens
    /// that the chain does not accept, for whatever reason. The chain's group filters are not applied to their users, because
    /// [`WorkspaceAuthenticator`] has removed all groups of the system.
    ///
    /// If neither has an authenticator for the token ([`Rejection::lacks_authenticator`]) and the chain has
    /// [none for tokens](Chain::authenticates_tokens), a proxy may leave the token to the next server.
    pub async fn authenticate_in(
        &self,
        observer: Option<&dyn Observer>,
        connection: &ConnectionCredentials,
        headers: &HeaderMap,
        now: SystemTime,
        workspace: &WorkspaceAuthenticator,
        cluster: &str,
    ) -> Outcome {
        let rejection = match self.authenticate_observed(observer, connection, headers, now).await {
            Outcome::Rejected(rejection) if !rejection.is_final => rejection,
            outcome => return outcome,
        };
        let Ok(Some(token)) = BearerToken::from_headers(headers) else {
            return Outcome::Rejected(rejection);
        };
        let request =
            RequestCredentials { connection, headers, token: Some(&token), audiences: None, now, observer };
        let verdict = workspace.authenticate(&request, cluster).await;
        if let Some(observer) = observer {
            observer.on_verdict("workspace", &verdict);
        }
        match verdict {
            Verdict::Accepted(identity) => Outcome::Identified(identity),
            Verdict::NoOpinion => Outcome::Rejected(rejection),
            Verdict::Declined(reason) | Verdict::Refused(reason) => {
                Outcome::Rejected(rejection.and("workspace", reason))
            }
        }
    }

    /// Reviews a bearer token, as Kubernetes' TokenReview does: whether it is valid for one of the `wanted` audiences. Tokens of
    /// service accounts name their audiences; all others are for the audiences of this server, `own`.
    pub async fn review_token(
        &self,
        token: &str,
        wanted: &[String],
        own: &[String],
        now: SystemTime,
    ) -> Result<ReviewedToken, Rejection> {
        let (connection, headers, token) =
            (ConnectionCredentials::none(), HeaderMap::new(), BearerToken::new(token));
        let request = RequestCredentials {
            connection: &connection,
            headers: &headers,
            token: Some(&token),
            audiences: Some(wanted),
            now,
            observer: None,
        };
        let common = |audiences: &[String]| -> Vec<String> {
            wanted.iter().filter(|audience| audiences.contains(audience)).cloned().collect()
        };
        let shared = common(own);
        let mut reasons = Vec::new();
        for authenticator in &self.authenticators {
            let names_audiences = authenticator.names_audiences();
            if authenticator.credential_kind() != CredentialKind::BearerToken
                || (shared.is_empty() && !names_audiences)
            {
                continue;
            }
            match request.evaluate(&**authenticator).await {
                Verdict::Accepted(identity) => {
                    let named = if names_audiences { named_audiences(&token) } else { Vec::new() };
                    let audiences = if named.is_empty() { shared } else { common(&named) };
                    return Ok(ReviewedToken { identity: self.post_process(identity), audiences });
                }
                Verdict::NoOpinion => {}
                Verdict::Declined(reason) => reasons.push((authenticator.name(), reason)),
                Verdict::Refused(reason) => {
                    return Err(Rejection { reasons: vec![(authenticator.name(), reason)], is_final: true });
                }
            }
        }
        if reasons.is_empty() {
            reasons.push(("chain", Reason::NoAuthenticator));
        }
        Err(Rejection { reasons, is_final: false })
    }

    /// Adds and drops the groups of an accepted identity.
    fn post_process(&self, identity: Arc<Identity>) -> Arc<Identity> {
        let identity = identity.in_group_authenticated();
        let is_token = identity.method().is_bearer_token();
        let filters = [self.token_groups.as_ref().filter(|_| is_token), self.groups.as_ref()];
        filters.into_iter().flatten().fold(identity, |identity, filter| filter.apply(identity))
    }
}

/// The audiences in the claims of a token whose signature has been verified.
fn named_audiences(token: &BearerToken<'_>) -> Vec<String> {
    let Ok(token) = CompactToken::parse(token.as_str()) else { return Vec::new() };
    let Ok(claims) = token.claims() else { return Vec::new() };
    claims.audiences().map(|all| all.into_iter().map(str::to_owned).collect()).unwrap_or_default()
}

/// A valid token.
#[derive(Debug)]
pub struct ReviewedToken {
    /// The user.
    pub identity: Arc<Identity>,
    /// The audiences for which the token is valid, of those that were wanted.
    pub audiences: Vec<String>,
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

/// Builds a chain.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "short-lived")]
pub struct ChainBuilder {
    authenticators: Vec<Box<dyn Authenticator>>,
    groups: Option<GroupFilter>,
    /// An additional filter for identities from bearer tokens.
    token_groups: Option<GroupFilter>,
}

impl ChainBuilder {
    /// Appends an authenticator. The usual order is request headers, client certificates, tokens.
    #[must_use]
    pub fn with(mut self, authenticator: impl Authenticator + 'static) -> Self {
        self.authenticators.push(Box::new(authenticator));
        self
    }

    /// Filters the groups of every accepted identity.
    #[must_use]
    pub fn filter_groups(mut self, filter: GroupFilter) -> Self {
        self.groups = Some(filter);
        self
    }

    /// Filters the groups of identities from bearer tokens, of all authenticators.
    #[must_use]
    pub fn filter_token_groups(mut self, filter: GroupFilter) -> Self {
        self.token_groups = Some(filter);
        self
    }

    /// Builds the chain.
    #[must_use]
    pub fn build(self) -> Chain {
        static IDS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to be unique.
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
        self.reasons.retain(|(_, reason)| *reason != Reason::NoAuthenticator);
        self.reasons.push((authenticator, reason));
        self
    }

    /// Whether no authenticator exists for the kind of the credential.
    #[must_use]
    pub fn lacks_authenticator(&self) -> bool {
        self.reasons.iter().all(|(_, reason)| *reason == Reason::NoAuthenticator)
    }

    /// The authenticators with their reasons, in the order of the chain.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, &Reason)> {
        self.reasons.iter().map(|(name, reason)| (*name, reason))
    }

    /// Whether a retry may help, because another server could not be called.
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
