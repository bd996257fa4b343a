//! Rewrites the request headers for the upstream: the decided path, no hop-by-hop fields, no identity headers but the gateway's.
//!
//! The order matters (kcp's CVE-2026-61682): first the fields that the client's `Connection` header names are removed, then the
//! client's identity headers; the gateway's identity headers are added last, so that nothing the client sends can remove or
//! change them.

use std::io::Write as _;
use std::net::IpAddr;

use fairlead_authn::{
    IdentityHeaders, InvalidIdentity, is_identity_header, remove_bearer_token, strip_identity_headers,
};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{self, PathAndQuery, Scheme};

use crate::auth::identity::RequestIdentity;
use crate::policy::client_address::X_FORWARDED_FOR;
use crate::request::identity_headers::{IdentityHeaderNames, KcpIdentityHeaders, TrustedIdentityHeaders};
use crate::request::{MOUNT_HOPS, REVISION, RequestClass, is_hop_by_hop, nominated_headers};

const X_REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");

/// The decision about a request, as far as headers express it.
pub(crate) struct HeaderRewrite<'f> {
    pub(crate) path_and_query: &'f PathAndQuery,
    pub(crate) identity: &'f RequestIdentity,
    pub(crate) identity_header_names: Option<&'f IdentityHeaderNames>,
    pub(crate) trusted: Option<&'f TrustedIdentityHeaders>,
    pub(crate) kcp: KcpIdentityHeaders,
    pub(crate) hops: Option<u32>,
    pub(crate) client: IpAddr,
    pub(crate) class: RequestClass,
}

/// The request must not be forwarded; the gateway is to blame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderRewriteError {
    /// The identity cannot be written as headers.
    #[error(transparent)]
    Identity(#[from] InvalidIdentity),
    /// The target for the upstream is invalid.
    #[error("the upstream's request target is invalid")]
    Target(#[from] http::uri::InvalidUriParts),
    /// The client's address cannot be written as a header.
    #[error("the client's address is no header value")]
    Address(#[from] header::InvalidHeaderValue),
}

/// The client's fields about this hop, read before they are removed.
pub(crate) struct Hop {
    /// Fields that its `Connection` header names.
    nominated: Vec<HeaderName>,
    /// Whether it accepts trailers.
    trailers: bool,
}

impl Hop {
    /// Reads the client's headers.
    pub(crate) fn of(incoming: &HeaderMap) -> Self {
        Self {
            nominated: nominated_headers(incoming).collect(),
            trailers: incoming.get(header::TE).is_some_and(|te| te.as_bytes() == b"trailers"),
        }
    }
}

/// Rewrites `outgoing`, the client's request, for the upstream. Returns the number of identity headers that were removed.
///
/// # Errors
/// An internal error if the identity cannot be written as headers; the request must not be forwarded.
pub(crate) fn prepare(
    outgoing: &mut Parts,
    hop: &Hop,
    rewrite: &HeaderRewrite<'_>,
) -> Result<usize, HeaderRewriteError> {
    set_path(outgoing, rewrite.path_and_query)?;
    let headers = &mut outgoing.headers;
    remove_hop_by_hop(headers, hop, rewrite.class);
    headers.remove(header::EXPECT);
    match rewrite.hops {
        Some(hops) => headers.insert(MOUNT_HOPS, HeaderValue::from(hops)),
        None => headers.remove(MOUNT_HOPS),
    };
    headers.remove(REVISION);
    append_forwarded_for(headers, rewrite.client)?;
    let keeps_uid = rewrite.kcp.keeps_uid
        && !rewrite.identity_header_names.is_some_and(|names| names.contains(&X_REMOTE_UID));
    let uid = headers.get(X_REMOTE_UID).filter(|_| keeps_uid).cloned();
    let stripped = strip_identity_headers(headers)
        + rewrite.trusted.map_or(0, |trusted| strip_trusted_headers(headers, trusted));
    if let RequestIdentity::Authenticated(identity) = rewrite.identity {
        // A token that was verified here is not sent on; one beside a certificate is, as in kcp.
        if identity.method().is_bearer_token() {
            remove_bearer_token(headers);
        }
        match rewrite.identity_header_names {
            None => identity.headers().map_err(InvalidIdentity::clone)?.stamp(headers),
            // Written anew for each request: backends with header names of their own are rare.
            Some(IdentityHeaderNames { user, group, extra_prefix }) => {
                IdentityHeaders::for_user_as(identity.user(), user, group, extra_prefix)?.stamp(headers);
            }
        }
    }
    if let Some(uid) = uid {
        headers.insert(X_REMOTE_UID, uid);
    }
    if rewrite.kcp.nominations_last {
        let states = |name: &&HeaderName| {
            is_identity_header(name.as_str()) || rewrite.trusted.is_some_and(|trusted| trusted.contains(name))
        };
        hop.nominated.iter().filter(states).for_each(|name| _ = headers.remove(name));
    }
    Ok(stripped)
}

/// Removes the client's own copies of further headers that backends trust.
fn strip_trusted_headers(headers: &mut HeaderMap, trusted: &TrustedIdentityHeaders) -> usize {
    let before = headers.len();
    for name in headers.keys().filter(|name| trusted.contains(name)).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    before - headers.len()
}

/// Keeps scheme and authority of an HTTP/2 request; an HTTP/1.1 one becomes origin-form.
fn set_path(outgoing: &mut Parts, path_and_query: &PathAndQuery) -> Result<(), HeaderRewriteError> {
    let mut parts = uri::Parts::default();
    if let Some(authority) = outgoing.uri.authority() {
        parts.scheme = outgoing.uri.scheme().cloned().or(Some(Scheme::HTTPS));
        parts.authority = Some(authority.clone());
    }
    parts.path_and_query = Some(path_and_query.clone());
    outgoing.uri = http::Uri::from_parts(parts)?;
    Ok(())
}

fn remove_hop_by_hop(headers: &mut HeaderMap, hop: &Hop, class: RequestClass) {
    for name in &hop.nominated {
        // A client cannot nominate fields that frame or address the message.
        if !matches!(
            *name,
            header::HOST | header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::UPGRADE
        ) {
            headers.remove(name);
        }
    }
    let unwanted = |name: &&HeaderName| {
        is_hop_by_hop(name) && **name != header::TRANSFER_ENCODING && **name != header::UPGRADE
    };
    // Collected, because the map cannot be changed while it is read; there is rarely more than one.
    for name in headers.keys().filter(unwanted).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    if class == RequestClass::Upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    } else {
        headers.remove(header::UPGRADE);
    }
    if hop.trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Appends the client's address to X-Forwarded-For, as kcp does.
fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) -> Result<(), HeaderRewriteError> {
    let mut list = Vec::with_capacity(48);
    for value in headers.get_all(X_FORWARDED_FOR) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    // Writing to a vector does not fail.
    let _ = write!(list, "{client}");
    let value = HeaderValue::from_maybe_shared(bytes::Bytes::from(list))?;
    headers.insert(X_FORWARDED_FOR, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};

    fn alice() -> RequestIdentity {
        let user = UserInfo {
            name: "alice".into(),
            groups: vec!["team".into(), "system:authenticated".into()],
            extra: [("authentication.kcp.io/scopes".to_owned(), vec!["cluster:a".to_owned()])].into(),
            uid: None,
        };
        RequestIdentity::Authenticated(Arc::new(Identity::new(
            user,
            AuthenticationMethod::ClientCertificate,
            None,
        )))
    }

    /// Identity and hop-by-hop fields that arrive at the shard, one line per field.
    fn rewrite(
        fields: &[(&str, &str)],
        identity: &RequestIdentity,
        class: RequestClass,
    ) -> (Vec<String>, usize) {
        forwarded_as(KcpIdentityHeaders::default(), fields, identity, class)
    }

    fn forwarded_as(
        kcp: KcpIdentityHeaders,
        fields: &[(&str, &str)],
        identity: &RequestIdentity,
        class: RequestClass,
    ) -> (Vec<String>, usize) {
        let (mut outgoing, ()) = http::Request::new(()).into_parts();
        outgoing.uri = "/clusters/root/api".parse().unwrap();
        for (name, value) in fields {
            let name = HeaderName::try_from(*name).unwrap();
            outgoing.headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let hop = Hop::of(&outgoing.headers);
        let path_and_query = PathAndQuery::from_static("/clusters/root/api?x=1");
        let client = IpAddr::from([192, 0, 2, 1]);
        let path_and_query = &path_and_query;
        let decided = HeaderRewrite {
            path_and_query,
            identity,
            identity_header_names: None,
            trusted: None,
            kcp,
            hops: None,
            client,
            class,
        };
        let stripped = prepare(&mut outgoing, &hop, &decided).unwrap();
        assert_eq!(outgoing.uri.to_string(), "/clusters/root/api?x=1");
        let mut lines: Vec<String> = outgoing
            .headers
            .iter()
            .filter(|(name, _)| *name != X_FORWARDED_FOR)
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        (lines, stripped)
    }

    const STAMPED: [&str; 4] = [
        "x-remote-extra-authentication.kcp.io%2fscopes: cluster:a",
        "x-remote-group: system:authenticated",
        "x-remote-group: team",
        "x-remote-user: alice",
    ];

    #[test]
    fn a_client_can_neither_add_nor_remove_what_we_say_about_it() {
        let cases: [&[(&str, &str)]; 8] = [
            &[],
            &[("x-remote-user", "root"), ("x-remote-group", "system:masters")],
            &[
                ("X-ReMoTe-UsEr", "root"),
                ("X-REMOTE-GROUP", "a"),
                ("x-remote-group", "b"),
                ("x-remote-uid", "0"),
            ],
            &[("x-remote-extra-scopes", "*"), ("x-remote-extra-authentication.kcp.io%2fscopes", "*")],
            &[("x_remote_user", "root")],
            &[("connection", "x-remote-user, X-Remote-Group, x-remote-extra-authentication.kcp.io%2fscopes")],
            &[
                ("connection", "x-forwarded-for, te"),
                ("keep-alive", "1"),
                ("proxy-authorization", "x"),
                ("te", "gzip"),
            ],
            &[("x-fairlead-revision", "9"), ("x-fairlead-mount-hops", "9")],
        ];
        for fields in cases {
            let (lines, _) = rewrite(fields, &alice(), RequestClass::Read);
            assert_eq!(lines, STAMPED, "{fields:?}");
        }
    }

    #[test]
    fn an_unauthenticated_request_carries_no_identity_and_keeps_its_token() {
        let fields = [("authorization", "Bearer t"), ("x-remote-user", "root"), ("impersonate-user", "bob")];
        let (lines, stripped) = rewrite(&fields, &RequestIdentity::PassThrough, RequestClass::Read);
        assert_eq!(lines, ["authorization: Bearer t", "impersonate-user: bob"]);
        assert_eq!(stripped, 1);
    }

    #[test]
    fn each_hole_of_kcp_is_open_only_with_its_switch() {
        let fields = [
            ("connection", "x-remote-group, x-remote-uid"),
            ("x-remote-uid", "0"),
            ("x-remote-user", "root"),
        ];
        for (nominations_last, keeps_uid, without) in [
            (false, false, ""),
            (true, false, "x-remote-group"),
            (false, true, ""),
            (true, true, "x-remote-group"),
        ] {
            let stamping = KcpIdentityHeaders { nominations_last, keeps_uid };
            let (lines, _) = forwarded_as(stamping, &fields, &alice(), RequestClass::Read);
            let left = |line: &&&str| without.is_empty() || !line.starts_with(without);
            assert_eq!(lines, STAMPED.iter().filter(left).copied().collect::<Vec<_>>(), "{stamping:?}");
        }
        let stamping = KcpIdentityHeaders { nominations_last: false, keeps_uid: true };
        let (lines, _) = forwarded_as(stamping, &fields[1..], &alice(), RequestClass::Read);
        assert_eq!(lines, [&STAMPED[..3], &["x-remote-uid: 0"], &STAMPED[3..]].concat());
    }

    #[test]
    fn with_kcp_compatibility_clients_can_remove_identity_headers_only() {
        let stamping = KcpIdentityHeaders { nominations_last: true, keeps_uid: true };
        let fields = [("connection", "te, x-forwarded-for, x-remote-user"), ("te", "trailers")];
        let (lines, _) = forwarded_as(stamping, &fields, &alice(), RequestClass::Read);
        assert_eq!(lines, [&["te: trailers"], &STAMPED[..3]].concat());

        // A header that asserts the identity to the backend is never the client's.
        let usual = |name| HeaderName::from_static(name);
        for (user, extra_prefix, expected) in
            [("x-remote-uid", "x-mine-", "alice"), ("x-mine", "x-remote-", ""), ("x-mine", "x-mine-", "root")]
        {
            let names = IdentityHeaderNames {
                user: usual(user),
                group: usual("x-groups"),
                extra_prefix: extra_prefix.into(),
            };
            let (mut outgoing, ()) = http::Request::new(()).into_parts();
            outgoing.headers.insert(X_REMOTE_UID, HeaderValue::from_static("root"));
            let decided = HeaderRewrite {
                path_and_query: &PathAndQuery::from_static("/"),
                identity: &alice(),
                identity_header_names: Some(&names),
                trusted: None,
                kcp: stamping,
                hops: None,
                client: IpAddr::from([192, 0, 2, 1]),
                class: RequestClass::Read,
            };
            let hop = Hop::of(&outgoing.headers);
            prepare(&mut outgoing, &hop, &decided).unwrap();
            let found = outgoing.headers.get(X_REMOTE_UID).map_or("", |value| value.to_str().unwrap());
            assert_eq!(
                (found, outgoing.headers.contains_key(X_FORWARDED_FOR)),
                (expected, true),
                "{names:?}"
            );
        }
    }

    #[test]
    fn only_upgrades_keep_their_handshake() {
        let fields = [("connection", "Upgrade, x-remote-user"), ("upgrade", "SPDY/3.1"), ("te", "trailers")];
        let (lines, _) = rewrite(&fields, &RequestIdentity::PassThrough, RequestClass::Upgrade);
        assert_eq!(lines, ["connection: Upgrade", "te: trailers", "upgrade: SPDY/3.1"]);
        let (lines, _) = rewrite(&fields, &RequestIdentity::PassThrough, RequestClass::Read);
        assert_eq!(lines, ["te: trailers"]);
    }

    #[test]
    fn the_clients_address_is_appended() {
        let mut headers = HeaderMap::new();
        headers.append(X_FORWARDED_FOR, HeaderValue::from_static("203.0.113.7"));
        headers.append(X_FORWARDED_FOR, HeaderValue::from_static("10.0.0.1"));
        append_forwarded_for(&mut headers, IpAddr::from([192, 0, 2, 1])).unwrap();
        let values: Vec<_> = headers.get_all(X_FORWARDED_FOR).iter().collect();
        assert_eq!(values, ["203.0.113.7, 10.0.0.1, 192.0.2.1"]);
    }

    #[test]
    fn the_authority_of_http2_is_kept() {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.uri = "https://kcp.example:6443/clusters/root:a".parse().unwrap();
        set_path(&mut parts, &PathAndQuery::from_static("/clusters/id")).unwrap();
        assert_eq!(parts.uri.to_string(), "https://kcp.example:6443/clusters/id");
    }
}
