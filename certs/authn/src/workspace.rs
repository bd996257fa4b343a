//! Users of single workspaces: the issuers that a workspace's own configuration trusts.

use std::{sync::Arc, time::Duration};

use sha2::{Digest, Sha256};

use crate::{
    AUTHENTICATED, Answer, Authenticator, BearerToken, Identity, JwtAuthenticator, JwtSettings, KeyPatience,
    Method, Presented, Reason, TokenFault, UserInfo, Verdict, remembered::Remembered,
    service_account::tied_to,
};

/// As for all tokens.
const REMEMBER_FOR: Duration = Duration::from_secs(10);
const REMEMBER: usize = 1024;

/// Accepts the tokens of the issuers that a `WorkspaceAuthenticationConfiguration`, or several, trust.
///
/// Those issuers are the tenant's. So nobody whom they name is a user of the system (`system:`..), is in one
/// of its groups or has extras of kcp, and the identity counts in one logical cluster only.
///
/// Those issuers are asked for their keys, so whoever writes a configuration can make this process send GET
/// requests to any https URL that it reaches; nothing of the answers is shown to anybody.
///
/// Looks for keys when the first token comes; dropped, it ends the tasks that it has started. A token that
/// was accepted a moment ago costs two SHA-256 and one read lock.
#[derive(Debug)]
pub struct WorkspaceAuthenticator {
    issuers: JwtAuthenticator,
    accepted: Accepted,
}

/// By token and logical cluster.
struct Accepted(Remembered<Arc<Identity>>);

impl WorkspaceAuthenticator {
    /// Trusts these issuers: the elements of `spec.jwt` of all configurations that a type of workspaces
    /// names (see [`JwtSettings::from_value`]).
    #[must_use]
    pub fn new(issuers: impl IntoIterator<Item = JwtSettings>) -> Self {
        Self::with_patience(issuers, &KeyPatience::default())
    }

    /// The same with other times.
    #[must_use]
    pub fn with_patience(issuers: impl IntoIterator<Item = JwtSettings>, patience: &KeyPatience) -> Self {
        Self {
            issuers: JwtAuthenticator::with_patience(issuers, patience),
            accepted: Accepted(Remembered::with_capacity(REMEMBER)),
        }
    }

    /// The issuers, for metrics and probes.
    #[must_use]
    pub fn issuers(&self) -> &JwtAuthenticator {
        &self.issuers
    }

    /// Judges the token of a request to a logical cluster. Without one, and for tokens of other issuers, it
    /// has no opinion.
    pub(crate) async fn authenticate(&self, request: &Presented<'_>, cluster: &str) -> Verdict {
        let Some(token) = request.token else {
            return Verdict::NoOpinion;
        };
        let key = key(token, cluster);
        if let Some(identity) = self.accepted.0.get(&key, request.now) {
            return Verdict::Accepted(identity);
        }
        let verdict = match self.issuers.authenticate(request) {
            Answer::Ready(verdict) => verdict,
            Answer::Pending(verdict) => verdict.await,
        };
        let Verdict::Accepted(identity) = verdict else {
            return verdict;
        };
        match confine(&identity, cluster) {
            Ok(identity) => {
                let identity = Arc::new(identity);
                let expires = identity.expires();
                if request.observer.is_some() {
                    return Verdict::Accepted(identity);
                }
                self.accepted.0.put(key, Arc::clone(&identity), request.now, REMEMBER_FOR, expires);
                Verdict::Accepted(identity)
            }
            Err(fault) => Verdict::Declined(Reason::InvalidToken(fault)),
        }
    }
}

/// The identity, as far as a tenant's issuer may say, in one logical cluster.
fn confine(identity: &Identity, cluster: &str) -> Result<Identity, TokenFault> {
    let is_reserved = |name: &str| name.starts_with("system:");
    let UserInfo { name, uid, groups, extra } = identity.user();
    if is_reserved(name) {
        return Err(TokenFault::ReservedName);
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
        .chain(tied_to(cluster))
        .collect();
    let user = UserInfo { name: name.clone(), uid: uid.clone(), groups, extra };
    Ok(Identity::new(user, Method::BearerToken, identity.expires()))
}

fn key(token: &BearerToken<'_>, cluster: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    // The first part always has the same length, so no two pairs look alike.
    digest.update(token.digest());
    digest.update(cluster);
    digest.finalize().into()
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Accepted(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::SystemTime};

    use super::*;

    fn identity(name: &str, groups: &[&str], extra: &[&str]) -> Identity {
        let user = UserInfo {
            name: name.to_owned(),
            uid: Some("7".to_owned()),
            groups: groups.iter().map(ToString::to_string).collect(),
            extra: extra.iter().map(|key| (key.to_string(), vec!["v".to_owned()])).collect(),
        };
        Identity::new(user, Method::BearerToken, Some(SystemTime::UNIX_EPOCH))
    }

    #[test]
    fn tenants_say_who_their_users_are_and_nothing_about_the_system() {
        let groups =
            ["team", "system:masters", "system:authenticated", "System:odd", "system:kcp:admin", "team"];
        let extra = [
            "example.com/k",
            "authentication.kcp.io/scopes",
            "authentication.kcp.io/cluster-name",
            "authorization.kcp.io/warrant",
            "notkcp.io.example.com/k",
        ];
        let confined = confine(&identity("ann", &groups, &extra), "2vhzq").unwrap();
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
    fn names_of_the_system_are_not_theirs_to_give() {
        for name in ["system:admin", "system:", "system:serviceaccount:default:default", "system:anonymous"] {
            assert_eq!(confine(&identity(name, &[], &[]), "a"), Err(TokenFault::ReservedName), "{name}");
        }
        for name in ["systemd", "my:system:admin", "System:admin"] {
            assert!(confine(&identity(name, &[], &[]), "a").is_ok(), "{name}");
        }
    }
}
