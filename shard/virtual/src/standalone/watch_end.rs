//! The end of forwarded watches when the process drains: between two events, so that clients resume instead of reporting an error.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderMap};

/// Beginning of the content type of Kubernetes' protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Position in a stream of watch events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchFraming {
    /// JSON: one event per line.
    Lines { is_between: bool },
    /// Protobuf: each event is preceded by its length in four bytes.
    Lengths {
        /// Number of bytes of the length that have passed, and its value so far.
        known: (u8, u32),
        /// Bytes of the event that are missing.
        left: u32,
    },
}

impl WatchFraming {
    /// The framing of a response with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match content_type.is_some_and(|text| text.starts_with(PROTOBUF)) {
            true => Self::Lengths { known: (0, 0), left: 0 },
            false => Self::Lines { is_between: true },
        }
    }

    fn is_between(self) -> bool {
        match self {
            Self::Lines { is_between } => is_between,
            Self::Lengths { known, left } => known.0 == 0 && left == 0,
        }
    }

    /// Advances over all these bytes.
    fn pass(&mut self, mut bytes: &[u8]) {
        match self {
            Self::Lines { is_between } => {
                if let Some(last) = bytes.last() {
                    *is_between = *last == b'\n';
                }
            }
            Self::Lengths { .. } => {
                while !bytes.is_empty() {
                    bytes = &bytes[self.pass_event(bytes)..];
                }
            }
        }
    }

    /// Advances to the end of the event at hand, or over all bytes if it is not among them. Returns the number of bytes.
    fn pass_event(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Lines { is_between } => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                *is_between = end.is_some();
                end.map_or(bytes.len(), |end| end + 1)
            }
            Self::Lengths { known, left } => {
                let mut passed = 0;
                while let Some(byte) = bytes.get(passed) {
                    if *left > 0 {
                        let skipped = (bytes.len() - passed).min(*left as usize);
                        *left -= skipped as u32;
                        passed += skipped;
                    } else {
                        *known = (known.0 + 1, known.1 << 8 | u32::from(*byte));
                        passed += 1;
                        if known.0 == 4 {
                            (*left, *known) = (known.1, (0, 0));
                        }
                    }
                    if known.0 == 0 && *left == 0 {
                        break;
                    }
                }
                passed
            }
        }
    }
}

/// The pieces of a watch until `end` returns and the event that has begun is complete.
pub(super) fn until_end<E>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    framing: WatchFraming,
    end: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, E>> + Send
where
    E: Send + 'static,
{
    let watch = Watch { pieces: Box::pin(pieces), framing, end: Box::pin(end), is_ending: false };
    stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    })
}

struct Watch<E> {
    pieces: Pin<Box<dyn Stream<Item = Result<Bytes, E>> + Send>>,
    framing: WatchFraming,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_ending: bool,
}

impl<E> Watch<E> {
    async fn next(&mut self) -> Option<Result<Bytes, E>> {
        if !self.is_ending {
            tokio::select! {
                biased;
                () = &mut self.end => self.is_ending = true,
                piece = self.pieces.next() => {
                    if let Some(Ok(bytes)) = &piece {
                        self.framing.pass(bytes);
                    }
                    return piece;
                }
            }
        }
        if self.framing.is_between() {
            return None;
        }
        let piece = self.pieces.next().await?;
        Some(piece.map(|bytes| bytes.slice(..self.framing.pass_event(&bytes))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::convert::Infallible;

    use fairlead_config::DrainConfig;
    use fairlead_process::Shutdown;
    use futures_util::FutureExt as _;
    use http::HeaderValue;
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    type Pieces<'a> = &'a [&'a [u8]];

    fn framing(content_type: &'static str) -> WatchFraming {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        WatchFraming::of(&headers)
    }

    /// The bytes of a watch that gets `before` before it has to end and `after` afterwards, and whether it has ended.
    async fn passed(framing: WatchFraming, before: Pieces<'_>, after: Pieces<'_>) -> (Vec<u8>, bool) {
        let (piece, pieces) = mpsc::unbounded_channel::<Bytes>();
        let pieces = stream::unfold(pieces, |mut pieces| async {
            Some((Ok::<_, Infallible>(pieces.recv().await?), pieces))
        });
        let (end, ended) = oneshot::channel();
        let mut watch = Box::pin(until_end(pieces, framing, ended.map(|_| ())));
        let mut passed = Vec::new();
        for part in before {
            piece.send(Bytes::copy_from_slice(part)).unwrap();
            passed.extend(watch.next().await.unwrap().unwrap());
        }
        end.send(()).unwrap();
        for part in after {
            piece.send(Bytes::copy_from_slice(part)).unwrap();
        }
        loop {
            match watch.next().now_or_never() {
                Some(Some(Ok(bytes))) => passed.extend(bytes),
                Some(None) => return (passed, true),
                None => return (passed, false),
            }
        }
    }

    #[tokio::test]
    async fn a_watch_ends_between_two_events() {
        let json = framing("application/json");
        let protobuf = framing("application/vnd.kubernetes.protobuf;stream=watch");
        let (two, begun): (&[u8], &[u8]) = (b"\0\0\0\x02ab\0\0\0\x01\n", b"\0\0");
        let cases: [(WatchFraming, Pieces<'_>, Pieces<'_>, &[u8], bool); 8] = [
            (json, &[], &[b"{}\n"], b"", true),
            (json, &[b"{}\n"], &[b"{}\n"], b"{}\n", true),
            (json, &[b"{}\n{"], &[b"}\n{}\n"], b"{}\n{}\n", true),
            (json, &[b"{"], &[b"\"a\":", b"1"], b"{\"a\":1", false),
            (protobuf, &[two], &[two], two, true),
            (protobuf, &[two, begun], &[b"\0\x01", b"c\0\0"], b"\0\0\0\x02ab\0\0\0\x01\n\0\0\0\x01c", true),
            (protobuf, &[b"\0\0\0\x03a"], &[b"\n"], b"\0\0\0\x03a\n", false),
            (protobuf, &[b"\0\0\0"], &[b"\0\0\0\0\x01"], b"\0\0\0\0", true),
        ];
        for (number, (framing, before, after, expected, is_ended)) in cases.into_iter().enumerate() {
            let (bytes, ended) = passed(framing, before, after).await;
            assert_eq!((&bytes[..], ended), (expected, is_ended), "case {number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_end_at_different_times_within_the_window_of_the_drain() {
        let settings = DrainConfig { delay: "0s".parse().unwrap(), window: "10s".parse().unwrap() };
        let shutdown = Shutdown::new(&settings);
        let began = tokio::time::Instant::now();
        let watches = (0..100).map(|number| {
            let drain = shutdown.drain();
            let silent = stream::pending::<Result<Bytes, Infallible>>();
            let end = async move { drain.end_of_stream(number).await };
            let mut watch = Box::pin(until_end(silent, framing("application/json"), end));
            async move {
                assert!(watch.next().await.is_none());
                began.elapsed().as_secs()
            }
        });
        let (seconds, ()) = tokio::join!(futures_util::future::join_all(watches), shutdown.run_now());
        for second in 0..8 {
            assert!(seconds.contains(&second), "no watch ended in second {second}: {seconds:?}");
        }
        assert!(seconds.iter().all(|second| *second < 8), "{seconds:?}");
    }
}
