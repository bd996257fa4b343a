//! Invariants of header rewriting, for fuzzing.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Version};

use crate::auth::identity::RequestIdentity;
use crate::forward::headers::{HeaderRewrite, Hop, prepare};
use crate::request::RequestClass;
use crate::request::identity_headers::{IdentityHeaderNames, KcpIdentityHeaders, TrustedIdentityHeaders};

/// Parses lines as header fields and rewrites them. The result must have the gateway's identity headers only, and no hop-by-hop
/// field of the client.
///
/// # Panics
/// If an invariant does not hold.
pub fn headers(input: &[u8]) {
    let incoming = fields(input);
    let custom = IdentityHeaderNames {
        user: HeaderName::from_static("x-custom-user"),
        group: HeaderName::from_static("x-custom-group"),
        extra_prefix: "x-custom-extra-".into(),
    };
    for identity in [RequestIdentity::PassThrough, alice()] {
        for names in [None, Some(&custom)] {
            let Some((outgoing, class)) = rewrite(&incoming, &identity, names) else { continue };
            let expected: &[&str] = match (&identity, names) {
                (RequestIdentity::PassThrough, _) => &[],
                (_, None) => &["x-remote-extra-scopes: a", "x-remote-group: team", "x-remote-user: alice"],
                (_, Some(_)) => &["x-custom-extra-scopes: a", "x-custom-group: team", "x-custom-user: alice"],
            };
            let said = claims(&outgoing, names.is_some());
            assert_eq!(said, expected, "{incoming:?}");
            for name in outgoing.keys().map(HeaderName::as_str) {
                let hop =
                    ["keep-alive", "proxy-connection", "proxy-authorization", "http2-settings", "trailer"];
                let upgrade = ["connection", "upgrade"].contains(&name) && class != RequestClass::Upgrade;
                assert!(!hop.contains(&name) && !upgrade, "{name} goes on: {incoming:?}");
            }
        }
    }
}

fn rewrite(
    incoming: &HeaderMap,
    identity: &RequestIdentity,
    names: Option<&IdentityHeaderNames>,
) -> Option<(HeaderMap, RequestClass)> {
    let mut outgoing: Parts = Request::new(()).into_parts().0;
    outgoing.headers = incoming.clone();
    let class = RequestClass::of(&outgoing.method, "/", None, Version::HTTP_11, incoming);
    let path_and_query = PathAndQuery::from_static("/clusters/root/api");
    let trusted = names.map(|names| {
        let mut trusted = TrustedIdentityHeaders::default();
        trusted.add_backend(names);
        trusted
    });
    let decided = HeaderRewrite {
        path_and_query: &path_and_query,
        identity,
        identity_header_names: names,
        trusted: trusted.as_ref(),
        kcp: KcpIdentityHeaders::default(),
        hops: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        class,
    };
    prepare(&mut outgoing, &Hop::of(incoming), &decided).ok()?;
    Some((outgoing.headers, class))
}

/// Lines as header fields; invalid ones are skipped.
fn fields(input: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    fields
}

/// Fields that a lenient server could take for identity headers.
fn claims(headers: &HeaderMap, custom: bool) -> Vec<String> {
    let prefixes: &[&str] = if custom { &["x-remote-", "x-custom-"] } else { &["x-remote-"] };
    let claims = |name: &HeaderName| {
        let name = name.as_str().replace('_', "-");
        let kinds = || prefixes.iter().filter_map(|prefix| name.strip_prefix(prefix));
        kinds().any(|kind| matches!(kind, "user" | "group") || kind.starts_with("extra-"))
            || name == "x-remote-uid"
    };
    let said = headers.iter().filter(|(name, _)| claims(name));
    let mut said: Vec<String> =
        said.map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii())).collect();
    said.sort();
    said
}

fn alice() -> RequestIdentity {
    let user = UserInfo {
        name: "alice".into(),
        groups: vec!["team".into()],
        extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(),
        uid: None,
    };
    RequestIdentity::Authenticated(Arc::new(Identity::new(
        user,
        AuthenticationMethod::ClientCertificate,
        None,
    )))
}
