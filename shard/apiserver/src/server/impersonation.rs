//! Impersonation: the `Impersonate-*` headers by which an authenticated client acts as another user.
//!
//! As in Kubernetes a request is permitted by the first mode that applies (KEP-5284): `serviceaccount`, `arbitrary-node` or
//! `user-info`, each of which needs the verb `impersonate-on:<mode>:<verb>` for the action of the request and
//! `impersonate:<mode>` for the user; or the unrestricted verb `impersonate`. The error is that of the first mode. There are
//! no nodes, so the mode `associated-node` does not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_authn::{ANONYMOUS, AUTHENTICATED, Identity, UNAUTHENTICATED, UserInfo};
use fairlead_process::{GroupResource, Status};
use fairlead_schema::names::NameRule;
use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::{Refusal, forbidden};
use crate::host::{Action, Attributes, Host};
use crate::scope::ScopeSelector;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

const AUTHENTICATION: &str = "authentication.k8s.io";
const NODES: &str = "system:nodes";
const MASTERS: &str = "system:masters";

/// The identity of a request: the client, or the user that it impersonates. Costs a look at each header name.
///
/// # Errors
/// 400 for headers without a user name, 403 if the client may not impersonate the user.
pub(super) async fn impersonate<H: Host>(
    host: &H,
    client: &Arc<Identity>,
    headers: &HeaderMap,
    scopes: Option<&ScopeSelector>,
    action: &Action<'_>,
) -> Result<Arc<Identity>, Refusal> {
    let Some(wanted) = WantedUser::parse(headers)? else { return Ok(client.clone()) };
    host.check_impersonation(client.user(), &wanted.0.groups)?;
    let request = ImpersonationRequest { host, client: client.user(), wanted: &wanted.0, scopes, action };
    let user = Box::pin(request.permitted_user()).await.map_err(Refusal::Denied)?;
    let user = host.restrict_impersonated(client.user(), user, scopes)?;
    tracing::debug!(client = client.user().name, user = user.name, "impersonation");
    Ok(Arc::new(Identity::new(user, client.method(), client.expires())))
}

/// The user in the headers.
#[derive(Debug)]
struct WantedUser(UserInfo);

impl WantedUser {
    fn parse(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        let text = |value: &http::HeaderValue| {
            std::str::from_utf8(value.as_bytes())
                .map(str::to_owned)
                .map_err(|_| Status::bad_request("an Impersonate header is not UTF-8"))
        };
        let first = |name: &str| headers.get(name).map(text).transpose().map(Option::unwrap_or_default);
        let (name, uid) = (first(USER)?, first(UID)?);
        let groups = headers.get_all(GROUP).iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let Some(key) = header.as_str().strip_prefix(EXTRA) else { continue };
            // A malformed escape is kept as it is.
            let decoded = percent_decode_str(key).decode_utf8().map_or_else(|_| key.into(), Into::into);
            extra.entry(decoded).or_default().push(text(value)?);
        }
        if name.is_empty() {
            if uid.is_empty() && groups.is_empty() && extra.is_empty() {
                return Ok(None);
            }
            return Err(Status::bad_request(without_name(&uid, &groups, &extra)));
        }
        let uid = Some(uid).filter(|uid| !uid.is_empty());
        Ok(Some(Self(UserInfo { name, uid, groups, extra })))
    }
}

/// The message of Kubernetes, which contains a struct in Go's syntax.
fn without_name(uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> String {
    let list = |values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        quoted.join(", ")
    };
    let groups =
        if groups.is_empty() { "[]string(nil)".to_owned() } else { format!("[]string{{{}}}", list(groups)) };
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<String> =
            extra.iter().map(|(key, values)| format!("{key:?}:[]string{{{}}}", list(values))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{groups}, Extra:{extra}}} without impersonating a \
         user name"
    )
}

struct ImpersonationRequest<'r, H> {
    host: &'r H,
    client: &'r UserInfo,
    wanted: &'r UserInfo,
    scopes: Option<&'r ScopeSelector>,
    action: &'r Action<'r>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// The verb `impersonate`, for any action.
    Unrestricted,
}

impl Mode {
    fn verb(self) -> &'static str {
        match self {
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Unrestricted => "impersonate",
        }
    }

    /// The group of users and groups in permissions.
    fn group(self) -> &'static str {
        if self == Self::Unrestricted { "" } else { AUTHENTICATION }
    }
}

impl<H: Host> ImpersonationRequest<'_, H> {
    async fn permitted_user(&self) -> Result<UserInfo, Status> {
        let mut first_error = None;
        for mode in [Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Unrestricted] {
            if !self.applies(mode) {
                continue;
            }
            match self.check(mode).await {
                Ok(user) => return Ok(user),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        // The unrestricted mode always applies, so there is an error.
        Err(first_error.unwrap_or_else(|| Status::internal("no mode of impersonation applies")))
    }

    fn applies(&self, mode: Mode) -> bool {
        let UserInfo { name, uid, groups, extra } = self.wanted;
        let only_name = uid.is_none() && groups.is_empty() && extra.is_empty();
        match mode {
            Mode::ArbitraryNode => only_name && node(name).is_some(),
            Mode::ServiceAccount => only_name && service_account(name).is_some(),
            Mode::UserInfo => node(name).is_none() && service_account(name).is_none(),
            Mode::Unrestricted => true,
        }
    }

    async fn check(&self, mode: Mode) -> Result<UserInfo, Status> {
        if mode != Mode::Unrestricted {
            let kind = mode.verb().trim_start_matches("impersonate:");
            let verb = format!("impersonate-on:{kind}:{}", verb(self.action));
            self.authorize(&with_verb(self.action, &verb)).await?;
        }
        let mut user = self.wanted.clone();
        self.check_name(mode, &mut user).await?;
        if let Some(uid) = &self.wanted.uid {
            self.authorize(&self.attribute(mode, AUTHENTICATION, "uids", None, uid)).await?;
        }
        self.check_groups(mode).await?;
        self.check_extra(mode).await?;
        let has = |group: &str| user.groups.iter().any(|own| own == group);
        if user.name == ANONYMOUS {
            if !has(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !has(UNAUTHENTICATED) && !has(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(user)
    }

    async fn check_name(&self, mode: Mode, user: &mut UserInfo) -> Result<(), Status> {
        let name = &self.wanted.name;
        if let Some((namespace, account)) = service_account(name) {
            if user.groups.is_empty() {
                user.groups =
                    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
            let account = self.attribute(mode, mode.group(), "serviceaccounts", Some(namespace), account);
            return self.authorize(&account).await;
        }
        if let Some(node) = node(name).filter(|_| mode == Mode::ArbitraryNode) {
            user.groups = vec![NODES.to_owned()];
            return self.authorize(&self.attribute(mode, mode.group(), "nodes", None, node)).await;
        }
        self.authorize(&self.attribute(mode, mode.group(), "users", None, name)).await
    }

    async fn check_groups(&self, mode: Mode) -> Result<(), Status> {
        let groups = &self.wanted.groups;
        if mode != Mode::Unrestricted {
            if groups.iter().any(String::is_empty) {
                return Err(self.refusal(
                    "groups",
                    "",
                    "impersonating the empty string group is not allowed",
                ));
            }
            if groups.iter().any(|group| group == MASTERS) {
                return Err(self.refusal(
                    "groups",
                    MASTERS,
                    "impersonating the system:masters group is not allowed",
                ));
            }
        }
        for group in groups {
            self.authorize(&self.attribute(mode, mode.group(), "groups", None, group)).await?;
        }
        Ok(())
    }

    async fn check_extra(&self, mode: Mode) -> Result<(), Status> {
        for (key, values) in &self.wanted.extra {
            if mode != Mode::Unrestricted {
                let problem = if key.is_empty() {
                    Some("impersonating the empty string key in extra is not allowed".to_owned())
                } else if !is_domain_prefixed_path(key) {
                    Some(format!("impersonating an invalid key in extra is not allowed: {key:?}"))
                } else if values.iter().any(String::is_empty) {
                    Some("impersonating the empty string value in extra is not allowed".to_owned())
                } else {
                    None
                };
                if let Some(problem) = problem {
                    return Err(self.refusal("userextras", "", &problem));
                }
            }
            for value in values {
                let action = Action::Resource {
                    verb: mode.verb(),
                    group: AUTHENTICATION,
                    version: "v1",
                    resource: "userextras",
                    subresource: Some(key),
                    namespace: None,
                    name: Some(value),
                };
                self.authorize(&action).await?;
            }
        }
        Ok(())
    }

    fn attribute<'a>(
        &self,
        mode: Mode,
        group: &'a str,
        resource: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> Action<'a> {
        let (verb, version) = (mode.verb(), "v1");
        Action::Resource { verb, group, version, resource, subresource: None, namespace, name: Some(name) }
    }

    async fn authorize(&self, action: &Action<'_>) -> Result<(), Status> {
        let attributes = Attributes::new(self.client, self.scopes, *action);
        if self.host.authorize(&attributes).decided().await.is_allowed() {
            Ok(())
        } else {
            Err(forbidden(self.client, action))
        }
    }

    fn refusal(&self, resource: &str, name: &str, reason: &str) -> Status {
        let reason = format!("User {:?} {reason}", self.client.name);
        Status::forbidden(GroupResource::new(AUTHENTICATION, resource), name, reason)
    }
}

fn verb<'a>(action: &Action<'a>) -> &'a str {
    match *action {
        Action::Resource { verb, .. } | Action::NonResource { verb, .. } => verb,
    }
}

fn with_verb<'a>(action: &Action<'a>, verb: &'a str) -> Action<'a> {
    match *action {
        Action::Resource { group, version, resource, subresource, namespace, name, .. } => {
            Action::Resource { verb, group, version, resource, subresource, namespace, name }
        }
        Action::NonResource { path, .. } => Action::NonResource { verb, path },
    }
}

/// Namespace and name of a service account.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_valid = NameRule::Dns1123Label.check_name(namespace).is_empty()
        && NameRule::Dns1123Subdomain.check_name(name).is_empty();
    is_valid.then_some((namespace, name))
}

/// The name of a node.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    NameRule::Dns1123Subdomain.check_name(name).is_empty().then_some(name)
}

/// `example.com/path`, in lower case.
fn is_domain_prefixed_path(key: &str) -> bool {
    let Some((domain, path)) = key.split_once('/') else { return false };
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/%:@-._~!$&'()*+,;=".contains(&byte);
    NameRule::Dns1123Subdomain.check_name(domain).is_empty()
        && !path.is_empty()
        && path.bytes().all(in_path)
        && !key.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn headers_without_a_user_name_are_refused() {
        for (list, expected) in [
            (&[][..], None),
            (&[("impersonate-user", "")], None),
            (
                &[("impersonate-group", "g")],
                Some(
                    "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, \
                     Extra:map[string][]string(nil)} without impersonating a user name",
                ),
            ),
            (
                &[("impersonate-extra-a%2fb", "c")],
                Some(
                    "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), \
                     Extra:map[string][]string{\"a/b\":[]string{\"c\"}}} without impersonating a user name",
                ),
            ),
        ] {
            match WantedUser::parse(&headers(list)) {
                Ok(wanted) => assert!(wanted.is_none() && expected.is_none(), "{list:?}"),
                Err(status) => assert_eq!((status.code, Some(&*status.message)), (400, expected)),
            }
        }
    }

    #[test]
    fn all_fields_of_a_user_are_read() {
        let list = [
            ("impersonate-user", "bob"),
            ("impersonate-uid", "u"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-example.com%2fteam", "x"),
            ("impersonate-extra-plain", "y"),
        ];
        let WantedUser(user) = WantedUser::parse(&headers(&list)).unwrap().unwrap();
        assert_eq!((&*user.name, user.uid.as_deref(), user.groups.len()), ("bob", Some("u"), 2));
        assert_eq!(user.extra["example.com/team"], ["x"]);
        assert_eq!(user.extra["plain"], ["y"]);
    }

    #[test]
    fn accounts_and_nodes_are_recognized() {
        for (name, expected) in [
            ("system:serviceaccount:default:bot", Some(("default", "bot"))),
            ("system:serviceaccount:default:", None),
            ("system:serviceaccount:Default:bot", None),
            ("system:serviceaccount:default:a:b", None),
            ("bob", None),
        ] {
            assert_eq!(service_account(name), expected, "{name}");
        }
        assert_eq!((node("system:node:n1"), node("system:node:"), node("n1")), (Some("n1"), None, None));
        for (key, expected) in [("a.com/b", true), ("plain", false), ("a.com/", false), ("A.com/b", false)] {
            assert_eq!(is_domain_prefixed_path(key), expected, "{key}");
        }
    }
}
