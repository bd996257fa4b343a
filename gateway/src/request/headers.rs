//! Limits on request headers, and hop-by-hop headers.

use http::Uri;
use http::header::{self, HeaderMap, HeaderName};

/// Counts the mounts that a request went through. A client that sets it can only lower its own limit.
pub(crate) const MOUNT_HOPS: HeaderName = HeaderName::from_static("x-fairlead-mount-hops");
/// Of a request to a shard with several replicas: the highest revision of the shard that this gateway has seen. Of its response: the
/// revision of the replica.
pub(crate) const REVISION: HeaderName = HeaderName::from_static("x-fairlead-revision");
/// Of a response with [`REVISION`]: the replica has not executed the request, because it has not passed that revision.
pub(crate) const REFUSED: HeaderName = HeaderName::from_static("x-fairlead-refused");

/// Limits on the headers of a request. Counted over the decoded fields, so that compression does not help
/// an attacker ("HTTP/2 Bomb").
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderLimits {
    /// Number of fields; each repetition counts.
    pub(crate) fields: usize,
    /// Bytes of names, values and the request target.
    pub(crate) bytes: usize,
}

impl Default for HeaderLimits {
    fn default() -> Self {
        Self { fields: 128, bytes: 32 * 1024 }
    }
}

/// The request headers exceed a limit: 431.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum HeadersTooLarge {
    /// Too many fields.
    #[error("the request has more than {0} header fields")]
    Fields(usize),
    /// Too many bytes.
    #[error("the request has more than {0} bytes of header")]
    Bytes(usize),
}

impl HeaderLimits {
    /// Checks one request. Linear in the number of fields, no allocation.
    ///
    /// # Errors
    /// [`HeadersTooLarge`] names the limit.
    pub(crate) fn check(self, target: &Uri, headers: &HeaderMap) -> Result<(), HeadersTooLarge> {
        if headers.len() > self.fields {
            return Err(HeadersTooLarge::Fields(self.fields));
        }
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes + target_size(target) > self.bytes {
            return Err(HeadersTooLarge::Bytes(self.bytes));
        }
        Ok(())
    }
}

/// Length of the request target. Over HTTP/2 it is part of the header section, as the fields are.
pub(crate) fn target_size(target: &Uri) -> usize {
    let authority = target.authority().map_or(0, |authority| authority.as_str().len());
    authority + target.path_and_query().map_or(0, |path| path.as_str().len())
}

/// Whether the field belongs to one connection and is never forwarded (RFC 9110, 7.6.1).
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::CONNECTION
            | header::PROXY_AUTHENTICATE
            | header::PROXY_AUTHORIZATION
            | header::TE
            | header::TRAILER
            | header::TRANSFER_ENCODING
            | header::UPGRADE
    ) || matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings")
}

/// Whether two names in lower case are equal. Underscores count as dashes, because some servers cannot tell them
/// apart.
pub(crate) fn is_same_header(name: &str, wanted: &str) -> bool {
    name.len() == wanted.len() && has_header_prefix(name, wanted)
}

/// Whether a name has this prefix, by the rule of [`is_same_header`].
pub(crate) fn has_header_prefix(name: &str, prefix: &str) -> bool {
    let dashed = |byte| if byte == b'_' { b'-' } else { byte };
    let same = |(one, other): (u8, u8)| dashed(one) == dashed(other);
    name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(same)
}

/// The fields that the sender's `Connection` header nominates as hop-by-hop. Invalid field names
/// are skipped.
pub(crate) fn nominated_headers(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use http::HeaderValue;

    use super::*;

    #[test]
    fn fields_and_bytes_are_limited() {
        let limits = HeaderLimits { fields: 3, bytes: 20 };
        let mut headers = HeaderMap::new();
        let root = Uri::from_static("/");
        for _ in 0..3 {
            headers.append("a", HeaderValue::from_static("b"));
        }
        assert_eq!(limits.check(&root, &headers), Ok(()));
        headers.append("a", HeaderValue::from_static("b"));
        assert_eq!(limits.check(&root, &headers), Err(HeadersTooLarge::Fields(3)));
        headers.clear();
        headers.append("a", HeaderValue::from_static("012345678901234567"));
        assert_eq!(limits.check(&root, &headers), Ok(()));
        headers.append("b", HeaderValue::from_static(""));
        assert_eq!(limits.check(&root, &headers), Err(HeadersTooLarge::Bytes(20)));
        headers.clear();
        for (target, size) in [("/?a=b", 5), ("https://localhost/api/v1", 16)] {
            let check = |bytes| HeaderLimits { fields: 3, bytes }.check(&Uri::from_static(target), &headers);
            assert_eq!(check(size), Ok(()), "{target}");
            assert_eq!(check(size - 1), Err(HeadersTooLarge::Bytes(size - 1)), "{target}");
        }
    }

    #[test]
    fn connection_nominates_fields_in_any_spelling() {
        let mut headers = HeaderMap::new();
        headers.append("connection", HeaderValue::from_static("close, X-Remote-Group ,,bad name"));
        headers.append("connection", HeaderValue::from_static("x-remote-extra-a%2fb"));
        let names: Vec<_> = nominated_headers(&headers).map(|name| name.to_string()).collect();
        assert_eq!(names, ["close", "x-remote-group", "x-remote-extra-a%2fb"]);
    }
}
