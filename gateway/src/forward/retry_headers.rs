//! A compact copy of a request's header fields, for a retry.
//!
//! A header map needs some hundred bytes for a field that cost the client one (CVE-2026-49975); this copy is as large as names and
//! values. Making it costs one allocation, less than cloning the map.

use bytes::{BufMut as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The fields of a header map.
#[derive(Debug, Default)]
pub(crate) struct RetryHeaders(Box<[u8]>);

/// Bytes per field beyond its name and value: two lengths, and whether the value is sensitive.
const SIZES: usize = 2 + 4 + 1;

impl RetryHeaders {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let size = headers.iter().map(|(name, value)| SIZES + name.as_str().len() + value.len()).sum();
        let mut packed = Vec::with_capacity(size);
        for (name, value) in headers {
            // The `http` crate limits names to 64 KiB, and values to 4 GiB.
            packed.put_u16(name.as_str().len() as u16);
            packed.put_u32(value.len() as u32);
            packed.put_u8(value.is_sensitive().into());
            packed.put_slice(name.as_str().as_bytes());
            packed.put_slice(value.as_bytes());
        }
        Self(packed.into())
    }

    /// The header map.
    pub(crate) fn unpack(self) -> HeaderMap {
        let (mut headers, mut packed) = (HeaderMap::new(), Bytes::from(self.0));
        while let Some((sizes, _)) = packed.split_first_chunk::<SIZES>() {
            let [a, b, c, d, e, f, sensitive] = *sizes;
            let name = u16::from_be_bytes([a, b]).into();
            let value = u32::from_be_bytes([c, d, e, f]) as usize;
            drop(packed.split_to(SIZES));
            let (name, value) = (packed.split_to(name), packed.split_to(value));
            // Both were valid before.
            if let (Ok(name), Ok(mut value)) =
                (HeaderName::from_bytes(&name), HeaderValue::from_maybe_shared(value))
            {
                value.set_sensitive(sensitive != 0);
                headers.append(name, value);
            }
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_what_is_unpacked() {
        let mut headers = HeaderMap::new();
        assert_eq!(RetryHeaders::of(&headers).unpack(), headers);
        let mut secret = HeaderValue::from_static("Bearer x");
        secret.set_sensitive(true);
        headers.append(http::header::AUTHORIZATION, secret);
        for value in ["b", "", "a", "b"] {
            headers.append("x-remote-group", HeaderValue::from_static(value));
        }
        headers
            .append("x-odd", HeaderValue::from_bytes(b"\xff\t \x80").unwrap_or(HeaderValue::from_static("")));
        for _ in 0..500 {
            headers.append(http::header::COOKIE, HeaderValue::from_static("y"));
        }
        let unpacked = RetryHeaders::of(&headers).unpack();
        assert_eq!(unpacked, headers);
        assert!(unpacked[http::header::AUTHORIZATION].is_sensitive());
        let groups: Vec<_> = unpacked.get_all("x-remote-group").iter().collect();
        assert_eq!(groups, ["b", "", "a", "b"], "in the same order");
    }
}
