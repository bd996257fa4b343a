//! A watch: one JSON event per line, decoded as they arrive.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::Method;
use memchr::memchr;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::body::ResponseBody;
use crate::client::{Client, Request};
use crate::error::{ClientError, KubeStatus};

/// An open watch. Dropping it cancels the watch on the server.
pub struct WatchStream {
    body: ResponseBody,
    lines: LineSplitter,
}

/// One event. The object is not decoded: its bytes are a slice of the received data, not a copy.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// Kind of the event.
    pub kind: WatchEventKind,
    /// The object, or for [`WatchEventKind::Error`] a `Status`.
    pub object: Bytes,
}

/// Kind of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WatchEventKind {
    /// The object was created, or began to match the selector.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted, or ceased to match; this is its last state, with the version of the deletion.
    Deleted,
    /// No change; the object has only a resourceVersion up to which everything was delivered.
    Bookmark,
    /// The watch failed.
    Error,
}

impl Client {
    /// Opens a watch. The path must have `watch=1`.
    pub async fn watch(&self, path_and_query: &str) -> Result<WatchStream, ClientError> {
        self.watch_with(Request::new(Method::GET, path_and_query)).await
    }

    /// Opens a watch with additional headers.
    pub async fn watch_with(&self, request: Request) -> Result<WatchStream, ClientError> {
        let response = self.stream(request).await?;
        Ok(WatchStream { body: response.body, lines: LineSplitter::new(self.options().max_event_bytes) })
    }
}

impl WatchStream {
    /// The next event; `None` when the server ended the watch. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<WatchEvent, ClientError>> {
        loop {
            match self.lines.next() {
                Ok(Some(line)) if line.trim_ascii().is_empty() => {}
                Ok(Some(line)) => return Some(WatchEvent::decode(&line, self.body.subject())),
                Ok(None) => match self.body.chunk().await {
                    Some(Ok(chunk)) => self.lines.push(chunk),
                    Some(Err(error)) => return Some(Err(error)),
                    // An unfinished line at the end means that the connection was interrupted.
                    None if self.lines.is_partial() => {
                        let source = Arc::new(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
                        return Some(Err(ClientError::Closed {
                            subject: self.body.subject().clone(),
                            source,
                        }));
                    }
                    None => return None,
                },
                Err(TooLong { limit }) => {
                    return Some(Err(ClientError::TooLarge { subject: self.body.subject().clone(), limit }));
                }
            }
        }
    }
}

impl WatchEvent {
    /// The `Status` of an [`WatchEventKind::Error`] event; an empty one if it cannot be read.
    pub fn status(&self) -> KubeStatus {
        KubeStatus::from_json(&self.object).unwrap_or_default()
    }

    fn decode(line: &Bytes, subject: &Arc<str>) -> Result<Self, ClientError> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(rename = "type")]
            kind: WatchEventKind,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let parsed: Line<'_> = serde_json::from_slice(line)
            .map_err(|error| ClientError::decode(format!("an event of {subject}"), error))?;
        Ok(Self { kind: parsed.kind, object: line.slice_ref(parsed.object.get().as_bytes()) })
    }
}

/// Splits a byte stream into lines. A line within one chunk is a slice of it; one that spans chunks is joined.
struct LineSplitter {
    limit: usize,
    partial: BytesMut,
    chunk: Bytes,
}

struct TooLong {
    limit: usize,
}

impl LineSplitter {
    fn new(limit: usize) -> Self {
        Self { limit, partial: BytesMut::new(), chunk: Bytes::new() }
    }

    /// Adds a chunk; the one before must have been used up by [`LineSplitter::next`].
    fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        self.chunk = chunk;
    }

    fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let end = memchr(b'\n', &self.chunk);
        let taken = end.map_or(self.chunk.len(), |end| end + 1);
        if self.partial.len() + taken > self.limit {
            return Err(TooLong { limit: self.limit });
        }
        let piece = self.chunk.split_to(taken);
        match end {
            Some(_) if self.partial.is_empty() => Ok(Some(piece)),
            Some(_) => {
                self.partial.extend_from_slice(&piece);
                // The whole buffer is returned, so that one large event does not stay allocated.
                Ok(Some(std::mem::take(&mut self.partial).freeze()))
            }
            None => {
                self.partial.extend_from_slice(&piece);
                Ok(None)
            }
        }
    }

    fn is_partial(&self) -> bool {
        !self.partial.trim_ascii().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(chunks: &[&str], limit: usize) -> (Vec<String>, bool) {
        let mut lines = LineSplitter::new(limit);
        let mut seen = Vec::new();
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk.as_bytes()));
            loop {
                match lines.next() {
                    Ok(Some(line)) => seen.push(String::from_utf8(line.to_vec()).unwrap()),
                    Ok(None) => break,
                    Err(TooLong { .. }) => return (seen, true),
                }
            }
        }
        (seen, lines.is_partial())
    }

    #[test]
    fn lines_do_not_depend_on_the_chunks_of_the_stream() {
        let text = "{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}\n";
        let whole = cut(&[text], 100);
        assert_eq!(whole.0.len(), 4);
        for size in 1..text.len() {
            let chunks: Vec<&str> = (0..text.len())
                .step_by(size)
                .map(|start| &text[start..text.len().min(start + size)])
                .collect();
            assert_eq!(cut(&chunks, 100), whole, "chunks of {size}");
        }
    }

    #[test]
    fn a_line_is_limited_whether_or_not_it_is_complete() {
        assert_eq!(cut(&["1234567\n"], 8), (vec!["1234567\n".to_owned()], false));
        assert_eq!(cut(&["12345678\n"], 8), (vec![], true));
        assert_eq!(cut(&["1234", "56789"], 8), (vec![], true));
    }

    #[test]
    fn an_event_keeps_the_bytes_of_its_object() {
        let line = Bytes::from_static(b"{\"type\":\"MODIFIED\", \"object\": {\"x\" : 1.0}}\n");
        let event = WatchEvent::decode(&line, &"test".into()).unwrap();
        assert_eq!((event.kind, &event.object[..]), (WatchEventKind::Modified, &b"{\"x\" : 1.0}"[..]));
        for bad in ["{}", "{\"type\":\"GONE\",\"object\":{}}", "[", "{\"type\":\"ADDED\"}"] {
            assert!(
                WatchEvent::decode(&Bytes::from_static(bad.as_bytes()), &"test".into()).is_err(),
                "{bad}"
            );
        }
    }
}
