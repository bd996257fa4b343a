//! W3C Trace Context (level 1): the `traceparent` header.

use std::fmt;

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Vendor data of the trace. Passed on unchanged, or removed.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A trace ID; never all zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TraceId(pub(super) [u8; 16]);

/// A span ID; never all zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SpanId(pub(super) [u8; 8]);

/// A trace context: that of the client, or that for the shard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SpanContext {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    /// True if the caller may have recorded the trace.
    pub(crate) is_sampled: bool,
}

impl SpanContext {
    /// The trace context of a request's headers. Several or invalid headers count as none.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    /// `version "-" trace-id "-" parent-id "-" flags`, in lower case; later versions may add fields after another dash.
    fn parse(value: &[u8]) -> Option<Self> {
        const LENGTH: usize = 55;
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let [version] = hex(&known[..2])?;
        let has_more_fields = match version {
            0xff => return None,
            0 => false,
            _ => rest.first() == Some(&b'-'),
        };
        if (!rest.is_empty() && !has_more_fields) || [2, 35, 52].iter().any(|dash| known[*dash] != b'-') {
            return None;
        }
        let (trace, span, [flags]) = (hex(&known[3..35])?, hex(&known[36..52])?, hex(&known[53..])?);
        if trace == [0; 16] || span == [0; 8] {
            return None;
        }
        Some(Self { trace: TraceId(trace), span: SpanId(span), is_sampled: flags & 1 == 1 })
    }

    /// The header value, in version 00.
    pub(super) fn to_header(self) -> HeaderValue {
        let flags = u8::from(self.is_sampled);
        let text = format!("00-{}-{}-{flags:02x}", self.trace, self.span);
        // Hexadecimal digits and dashes are always a valid value.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Decodes exactly `N` bytes in lower-case hexadecimal.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parsed_header(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        SpanContext::of(&headers).map(|parent| parent.to_header().to_str().unwrap().to_owned())
    }

    #[test]
    fn valid_traceparent_headers_are_accepted() {
        let good = |flags: &str| format!("00-{TRACE}-{SPAN}-{flags}");
        for (value, expected) in [
            (good("01"), Some("01")),
            (good("00"), Some("00")),
            // Only the first flag is defined.
            (good("ff"), Some("01")),
            (good("02"), Some("00")),
            // A future version.
            (format!("01-{TRACE}-{SPAN}-01"), Some("01")),
            (format!("cc-{TRACE}-{SPAN}-01-what-will-be"), Some("01")),
            (format!("cc-{TRACE}-{SPAN}-01.what-will-be"), None),
            (format!("00-{TRACE}-{SPAN}-01-what-will-be"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("0-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{TRACE}-{SPAN}-0g"), None),
            (format!("00_{TRACE}_{SPAN}_01"), None),
            (format!(" {}", good("01")), None),
            (String::new(), None),
        ] {
            let expected = expected.map(good);
            assert_eq!(parsed_header(&[&value]), expected, "{value}");
        }
        assert_eq!(parsed_header(&[&good("01"), &good("01")]), None, "whose would it be?");
        assert_eq!(parsed_header(&[]), None);
    }

    proptest! {
        #[test]
        fn a_written_header_can_be_parsed(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), is_sampled in any::<bool>()) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let parent = SpanContext { trace: TraceId(trace), span: SpanId(span), is_sampled };
            prop_assert_eq!(SpanContext::parse(parent.to_header().as_bytes()), Some(parent));
        }

        #[test]
        fn arbitrary_header_values_are_handled(value in any::<Vec<u8>>()) {
            let _ = SpanContext::parse(&value);
        }
    }
}
