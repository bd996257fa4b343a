//! Classes of requests, which determine timeouts and metric labels.

use http::header::{self, HeaderMap};
use http::{Method, Version};
use percent_encoding::percent_decode_str;

use crate::request::LocalEndpoint;
use crate::request::headers::nominated_headers;
use crate::request::resource::is_collection_anywhere;

/// The class of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestClass {
    /// A single response without side effects.
    Read,
    /// A single response, possibly with side effects.
    Write,
    /// A response that streams until one side ends it: a watch of a resource or a followed log. On other paths the parameter
    /// `watch` has no effect, because API servers ignore it there.
    Watch,
    /// The connection changes to another protocol: WebSocket, SPDY.
    Upgrade,
}

impl RequestClass {
    /// Classifies one request.
    pub(crate) fn of(
        method: &Method,
        path: &str,
        query: Option<&str>,
        version: Version,
        headers: &HeaderMap,
    ) -> Self {
        match *method {
            _ if requests_upgrade(version, headers) => Self::Upgrade,
            Method::GET if query.is_some_and(|query| is_streaming(path, query)) => Self::Watch,
            Method::GET | Method::HEAD | Method::OPTIONS => Self::Read,
            _ => Self::Write,
        }
    }

    /// Whether the request is long-running: no timeout applies.
    pub(crate) fn is_long_running(self) -> bool {
        matches!(self, Self::Watch | Self::Upgrade)
    }

    /// The value of the metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Watch => "watch",
            Self::Upgrade => "upgrade",
        }
    }
}

/// `Connection: upgrade` with an `Upgrade` header, over HTTP/1.1. An offer of another version of HTTP, alone or among
/// others, does not count: such clients continue with HTTP/1.1 just as well. A client that spoke HTTP/2 to a shard
/// through the tunnel could set the identity headers itself.
fn requests_upgrade(version: Version, headers: &HeaderMap) -> bool {
    let protocols = || {
        let values = headers.get_all(header::UPGRADE).iter();
        values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    };
    version == Version::HTTP_11
        && protocols().next().is_some()
        && !protocols().any(is_http)
        && nominated_headers(headers).any(|name| name == header::UPGRADE)
}

/// `h2c`, `h2`, `HTTP/2.0`, `TLS/1.3` (RFC 2817), and other names with these prefixes.
fn is_http(protocol: &[u8]) -> bool {
    let begins =
        |with: &[u8]| protocol.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    begins(b"h2") || begins(b"h3") || begins(b"http") || begins(b"tls") || protocol.is_empty()
}

fn is_streaming(path: &str, query: &str) -> bool {
    let is_watch = || {
        matches!(LocalEndpoint::parse(path), Some(LocalEndpoint::Tail))
            || is_collection_anywhere(&percent_decode_str(path).decode_utf8_lossy())
    };
    (is_set(query, "watch") && is_watch()) || (is_log(path) && is_set(query, "follow"))
}

/// Whether the path is the log of a pod. On other paths `follow` has no effect.
fn is_log(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    segments.next() == Some("log") && segments.next().is_some() && segments.next() == Some("pods")
}

/// Whether a query parameter is true by the API servers' decoder: present, and its first value neither `0` nor `false`; `f` is
/// true.
fn is_set(query: &str, name: &str) -> bool {
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy();
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let Some((_, value)) = pairs.find(|(found, _)| decoded(found) == name) else { return false };
    let value = decoded(value);
    value != "0" && !value.eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn exchanges_are_classified() {
        use RequestClass::{Read, Watch, Write};
        for (method, query, expected) in [
            (Method::GET, None, Read),
            (Method::GET, Some("watch=true"), Watch),
            (Method::GET, Some("limit=500&watch=1"), Watch),
            (Method::GET, Some("watch"), Watch),
            (Method::GET, Some("watch=false"), Read),
            (Method::GET, Some("watch=0"), Read),
            (Method::GET, Some("unwatch=true"), Read),
            (Method::GET, Some("watch=False"), Read),
            (Method::GET, Some("watch=f"), Watch),
            (Method::GET, Some("watch=no"), Watch),
            (Method::GET, Some("w%61tch=%74rue"), Watch),
            (Method::GET, Some("watch=%66alse"), Read),
            (Method::GET, Some("watch=false&watch=true"), Read),
            (Method::GET, Some("container=a&follow=true"), Read),
            (Method::POST, Some("watch=true"), Write),
            (Method::HEAD, None, Read),
            (Method::OPTIONS, None, Read),
            (Method::DELETE, None, Write),
            (Method::PATCH, None, Write),
        ] {
            let class = RequestClass::of(&method, "/api/v1/pods", query, Version::HTTP_11, &HeaderMap::new());
            assert_eq!(class, expected, "{method} {query:?}");
        }
    }

    #[test]
    fn only_resources_are_watched() {
        use RequestClass::{Read, Watch};
        for (path, expected) in [
            ("/clusters/root:org/api/v1/configmaps", Watch),
            ("/clusters/root:org/%61pi/v1/configmaps", Watch),
            ("/services/apiexport/root/a/clusters/*/api/v1/configmaps", Watch),
            ("/clusters/root:org/openapi/v2", Read),
            ("/clusters/root:org/version", Read),
            ("/clusters/root:org/api/v1", Read),
            ("/clusters/root:org/api/v1/namespaces/a/configmaps/b", Read),
            ("/openapi/v2", Read),
            ("/livez", Read),
        ] {
            let (none, get) = (HeaderMap::new(), Method::GET);
            let class = RequestClass::of(&get, path, Some("watch=1"), Version::HTTP_2, &none);
            assert_eq!(class, expected, "{path}");
        }
    }

    #[test]
    fn only_logs_are_followed() {
        use RequestClass::{Read, Watch};
        for (path, query, expected) in [
            ("/clusters/a/api/v1/namespaces/b/pods/c/log", "container=a&follow=true", Watch),
            ("/clusters/a/api/v1/namespaces/b/pods/c/log", "follow=0", Read),
            ("/clusters/a/api/v1/namespaces/b/pods/c/log", "", Read),
            ("/clusters/a/api/v1/namespaces/b/pods/log", "follow=true", Read),
            ("/clusters/a/api/v1/namespaces/b/configmaps/log", "follow=true", Read),
            ("/log", "follow=true", Read),
        ] {
            let (none, get) = (HeaderMap::new(), Method::GET);
            let class = RequestClass::of(&get, path, Some(query), Version::HTTP_2, &none);
            assert_eq!(class, expected, "{path} {query}");
        }
    }

    #[test]
    fn upgrades_are_distinguished_from_offers() {
        use RequestClass::{Upgrade, Write};
        for (version, connection, upgrade, expected) in [
            (Version::HTTP_11, "Upgrade", "websocket", Upgrade),
            (Version::HTTP_11, "keep-alive, upgrade", "SPDY/3.1", Upgrade),
            (Version::HTTP_11, "keep-alive", "websocket", Write),
            (Version::HTTP_11, "Upgrade, HTTP2-Settings", "h2c", Write),
            (Version::HTTP_11, "Upgrade", "H2C", Write),
            (Version::HTTP_11, "Upgrade", "websocket, h2c", Write),
            (Version::HTTP_11, "Upgrade", "h2c/1,websocket", Write),
            (Version::HTTP_11, "Upgrade", "HTTP/2.0", Write),
            (Version::HTTP_11, "Upgrade", "", Write),
            (Version::HTTP_10, "Upgrade", "websocket", Write),
            (Version::HTTP_2, "Upgrade", "websocket", Write),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("connection", connection.parse().unwrap());
            headers.insert("upgrade", upgrade.parse().unwrap());
            let class = RequestClass::of(&Method::POST, "/", None, version, &headers);
            assert_eq!(class, expected, "{version:?} {connection} {upgrade}");
        }
    }
}
