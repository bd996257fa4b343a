//! Keep-alive of idle watches: a space is written to an idle JSON watch, so that intermediaries do not time it out.
//!
//! A JSON watch event is a line, and clients skip white space before it; docs/gateway-reference.md lists the clients that were
//! tested. An empty line would suit most of them, but the Python client takes it for an event. Frames of protobuf and CBOR
//! have no room for it.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;
use tokio::time::{Instant, Sleep, sleep};

/// The space that is written.
pub(crate) const BLANK: Bytes = Bytes::from_static(b" ");

/// The timer of one watch. Some 150 bytes.
pub(crate) struct KeepAlive {
    pause: Duration,
    next: Pin<Box<Sleep>>,
}

impl KeepAlive {
    /// For a watch with this response head; `None` if its framing has no room for a space.
    pub(crate) fn of(response: &Parts, pause: Duration) -> Option<Self> {
        let is_json = response.headers.get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes()));
        let is_plain = !response.headers.contains_key(CONTENT_ENCODING);
        (response.status == StatusCode::OK && is_json && is_plain)
            .then(|| Self { pause, next: Box::pin(sleep(pause)) })
    }

    /// Restarts the timer, because data was sent.
    pub(crate) fn restart(&mut self) {
        self.next.as_mut().reset(Instant::now() + self.pause);
    }
}

/// Returns when a watch has been idle for long enough; never without a keep-alive.
pub(crate) async fn due(keep_alive: &mut Option<Box<KeepAlive>>) {
    match keep_alive {
        Some(keep_alive) => {
            keep_alive.next.as_mut().await;
            keep_alive.restart();
        }
        None => std::future::pending().await,
    }
}

/// Whether a content type is JSON, with or without parameters.
fn is_json(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    content_type[..end].trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use http::{HeaderValue, Response};

    use super::*;

    #[tokio::test]
    async fn only_lines_of_plain_json_have_room_between_them() {
        for (code, content_type, encoding, expected) in [
            (200, "application/json", None, true),
            (200, "Application/JSON ; charset=utf-8", None, true),
            (200, "application/json;stream=watch", None, true),
            (200, "application/json", Some("gzip"), false),
            (410, "application/json", None, false),
            (200, "application/vnd.kubernetes.protobuf;stream=watch", None, false),
            (200, "application/cbor-seq", None, false),
            (200, "application/jsonpatch", None, false),
        ] {
            let (mut head, ()) = Response::builder().status(code).body(()).unwrap().into_parts();
            head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            if let Some(encoding) = encoding {
                head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            }
            let found = KeepAlive::of(&head, Duration::from_secs(1)).is_some();
            assert_eq!(found, expected, "{code} {content_type} {encoding:?}");
        }
    }
}
