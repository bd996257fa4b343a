//! Effective users of a request in a logical cluster, from scopes and warrants.
//!
//! A scope restricts a user to logical clusters; in all others the user is anonymous. A warrant adds another user,
//! whose permissions the user has in addition.

use fairlead_authn::UserInfo;
use serde::Deserialize;

pub(super) const SCOPES: &str = "authentication.kcp.io/scopes";
const CLUSTER_NAME: &str = "authentication.kcp.io/cluster-name";
const WARRANT: &str = "authorization.kcp.io/warrant";

/// Maximum nesting depth of warrants.
const MAX_WARRANT_DEPTH: usize = 4;

/// All users whose permissions apply in a logical cluster. The first is the user itself or the anonymous user.
pub(super) fn effective_users(user: &UserInfo, cluster: &str) -> Vec<UserInfo> {
    let mut users = Vec::with_capacity(1);
    add(user, cluster, MAX_WARRANT_DEPTH, &mut users);
    users
}

/// Whether the user has neither scopes nor warrants, which is the common case.
pub(super) fn has_no_scopes_or_warrants(user: &UserInfo) -> bool {
    user.extra.is_empty() || [SCOPES, CLUSTER_NAME, WARRANT].iter().all(|key| !user.extra.contains_key(*key))
}

fn add(user: &UserInfo, cluster: &str, depth: usize, users: &mut Vec<UserInfo>) {
    if is_in_scope(user, cluster) && !is_foreign(user, cluster) {
        users.push(user.clone());
    } else {
        users.push(anonymous(user));
        // The scope does not remove this user: tokens of service accounts always carry the scope of their own logical
        // cluster, and the global name is for all others.
        users.extend(global_service_account(user));
    }
    if depth == 0 {
        return;
    }
    for text in user.extra.get(WARRANT).into_iter().flatten() {
        // A warrant that does not parse grants nothing.
        let Ok(warrant) = serde_json::from_str::<Warrant>(text) else { continue };
        let other =
            UserInfo { name: warrant.user, uid: warrant.uid, groups: warrant.groups, extra: warrant.extra };
        let is_account = other.name.starts_with("system:serviceaccount:");
        if !is_account || other.extra.contains_key(CLUSTER_NAME) {
            add(&other, cluster, depth - 1, users);
        }
    }
}

/// All values must match. The alternatives within a value are separated by commas.
fn is_in_scope(user: &UserInfo, cluster: &str) -> bool {
    user.extra.get(SCOPES).into_iter().flatten().all(|value| {
        value.split(',').any(|alternative| alternative.trim().strip_prefix("cluster:") == Some(cluster))
    })
}

fn is_foreign(user: &UserInfo, cluster: &str) -> bool {
    user.name.starts_with("system:serviceaccount:")
        && match user.extra.get(CLUSTER_NAME).map(Vec::as_slice) {
            None | Some([]) => false,
            Some([own]) => own != cluster,
            Some(_) => true,
        }
}

/// The name under which a service account of one logical cluster can get permissions in another.
fn global_service_account(user: &UserInfo) -> Option<UserInfo> {
    let [own] = user.extra.get(CLUSTER_NAME)?.as_slice() else { return None };
    if own.is_empty() {
        return None;
    }
    let rest = user.name.strip_prefix("system:serviceaccount:")?;
    Some(UserInfo {
        name: format!("system:kcp:serviceaccount:{own}:{rest}"),
        groups: vec![fairlead_authn::AUTHENTICATED.to_owned()],
        ..UserInfo::default()
    })
}

fn anonymous(user: &UserInfo) -> UserInfo {
    let was_unauthenticated = user.groups.iter().any(|group| group == fairlead_authn::UNAUTHENTICATED);
    let group =
        if was_unauthenticated { fairlead_authn::UNAUTHENTICATED } else { fairlead_authn::AUTHENTICATED };
    UserInfo {
        name: fairlead_authn::ANONYMOUS.to_owned(),
        groups: vec![group.to_owned()],
        ..UserInfo::default()
    }
}

#[derive(Deserialize)]
struct Warrant {
    #[serde(default)]
    user: String,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, extra: &[(&str, &[&str])]) -> UserInfo {
        UserInfo {
            name: name.into(),
            groups: vec!["system:authenticated".into()],
            extra: extra
                .iter()
                .map(|(key, values)| ((*key).into(), values.iter().map(|value| (*value).into()).collect()))
                .collect(),
            ..UserInfo::default()
        }
    }

    fn names(user: &UserInfo, cluster: &str) -> Vec<String> {
        effective_users(user, cluster).into_iter().map(|user| user.name).collect()
    }

    #[test]
    fn scopes_restrict_users_to_logical_clusters() {
        for (scopes, cluster, expected) in [
            (&["cluster:a"][..], "a", "alice"),
            (&["cluster:a"], "b", "system:anonymous"),
            (&["cluster:a,cluster:b"], "b", "alice"),
            (&["cluster:a", "cluster:b"], "b", "system:anonymous"),
            (&["nonsense"], "b", "system:anonymous"),
        ] {
            assert_eq!(
                names(&user("alice", &[(SCOPES, scopes)]), cluster),
                [expected],
                "{scopes:?} {cluster}"
            );
        }
    }

    #[test]
    fn foreign_service_accounts_have_another_name() {
        let (local, anonymous) = ("system:serviceaccount:n:bot", "system:anonymous");
        let foreign = &[anonymous, "system:kcp:serviceaccount:a:n:bot"][..];
        for (extra, cluster, expected) in [
            (&[(CLUSTER_NAME, &["a"][..])][..], "a", &[local][..]),
            (&[(CLUSTER_NAME, &["a"])], "b", foreign),
            // The extras that the token authenticators set.
            (&[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])], "a", &[local]),
            (&[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])], "b", foreign),
            (&[(CLUSTER_NAME, &[""]), (SCOPES, &["cluster:"])], "a", &[anonymous]),
            (&[(CLUSTER_NAME, &[""])], "a", &[anonymous]),
            (&[(CLUSTER_NAME, &["a", "b"])], "a", &[anonymous]),
            (&[(CLUSTER_NAME, &[])], "a", &[local]),
            (&[], "a", &[local]),
        ] {
            assert_eq!(names(&user(local, extra), cluster), expected, "{extra:?} {cluster}");
        }
    }

    #[test]
    fn warrants_add_users() {
        let warranted = user("alice", &[(WARRANT, &[r#"{"user":"bob","groups":["g"]}"#, "not json"])]);
        assert_eq!(names(&warranted, "a"), ["alice", "bob"]);
        assert!(!has_no_scopes_or_warrants(&warranted) && has_no_scopes_or_warrants(&user("alice", &[])));
    }
}
