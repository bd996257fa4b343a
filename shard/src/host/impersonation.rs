//! kcp's rules of impersonation: groups that grant rights in every logical cluster are not gained by it, and what it grants
//! stays in the logical cluster of the request.

use fairlead_api::group;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_authn::{AUTHENTICATED, UserInfo};
use fairlead_process::{GroupResource, Status};

use super::effective::restrict_to_cluster;
use super::is_in;
use super::rbac_chain::LIFECYCLE_GROUPS;

/// Groups that only their members impersonate, and members of `system:masters`.
const SPECIAL_GROUPS: [&str; 6] = [
    group::MASTERS,
    group::ADMIN,
    group::LOGICAL_CLUSTER_ADMIN,
    group::EXTERNAL_LOGICAL_CLUSTER_ADMIN,
    group::WORKSPACE_BOOTSTRAPPER,
    AUTHENTICATED,
];

/// Refuses the impersonation of a special group by a client that is not a member of it.
pub(super) fn check(client: &UserInfo, groups: &[String]) -> Result<(), Status> {
    let is_special = |group: &String| {
        SPECIAL_GROUPS.contains(&&**group) || LIFECYCLE_GROUPS.iter().any(|prefix| group.starts_with(prefix))
    };
    let is_permitted = |wanted: &String| !is_special(wanted) || is_in(client, wanted);
    if is_in(client, group::MASTERS) || groups.iter().all(is_permitted) {
        return Ok(());
    }
    let reason = "impersonation is not allowed for the requestor";
    Err(Status::forbidden(GroupResource::default(), "", reason))
}

/// Restricts the impersonated user to the logical cluster of the request, unless a member of `system:masters`
/// impersonates it. So are the users of its warrants, which have no special groups either.
pub(super) fn restrict(
    client: &UserInfo,
    mut user: UserInfo,
    scopes: Option<&ScopeSelector>,
) -> Result<UserInfo, Status> {
    if is_in(client, group::MASTERS) {
        return Ok(user);
    }
    let Some(cluster) = scopes.and_then(ScopeSelector::one).map(Scope::as_str) else {
        let reason = "impersonation needs one logical cluster";
        return Err(Status::forbidden(GroupResource::default(), "", reason));
    };
    restrict_to_cluster(&mut user, cluster, &|groups| check(client, groups))?;
    Ok(user)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::effective::{CLUSTER_NAME, SCOPES, WARRANT, effective_users};
    use super::*;

    fn user(groups: &[&str]) -> UserInfo {
        UserInfo { groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..UserInfo::default() }
    }

    #[test]
    fn special_groups_are_impersonated_by_members_only() {
        for (own, wanted, permitted) in [
            (&["team"][..], &["other"][..], true),
            (&["team"], &["system:masters"], false),
            (&["system:kcp:admin"], &["system:kcp:admin", "x"], true),
            (&["system:kcp:admin"], &["system:masters"], false),
            (&["team"], &["x", "system:kcp:tenancy:workspace-bootstrapper"], false),
            (&["system:masters"], &["system:kcp:admin", "system:masters"], true),
            (&["system:authenticated"], &["system:authenticated"], true),
            (&[], &["system:authenticated"], false),
            // Only virtual workspaces add these. kcp's front proxy removes them, its shards do not.
            (&["team"], &["system:kcp:initializer:root:t"], false),
            (&["team"], &["system:kcp:terminator:root:t"], false),
            (&["system:masters"], &["system:kcp:initializer:root:t"], true),
        ] {
            assert_eq!(check(&user(own), &user(wanted).groups).is_ok(), permitted, "{own:?} {wanted:?}");
        }
    }

    #[test]
    fn what_impersonation_grants_stays_in_the_logical_cluster() {
        let one = ScopeSelector::One(Scope::new("abc"));
        let restricted = restrict(&user(&["team"]), user(&[]), Some(&one)).unwrap();
        assert_eq!(restricted.extra[SCOPES], ["cluster:abc"]);
        assert!(restrict(&user(&["system:masters"]), user(&[]), Some(&one)).unwrap().extra.is_empty());
        assert_eq!(restrict(&user(&["team"]), user(&[]), Some(&ScopeSelector::all())).unwrap_err().code, 403);
        assert_eq!(restrict(&user(&["team"]), user(&[]), None).unwrap_err().code, 403);
    }

    #[test]
    fn an_impersonated_user_has_no_permissions_in_other_logical_clusters() {
        let one = ScopeSelector::One(Scope::new("abc"));
        let nested = r#"{"user":"x","extra":{"authorization.kcp.io/warrant":["{\"user\":\"y\"}"]}}"#;
        let special = r#"{"user":"x","groups":["system:kcp:admin"]}"#;
        let nested_special = special.replace('"', "\\\"");
        let nested_special =
            format!(r#"{{"user":"x","extra":{{"authorization.kcp.io/warrant":["{nested_special}"]}}}}"#);
        let account = "system:serviceaccount:n:a";
        for (name, key, value, permitted) in [
            ("bob", WARRANT, nested, Some(&["bob", "x", "y"][..])),
            ("bob", WARRANT, special, None),
            ("bob", WARRANT, &*nested_special, None),
            ("bob", WARRANT, "no json", Some(&["bob"])),
            ("bob", "example.com/key", "value", Some(&["bob"])),
            ("bob", SCOPES, "cluster:xyz", Some(&["system:anonymous"])),
            (account, CLUSTER_NAME, "xyz", Some(&["system:kcp:serviceaccount:xyz:n:a", "system:anonymous"])),
        ] {
            let mut wanted = UserInfo { name: name.to_owned(), ..user(&[]) };
            wanted.extra.insert(key.to_owned(), vec![value.to_owned()]);
            assert!(restrict(&user(&["system:masters"]), wanted.clone(), Some(&one)).is_ok(), "{value}");
            let restricted = restrict(&user(&["team"]), wanted, Some(&one));
            let names = |cluster: &str| {
                let restricted = restricted.as_ref().ok()?;
                let users = effective_users(restricted, cluster).into_iter();
                Some(users.map(|user| user.name).collect::<Vec<_>>())
            };
            let permitted =
                permitted.map(|all| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            assert_eq!(names("abc"), permitted, "{value}");
            if let Some(elsewhere) = names("xyz") {
                assert_eq!(elsewhere, ["system:anonymous"], "{value}");
            }
        }
    }
}
