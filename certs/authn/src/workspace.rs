//! Authentication of users of single workspaces: the issuers that a workspace's own configuration trusts.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::{
    AUTHENTICATED, AuthenticationMethod, Authenticator, BearerToken, ConnectionCredentials, Identity,
    JwtAuthenticator, JwtSettings, KeyFetchSettings, Reason, RequestCredentials, TokenError, UserInfo,
    Verdict, VerdictFuture, service_account::cluster_extras, ttl_cache::TtlCache,
};

/// The same time as for all tokens.
const ACCEPTED_TTL: Duration = Duration::from_secs(10);
const CACHE_SIZE: usize = 1024;

/// Accepts the tokens of the issuers that a `WorkspaceAuthenticationConfiguration`, or several, trust.
///
/// These issuers belong to the tenant. So their users cannot have names or groups of the system (`system:`..) or extras of
/// kcp, and an identity is valid in one logical cluster only.
///
/// The keys of these issuers are fetched, so the author of a configuration can make this process send GET requests to any
/// https URL that it reaches; no part of the responses is disclosed.
///
/// Keys are fetched from the first token on; dropping the authenticator ends its tasks. A token that was accepted recently
/// costs two SHA-256 and one read lock.
#[derive(Debug)]
pub struct WorkspaceAuthenticator {
    issuers: JwtAuthenticator,
    accepted: AcceptedTokens,
}

/// Accepted identities by token and logical cluster.
struct AcceptedTokens(TtlCache<Arc<Identity>>);

impl WorkspaceAuthenticator {
    /// Trusts these issuers: the elements of `spec.jwt` of all configurations of a workspace type (see
    /// [`JwtSettings::from_value`]).
    #[must_use]
    pub fn new(issuers: impl IntoIterator<Item = JwtSettings>) -> Self {
        Self::with_key_settings(issuers, &KeyFetchSettings::default())
    }

    /// Trusts these issuers, with other settings for fetching keys.
    #[must_use]
    pub fn with_key_settings(
        issuers: impl IntoIterator<Item = JwtSettings>,
        key_settings: &KeyFetchSettings,
    ) -> Self {
        Self {
            issuers: JwtAuthenticator::with_key_settings(issuers, key_settings),
            accepted: AcceptedTokens(TtlCache::with_capacity(CACHE_SIZE)),
        }
    }

    /// The issuers, for metrics and probes.
    #[must_use]
    pub fn issuers(&self) -> &JwtAuthenticator {
        &self.issuers
    }

    /// Reviews a bearer token in a logical cluster. The tokens of a tenant's issuers are for the audiences of the server.
    ///
    /// # Errors
    /// The reason why the token is not valid; `None` if no issuer is known for it.
    pub async fn review(
        &self,
        token: &str,
        cluster: &str,
        now: SystemTime,
    ) -> Result<Arc<Identity>, Option<Reason>> {
        let (connection, headers, token) =
            (ConnectionCredentials::none(), HeaderMap::new(), BearerToken::new(token));
        let request = RequestCredentials {
            connection: &connection,
            headers: &headers,
            token: Some(&token),
            audiences: None,
            now,
            observer: None,
        };
        match self.authenticate(&request, cluster).await {
            Verdict::Accepted(identity) => Ok(identity),
            Verdict::NoOpinion => Err(None),
            Verdict::Declined(reason) | Verdict::Refused(reason) => Err(Some(reason)),
        }
    }

    /// Authenticates the token of a request to a logical cluster. Without a token, and for tokens of other issuers, the
    /// verdict is [`Verdict::NoOpinion`].
    pub(crate) async fn authenticate(&self, request: &RequestCredentials<'_>, cluster: &str) -> Verdict {
        let Some(token) = request.token else {
            return Verdict::NoOpinion;
        };
        let key = key(token, cluster);
        if let Some(identity) = self.accepted.0.get(&key, request.now) {
            return Verdict::Accepted(identity);
        }
        let verdict = match self.issuers.authenticate(request) {
            VerdictFuture::Ready(verdict) => verdict,
            VerdictFuture::Pending(verdict) => verdict.await,
        };
        let Verdict::Accepted(identity) = verdict else {
            return verdict;
        };
        match restrict_to_cluster(&identity, cluster) {
            Ok(identity) => {
                let identity = Arc::new(identity);
                let expires = identity.expires();
                if request.observer.is_some() {
                    return Verdict::Accepted(identity);
                }
                self.accepted.0.insert(key, Arc::clone(&identity), request.now, ACCEPTED_TTL, expires);
                Verdict::Accepted(identity)
            }
            Err(fault) => Verdict::Declined(Reason::InvalidToken(fault)),
        }
    }
}

/// The identity with the attributes that a tenant's issuer may assert, restricted to one logical cluster.
fn restrict_to_cluster(identity: &Identity, cluster: &str) -> Result<Identity, TokenError> {
    let is_reserved = |name: &str| name.starts_with("system:");
    let UserInfo { name, uid, groups, extra } = identity.user();
    if is_reserved(name) {
        return Err(TokenError::ReservedName);
    }
    let groups = groups
        .iter()
        .filter(|group| !is_reserved(group))
        .cloned()
        .chain([AUTHENTICATED.to_owned()])
        .collect();
    let extra = extra
        .iter()
        .filter(|(key, _)| !key.contains("kcp.io"))
        .map(|(key, values)| (key.clone(), values.clone()))
        .chain(cluster_extras(cluster))
        .collect();
    let user = UserInfo { name: name.clone(), uid: uid.clone(), groups, extra };
    Ok(Identity::new(user, AuthenticationMethod::Jwt, identity.expires()))
}

fn key(token: &BearerToken<'_>, cluster: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    // The first part has a fixed length, so different pairs have different digests.
    digest.update(token.digest());
    digest.update(cluster);
    digest.finalize().into()
}

impl std::fmt::Debug for AcceptedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AcceptedTokens(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn identity(name: &str, groups: &[&str], extra: &[&str]) -> Identity {
        let user = UserInfo {
            name: name.to_owned(),
            uid: Some("7".to_owned()),
            groups: groups.iter().map(ToString::to_string).collect(),
            extra: extra.iter().map(|key| (key.to_string(), vec!["v".to_owned()])).collect(),
        };
        Identity::new(user, AuthenticationMethod::Jwt, Some(SystemTime::UNIX_EPOCH))
    }

    #[test]
    fn issuers_of_tenants_cannot_assert_groups_and_extras_of_the_system() {
        let groups =
            ["team", "system:masters", "system:authenticated", "System:odd", "system:kcp:admin", "team"];
        let extra = [
            "example.com/k",
            "authentication.kcp.io/scopes",
            "authentication.kcp.io/cluster-name",
            "authorization.kcp.io/warrant",
            "notkcp.io.example.com/k",
        ];
        let confined = restrict_to_cluster(&identity("ann", &groups, &extra), "2vhzq").unwrap();
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = UserInfo {
            name: "ann".to_owned(),
            uid: Some("7".to_owned()),
            groups: strings(&["team", "System:odd", "team", "system:authenticated"]),
            extra: BTreeMap::from([
                ("authentication.kcp.io/cluster-name".to_owned(), strings(&["2vhzq"])),
                ("authentication.kcp.io/scopes".to_owned(), strings(&["cluster:2vhzq"])),
                ("example.com/k".to_owned(), strings(&["v"])),
            ]),
        };
        assert_eq!(confined.user(), &expected);
        assert_eq!(confined.expires(), Some(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn issuers_of_tenants_cannot_assert_users_of_the_system() {
        for name in ["system:admin", "system:", "system:serviceaccount:default:default", "system:anonymous"] {
            assert_eq!(
                restrict_to_cluster(&identity(name, &[], &[]), "a"),
                Err(TokenError::ReservedName),
                "{name}"
            );
        }
        for name in ["systemd", "my:system:admin", "System:admin"] {
            assert!(restrict_to_cluster(&identity(name, &[], &[]), "a").is_ok(), "{name}");
        }
    }
}
