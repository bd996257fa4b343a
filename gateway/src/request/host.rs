//! Validation of the `Host` header and the authority of the request target.

use std::str::FromStr;

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::Authority;

/// The error in the host of a request, as text.
pub(crate) type HostError = &'static str;

const MISSING: HostError = "a request over HTTP/1.1 must have a Host header";
const NO_AUTHORITY: HostError = "the request names no authority";
const SEVERAL: HostError = "the request has several Host headers";
const INVALID: HostError = "the Host header is not a host with an optional port";
const CONTRADICTION: HostError = "the request names two different authorities";

/// HTTP/2 (RFC 9113, 8.3.1): `:authority`, `Host`, or both and the same.
pub(crate) fn host_error_over_http2(head: &Parts) -> Option<HostError> {
    match (host_header(&head.headers), head.uri.authority()) {
        (Err(fault), _) => Some(fault),
        (Ok(None), None) => Some(NO_AUTHORITY),
        (Ok(Some(host)), None) => is_invalid(host).then_some(INVALID),
        (Ok(None), Some(authority)) => has_userinfo(authority).then_some(INVALID),
        (Ok(Some(host)), Some(authority)) => contradiction(host, authority),
    }
}

/// HTTP/1 (RFC 9112, 3.2): one `Host`, the same as the authority of the target if that has one. HTTP/1.0 does without.
pub(crate) fn host_error_over_http1(head: &Parts) -> Option<HostError> {
    match (host_header(&head.headers), head.uri.authority()) {
        (Err(fault), _) => Some(fault),
        (Ok(None), None) => (head.version == http::Version::HTTP_11).then_some(MISSING),
        (Ok(None), Some(_)) => Some(MISSING),
        (Ok(Some(host)), None) => is_invalid(host).then_some(INVALID),
        (Ok(Some(host)), Some(authority)) => contradiction(host, authority),
    }
}

fn host_header(headers: &HeaderMap) -> Result<Option<&HeaderValue>, HostError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() { Err(SEVERAL) } else { Ok(host) }
}

fn contradiction(host: &HeaderValue, authority: &Authority) -> Option<HostError> {
    if has_userinfo(authority) || is_invalid(host) {
        return Some(INVALID);
    }
    let same = host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
    (!same).then_some(CONTRADICTION)
}

fn is_invalid(host: &HeaderValue) -> bool {
    let authority = host.to_str().ok().and_then(|host| Authority::from_str(host).ok());
    authority.is_none_or(|authority| has_userinfo(&authority))
}

/// Userinfo before the host is not part of a request target, and can make one host look like another.
fn has_userinfo(authority: &Authority) -> bool {
    authority.as_str().contains('@')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use http::Version;

    use super::*;

    fn head(target: &str, hosts: &[&str], version: Version) -> Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.uri = target.parse().unwrap();
        parts.version = version;
        for host in hosts {
            parts.headers.append(header::HOST, host.parse().unwrap());
        }
        parts
    }

    #[test]
    fn http2_names_one_authority() {
        for (target, hosts, expected) in [
            ("https://a/x", &[][..], None),
            ("https://a/x", &["A"], None),
            ("/x", &["a:6443"], None),
            ("/x", &[], Some(NO_AUTHORITY)),
            ("https://a/x", &["b"], Some(CONTRADICTION)),
            ("https://a/x", &["a", "a"], Some(SEVERAL)),
            ("https://u@a/x", &[], Some(INVALID)),
            ("/x", &["u@a"], Some(INVALID)),
            ("/x", &["a b"], Some(INVALID)),
        ] {
            let fault = host_error_over_http2(&head(target, hosts, Version::HTTP_2));
            assert_eq!(fault, expected, "{target} {hosts:?}");
        }
    }

    #[test]
    fn http1_names_one_host() {
        for (target, hosts, version, expected) in [
            ("/x", &["a"][..], Version::HTTP_11, None),
            ("/x", &["[::1]:6443"], Version::HTTP_11, None),
            ("/x", &[], Version::HTTP_10, None),
            ("/x", &[], Version::HTTP_11, Some(MISSING)),
            ("/x", &[""], Version::HTTP_11, Some(INVALID)),
            ("/x", &["[::1"], Version::HTTP_11, Some(INVALID)),
            ("/x", &["a", "b"], Version::HTTP_11, Some(SEVERAL)),
            ("http://a/x", &["a"], Version::HTTP_11, None),
            ("http://a/x", &["b"], Version::HTTP_11, Some(CONTRADICTION)),
            ("http://a/x", &[], Version::HTTP_10, Some(MISSING)),
        ] {
            let fault = host_error_over_http1(&head(target, hosts, version));
            assert_eq!(fault, expected, "{target} {hosts:?}");
        }
    }
}
