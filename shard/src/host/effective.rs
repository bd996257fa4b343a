//! Effective users of a request in a logical cluster, from scopes and warrants.
//!
//! A scope restricts a user to logical clusters; in all others the user is anonymous. A warrant adds another user,
//! whose permissions the user has in addition.

use fairlead_api::group::BINDING_PREFIX;
use fairlead_authn::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};
use fairlead_process::Status;
use serde::{Deserialize, Serialize};

pub(super) const SCOPES: &str = "authentication.kcp.io/scopes";
pub(super) const CLUSTER_NAME: &str = "authentication.kcp.io/cluster-name";
pub(super) const WARRANT: &str = "authorization.kcp.io/warrant";
/// Prefix of a scope that is a logical cluster.
const CLUSTER_SCOPE: &str = "cluster:";

/// Maximum nesting depth of warrants.
const MAX_WARRANT_DEPTH: usize = 4;

/// All users whose permissions apply in a logical cluster, in the order of kcp: the user if it is in scope, its global name
/// if it is a service account, the users of its warrants, and the anonymous user for those that are out of scope.
pub(super) fn effective_users(user: &UserInfo, cluster: &str) -> Vec<UserInfo> {
    let mut users = EffectiveUsers {
        cluster,
        users: Vec::with_capacity(2),
        authenticated: false,
        unauthenticated: false,
    };
    users.add(user, MAX_WARRANT_DEPTH);
    let EffectiveUsers { mut users, authenticated, unauthenticated, .. } = users;
    if authenticated {
        let mut groups = vec![AUTHENTICATED.to_owned()];
        groups.extend(cluster_groups(user));
        users.push(anonymous(groups));
    }
    if unauthenticated {
        users.push(anonymous(vec![UNAUTHENTICATED.to_owned()]));
    }
    users
}

struct EffectiveUsers<'c> {
    cluster: &'c str,
    users: Vec<UserInfo>,
    /// Whether a user that is out of scope was authenticated, or was not.
    authenticated: bool,
    unauthenticated: bool,
}

impl EffectiveUsers<'_> {
    fn add(&mut self, user: &UserInfo, depth: usize) {
        if is_in_scope(user, self.cluster) {
            self.users.push(user.clone());
        } else {
            let is_authenticated = user.groups.iter().any(|group| group == AUTHENTICATED);
            self.authenticated |= is_authenticated;
            self.unauthenticated |= !is_authenticated;
        }
        let is_known = |own: &str| has_scope(user, own) || has_scope(user, self.cluster);
        self.users.extend(global_service_account(user, is_known));
        if depth == 0 {
            return;
        }
        for text in user.extra.get(WARRANT).into_iter().flatten() {
            // A warrant that does not parse grants nothing.
            let Ok(warrant) = serde_json::from_str::<Warrant>(text) else { continue };
            let mut other = UserInfo::from(warrant);
            if is_service_account(&other) && other.extra.get(CLUSTER_NAME).is_none_or(Vec::is_empty) {
                continue;
            }
            let groups: Vec<String> = cluster_groups(&other).collect();
            other.groups.extend(groups);
            self.add(&other, depth - 1);
        }
    }
}

/// Groups of users whose scopes are certain logical clusters. By them, other logical clusters can grant permissions to
/// all users of one.
fn cluster_groups(user: &UserInfo) -> impl Iterator<Item = String> {
    let values = user.extra.get(SCOPES).map(Vec::as_slice).unwrap_or_default();
    let (first, further) = values.split_first().map_or(("", values), |(first, further)| (&**first, further));
    let is_effective =
        move |scope: &&str| further.iter().all(|value| value.split(',').any(|own| own == *scope));
    let scopes = first.split(',').filter(is_effective).filter(|scope| scope.starts_with(CLUSTER_SCOPE));
    scopes.map(|scope| format!("system:{scope}"))
}

/// The user under the name that maximal permission policies use: the names of user and groups have a prefix, also those of
/// warrants, and service accounts have their global names.
pub(super) fn with_binding_prefix(user: &UserInfo) -> UserInfo {
    prefixed(user, MAX_WARRANT_DEPTH)
}

/// The user of [`with_binding_prefix`] in the logical cluster of an export, where the scopes of a service account do not hold.
pub(crate) fn policy_user(user: &UserInfo) -> UserInfo {
    let mut renamed = with_binding_prefix(user);
    if is_service_account(user) {
        renamed.extra.retain(|key, _| key != SCOPES && key != CLUSTER_NAME);
    }
    renamed
}

fn prefixed(user: &UserInfo, depth: usize) -> UserInfo {
    let mut extra = user.extra.clone();
    if let Some(warrants) = extra.get_mut(WARRANT) {
        let renamed = warrants.iter().filter_map(|text| {
            let warrant: Warrant = serde_json::from_str(text).ok()?;
            let other = prefixed(&warrant.into(), depth.checked_sub(1)?);
            let UserInfo { name: user, uid, groups, extra } = other;
            serde_json::to_string(&Warrant { user, uid, groups, extra }).ok()
        });
        *warrants = renamed.collect();
    }
    let with_prefix = |text: &str| format!("{BINDING_PREFIX}{text}");
    let name = match global_service_account(user, |_| true) {
        Some(global) => global.name,
        // A service account without a logical cluster has no global name.
        None if is_service_account(user) => ANONYMOUS.to_owned(),
        None => user.name.clone(),
    };
    UserInfo {
        name: with_prefix(&name),
        uid: user.uid.clone(),
        groups: user.groups.iter().map(|group| with_prefix(group)).collect(),
        extra,
    }
}

fn is_service_account(user: &UserInfo) -> bool {
    user.name.starts_with("system:serviceaccount:")
}

impl From<Warrant> for UserInfo {
    fn from(warrant: Warrant) -> Self {
        Self { name: warrant.user, uid: warrant.uid, groups: warrant.groups, extra: warrant.extra }
    }
}

/// Adds the scope of a logical cluster to a user and to all users of its warrants, whose permissions the user would have in others
/// otherwise. `check` decides about the groups of a warrant.
///
/// # Errors
/// Those of `check`.
pub(super) fn restrict_to_cluster(
    user: &mut UserInfo,
    cluster: &str,
    check: &impl Fn(&[String]) -> Result<(), Status>,
) -> Result<(), Status> {
    restrict_at_depth(user, cluster, check, MAX_WARRANT_DEPTH)
}

fn restrict_at_depth(
    user: &mut UserInfo,
    cluster: &str,
    check: &impl Fn(&[String]) -> Result<(), Status>,
    depth: usize,
) -> Result<(), Status> {
    user.extra.entry(SCOPES.to_owned()).or_default().push(format!("{CLUSTER_SCOPE}{cluster}"));
    let Some(warrants) = user.extra.get_mut(WARRANT) else { return Ok(()) };
    let mut restricted = Vec::with_capacity(warrants.len());
    for text in &*warrants {
        // One that does not parse or is nested too deeply grants nothing.
        let Ok(warrant) = serde_json::from_str::<Warrant>(text) else { continue };
        let Some(depth) = depth.checked_sub(1) else { continue };
        let mut other = UserInfo::from(warrant);
        check(&other.groups)?;
        restrict_at_depth(&mut other, cluster, check, depth)?;
        let UserInfo { name: user, uid, groups, extra } = other;
        restricted
            .push(serde_json::to_string(&Warrant { user, uid, groups, extra }).map_err(Status::internal)?);
    }
    *warrants = restricted;
    Ok(())
}

/// Whether the user has neither scopes nor warrants, which is the common case.
pub(super) fn has_no_scopes_or_warrants(user: &UserInfo) -> bool {
    user.extra.is_empty() || [SCOPES, CLUSTER_NAME, WARRANT].iter().all(|key| !user.extra.contains_key(*key))
}

/// Service accounts of other logical clusters are out of scope. All values of the scopes must match. The alternatives within a value are separated by commas.
pub(super) fn is_in_scope(user: &UserInfo, cluster: &str) -> bool {
    !is_foreign(user, cluster) && has_scope(user, cluster)
}

fn has_scope(user: &UserInfo, cluster: &str) -> bool {
    user.extra.get(SCOPES).into_iter().flatten().all(|value| {
        value.split(',').any(|alternative| alternative.strip_prefix(CLUSTER_SCOPE) == Some(cluster))
    })
}

fn is_foreign(user: &UserInfo, cluster: &str) -> bool {
    is_service_account(user)
        && match user.extra.get(CLUSTER_NAME).map(Vec::as_slice) {
            None | Some([]) => false,
            Some([own]) => own != cluster,
            Some(_) => true,
        }
}

/// The name under which a service account can get permissions in all logical clusters, if `is_known` accepts its own one. The scopes
/// of an impersonated account may exclude its own logical cluster; then it has the name only where they hold.
fn global_service_account(user: &UserInfo, is_known: impl Fn(&str) -> bool) -> Option<UserInfo> {
    let [own] = user.extra.get(CLUSTER_NAME)?.as_slice() else { return None };
    if own.is_empty() || !is_known(own) {
        return None;
    }
    let rest = user.name.strip_prefix("system:serviceaccount:")?;
    let authenticated = user.groups.iter().filter(|group| *group == AUTHENTICATED).take(1).cloned();
    Some(UserInfo {
        name: format!("system:kcp:serviceaccount:{own}:{rest}"),
        groups: authenticated.chain(cluster_groups(user)).collect(),
        extra: user.extra.clone(),
        uid: None,
    })
}

fn anonymous(groups: Vec<String>) -> UserInfo {
    UserInfo { name: ANONYMOUS.to_owned(), groups, ..UserInfo::default() }
}

#[derive(Deserialize, Serialize)]
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
    fn users_that_are_out_of_scope_are_in_groups_of_their_logical_clusters() {
        for (scopes, expected) in [
            (&["cluster:a"][..], &["system:authenticated", "system:cluster:a"][..]),
            (&["cluster:a,cluster:c"], &["system:authenticated", "system:cluster:a", "system:cluster:c"]),
            (&["cluster:a,cluster:c", "cluster:c"], &["system:authenticated", "system:cluster:c"]),
            (&["cluster:a", "cluster:c"], &["system:authenticated"]),
            (&["nonsense"], &["system:authenticated"]),
        ] {
            let users = effective_users(&user("alice", &[(SCOPES, scopes)]), "b");
            assert_eq!(
                users.last().map(|user| user.groups.as_slice()),
                Some(texts(expected).as_slice()),
                "{scopes:?}"
            );
        }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn service_accounts_have_a_global_name() {
        let (local, anonymous) = ("system:serviceaccount:n:bot", "system:anonymous");
        let global = "system:kcp:serviceaccount:a:n:bot";
        for (extra, cluster, expected) in [
            (&[(CLUSTER_NAME, &["a"][..])][..], "a", &[local, global][..]),
            (&[(CLUSTER_NAME, &["a"])], "b", &[global, anonymous]),
            // The extras that the token authenticators set.
            (&[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])], "a", &[local, global]),
            (&[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])], "b", &[global, anonymous]),
            (&[(CLUSTER_NAME, &[""]), (SCOPES, &["cluster:"])], "a", &[anonymous]),
            (&[(CLUSTER_NAME, &[""])], "a", &[anonymous]),
            (&[(CLUSTER_NAME, &["a", "b"])], "a", &[anonymous]),
            (&[(CLUSTER_NAME, &[])], "a", &[local]),
            (&[], "a", &[local]),
        ] {
            assert_eq!(names(&user(local, extra), cluster), expected, "{extra:?} {cluster}");
        }
        let scoped = user(local, &[(CLUSTER_NAME, &["a"]), (SCOPES, &["cluster:a"])]);
        assert_eq!(effective_users(&scoped, "b")[0].groups, ["system:authenticated", "system:cluster:a"]);
    }

    #[test]
    fn warrants_add_users() {
        let warranted = user("alice", &[(WARRANT, &[r#"{"user":"bob","groups":["g"]}"#, "not json"])]);
        assert_eq!(names(&warranted, "a"), ["alice", "bob"]);
        assert!(!has_no_scopes_or_warrants(&warranted) && has_no_scopes_or_warrants(&user("alice", &[])));
        let account = r#"{"user":"system:serviceaccount:n:bot"}"#;
        assert_eq!(names(&user("alice", &[(WARRANT, &[account])]), "a"), ["alice"]);
        let scoped = r#"{"user":"bob","extra":{"authentication.kcp.io/scopes":["cluster:a"]}}"#;
        let users = effective_users(&user("alice", &[(WARRANT, &[scoped])]), "a");
        assert_eq!(users[1].groups, ["system:cluster:a"]);
    }

    #[test]
    fn maximal_permission_policies_know_users_by_prefixed_names() {
        let warrant = r#"{"user":"bob","groups":["g"],"extra":{}}"#;
        let account = "system:serviceaccount:n:bot";
        for (user, cluster, expected) in [
            (user("alice", &[]), "a", &["apis.kcp.io:binding:alice"][..]),
            (
                user("alice", &[(WARRANT, &[warrant])]),
                "a",
                &["apis.kcp.io:binding:alice", "apis.kcp.io:binding:bob"],
            ),
            (
                user(account, &[(CLUSTER_NAME, &["b"]), (SCOPES, &["cluster:b"])]),
                "b",
                &["apis.kcp.io:binding:system:kcp:serviceaccount:b:n:bot"],
            ),
            (user(account, &[]), "a", &["apis.kcp.io:binding:system:anonymous"]),
            (user("alice", &[(SCOPES, &["cluster:b"])]), "a", &["system:anonymous"]),
        ] {
            assert_eq!(names(&with_binding_prefix(&user), cluster), expected, "{user:?}");
        }
        let groups = with_binding_prefix(&UserInfo { groups: texts(&["x"]), ..UserInfo::default() });
        assert_eq!(groups.groups, ["apis.kcp.io:binding:x"]);
    }
}
