//! Bearer tokens of requests: found in headers, and removed after use.

use std::{borrow::Cow, fmt, sync::OnceLock};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::jwt::UnverifiedClaims;

/// Browsers cannot set headers on a WebSocket, so Kubernetes takes a token as one of the subprotocols that
/// they offer.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// A bearer token. Its text never appears in `Debug`.
///
/// The digest and the unverified claims are computed once, at their first use.
#[derive(Clone)]
pub struct BearerToken<'a> {
    text: Cow<'a, str>,
    digest: OnceLock<[u8; 32]>,
    claims: OnceLock<Option<UnverifiedClaims>>,
}

/// The reason why a token cannot be read; the client has to correct the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedToken {
    /// There are several tokens, of which two servers might choose different ones.
    #[error("there is more than one Authorization header or bearer subprotocol")]
    Repeated,
    /// The token is not UTF-8.
    #[error("the bearer token is not UTF-8")]
    NotText,
    /// The subprotocol is not base64url without padding.
    #[error("the bearer subprotocol is not base64url without padding")]
    NotBase64,
    /// The token is the only subprotocol, so the response would have to repeat it.
    #[error("the bearer subprotocol comes without another subprotocol")]
    NoOtherSubprotocol,
}

impl<'a> BearerToken<'a> {
    /// A token that does not come from headers.
    #[must_use]
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self { text: text.into(), digest: OnceLock::new(), claims: OnceLock::new() }
    }

    /// The token of a request: of `Authorization`, else of a WebSocket's subprotocols. Other schemes and empty tokens are
    /// ignored.
    pub fn from_headers(headers: &'a HeaderMap) -> Result<Option<Self>, MalformedToken> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        if let Some(value) = values.next() {
            if values.next().is_some() {
                return Err(MalformedToken::Repeated);
            }
            if let Some(token) = from_authorization(value)? {
                return Ok(Some(Self::new(token)));
            }
        }
        if is_websocket(headers) {
            return from_subprotocols(headers);
        }
        Ok(None)
    }

    /// The text of the token, a secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the text: the key of caches of tokens. About 1 µs for 1 KiB, computed once.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        self.digest.get_or_init(|| Sha256::digest(self.text.as_bytes()).into())
    }

    /// The unverified claims if it is a signed JWT. Only for selecting an authenticator.
    pub(crate) fn unverified(&self) -> Option<&UnverifiedClaims> {
        self.claims.get_or_init(|| UnverifiedClaims::read(&self.text)).as_ref()
    }
}

impl PartialEq for BearerToken<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for BearerToken<'_> {}

impl fmt::Debug for BearerToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// Whether a request contains anything that another server might take for a token: any `Authorization`, or a WebSocket
/// subprotocol with the prefix of tokens, even if it is malformed.
#[must_use]
pub fn contains_token(headers: &HeaderMap) -> bool {
    let prefix = WEBSOCKET_PREFIX.as_bytes();
    let is_offered = |value: &HeaderValue| value.as_bytes().windows(prefix.len()).any(|part| part == prefix);
    headers.contains_key(AUTHORIZATION) || headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().any(is_offered)
}

/// Removes the bearer token from an authenticated request, so that no further server sees it.
pub fn remove_bearer_token(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    if !is_websocket(headers) {
        return;
    }
    let protocols: Vec<&str> = subprotocols(headers).collect();
    if !protocols.iter().any(|protocol| protocol.starts_with(WEBSOCKET_PREFIX)) {
        return;
    }
    let others: Vec<&str> =
        protocols.into_iter().filter(|protocol| !protocol.starts_with(WEBSOCKET_PREFIX)).collect();
    match HeaderValue::from_str(&others.join(", ")) {
        Ok(value) if !others.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, value),
        _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
}

fn from_authorization(value: &HeaderValue) -> Result<Option<&str>, MalformedToken> {
    // Kubernetes finds no token after a second space, so the next server would not find one either.
    let mut words = value.as_bytes().trim_ascii().split(|byte| *byte == b' ');
    match (words.next(), words.next()) {
        (Some(scheme), Some(token)) if scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty() => {
            std::str::from_utf8(token).map(Some).map_err(|_| MalformedToken::NotText)
        }
        _ => Ok(None),
    }
}

fn from_subprotocols<'a>(headers: &'a HeaderMap) -> Result<Option<BearerToken<'a>>, MalformedToken> {
    let mut encoded = None;
    let mut others = false;
    for protocol in subprotocols(headers) {
        match protocol.strip_prefix(WEBSOCKET_PREFIX) {
            Some(_) if encoded.is_some() => return Err(MalformedToken::Repeated),
            Some(token) => encoded = Some(token),
            None => others = true,
        }
    }
    let Some(encoded) = encoded.filter(|encoded| !encoded.is_empty()) else {
        return Ok(None);
    };
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| MalformedToken::NotBase64)?;
    let token = String::from_utf8(bytes).map_err(|_| MalformedToken::NotText)?;
    if !others {
        return Err(MalformedToken::NoOtherSubprotocol);
    }
    Ok(Some(BearerToken::new(token)))
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                http::HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        headers
    }

    /// `base64url("secret")` without padding.
    const OFFER: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0";

    #[test]
    fn tokens_are_found_where_kubernetes_looks_for_them() {
        let websocket = |protocols| vec![("upgrade", "WebSocket"), ("sec-websocket-protocol", protocols)];
        let both = format!("v5.channel.k8s.io, {OFFER}");
        let twice = format!("v5.channel.k8s.io,{OFFER},{OFFER}");
        type Expected<'a> = Result<Option<&'a str>, MalformedToken>;
        let cases: Vec<(Vec<(&str, &str)>, Expected<'_>)> = vec![
            (vec![], Ok(None)),
            (vec![("authorization", "Bearer secret")], Ok(Some("secret"))),
            (vec![("authorization", " \t bearer secret trailing ")], Ok(Some("secret"))),
            (vec![("authorization", "Bearer secret  ")], Ok(Some("secret"))),
            (vec![("authorization", "Bearer  secret")], Ok(None)),
            (vec![("authorization", "Bearer   secret")], Ok(None)),
            (vec![("authorization", "Bearer  secret trailing")], Ok(None)),
            (vec![("authorization", "Bearer\tsecret")], Ok(None)),
            (vec![("authorization", "Bearer")], Ok(None)),
            (vec![("authorization", "Bearer  ")], Ok(None)),
            (vec![("authorization", "Basic secret")], Ok(None)),
            (vec![("authorization", "Bearersecret")], Ok(None)),
            (
                vec![("authorization", "Bearer a"), ("authorization", "Bearer b")],
                Err(MalformedToken::Repeated),
            ),
            (websocket(&both), Ok(Some("secret"))),
            (websocket(&twice), Err(MalformedToken::Repeated)),
            (websocket(OFFER), Err(MalformedToken::NoOtherSubprotocol)),
            (websocket("x, base64url.bearer.authorization.k8s.io.?"), Err(MalformedToken::NotBase64)),
            (websocket("x, base64url.bearer.authorization.k8s.io._w"), Err(MalformedToken::NotText)),
            (websocket("x, base64url.bearer.authorization.k8s.io."), Ok(None)),
            (websocket("v5.channel.k8s.io"), Ok(None)),
            (vec![("sec-websocket-protocol", &both)], Ok(None)),
            (vec![("upgrade", "SPDY/3.1"), ("sec-websocket-protocol", &both)], Ok(None)),
            ([vec![("authorization", "Bearer first")], websocket(&both)].concat(), Ok(Some("first"))),
            ([vec![("authorization", "Bearer  first")], websocket(&both)].concat(), Ok(Some("secret"))),
        ];
        for (lines, expected) in cases {
            let headers = headers(&lines);
            let found = BearerToken::from_headers(&headers);
            assert_eq!(
                found.as_ref().map(|token| token.as_ref().map(BearerToken::as_str)),
                expected.as_ref().map(|t| *t),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn only_the_token_is_removed() {
        let offers = format!("v5.channel.k8s.io, {OFFER}, v4.channel.k8s.io");
        let mut map = headers(&[
            ("authorization", "Bearer secret"),
            ("accept", "*/*"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", &offers),
        ]);
        remove_bearer_token(&mut map);
        let expected = [
            ("accept", "*/*"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ];
        assert_eq!(map, headers(&expected));
        remove_bearer_token(&mut map);
        assert_eq!(map, headers(&expected));
    }

    #[test]
    fn anything_that_resembles_a_token_counts_as_one() {
        for (name, value, expected) in [
            ("authorization", "Bearer secret", true),
            ("authorization", "Basic eDp5", true),
            ("sec-websocket-protocol", OFFER, true),
            ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.?", true),
            ("sec-websocket-protocol", "v5.channel.k8s.io", false),
            ("cookie", "secret", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(name, HeaderValue::from_static(value));
            assert_eq!(contains_token(&headers), expected, "{name}: {value}");
        }
        assert!(!contains_token(&HeaderMap::new()));
    }

    #[test]
    fn debug_output_hides_the_token() {
        let headers = headers(&[("authorization", "Bearer secret")]);
        assert_eq!(format!("{:?}", BearerToken::from_headers(&headers)), "Ok(Some(BearerToken(..)))");
    }
}
