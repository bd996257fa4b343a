//! Base URL of a server: scheme, host, port and path prefix.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::uri::{Authority, Scheme};

/// The base URL of a server, parsed once: `https://host[:port][/prefix]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    host: Arc<str>,
    port: u16,
    prefix: Arc<str>,
}

/// A text that is not a server URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not a server URL: {reason}")]
pub struct EndpointError {
    /// The given text.
    pub url: String,
    /// The fault.
    pub reason: String,
}

impl Endpoint {
    /// Parses a base URL. A path is kept as prefix of every request; a query or fragment is refused.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let refuse = |reason: &str| EndpointError { url: url.to_owned(), reason: reason.to_owned() };
        let uri: Uri =
            url.trim().parse().map_err(|error: http::uri::InvalidUri| refuse(&error.to_string()))?;
        let parts = uri.into_parts();
        let scheme = parts.scheme.ok_or_else(|| refuse("it has no scheme, expected https://"))?;
        let default_port = match scheme.as_str() {
            "https" => 443,
            "http" => 80,
            _ => return Err(refuse("its scheme is neither https nor http")),
        };
        let authority = parts.authority.ok_or_else(|| refuse("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("it contains credentials"));
        }
        let host: Arc<str> = authority.host().trim_start_matches('[').trim_end_matches(']').into();
        if host.is_empty() {
            return Err(refuse("it has no host"));
        }
        let port = authority.port_u16().unwrap_or(default_port);
        let path = parts.path_and_query.as_ref();
        if path.is_some_and(|path| path.query().is_some()) {
            return Err(refuse("it has a query"));
        }
        let prefix = path.map_or("", |path| path.path()).trim_end_matches('/').into();
        Ok(Self { scheme, authority, host, port, prefix })
    }

    /// The same server under another path prefix, e.g. `/clusters/root`; empty for none.
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self { prefix: prefix.trim_end_matches('/').into(), ..self.clone() }
    }

    /// Host name or address, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Prefix of every path; empty, or `/…` without a slash at the end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it is reached by `https`.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The absolute URI of `path_and_query` below the prefix.
    pub(crate) fn uri(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        let path = if self.prefix.is_empty() {
            path_and_query.to_owned()
        } else {
            format!("{}{path_and_query}", self.prefix)
        };
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_host_port_and_prefix() {
        for (url, host, port, prefix) in [
            ("https://localhost:6443", "localhost", 6443, ""),
            ("https://example.org/", "example.org", 443, ""),
            ("https://[::1]:6443/clusters/root/", "::1", 6443, "/clusters/root"),
            ("http://127.0.0.1/clusters/root:org", "127.0.0.1", 80, "/clusters/root:org"),
        ] {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!((endpoint.host(), endpoint.port(), endpoint.prefix()), (host, port, prefix), "{url}");
        }
    }

    #[test]
    fn invalid_server_urls_are_rejected() {
        for url in ["", "localhost:6443", "/clusters/root", "ftp://a", "https://a?b", "https://u:p@a"] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_request_path_is_appended_to_the_prefix() {
        let endpoint = Endpoint::parse("https://a:1/clusters/root").unwrap();
        assert_eq!(
            endpoint.uri("/api/v1?limit=1").unwrap().to_string(),
            "https://a:1/clusters/root/api/v1?limit=1"
        );
        assert_eq!(endpoint.with_prefix("").uri("/readyz").unwrap().to_string(), "https://a:1/readyz");
    }
}
