//! Requirements of a listener for every request beyond a valid credential: the host, and no forbidden header, protocol or user.
//!
//! Pure. At a listener without requirements it costs a few comparisons with empty lists.

use fairlead_authn::UserInfo;
use fairlead_config::{ListenerConfig, UpgradeProtocol};
use fairlead_process::{GroupResource, Status, StatusReason};
use http::header::{HeaderMap, HeaderValue, ORIGIN, UPGRADE, USER_AGENT};

use crate::request::response::LocalResponse;

/// The requirements of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFilter {
    /// Lower case; `.example.com` matches one level below.
    hosts: Vec<Box<str>>,
    /// Allowed protocols; empty allows any.
    upgrades: Vec<UpgradeProtocol>,
    refuses_impersonation: bool,
    refused_users: Vec<Box<str>>,
    refused_groups: Vec<Box<str>>,
    /// Whether a request is authenticated before its workspace is resolved.
    pub(crate) authenticates_before_routing: bool,
}

/// The reason for rejecting a request. It is an error of the client: a retry does not help.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Rejection {
    /// 421: the request is for another server (RFC 9110, 15.5.20).
    #[error("this listener does not serve the host of the request")]
    Misdirected,
    /// The request impersonates a user.
    #[error("impersonation is not allowed here")]
    Impersonation,
    /// A page of another site caused the request, and the browser sent its user's certificate (CSRF).
    #[error("cross-site requests with a client certificate are not allowed")]
    CrossSite,
    /// The upgrade protocol is not allowed.
    #[error("upgrades to this protocol are not allowed here")]
    Upgrades,
    /// The user is denied.
    #[error("this listener denies the user")]
    User,
    /// A group of the user is denied.
    #[error("this listener denies a group of the user")]
    Group,
}

impl RequestFilter {
    /// The requirements in these settings.
    pub(crate) fn new(config: &ListenerConfig) -> Self {
        let host = |host: &String| {
            let host = host.to_ascii_lowercase();
            host.strip_prefix('*').unwrap_or(&host).into()
        };
        let all = |patterns: &[String]| patterns.iter().map(|pattern| pattern.as_str().into()).collect();
        Self {
            hosts: config.hosts.iter().map(host).collect(),
            upgrades: config.upgrades.clone(),
            refuses_impersonation: config.deny.impersonation,
            refused_users: all(&config.deny.users),
            refused_groups: all(&config.deny.groups),
            authenticates_before_routing: config.authenticate_before_routing,
        }
    }

    /// Checks the authority of the request and the server name of its TLS connection.
    ///
    /// # Errors
    /// [`Rejection::Misdirected`].
    pub(crate) fn host(&self, authority: Option<&str>, connection: Option<&str>) -> Result<(), Rejection> {
        if self.hosts.is_empty() {
            return Ok(());
        }
        let is_served_host = |name: &str| self.hosts.iter().any(|host| is_name_of_host(host, name));
        // A client without SNI may be an older one; then only the authority counts.
        let is_served = authority.map(without_port).is_some_and(is_served_host);
        if is_served && connection.is_none_or(is_served_host) { Ok(()) } else { Err(Rejection::Misdirected) }
    }

    /// One of the configured hosts, if there are any.
    pub(crate) fn any_host(&self) -> Option<&str> {
        self.hosts.iter().map(|host| &**host).find(|host| !host.starts_with('.'))
    }

    /// Checks the request headers.
    ///
    /// # Errors
    /// [`Rejection::Impersonation`], [`Rejection::Upgrades`].
    pub(crate) fn headers(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        if self.refuses_impersonation && headers.keys().any(|name| is_impersonation_header(name.as_str())) {
            return Err(Rejection::Impersonation);
        }
        if !self.upgrades.is_empty() {
            let wanted = headers.get_all(UPGRADE).iter();
            let protocols = wanted.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
            let allowed = |protocol: &[u8]| {
                self.upgrades.iter().any(|known| is_protocol(*known, protocol.trim_ascii()))
            };
            if !protocols.into_iter().all(allowed) {
                return Err(Rejection::Upgrades);
            }
        }
        Ok(())
    }

    /// Checks the authenticated user.
    ///
    /// # Errors
    /// [`Rejection::User`], [`Rejection::Group`].
    pub(crate) fn user(&self, user: &UserInfo) -> Result<(), Rejection> {
        if self.refused_users.iter().any(|pattern| matches(pattern, &user.name)) {
            return Err(Rejection::User);
        }
        let refused = |group: &String| self.refused_groups.iter().any(|pattern| matches(pattern, group));
        if user.groups.iter().any(refused) { Err(Rejection::Group) } else { Ok(()) }
    }
}

/// True if a page of another site caused the request, according to the browser: by Fetch Metadata (`Sec-Fetch-Site`), or, for
/// browsers without it and where an intermediary has removed it, by an `Origin` that differs from the authority. Pages cannot
/// change either. Browsers send a client certificate with every request, and a body without a content type, and a WebSocket,
/// need no permission by CORS.
pub(crate) fn is_cross_site(headers: &HeaderMap, authority: Option<&str>) -> bool {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"cross-site" | b"same-site") => return true,
        Some(b"same-origin" | b"none") => return false,
        _ => {}
    }
    let is_foreign = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        match (origin, authority) {
            (Some((_, origin)), Some(authority)) => !is_same_authority(origin, authority),
            // `null`: an opaque origin.
            _ => true,
        }
    };
    // Other programs set Origin as they like (WebSocket libraries must). A page cannot change its browser's User-Agent.
    let is_browser = headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"));
    is_browser && headers.get_all(ORIGIN).iter().any(is_foreign)
}

/// Whether two authorities are equal, with or without the default port of HTTPS.
fn is_same_authority(one: &str, other: &str) -> bool {
    let plain = |authority: &'_ str| authority.strip_suffix(":443").unwrap_or(authority).to_ascii_lowercase();
    plain(one) == plain(other)
}

/// Whether a header is `Impersonate-User`, `-Uid`, `-Group` or `-Extra-…`, also with underscores, because some servers treat them
/// alike.
pub(crate) fn is_impersonation_header(name: &str) -> bool {
    name.len() > 12 && name.starts_with("impersonate") && matches!(name.as_bytes()[11], b'-' | b'_')
}

fn is_protocol(known: UpgradeProtocol, name: &[u8]) -> bool {
    match known {
        UpgradeProtocol::Websocket => name.eq_ignore_ascii_case(b"websocket"),
        UpgradeProtocol::Spdy => name.len() >= 5 && name[..5].eq_ignore_ascii_case(b"spdy/"),
    }
}

/// Whether a name matches a pattern, which is a name or a prefix and `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

fn without_port(authority: &str) -> &str {
    let host = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are between brackets.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn is_name_of_host(host: &str, name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    match host.strip_prefix('.') {
        Some(parent) => name
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent)),
        None => host.eq_ignore_ascii_case(name),
    }
}

impl From<Rejection> for LocalResponse {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Misdirected => {
                Self::status(&Status::new(421, StatusReason::Unknown, rejection.to_string()), "misdirected")
            }
            _ => Self::status(&Status::forbidden(GroupResource::default(), "", rejection), "filtered"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use http::header::HeaderName;

    use super::*;

    fn filter_with(change: impl FnOnce(&mut ListenerConfig)) -> RequestFilter {
        let mut config = ListenerConfig::default();
        change(&mut config);
        RequestFilter::new(&config)
    }

    #[test]
    fn a_listener_is_reached_by_its_names_only() {
        let names = ["API.example.com", "*.eu.example.com", "2001:db8::1"];
        let filter_with = filter_with(|config| config.hosts = names.map(str::to_owned).into());
        for (authority, connection, expected) in [
            (Some("api.example.com"), None, true),
            (Some("api.example.com:6443"), Some("api.example.com"), true),
            (Some("Api.Example.Com."), Some("api.example.com"), true),
            (Some("a.eu.example.com"), None, true),
            (Some("a.b.eu.example.com"), None, false),
            (Some(".eu.example.com"), None, false),
            (Some("eu.example.com"), None, false),
            (Some("[2001:db8::1]:6443"), None, true),
            (Some("origin.example.com"), None, false),
            (Some("192.0.2.1:6443"), None, false),
            (Some("api.example.com"), Some("origin.example.com"), false),
            (Some("origin.example.com"), Some("api.example.com"), false),
            (None, None, false),
        ] {
            let found = filter_with.host(authority, connection).is_ok();
            assert_eq!(found, expected, "{authority:?} {connection:?}");
            assert_eq!(RequestFilter::default().host(authority, connection), Ok(()));
        }
    }

    #[test]
    fn impersonation_and_upgrades_are_let_in_by_name() {
        use UpgradeProtocol::{Spdy, Websocket};
        let strict = filter_with(|config| {
            config.deny.impersonation = true;
            config.upgrades = vec![Websocket];
        });
        let spdy = filter_with(|config| config.upgrades = vec![Websocket, Spdy]);
        for (name, value, here, with_spdy) in [
            ("impersonate-user", "root", Err(Rejection::Impersonation), Ok(())),
            ("Impersonate-Extra-x", "", Err(Rejection::Impersonation), Ok(())),
            ("impersonate_group", "root", Err(Rejection::Impersonation), Ok(())),
            ("impersonation", "x", Ok(()), Ok(())),
            ("upgrade", "WebSocket", Ok(()), Ok(())),
            ("upgrade", "SPDY/3.1", Err(Rejection::Upgrades), Ok(())),
            ("upgrade", "websocket, SPDY/3.1", Err(Rejection::Upgrades), Ok(())),
            ("upgrade", "tcp", Err(Rejection::Upgrades), Err(Rejection::Upgrades)),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            assert_eq!(strict.headers(&headers), here, "{name}: {value}");
            assert_eq!(spdy.headers(&headers), with_spdy, "{name}: {value}");
            assert_eq!(RequestFilter::default().headers(&headers), Ok(()), "{name}: {value}");
        }
    }

    #[test]
    fn browsers_tell_what_pages_of_other_sites_ask() {
        for (site, origin, expected) in [
            (None, None, false),
            (Some("none"), None, false),
            (Some("same-origin"), None, false),
            (Some("same-site"), None, true),
            (Some("cross-site"), None, true),
            (Some("cross-site"), Some("https://api.example.com"), true),
            (Some("same-origin"), Some("https://elsewhere.example.com"), false),
            (None, Some("https://api.example.com"), false),
            (None, Some("https://API.example.com:443"), false),
            (None, Some("https://api.example.com:8443"), true),
            (None, Some("https://www.example.com"), true),
            (None, Some("null"), true),
            (Some("something new"), Some("https://www.example.com"), true),
        ] {
            let mut headers = HeaderMap::new();
            let says =
                site.map(|site| (HeaderName::from_static("sec-fetch-site"), HeaderValue::from_static(site)));
            headers.extend(says);
            headers.extend(origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin))));
            let found = |headers: &HeaderMap| is_cross_site(headers, Some("api.example.com"));
            let by_word = matches!(site, Some("same-site" | "cross-site"));
            assert_eq!(found(&headers), by_word, "{site:?} {origin:?}, by no browser");
            headers.insert(USER_AGENT, HeaderValue::from_static("Mozilla/5.0 (X11; Linux x86_64)"));
            assert_eq!(found(&headers), expected, "{site:?} {origin:?}");
        }
    }

    #[test]
    fn configured_users_and_groups_are_rejected() {
        let filter_with = filter_with(|config| {
            config.deny.users = vec!["system:*".to_owned(), "root".to_owned()];
            config.deny.groups = vec!["system:masters".to_owned(), "system:kcp:*".to_owned()];
        });
        for (name, group, expected) in [
            ("ann", "system:authenticated", Ok(())),
            ("system:serviceaccount:a:b", "", Err(Rejection::User)),
            ("root", "", Err(Rejection::User)),
            ("rooted", "", Ok(())),
            ("ann", "system:masters", Err(Rejection::Group)),
            ("ann", "system:kcp:admin", Err(Rejection::Group)),
        ] {
            let groups = vec!["system:authenticated".to_owned(), group.to_owned()];
            let user = UserInfo { name: name.to_owned(), groups, extra: Default::default(), uid: None };
            assert_eq!(filter_with.user(&user), expected, "{name} {group}");
        }
    }
}
