//! Boundaries between watch events, where a watch can be ended without breaking an event.

use http::header::{CONTENT_TYPE, HeaderMap};

/// Beginning of the content type of Kubernetes' protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Position in a stream of watch events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFraming {
    /// JSON: one event per line.
    Lines {
        /// Whether the last byte ended a line.
        is_between: bool,
    },
    /// Protobuf and CBOR: each event is preceded by its length in four bytes.
    Lengths {
        /// Bytes of the length that were seen, and its value so far.
        known: (u8, u32),
        /// Bytes of the event that are missing.
        left: u32,
    },
}

impl WatchFraming {
    /// The framing of a response with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match content_type.is_some_and(|text| text.starts_with(PROTOBUF)) {
            true => Self::Lengths { known: (0, 0), left: 0 },
            false => Self::Lines { is_between: true },
        }
    }

    /// Whether the position is between two events.
    pub(crate) fn is_between(self) -> bool {
        match self {
            Self::Lines { is_between } => is_between,
            Self::Lengths { known, left } => known.0 == 0 && left == 0,
        }
    }

    /// Advances over these bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        match self {
            Self::Lines { is_between } => {
                if let Some(last) = bytes.last() {
                    *is_between = *last == b'\n';
                }
            }
            Self::Lengths { known, left } => {
                while let Some((first, rest)) = bytes.split_first() {
                    if *left > 0 {
                        let skipped = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                        // At most `left`.
                        *left -= u32::try_from(skipped).unwrap_or(*left);
                        bytes = &bytes[skipped..];
                        continue;
                    }
                    *known = (known.0 + 1, known.1 << 8 | u32::from(*first));
                    if known.0 == 4 {
                        (*left, *known) = (known.1, (0, 0));
                    }
                    bytes = rest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn of(content_type: &str) -> WatchFraming {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        WatchFraming::of(&headers)
    }

    /// The values of `is_between` after each of these parts.
    fn after(content_type: &str, parts: &[&[u8]]) -> Vec<bool> {
        let mut boundary = of(content_type);
        assert!(boundary.is_between());
        parts
            .iter()
            .map(|part| {
                boundary.pass(part);
                boundary.is_between()
            })
            .collect()
    }

    #[test]
    fn events_end_with_lines_or_after_their_length() {
        let json: &[&[u8]] = &[b"{}\n", b"{\"a\":", b"", b"1}", b"\n"];
        assert_eq!(after("application/json", json), [true, false, false, false, true]);
        let events: &[&[u8]] =
            &[b"\0\0\0\x02ab\0\0\0\x01\n", b"\0\0", b"\0\x03", b"a\nb", b"\0\0\0\0", b"\0\0\0\x01"];
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(after(protobuf, events), [true, false, false, true, true, false]);
        let long = [&[0, 1, 0, 0][..], &[b'\n'; 65_535]].concat();
        assert_eq!(after(protobuf, &[&long, b"x"]), [false, true]);
    }
}
