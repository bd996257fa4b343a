//! One write for many frames, and turns for those who read.
//!
//! The HTTP/2 library flushes after every frame with a body worth mentioning, and its connection is woken for each
//! stream that has something to send; under load that is one TLS record and one system call per answer. Here a
//! connection collects what it wants to send, lets the other tasks that are ready run once, and then writes everything
//! at once. On a quiet machine nobody else is ready, and nothing waits.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// From here on it is written without waiting for more: about a TLS record.
const ENOUGH: usize = 16 << 10;
/// More is not taken in until some of it was written.
const MOST: usize = 64 << 10;
/// Reads in a row before the others have their turn. What has come and nobody has taken yet counts against the peer: the
/// library gives a connection up over some thousand small frames.
const MOST_READS: u8 = 2;
/// Room that the first of what is collected makes. None is kept: most connections are quiet.
const ROOM: usize = 4 << 10;

/// The stream as the HTTP/2 library sees it.
#[derive(Debug)]
pub(crate) struct WriteCoalescer<S>(Arc<Mutex<Shared<S>>>);

/// Writes what was collected. Whoever drives the connection polls it whenever the connection itself is pending.
#[derive(Debug)]
pub(crate) struct CoalescedWriter<S> {
    shared: Arc<Mutex<Shared<S>>>,
    /// The others have had their turn.
    waited: bool,
}

/// Only the task that drives the connection takes the lock, so nobody ever waits for it.
#[derive(Debug)]
struct Shared<S> {
    stream: S,
    collected: BytesMut,
    /// The stream has taken more than it has passed on: TLS has a buffer of its own, which nobody else empties.
    unflushed: bool,
    /// In a row.
    reads: u8,
    /// The library was told to wait for room.
    refused: bool,
    /// Nothing can be written any more.
    broken: bool,
}

/// Two sides of one stream.
pub(crate) fn coalesce<S>(stream: S) -> (WriteCoalescer<S>, CoalescedWriter<S>) {
    let shared = Arc::new(Mutex::new(Shared {
        stream,
        collected: BytesMut::new(),
        unflushed: false,
        reads: 0,
        refused: false,
        broken: false,
    }));
    (WriteCoalescer(Arc::clone(&shared)), CoalescedWriter { shared, waited: false })
}

impl<S: AsyncWrite + Unpin> Shared<S> {
    fn poll_write_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.collected.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.collected))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.collected.advance(written);
            self.unflushed = true;
        }
        self.collected = BytesMut::new();
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> CoalescedWriter<S> {
    /// Ready when the connection should be polled again at once: there is room for what it could not write, or nothing
    /// can be written any more, which it then hears.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.shared.lock();
        if shared.collected.is_empty() && !shared.unflushed {
            return Poll::Pending;
        }
        if !self.waited && !shared.unflushed && shared.collected.len() < ENOUGH {
            self.waited = true;
            // Polled once it has the runtime wake this task when nobody else here is ready, without rousing another
            // thread for it.
            let _ = pin!(tokio::task::yield_now()).poll(context);
            return Poll::Pending;
        }
        match shared.poll_write_out(context) {
            Poll::Ready(outcome) => {
                self.waited = false;
                if outcome.is_err() {
                    shared.collected.clear();
                    shared.unflushed = false;
                    shared.broken = true;
                }
                let again = std::mem::take(&mut shared.refused) || shared.broken;
                if again { Poll::Ready(()) } else { Poll::Pending }
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteCoalescer<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        if shared.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if shared.reads == MOST_READS {
            shared.reads = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = Pin::new(&mut shared.stream).poll_read(context, buffer);
        shared.reads = if read.is_ready() { shared.reads + 1 } else { 0 };
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteCoalescer<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        if shared.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if shared.collected.len() >= MOST && shared.poll_write_out(context)?.is_pending() {
            shared.refused = true;
            return Poll::Pending;
        }
        if shared.collected.is_empty() {
            shared.collected.reserve(buffer.len().max(ROOM));
        }
        shared.collected.extend_from_slice(buffer);
        Poll::Ready(Ok(buffer.len()))
    }

    /// What was collected is as good as written: the [`CoalescedWriter`] sees to it.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        ready!(shared.poll_write_out(context))?;
        Pin::new(&mut shared.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::future::poll_fn;
    use std::time::Duration;

    use futures_util::task::noop_waker_ref;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn small_writes_leave_together_once_the_others_have_had_their_turn() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut stream, mut writer) = coalesce(near);
        let mut context = Context::from_waker(noop_waker_ref());
        for part in [&b"one "[..], b"two "] {
            assert!(Pin::new(&mut stream).poll_write(&mut context, part).is_ready());
            assert!(Pin::new(&mut stream).poll_flush(&mut context).is_ready());
        }
        assert!(writer.poll(&mut context).is_pending());
        assert!(Pin::new(&mut stream).poll_write(&mut context, b"three").is_ready());
        assert!(writer.poll(&mut context).is_pending());
        let mut read = [0; 64];
        let count = far.read(&mut read).await.unwrap();
        assert_eq!(&read[..count], b"one two three");
    }

    #[tokio::test]
    async fn a_peer_that_sends_much_does_not_keep_the_others_from_their_turn() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut stream, _writer) = coalesce(near);
        far.write_all(&[b'x'; 4096]).await.unwrap();
        let mut context = Context::from_waker(noop_waker_ref());
        let mut read = |stream: &mut WriteCoalescer<_>| {
            let mut space = [0; 1024];
            let mut buffer = ReadBuf::new(&mut space);
            Pin::new(stream).poll_read(&mut context, &mut buffer).is_ready()
        };
        let turns: Vec<bool> = (0..6).map(|_| read(&mut stream)).collect();
        assert_eq!(turns, [true, true, false, true, true, false]);
    }

    #[tokio::test]
    async fn what_the_layer_below_has_kept_is_passed_on_when_there_is_room() {
        let (near, mut far) = tokio::io::duplex(16);
        let (mut stream, mut writer) = coalesce(tokio::io::BufWriter::new(near));
        stream.write_all(&[b'x'; 100]).await.unwrap();
        let driving = poll_fn(|context| {
            let _ = writer.poll(context);
            Poll::<()>::Pending
        });
        let mut read = [0; 100];
        let reading = tokio::time::timeout(Duration::from_secs(20), far.read_exact(&mut read));
        tokio::select! {
            () = driving => {}
            read = reading => assert_eq!(read.expect("the rest never comes").unwrap(), 100),
        }
    }

    #[tokio::test]
    async fn a_stream_that_takes_no_more_is_waited_for() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let (mut stream, mut writer) = coalesce(near);
        let mut context = Context::from_waker(noop_waker_ref());
        let chunk = vec![b'x'; 10 << 10];
        let mut taken = 0;
        while Pin::new(&mut stream).poll_write(&mut context, &chunk).is_ready() {
            taken += chunk.len();
            assert!(taken < 2 * MOST, "it takes everything");
        }
        let mut left = taken;
        let mut read = vec![0; 1 << 10];
        let mut room = false;
        while left > 0 {
            // The runtime limits how much one task does before others have their turn; this one begins anew each time.
            tokio::task::yield_now().await;
            // A first time for the others' turn.
            room |= writer.poll(&mut context).is_ready() | writer.poll(&mut context).is_ready();
            left -= far.read(&mut read).await.unwrap();
        }
        assert!(
            room || writer.poll(&mut context).is_ready(),
            "the connection is not told that there is room"
        );
        assert!(Pin::new(&mut stream).poll_write(&mut context, &chunk).is_ready());
    }
}
