//! The headers by which one server asserts the user to the next. Those of clients are removed before the server sets its own.
//!
//! CVE-2026-61682 of kcp: its proxy forwarded `X-Remote-*` of clients, so every tenant could become any user. The order in
//! a proxy is: resolve hop-by-hop headers, remove identity headers of the client, set identity headers last.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue, header::CONNECTION};
use thiserror::Error;

use crate::UserInfo;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";
/// Prefix of all identity headers, including future ones.
const PREFIX: &str = "x-remote-";

/// Whether a header of this name is an identity header: all of `X-Remote-*`. Case is ignored; underscores count as dashes,
/// because some servers treat them alike.
#[must_use]
pub fn is_identity_header(name: &str) -> bool {
    let same = |(byte, wanted): (u8, u8)| match byte {
        b'_' => wanted == b'-',
        byte => byte.to_ascii_lowercase() == wanted,
    };
    name.len() >= PREFIX.len() && name.bytes().zip(PREFIX.bytes()).all(same)
}

/// Removes the identity headers of a client, and returns the number of removed values. Works for headers and trailers.
///
/// The names of identity headers are removed from `Connection`, too. A server that resolves hop-by-hop headers after this
/// would otherwise let the client remove the headers that were set. Allocates only if there is something to remove.
pub fn strip_identity_headers(headers: &mut HeaderMap) -> usize {
    strip_connection(headers);
    let forged: Vec<HeaderName> =
        headers.keys().filter(|name| is_identity_header(name.as_str())).cloned().collect();
    let before = headers.len();
    for name in forged {
        headers.remove(name);
    }
    before - headers.len()
}

fn strip_connection(headers: &mut HeaderMap) {
    let names_identity = |value: &HeaderValue| options(value).any(is_identity);
    if !headers.get_all(CONNECTION).iter().any(names_identity) {
        return;
    }
    let kept: Vec<u8> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(options)
        .filter(|option| !option.is_empty() && !is_identity(option))
        .collect::<Vec<_>>()
        .join(&b", "[..]);
    match HeaderValue::from_bytes(&kept) {
        Ok(value) if !kept.is_empty() => headers.insert(CONNECTION, value),
        _ => headers.remove(CONNECTION),
    };
}

fn options(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn is_identity(option: &[u8]) -> bool {
    std::str::from_utf8(option).is_ok_and(is_identity_header)
}

/// The headers that assert a user. Built once per identity (see [`Identity::headers`](crate::Identity::headers)), set on
/// every request.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityHeaders {
    lines: Vec<(HeaderName, HeaderValue)>,
}

/// A user that headers cannot express, or that the next server would take for another user. The request must not be
/// forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidIdentity {
    /// A value contains control characters, or spaces at an end, which the next server would trim.
    #[error("the {0} of the user contains control characters or spaces at an end")]
    Value(&'static str),
    /// The user has no name; the next server would find no user.
    #[error("the user has no name")]
    NoName,
    /// The key of an extra is empty or too long for a header name.
    #[error("a key among the extras of the user is empty or too long")]
    ExtraKey,
}

impl IdentityHeaders {
    /// `X-Remote-User` once, `X-Remote-Group` per group, `X-Remote-Extra-<key>` per value. The UID is not
    /// passed on, as kcp does not.
    pub fn for_user(user: &UserInfo) -> Result<Self, InvalidIdentity> {
        Self::for_user_as(user, &USER, &GROUP, EXTRA_PREFIX)
    }

    /// The headers under other names, for a server that uses them.
    pub fn for_user_as(
        user: &UserInfo,
        user_name: &HeaderName,
        group_name: &HeaderName,
        extra_prefix: &str,
    ) -> Result<Self, InvalidIdentity> {
        if user.name.is_empty() {
            return Err(InvalidIdentity::NoName);
        }
        let mut lines = Vec::with_capacity(1 + user.groups.len() + user.extra.len());
        lines.push((user_name.clone(), value("name", &user.name)?));
        for group in &user.groups {
            lines.push((group_name.clone(), value("group", group)?));
        }
        for (key, values) in &user.extra {
            if key.is_empty() {
                return Err(InvalidIdentity::ExtraKey);
            }
            let name = HeaderName::try_from(format!("{extra_prefix}{}", escape(key)))
                .map_err(|_| InvalidIdentity::ExtraKey)?;
            for text in values {
                lines.push((name.clone(), value("extra", text)?));
            }
        }
        Ok(Self { lines })
    }

    /// Sets the headers of a request, in place of [those of the client](strip_identity_headers). No input of the client may
    /// change the headers afterwards. Copies no text.
    pub fn stamp(&self, headers: &mut HeaderMap) {
        strip_identity_headers(headers);
        headers.reserve(self.lines.len());
        for (name, value) in &self.lines {
            headers.append(name.clone(), value.clone());
        }
    }
}

impl std::fmt::Debug for IdentityHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.lines.iter().map(|(name, value)| (name, value))).finish()
    }
}

fn value(attribute: &'static str, text: &str) -> Result<HeaderValue, InvalidIdentity> {
    let at_an_end = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    match HeaderValue::from_bytes(text.as_bytes()) {
        Ok(value) if !at_an_end => Ok(value),
        _ => Err(InvalidIdentity::Value(attribute)),
    }
}

/// Escapes a key as kcp does (Go's `url.PathEscape`), and in addition `=`, `:` and `@`, which HTTP does not allow in names.
/// The receiver decodes all of them.
fn escape(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len() + 8);
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$&+".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        headers
    }

    fn user(name: &str, groups: &[&str], extra: &[(&str, &[&str])]) -> UserInfo {
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        UserInfo {
            name: name.to_owned(),
            uid: Some("7".to_owned()),
            groups: strings(groups),
            extra: extra
                .iter()
                .map(|(key, values)| (key.to_string(), strings(values)))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn identity_headers_of_clients_are_removed() {
        type Lines<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, Lines<'_>, Lines<'_>, usize); 12] = [
            ("nothing to do", &[("accept", "*/*")], &[("accept", "*/*")], 0),
            ("a user", &[("x-remote-user", "root"), ("accept", "*/*")], &[("accept", "*/*")], 1),
            ("any case", &[("X-REMOTE-USER", "a"), ("X-Remote-Group", "b"), ("x-ReMoTe-UiD", "c")], &[], 3),
            (
                "duplicates",
                &[("x-remote-group", "a"), ("x-remote-group", "b"), ("x-remote-group", "a")],
                &[],
                3,
            ),
            (
                "extras",
                &[("X-Remote-Extra-Authentication.kcp.io%2fscopes", "a"), ("x-remote-extra-", "b")],
                &[],
                2,
            ),
            ("underscores", &[("x_remote_user", "a"), ("X-Remote_Extra_k", "b")], &[], 2),
            (
                "relatives",
                &[("x-remote-users", "a"), ("x-remote", "b"), ("x-remote-extra", "c"), ("remote-user", "d")],
                &[("x-remote", "b"), ("remote-user", "d")],
                2,
            ),
            ("named by Connection", &[("connection", "X-Remote-Group")], &[], 0),
            (
                "named by Connection among others",
                &[("connection", "keep-alive,  x-remote-USER ,x-remote-extra-k"), ("connection", "Upgrade")],
                &[("connection", "keep-alive, Upgrade")],
                0,
            ),
            (
                "other options stay as they are",
                &[("connection", "close ,te"), ("connection", "x-other")],
                &[("connection", "close ,te"), ("connection", "x-other")],
                0,
            ),
            (
                "named and sent",
                &[("connection", "x_remote_group, close"), ("x-remote-group", "system:masters")],
                &[("connection", "close")],
                1,
            ),
            (
                "impersonation headers are for the shard",
                &[("impersonate-user", "a")],
                &[("impersonate-user", "a")],
                0,
            ),
        ];
        for (name, lines, expected, count) in cases {
            let mut map = headers(lines);
            assert_eq!(strip_identity_headers(&mut map), count, "{name}");
            assert_eq!(map, headers(expected), "{name}");
        }
    }

    #[test]
    fn stamped_headers_replace_those_of_the_client() {
        let mut map = headers(&[
            ("accept", "*/*"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-authentication.kcp.io%2fscopes", "all"),
            ("x-remote-uid", "0"),
            ("connection", "x-remote-extra-authentication.kcp.io%2fscopes"),
        ]);
        let extra: &[(&str, &[&str])] = &[
            ("authentication.kcp.io/scopes", &["cluster:a", "cluster:b,cluster:c"]),
            ("a:b@c=d-e._~$&+ü", &["x"]),
        ];
        let stamp = IdentityHeaders::for_user(&user("änn", &["one", "two"], extra)).unwrap();
        let expected = [
            ("accept", "*/*"),
            ("x-remote-user", "änn"),
            ("x-remote-group", "one"),
            ("x-remote-group", "two"),
            ("x-remote-extra-authentication.kcp.io%2fscopes", "cluster:a"),
            ("x-remote-extra-authentication.kcp.io%2fscopes", "cluster:b,cluster:c"),
            ("x-remote-extra-a%3ab%40c%3dd-e._~$&+%c3%bc", "x"),
        ];
        stamp.stamp(&mut map);
        assert_eq!(map, headers(&expected));
        stamp.stamp(&mut map);
        assert_eq!(map, headers(&expected), "stamping twice is stamping once");
    }

    #[test]
    fn users_that_headers_cannot_express_are_refused() {
        let long_key = "k".repeat(70_000);
        let cases: [(UserInfo, InvalidIdentity); 9] = [
            (user("", &[], &[]), InvalidIdentity::NoName),
            (user("admin ", &[], &[]), InvalidIdentity::Value("name")),
            (user("\tadmin", &[], &[]), InvalidIdentity::Value("name")),
            (user("a\r\nX-Remote-Group: system:masters", &[], &[]), InvalidIdentity::Value("name")),
            (user("a\0", &[], &[]), InvalidIdentity::Value("name")),
            (user("a", &[" system:masters"], &[]), InvalidIdentity::Value("group")),
            (user("a", &[], &[("k", &["v\n"])]), InvalidIdentity::Value("extra")),
            (user("a", &[], &[("", &["v"])]), InvalidIdentity::ExtraKey),
            (user("a", &[], &[(&long_key, &["v"])]), InvalidIdentity::ExtraKey),
        ];
        for (user, expected) in cases {
            assert_eq!(IdentityHeaders::for_user(&user), Err(expected), "{:?}", user.name);
        }
    }
}
