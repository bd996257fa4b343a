//! Users as Kubernetes knows them, and how we came to know one.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, OnceLock},
    time::SystemTime,
};

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};

use crate::{IdentityHeaders, Unstampable};

/// The user that requests without credentials belong to, where those are let in.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of everybody who has shown a credential.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody else.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// A user. Its serialised form is `UserInfo` of `authentication.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The unique name, for access rules.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Tells apart users who had the same name at different times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Names of groups, for access rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whatever else an authenticator had to say. Keys are lower case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The one logical cluster where the user is somebody, if there is one: that of a service account, or of a workspace that
    /// has issuers of its own. Elsewhere another may have the same name.
    pub fn tied_to(&self) -> Option<&str> {
        self.extra.get("authentication.kcp.io/cluster-name")?.first().map(String::as_str)
    }
}

/// A user, and why we believe it. Shared by all requests that show the same credential, hence immutable.
#[derive(Debug)]
pub struct Identity {
    user: UserInfo,
    method: Method,
    expires: Option<SystemTime>,
    headers: OnceLock<Result<IdentityHeaders, Unstampable>>,
    finished: ArcSwapOption<Finished>,
}

/// What a chain of authenticators has last made of an identity: see [`Identity::finish`].
#[derive(Debug)]
struct Finished {
    chain: u64,
    /// Nothing if that is the identity itself, which must not own itself.
    to: Option<Arc<Identity>>,
}

/// By which kind of credential somebody was identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// None at all.
    Anonymous,
    /// A client certificate.
    ClientCertificate,
    /// The headers of a peer who may assert identities.
    RequestHeader,
    /// A bearer token. A proxy must not pass on a token that it has judged itself: see
    /// [`remove_bearer_token`](crate::remove_bearer_token).
    BearerToken,
}

impl Identity {
    /// An identity that is good until `expires`; for ever if that is `None`.
    #[must_use]
    pub fn new(user: UserInfo, method: Method, expires: Option<SystemTime>) -> Self {
        Self { user, method, expires, headers: OnceLock::new(), finished: ArcSwapOption::empty() }
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
            Arc::new(Identity::new(user, Method::Anonymous, None))
        });
        Arc::clone(&ANONYMOUS_IDENTITY)
    }

    /// Who it is.
    #[must_use]
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// How we know.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// When the credential stops being valid. Watches that it has opened end then.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// The headers that assert this identity to the next server. Built on the first call, then shared.
    pub fn headers(&self) -> Result<&IdentityHeaders, &Unstampable> {
        self.headers.get_or_init(|| IdentityHeaders::for_user(&self.user)).as_ref()
    }

    /// Remembers the last result of what a chain does to every accepted identity, so that it is not done
    /// again for each request that shows the same credential: one atomic load. `finish` must depend on
    /// nothing but its argument and the chain.
    pub(crate) fn finish(
        self: Arc<Self>,
        chain: u64,
        finish: impl FnOnce(Arc<Self>) -> Arc<Self>,
    ) -> Arc<Self> {
        if let Some(known) = &*self.finished.load()
            && known.chain == chain
        {
            return known.to.clone().unwrap_or_else(|| Arc::clone(&self));
        }
        let result = finish(Arc::clone(&self));
        let to = (!Arc::ptr_eq(&result, &self)).then(|| Arc::clone(&result));
        self.finished.store(Some(Arc::new(Finished { chain, to })));
        result
    }

    /// Whether it is what this chain has made, and so needs nothing more of it.
    pub(crate) fn is_finished_by(&self, chain: u64) -> bool {
        self.finished.load().as_ref().is_some_and(|known| known.chain == chain && known.to.is_none())
    }

    /// Whether any chain has seen it.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load().is_some()
    }

    /// Notes that it is what this chain has made.
    pub(crate) fn set_finished_by(&self, chain: u64) {
        self.finished.store(Some(Arc::new(Finished { chain, to: None })));
    }

    /// The identity in group `system:authenticated`. As in Kubernetes, not for those who are already sorted
    /// into that group or its opposite, as a proxy may do in request headers.
    pub(crate) fn in_group_authenticated(self: Arc<Self>) -> Arc<Self> {
        let groups = &self.user.groups;
        let sorted = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if self.user.name == ANONYMOUS || sorted {
            return self;
        }
        let groups = groups.iter().cloned().chain([AUTHENTICATED.to_owned()]).collect();
        Arc::new(self.with_groups(groups))
    }

    /// The same identity with other groups.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_written_and_read_as_kubernetes_does() {
        let user = UserInfo {
            name: "ann".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: BTreeMap::from([("example.com/k".to_owned(), vec!["v".to_owned()])]),
        };
        let json = r#"{"username":"ann","uid":"7","groups":["a","b"],"extra":{"example.com/k":["v"]}}"#;
        assert_eq!(serde_json::to_string(&user).unwrap(), json);
        assert_eq!(serde_json::from_str::<UserInfo>(json).unwrap(), user);

        let bare = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        assert_eq!(serde_json::to_string(&bare).unwrap(), r#"{"username":"ann"}"#);
        assert_eq!(serde_json::from_str::<UserInfo>(r#"{"username":"ann"}"#).unwrap(), bare);
    }
}
