//! Flood protection for HTTP/2 connections: limits frames that carry no request and no useful body data.
//!
//! A frame of nine bytes may cost its receiver as much as a request: PING, SETTINGS, PRIORITY, WINDOW_UPDATE in small
//! increments, bodies in tiny DATA frames, frames of unknown types (CVE-2019-9512, -9513, -9515, -9518). The HTTP/2 library
//! processes or ignores any number of them. So this wrapper counts such *idle* frames as they are read. A connection starts
//! with a budget of [`BURST`] idle frames. The budget refills by [`REFILL_PER_SECOND`], by requests, and by response bytes
//! that the peer reads, because a peer that reads much has to send window updates; at most [`MAX_SAVED`] of those earned by
//! requests and bytes are saved. A connection that exhausts its budget is closed.
//!
//! A proxy multiplexes requests of many clients. It controls its own frames, except that it forwards bodies in the parts in
//! which its clients send them. Its own frames are few: two per request, and one window update per half window. So
//! connections that may come from proxies have no limit on small DATA frames; see [`FrameBudget::for_proxy`].
//!
//! A peer may have sent requests before it received GOAWAY. The library reads later requests and drops them, so only this
//! wrapper sees them: after [`MAX_REQUESTS_AFTER_GOAWAY`] of them the connection is closed, too.
//!
//! HPACK makes requests small on the wire and large in memory: a field of an earlier request takes one byte. The library decodes
//! every frame that has arrived before it returns the first request, so a server may limit by [`HeaderReadAhead`] how much of
//! them is decoded at once.
//!
//! Cost: a few arithmetic operations per frame, and one clock read per [`BURST`] idle frames.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Idle frames accepted at once.
const BURST: u64 = 10_000;
/// Idle frames that the budget regains per second.
const REFILL_PER_SECOND: u64 = 2_000;
/// Response bytes that earn one idle frame: one watch event earns two window updates.
const BYTES_PER_FRAME: u64 = 64;
/// Earned idle frames that are saved beyond those already used. A peer that reads much sends its window updates soon after.
const MAX_SAVED: u64 = 50_000;
/// DATA frames below this size are idle, except the last one of a body.
const SMALL_DATA: u32 = 32;
/// The same for proxies: only DATA frames without a byte are idle.
const EMPTY_DATA: u32 = 1;
/// Requests accepted after GOAWAY. Those that were in flight are at most as many as a connection may have open.
const MAX_REQUESTS_AFTER_GOAWAY: u32 = 1_000;
/// Bytes of header frames after which reading pauses until the server has taken the decoded requests. One byte may be a field, which
/// takes about 80 bytes of memory. A request of kubectl takes 100 to 1,500 bytes.
const MAX_HEADER_READ_AHEAD: u32 = 4 << 10;
/// Bytes of the client connection preface (RFC 9113, 3.4).
const PREFACE_LENGTH: u32 = 24;
/// Bytes of a frame header (RFC 9113, 4.1).
const FRAME_HEADER_LENGTH: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// The byte stream of an HTTP/2 connection, from its first byte on. Reading fails once the frame budget is exceeded, see
/// [`is_frame_budget_exceeded`].
#[derive(Debug)]
pub struct FrameBudget<S> {
    stream: S,
    counter: FrameCounter,
    read_ahead: Option<HeaderReadAhead>,
}

impl<S> FrameBudget<S> {
    /// Wraps the connection of a single client.
    pub fn for_client(stream: S) -> Self {
        Self { stream, counter: FrameCounter::new(SMALL_DATA, Instant::now()), read_ahead: None }
    }

    /// Wraps the connection of a peer that may be a proxy: of DATA frames only empty ones are idle.
    pub fn for_proxy(stream: S) -> Self {
        Self { stream, counter: FrameCounter::new(EMPTY_DATA, Instant::now()), read_ahead: None }
    }

    /// Pauses reading after some KiB of header frames until the server calls [`HeaderReadAhead::reset`].
    pub fn limit_header_read_ahead(&mut self) -> HeaderReadAhead {
        self.read_ahead.get_or_insert_default().clone()
    }

    /// The handle by which the HTTP/2 server reports that it has sent GOAWAY.
    pub fn goaway_handle(&self) -> GoawayHandle {
        self.counter.goaway.clone()
    }
}

/// Records whether GOAWAY was sent on a connection.
#[derive(Clone, Debug, Default)]
pub struct GoawayHandle(Arc<AtomicBool>);

impl GoawayHandle {
    /// Records that GOAWAY was sent.
    pub fn mark_sent(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_sent(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes of header frames that were read since the server took all requests. Only the task of the connection uses it.
#[derive(Clone, Debug, Default)]
pub struct HeaderReadAhead(Arc<AtomicU32>);

impl HeaderReadAhead {
    /// The server has taken all decoded requests. Returns whether reading was paused: the connection has to be polled again
    /// then, because nothing else wakes it.
    #[must_use]
    pub fn reset(&self) -> bool {
        let was_paused = self.is_exhausted();
        self.0.store(0, Ordering::Relaxed);
        was_paused
    }

    fn add(&self, bytes: u32) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
    }

    fn is_exhausted(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MAX_HEADER_READ_AHEAD
    }
}

/// Whether a connection ended because its frame budget was exceeded.
pub fn is_frame_budget_exceeded(error: &io::Error) -> bool {
    // The error kind is all that the HTTP/2 library preserves.
    error.kind() == io::ErrorKind::QuotaExceeded
}

#[derive(Debug)]
struct FrameCounter {
    /// The frame header, as far as it has been read.
    header: [u8; FRAME_HEADER_LENGTH],
    filled: usize,
    /// Bytes until the next frame header.
    skip: u32,
    /// DATA frames below this size are idle.
    min_data: u32,
    /// Idle frames since the last clock read.
    idle: u64,
    /// Response bytes, and their equivalent for requests, since the last clock read.
    earned: u64,
    budget: u64,
    refilled_at: Instant,
    goaway: GoawayHandle,
    /// Requests since GOAWAY.
    late_requests: u32,
    /// Bytes of header frames since the last read.
    header_bytes: u32,
}

impl FrameCounter {
    fn new(min_data: u32, now: Instant) -> Self {
        let header = [0; FRAME_HEADER_LENGTH];
        Self {
            header,
            filled: 0,
            skip: PREFACE_LENGTH,
            min_data,
            idle: 0,
            earned: 0,
            budget: BURST,
            refilled_at: now,
            goaway: GoawayHandle::default(),
            late_requests: 0,
            header_bytes: 0,
        }
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            bytes = &bytes[skipped..];
            self.skip -= u32::try_from(skipped).unwrap_or(self.skip);
            let taken = bytes.len().min(FRAME_HEADER_LENGTH - self.filled);
            self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == FRAME_HEADER_LENGTH {
                self.filled = 0;
                self.on_frame();
            }
        }
    }

    fn on_frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, high, middle, low]);
        if matches!(kind, HEADERS | CONTINUATION) {
            self.header_bytes = self.header_bytes.saturating_add(self.skip);
        }
        match kind {
            // The library limits these two itself. A request may be reset again.
            HEADERS if self.goaway.is_sent() => self.late_requests = self.late_requests.saturating_add(1),
            HEADERS => self.earn(BYTES_PER_FRAME),
            CONTINUATION => {}
            DATA if self.skip >= self.min_data || flags & END_STREAM != 0 => {}
            _ => self.idle += 1,
        }
    }

    fn earn(&mut self, bytes: u64) {
        self.earned = (self.earned + bytes).min((self.idle + MAX_SAVED) * BYTES_PER_FRAME);
    }

    /// Whether the budget is exceeded. `now` is called rarely.
    fn is_exceeded(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.late_requests > MAX_REQUESTS_AFTER_GOAWAY {
            return true;
        }
        let allowed = self.budget + self.earned / BYTES_PER_FRAME;
        if self.idle <= allowed {
            return false;
        }
        let now = now();
        let since = now.duration_since(self.refilled_at).as_millis();
        let earned = u64::try_from(since).unwrap_or(u64::MAX).saturating_mul(REFILL_PER_SECOND) / 1_000;
        let left = allowed.saturating_add(earned).checked_sub(self.idle);
        (self.idle, self.earned, self.refilled_at) = (0, 0, now);
        self.budget = left.unwrap_or_default().min(BURST);
        left.is_none()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameBudget<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ahead.as_ref().is_some_and(HeaderReadAhead::is_exhausted) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.counter.read(&buffer.filled()[before..]);
            let header_bytes = std::mem::take(&mut self.counter.header_bytes);
            if let Some(read_ahead) = &self.read_ahead {
                read_ahead.add(header_bytes);
            }
            if self.counter.is_exceeded(Instant::now) {
                return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameBudget<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        if let Poll::Ready(Ok(count)) = written {
            self.counter.earn(count as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        if let Poll::Ready(Ok(count)) = written {
            self.counter.earn(count as u64);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, size: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, size, kind, flags, 0, 0, 0, 1];
        frame.extend(vec![0; usize::from(size)]);
        frame
    }

    /// Rounds until the budget is exceeded. Each round is read in pieces, lasts `pause` and sends `sent` response bytes.
    fn rounds(round: &[u8], pause: Duration, sent: u64) -> Option<usize> {
        rounds_after(0, SMALL_DATA, round, pause, sent)
    }

    /// As [`rounds`], after `sent_before` response bytes were sent.
    fn rounds_after(
        sent_before: u64,
        min_data: u32,
        round: &[u8],
        pause: Duration,
        sent: u64,
    ) -> Option<usize> {
        let began = Instant::now();
        let mut counter = FrameCounter::new(min_data, began);
        counter.read(&[b'P'; PREFACE_LENGTH as usize]);
        counter.earn(sent_before);
        (1..100_000_u32).position(|number| {
            round.chunks(7).for_each(|piece| counter.read(piece));
            counter.earn(sent);
            counter.is_exceeded(|| began + pause * number)
        })
    }

    #[test]
    fn idle_frames_have_a_budget_that_refills() {
        let second = Duration::from_secs(1);
        let slow = second / u32::try_from(REFILL_PER_SECOND).unwrap_or(u32::MAX);
        let ping = frame(PING, 0, 8);
        assert_eq!(rounds(&ping, Duration::ZERO, 0), Some(10_000));
        assert_eq!(rounds(&ping, slow, 0), None, "within the refill rate");
        assert!(rounds(&ping, slow / 2, 0).is_some_and(|count| count < 21_000));
        assert_eq!(rounds(&frame(DATA, 0, 1), Duration::ZERO, 0), Some(10_000));
        assert_eq!(rounds(&frame(DATA, END_STREAM, 0), Duration::ZERO, 0), None);
        assert_eq!(rounds(&frame(DATA, 0, 200), Duration::ZERO, 0), None);
        let requests = [frame(HEADERS, 4, 30), frame(WINDOW_UPDATE, 0, 4)].concat();
        assert_eq!(rounds(&requests, Duration::ZERO, 0), None, "one window update per request");
        let window_updates = [frame(WINDOW_UPDATE, 0, 4), frame(WINDOW_UPDATE, 0, 4)].concat();
        assert_eq!(rounds(&window_updates, Duration::ZERO, 200), None, "two window updates per event");
        assert!(rounds(&window_updates, Duration::ZERO, 20).is_some());
        let after_much = rounds_after(1 << 30, SMALL_DATA, &ping, Duration::ZERO, 0);
        assert_eq!(after_much, Some(60_000), "only a part of what was earned is saved");
    }

    #[test]
    fn a_connection_that_keeps_opening_streams_after_goaway_is_closed() {
        let now = Instant::now();
        let mut counter = FrameCounter::new(SMALL_DATA, now);
        counter.read(&[b'P'; PREFACE_LENGTH as usize]);
        let request = |counter: &mut FrameCounter, times: u32| {
            (0..times).for_each(|_| counter.read(&frame(HEADERS, 4, 30)));
            counter.is_exceeded(|| now)
        };
        assert!(!request(&mut counter, 10 * MAX_REQUESTS_AFTER_GOAWAY));
        counter.goaway.mark_sent();
        assert!(!request(&mut counter, MAX_REQUESTS_AFTER_GOAWAY));
        assert!(request(&mut counter, 1));
    }

    #[tokio::test]
    async fn reading_pauses_after_header_frames_until_the_server_has_taken_the_requests() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let mut server = FrameBudget::for_client(server);
        let read_ahead = server.limit_header_read_ahead();
        client.write_all(&[b'P'; PREFACE_LENGTH as usize]).await.unwrap();
        let header = [frame(HEADERS, 0, 200), frame(CONTINUATION, 4, 200), frame(DATA, 1, 250)].concat();
        for _ in 0..100 {
            client.write_all(&header).await.unwrap();
        }
        let mut buffer = [0; 1 << 10];
        let mut reads = 0;
        while let Some(read) = server.read(&mut buffer).now_or_never() {
            assert_eq!(read.unwrap(), buffer.len());
            reads += 1;
        }
        assert_eq!(reads, 7, "7 KiB contain 4 KiB of header frames");
        assert!(read_ahead.reset(), "reading was paused");
        assert!(!read_ahead.reset());
        server.read(&mut buffer).now_or_never().unwrap().unwrap();
        // Data frames alone do not pause it.
        let mut body = FrameBudget::for_client(std::io::Cursor::new(frame(DATA, 0, 250).repeat(1_000)));
        let read_ahead = body.limit_header_read_ahead();
        tokio::io::copy(&mut body, &mut tokio::io::sink()).await.unwrap();
        assert!(!read_ahead.reset());
    }

    #[test]
    fn small_data_frames_of_a_proxy_are_not_idle() {
        let proxied = |round: &[u8]| rounds_after(0, EMPTY_DATA, round, Duration::ZERO, 0);
        assert_eq!(proxied(&frame(DATA, 0, 1)), None);
        assert_eq!(proxied(&frame(DATA, 0, 0)), Some(10_000), "empty DATA frames are idle");
        assert_eq!(proxied(&frame(PING, 0, 8)), Some(10_000));
    }
}
