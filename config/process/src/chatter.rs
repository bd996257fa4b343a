//! Frames that mean nothing.
//!
//! Over HTTP/2 a frame of nine bytes may cost whoever reads it as much as one that asks for something: pings, settings, priorities,
//! windows that grow byte by byte, bodies that come so, frames of unknown kinds (CVE-2019-9512, -9513, -9515, -9518). The library
//! answers or ignores them, as many as come. So they are counted here, on their way in: a connection has a credit
//! of [`CREDIT`] of them, which comes back by [`A_SECOND`], and by what it asks for and takes of answers, since whoever takes
//! much has windows to open; of that, [`SAVED`] are kept for later. When it is used up the connection is over.
//!
//! A proxy brings the requests of many, and what it sends is its own doing but for one thing: bodies come in the parts in which
//! its clients send them. Frames of its own are few: a request and its end are two, and windows open by half of them. So
//! where proxies come, small parts of bodies count as those of a request; see [`Chatter::of_proxy`].
//!
//! Who was told to ask for no more on this connection may still have asked before it heard of it. The library reads what comes
//! later and throws it away, so that nobody sees it but this: [`LATE`] requests more, and the connection is over, too.
//!
//! Cost: some arithmetic per frame, and a look at the clock for each [`CREDIT`] of idle ones.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Idle frames that may come at once.
const CREDIT: u64 = 10_000;
/// So many more may come in each second.
const A_SECOND: u64 = 2_000;
/// Bytes sent that are good for one more: an event of a watch for two windows.
const SENT: u64 = 64;
/// More than were needed so far are not put by: whoever takes much sends its windows soon after.
const SAVED: u64 = 50_000;
/// A part of a body that is smaller, and not the last, means nothing.
const SMALL: u32 = 32;
const EMPTY: u32 = 1;
/// Requests after the goodbye; those that were under way are no more than a connection may have open.
const LATE: u32 = 1_000;
/// What a client says before its first frame.
const PREFACE: u32 = 24;
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// An HTTP/2 connection from its first byte on, until too much comes on it that means nothing. Then reading fails, see
/// [`said_too_much`].
#[derive(Debug)]
pub struct Chatter<S> {
    stream: S,
    meter: Meter,
}

impl<S> Chatter<S> {
    /// Of one client.
    pub fn of_client(stream: S) -> Self {
        Self { stream, meter: Meter::new(SMALL, Instant::now()) }
    }

    /// Of whoever may carry the requests of others: in parts of bodies only those without a byte mean nothing.
    pub fn of_proxy(stream: S) -> Self {
        Self { stream, meter: Meter::new(EMPTY, Instant::now()) }
    }

    /// What to say when the client is told to ask for no more here.
    pub fn farewell(&self) -> Farewell {
        self.meter.farewell.clone()
    }
}

/// Whether a client was told to ask for no more.
#[derive(Clone, Debug, Default)]
pub struct Farewell(Arc<AtomicBool>);

impl Farewell {
    /// It is told now.
    pub fn said(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn was_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this is how a connection ends that said too much.
pub fn said_too_much(error: &io::Error) -> bool {
    // All that the library lets through.
    error.kind() == io::ErrorKind::QuotaExceeded
}

#[derive(Debug)]
struct Meter {
    /// The head of a frame, as far as it has come.
    head: [u8; HEAD],
    filled: usize,
    /// Bytes until the next.
    skip: u32,
    /// Parts of bodies below this size are idle.
    small: u32,
    /// Idle frames since the last look at the clock, and what makes good for them, in bytes sent.
    idle: u64,
    earned: u64,
    credit: u64,
    looked: Instant,
    farewell: Farewell,
    /// Requests since then.
    late: u32,
}

impl Meter {
    fn new(small: u32, now: Instant) -> Self {
        let head = [0; HEAD];
        Self {
            head,
            filled: 0,
            skip: PREFACE,
            small,
            idle: 0,
            earned: 0,
            credit: CREDIT,
            looked: now,
            farewell: Farewell::default(),
            late: 0,
        }
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            bytes = &bytes[skipped..];
            self.skip -= u32::try_from(skipped).unwrap_or(self.skip);
            let taken = bytes.len().min(HEAD - self.filled);
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD {
                self.filled = 0;
                self.frame();
            }
        }
    }

    fn frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.skip = u32::from_be_bytes([0, high, middle, low]);
        match kind {
            // The library has limits of its own for these two, and a request may be taken back.
            HEADERS if self.farewell.was_said() => self.late = self.late.saturating_add(1),
            HEADERS => self.earn(SENT),
            CONTINUATION => {}
            DATA if self.skip >= self.small || flags & END_STREAM != 0 => {}
            _ => self.idle += 1,
        }
    }

    fn earn(&mut self, bytes: u64) {
        self.earned = (self.earned + bytes).min((self.idle + SAVED) * SENT);
    }

    /// Whether it was too much. `now` is asked for rarely.
    fn is_overdrawn(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.late > LATE {
            return true;
        }
        let good = self.credit + self.earned / SENT;
        if self.idle <= good {
            return false;
        }
        let now = now();
        let since = now.duration_since(self.looked).as_millis();
        let earned = u64::try_from(since).unwrap_or(u64::MAX).saturating_mul(A_SECOND) / 1_000;
        let left = (good.saturating_add(earned)).checked_sub(self.idle);
        (self.idle, self.earned, self.looked) = (0, 0, now);
        self.credit = left.unwrap_or_default().min(CREDIT);
        left.is_none()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Chatter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.meter.read(&buffer.filled()[before..]);
            if self.meter.is_overdrawn(Instant::now) {
                return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Chatter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        if let Poll::Ready(Ok(count)) = written {
            self.meter.earn(count as u64);
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
            self.meter.earn(count as u64);
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

    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, size: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, size, kind, flags, 0, 0, 0, 1];
        frame.extend(vec![0; usize::from(size)]);
        frame
    }

    /// Rounds until it is too much, in pieces that end anywhere; each takes `pause`, and takes so many bytes.
    fn rounds(round: &[u8], pause: Duration, sent: u64) -> Option<usize> {
        rounds_after(0, SMALL, round, pause, sent)
    }

    /// The same, when so many bytes have been taken before.
    fn rounds_after(taken: u64, small: u32, round: &[u8], pause: Duration, sent: u64) -> Option<usize> {
        let began = Instant::now();
        let mut meter = Meter::new(small, began);
        meter.read(&[b'P'; PREFACE as usize]);
        meter.earn(taken);
        (1..100_000_u32).position(|number| {
            round.chunks(7).for_each(|piece| meter.read(piece));
            meter.earn(sent);
            meter.is_overdrawn(|| began + pause * number)
        })
    }

    #[test]
    fn who_only_chatters_has_a_credit() {
        let second = Duration::from_secs(1);
        let slow = second / u32::try_from(A_SECOND).unwrap_or(u32::MAX);
        let ping = frame(PING, 0, 8);
        assert_eq!(rounds(&ping, Duration::ZERO, 0), Some(10_000));
        assert_eq!(rounds(&ping, slow, 0), None, "not too many at a time");
        assert!(rounds(&ping, slow / 2, 0).is_some_and(|count| count < 21_000));
        assert_eq!(rounds(&frame(DATA, 0, 1), Duration::ZERO, 0), Some(10_000));
        assert_eq!(rounds(&frame(DATA, END_STREAM, 0), Duration::ZERO, 0), None);
        assert_eq!(rounds(&frame(DATA, 0, 200), Duration::ZERO, 0), None);
        let asked = [frame(HEADERS, 4, 30), frame(WINDOW_UPDATE, 0, 4)].concat();
        assert_eq!(rounds(&asked, Duration::ZERO, 0), None, "a window for each request");
        let taken = [frame(WINDOW_UPDATE, 0, 4), frame(WINDOW_UPDATE, 0, 4)].concat();
        assert_eq!(rounds(&taken, Duration::ZERO, 200), None, "two windows for each event");
        assert!(rounds(&taken, Duration::ZERO, 20).is_some());
        let after_much = rounds_after(1 << 30, SMALL, &ping, Duration::ZERO, 0);
        assert_eq!(after_much, Some(60_000), "not all that was taken is put by");
    }

    #[test]
    fn who_goes_on_asking_after_the_goodbye_is_cut_off() {
        let now = Instant::now();
        let mut meter = Meter::new(SMALL, now);
        meter.read(&[b'P'; PREFACE as usize]);
        let ask = |meter: &mut Meter, times: u32| {
            (0..times).for_each(|_| meter.read(&frame(HEADERS, 4, 30)));
            meter.is_overdrawn(|| now)
        };
        assert!(!ask(&mut meter, 10 * LATE));
        meter.farewell.said();
        assert!(!ask(&mut meter, LATE));
        assert!(ask(&mut meter, 1));
    }

    #[test]
    fn a_proxy_sends_the_small_parts_of_its_clients() {
        let proxied = |round: &[u8]| rounds_after(0, EMPTY, round, Duration::ZERO, 0);
        assert_eq!(proxied(&frame(DATA, 0, 1)), None);
        assert_eq!(proxied(&frame(DATA, 0, 0)), Some(10_000), "it has no reason to send none");
        assert_eq!(proxied(&frame(PING, 0, 8)), Some(10_000));
    }
}
