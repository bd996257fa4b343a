//! Redirect URIs: only programs on this machine.

use std::fmt;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All characters but the unreserved ones (RFC 3986 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `http://127.0.0.1:<port>/callback` and variants: a loopback host, any port (RFC 8252 7.3), and one of two paths. Compared
/// as exact text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedirectUri(String);

/// A redirect URI that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not http://127.0.0.1:PORT/callback, nor the same with [::1], localhost, or the path /")]
pub(crate) struct InvalidRedirect;

impl RedirectUri {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidRedirect> {
        // Parsers and browsers differ on user names, blanks, backslashes and fragments.
        let ambiguous =
            |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'@' | b'\\' | b'#' | b'?' | b'%');
        if text.len() > 256 || text.bytes().any(ambiguous) {
            return Err(InvalidRedirect);
        }
        let uri: Uri = text.parse().map_err(|_| InvalidRedirect)?;
        let is_loopback_host = matches!(uri.host(), Some("127.0.0.1" | "[::1]" | "localhost"));
        let is_allowed_path = matches!(uri.path(), "" | "/" | "/callback");
        // The parser drops an invalid port such as 99999, so the authority is compared with the parsed host and port.
        let written = match (uri.host(), uri.port_u16()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, None) => host.unwrap_or_default().to_owned(),
            (None, Some(_)) => return Err(InvalidRedirect),
        };
        let is_host_and_port = uri.authority().is_some_and(|authority| authority.as_str() == written);
        if uri.scheme_str() == Some("http") && is_loopback_host && is_allowed_path && is_host_and_port {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidRedirect)
        }
    }

    /// The address with these parameters.
    pub(crate) fn with(&self, parameters: &[(&str, &str)]) -> String {
        let mut address = self.0.clone();
        for (index, (key, value)) in parameters.iter().enumerate() {
            address.push(if index == 0 { '?' } else { '&' });
            address.push_str(key);
            address.push('=');
            address.extend(utf8_percent_encode(value, RESERVED));
        }
        address
    }
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_redirects_to_this_machine_are_accepted() {
        for good in [
            "http://127.0.0.1:8000/callback",
            "http://127.0.0.1:65535/",
            "http://localhost:1",
            "http://[::1]:49152/callback",
            "http://localhost/callback",
        ] {
            assert!(RedirectUri::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/callback",
            "https://127.0.0.1:8000/callback",
            "ftp://127.0.0.1/callback",
            "http://evil.example/callback",
            "http://127.0.0.1.evil.example/callback",
            "http://evil.example@127.0.0.1/callback",
            "http://127.0.0.1@evil.example/callback",
            "http://127.0.0.1:8000@evil.example/callback",
            "http://localhost.:8000/callback",
            "http://127.0.0.2:8000/callback",
            "http://[::]:8000/callback",
            "http://127.0.0.1:8000/callback/../x",
            "http://127.0.0.1:8000/other",
            "http://127.0.0.1:8000/callback?x=1",
            "http://127.0.0.1:8000/callback#x",
            "http://127.0.0.1:8000\\@evil.example/callback",
            "http://127.0.0.1:8000/call\nback",
            "http://127.0.0.1:99999/callback",
            "http://127.0.0.1:/callback",
            "javascript://127.0.0.1/callback",
            "http:127.0.0.1/callback",
        ] {
            assert_eq!(RedirectUri::parse(bad), Err(InvalidRedirect), "{bad}");
        }
    }

    #[test]
    fn parameters_are_escaped() {
        let address = RedirectUri::parse("http://localhost:1/callback").unwrap();
        let with = address.with(&[("code", "a-b"), ("state", "x&y=z #\r\nLocation: ä")]);
        assert_eq!(
            with,
            "http://localhost:1/callback?code=a-b&state=x%26y%3Dz%20%23%0D%0ALocation%3A%20%C3%A4"
        );
    }
}
