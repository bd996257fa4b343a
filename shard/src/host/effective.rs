//! Effective users of a request in a logical cluster, from scopes and warrants.
//!
//! A scope ties a user to logical clusters; outside of them he is anonymous. A warrant adds another user
//! whose permissions he also has.

use fairlead_authn::UserInfo;
use serde::Deserialize;

const SCOPES: &str = "authentication.kcp.io/scopes";
const CLUSTER_NAME: &str = "authentication.kcp.io/cluster-name";
const WARRANT: &str = "authorization.kcp.io/warrant";

/// How deep warrants may carry warrants.
const MAX_WARRANT_DEPTH: usize = 4;

/// Everybody the user counts as in a logical cluster; the first is himself, or the anonymous user.
pub(super) fn effective_users(user: &UserInfo, cluster: &str) -> Vec<UserInfo> {
    let mut users = Vec::with_capacity(1);
    add(user, cluster, MAX_WARRANT_DEPTH, &mut users);
    users
}

/// Whether the user needs no such treatment, which is the common case.
pub(super) fn has_no_scopes_or_warrants(user: &UserInfo) -> bool {
    user.extra.is_empty() || [SCOPES, CLUSTER_NAME, WARRANT].iter().all(|key| !user.extra.contains_key(*key))
}

fn add(user: &UserInfo, cluster: &str, depth: usize, users: &mut Vec<UserInfo>) {
    if in_scope(user, cluster) && !is_foreign(user, cluster) {
        users.push(user.clone());
    } else {
        users.push(anonymous(user));
        // Not for the scope to take away: tokens of service accounts always carry that of their own logical
        // cluster, and this name is for all others.
        users.extend(global_service_account(user));
    }
    if depth == 0 {
        return;
    }
    for text in user.extra.get(WARRANT).into_iter().flatten() {
        // A warrant that does not parse gives nothing.
        let Ok(warrant) = serde_json::from_str::<Warrant>(text) else { continue };
        let other =
            UserInfo { name: warrant.user, uid: warrant.uid, groups: warrant.groups, extra: warrant.extra };
        let is_account = other.name.starts_with("system:serviceaccount:");
        if !is_account || other.extra.contains_key(CLUSTER_NAME) {
            add(&other, cluster, depth - 1, users);
        }
    }
}

/// Several values are all required; inside one value, alternatives are separated by commas.
fn in_scope(user: &UserInfo, cluster: &str) -> bool {
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

/// The name under which a service account of one logical cluster can be given rights in another.
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
    fn scopes_tie_users_to_logical_clusters() {
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
        let (home, nobody) = ("system:serviceaccount:n:bot", "system:anonymous");
        let abroad = &[nobody, "system:kcp:serviceaccount:a:n:bot"][..];
        for (extra, cluster, expected) in [
            (&[(CLUSTER_NAME, &["a"][..])][..], "a", &[home][..]),
            (&[(CLUSTER_NAME, &["a"])], "b", abroad),
            // As the authenticators of tokens have it.
            (&[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])], "a", &[home]),
            (&[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])], "b", abroad),
            (&[(CLUSTER_NAME, &[""]), (SCOPES, &["cluster:"])], "a", &[nobody]),
            (&[(CLUSTER_NAME, &[""])], "a", &[nobody]),
            (&[(CLUSTER_NAME, &["a", "b"])], "a", &[nobody]),
            (&[(CLUSTER_NAME, &[])], "a", &[home]),
            (&[], "a", &[home]),
        ] {
            assert_eq!(names(&user(home, extra), cluster), expected, "{extra:?} {cluster}");
        }
    }

    #[test]
    fn warrants_add_users() {
        let warranted = user("alice", &[(WARRANT, &[r#"{"user":"bob","groups":["g"]}"#, "not json"])]);
        assert_eq!(names(&warranted, "a"), ["alice", "bob"]);
        assert!(!has_no_scopes_or_warrants(&warranted) && has_no_scopes_or_warrants(&user("alice", &[])));
    }
}
