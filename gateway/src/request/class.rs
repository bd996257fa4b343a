//! What kind of exchange a request is, because that decides about its time limits and its metrics.

use http::Method;

/// The kind of exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestClass {
    /// One answer, nothing changes.
    Read,
    /// One answer, something may change.
    Write,
    /// An answer that goes on until somebody ends it: watches and followed logs.
    Watch,
    /// The connection stops being HTTP: WebSocket, SPDY.
    Upgrade,
}

impl RequestClass {
    /// Classifies one request. `upgrade` is whether the protocol layer saw a valid upgrade request.
    pub(crate) fn of(method: &Method, query: Option<&str>, upgrade: Upgrade) -> Self {
        match (upgrade, method) {
            (Upgrade::Requested, _) => Self::Upgrade,
            (Upgrade::None, &Method::GET) if query.is_some_and(streams) => Self::Watch,
            (Upgrade::None, &Method::GET | &Method::HEAD | &Method::OPTIONS) => Self::Read,
            (Upgrade::None, _) => Self::Write,
        }
    }

    /// Whether the exchange lasts as long as both sides want: no time limit applies.
    pub(crate) fn is_long_running(self) -> bool {
        matches!(self, Self::Watch | Self::Upgrade)
    }

    /// The name used as a metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Watch => "watch",
            Self::Upgrade => "upgrade",
        }
    }
}

/// Whether a request asks to leave HTTP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Upgrade {
    /// It does not.
    None,
    /// `Connection: upgrade` with an `Upgrade` header, over HTTP/1.1.
    Requested,
}

/// `watch` and `follow` as the Kubernetes query decoder reads booleans: present, and neither `0` nor `false`.
fn streams(query: &str) -> bool {
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        matches!(name, "watch" | "follow") && !matches!(value, "0" | "false" | "False" | "FALSE" | "F" | "f")
    })
}

#[cfg(test)]
mod tests {
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
            (Method::GET, Some("container=a&follow=true"), Watch),
            (Method::POST, Some("watch=true"), Write),
            (Method::HEAD, None, Read),
            (Method::OPTIONS, None, Read),
            (Method::DELETE, None, Write),
            (Method::PATCH, None, Write),
        ] {
            assert_eq!(RequestClass::of(&method, query, Upgrade::None), expected, "{method} {query:?}");
        }
        assert_eq!(RequestClass::of(&Method::POST, None, Upgrade::Requested), RequestClass::Upgrade);
    }
}
