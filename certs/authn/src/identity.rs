//! Identities: users with the credential that authenticated them.

use std::{
    sync::{Arc, LazyLock, OnceLock},
    time::SystemTime,
};

use arc_swap::ArcSwapOption;

use crate::{ANONYMOUS, AUTHENTICATED, IdentityHeaders, InvalidIdentity, UNAUTHENTICATED, UserInfo};

/// An authenticated user. Immutable, because all requests with the same credential share it.
#[derive(Debug)]
pub struct Identity {
    user: UserInfo,
    method: AuthenticationMethod,
    expires: Option<SystemTime>,
    headers: OnceLock<Result<IdentityHeaders, InvalidIdentity>>,
    processed: ArcSwapOption<ProcessedIdentity>,
}

/// The last result of a chain's group filters for an identity: see [`Identity::post_process`].
#[derive(Debug)]
struct ProcessedIdentity {
    chain: u64,
    /// `None` for the identity itself, which must not own itself.
    result: Option<Arc<Identity>>,
}

/// The credential or mechanism by which a user was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthenticationMethod {
    /// No credential.
    Anonymous,
    /// A client certificate.
    ClientCertificate,
    /// The identity headers of a trusted proxy.
    RequestHeader,
    /// A bearer token of a static token file.
    TokenFile,
    /// A bearer token of a service account.
    ServiceAccount,
    /// A bearer token of an OpenID Connect issuer, by flags, configuration file or workspace.
    Jwt,
    /// A bearer token that a webhook has reviewed.
    Webhook,
}

impl AuthenticationMethod {
    /// Whether the credential is a bearer token. A proxy must not forward a token that it has authenticated itself: see
    /// [`remove_bearer_token`](crate::remove_bearer_token).
    #[must_use]
    pub fn is_bearer_token(self) -> bool {
        match self {
            Self::TokenFile | Self::ServiceAccount | Self::Jwt | Self::Webhook => true,
            Self::Anonymous | Self::ClientCertificate | Self::RequestHeader => false,
        }
    }
}

impl Identity {
    /// An identity that is valid until `expires`; without end for `None`.
    #[must_use]
    pub fn new(user: UserInfo, method: AuthenticationMethod, expires: Option<SystemTime>) -> Self {
        Self { user, method, expires, headers: OnceLock::new(), processed: ArcSwapOption::empty() }
    }

    /// The identity of requests without credentials.
    #[must_use]
    pub fn anonymous() -> Arc<Self> {
        static ANONYMOUS_IDENTITY: LazyLock<Arc<Identity>> = LazyLock::new(|| {
            let user = UserInfo {
                name: ANONYMOUS.to_owned(),
                groups: vec![UNAUTHENTICATED.to_owned()],
                ..UserInfo::default()
            };
            Arc::new(Identity::new(user, AuthenticationMethod::Anonymous, None))
        });
        Arc::clone(&ANONYMOUS_IDENTITY)
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// The method by which the user was authenticated.
    #[must_use]
    pub fn method(&self) -> AuthenticationMethod {
        self.method
    }

    /// The time at which the credential expires. Watches opened with it end then.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// The headers that assert this identity to the next server. Built at the first call, then shared.
    pub fn headers(&self) -> Result<&IdentityHeaders, &InvalidIdentity> {
        self.headers.get_or_init(|| IdentityHeaders::for_user(&self.user)).as_ref()
    }

    /// Caches the last result of a chain's group filters, so that they do not run for each request with the same credential:
    /// one atomic load. The result of `process` must depend only on its argument and the chain.
    pub(crate) fn post_process(
        self: Arc<Self>,
        chain: u64,
        process: impl FnOnce(Arc<Self>) -> Arc<Self>,
    ) -> Arc<Self> {
        if let Some(known) = &*self.processed.load()
            && known.chain == chain
        {
            return known.result.clone().unwrap_or_else(|| Arc::clone(&self));
        }
        let result = process(Arc::clone(&self));
        let other = (!Arc::ptr_eq(&result, &self)).then(|| Arc::clone(&result));
        self.processed.store(Some(Arc::new(ProcessedIdentity { chain, result: other })));
        result
    }

    /// Whether this identity is the result of this chain.
    pub(crate) fn is_processed_by(&self, chain: u64) -> bool {
        self.processed.load().as_ref().is_some_and(|known| known.chain == chain && known.result.is_none())
    }

    /// Whether any chain has processed this identity.
    pub(crate) fn is_processed(&self) -> bool {
        self.processed.load().is_some()
    }

    /// Records that this identity is the result of this chain.
    pub(crate) fn set_processed_by(&self, chain: u64) {
        self.processed.store(Some(Arc::new(ProcessedIdentity { chain, result: None })));
    }

    /// The identity in group `system:authenticated`. As in Kubernetes, a user that is already in that group or in
    /// `system:unauthenticated`, which a proxy may set in request headers, is not changed.
    pub(crate) fn in_group_authenticated(self: Arc<Self>) -> Arc<Self> {
        let groups = &self.user.groups;
        let has_authentication_group =
            groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if self.user.name == ANONYMOUS || has_authentication_group {
            return self;
        }
        let groups = groups.iter().cloned().chain([AUTHENTICATED.to_owned()]).collect();
        Arc::new(self.with_groups(groups))
    }

    /// The identity with other groups.
    pub(crate) fn with_groups(&self, groups: Vec<String>) -> Self {
        Self::new(UserInfo { groups, ..self.user.clone() }, self.method, self.expires)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        (&self.user, self.method, self.expires) == (&other.user, other.method, other.expires)
    }
}

impl Eq for Identity {}
