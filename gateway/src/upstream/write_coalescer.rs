//! Combines the writes of many frames, and limits consecutive reads.
//!
//! The HTTP/2 library flushes after every frame with a larger body, and its connection task is woken for each stream that
//! has something to send; under load that is one TLS record and one system call per response. This layer buffers the
//! frames, yields once to the other ready tasks, and then writes everything at once. On a quiet machine no other task is
//! ready, and nothing is delayed.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of buffered bytes at which they are written at once: about a TLS record.
const WRITE_THRESHOLD: usize = 16 << 10;
/// Maximum number of buffered bytes; more is refused until some were written.
const MAX_BUFFERED: usize = 64 << 10;
/// Number of consecutive reads before the task yields. Frames that were received and not yet processed count against the peer: the
/// library closes a connection with some thousand small ones.
const MAX_CONSECUTIVE_READS: u8 = 2;
/// Initial capacity of the buffer. An empty buffer keeps no memory, because most connections are quiet.
const INITIAL_CAPACITY: usize = 4 << 10;

/// The stream for the HTTP/2 library, whose writes are buffered.
#[derive(Debug)]
pub(crate) struct WriteCoalescer<S>(Arc<Mutex<Shared<S>>>);

/// Writes the buffered bytes. The connection's task polls it whenever the connection itself is pending.
#[derive(Debug)]
pub(crate) struct CoalescedWriter<S> {
    shared: Arc<Mutex<Shared<S>>>,
    /// The task has yielded to the other tasks.
    waited: bool,
}

/// Only the connection's task takes the lock, so it is never contended.
#[derive(Debug)]
struct Shared<S> {
    stream: S,
    buffered: BytesMut,
    /// The stream has accepted bytes that it has not flushed: TLS has its own buffer, which only a flush empties.
    unflushed: bool,
    /// Consecutive reads.
    reads: u8,
    /// A write was refused because the buffer was full.
    refused: bool,
    /// Writing has failed.
    broken: bool,
}

/// Splits a stream into the part for the HTTP/2 library and the part that writes.
pub(crate) fn coalesce<S>(stream: S) -> (WriteCoalescer<S>, CoalescedWriter<S>) {
    let shared = Arc::new(Mutex::new(Shared {
        stream,
        buffered: BytesMut::new(),
        unflushed: false,
        reads: 0,
        refused: false,
        broken: false,
    }));
    (WriteCoalescer(Arc::clone(&shared)), CoalescedWriter { shared, waited: false })
}

impl<S: AsyncWrite + Unpin> Shared<S> {
    fn poll_write_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffered.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.buffered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffered.advance(written);
            self.unflushed = true;
        }
        self.buffered = BytesMut::new();
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> CoalescedWriter<S> {
    /// Ready when the connection should be polled again at once: the buffer has space for a refused write, or writing has failed,
    /// which the connection then notices.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.shared.lock();
        if shared.buffered.is_empty() && !shared.unflushed {
            return Poll::Pending;
        }
        if !self.waited && !shared.unflushed && shared.buffered.len() < WRITE_THRESHOLD {
            self.waited = true;
            // Polling it makes the runtime wake this task when no other task of this worker is ready, without waking another
            // thread for it.
            let _ = pin!(tokio::task::yield_now()).poll(context);
            return Poll::Pending;
        }
        match shared.poll_write_out(context) {
            Poll::Ready(outcome) => {
                self.waited = false;
                if outcome.is_err() {
                    shared.buffered.clear();
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
        if shared.reads == MAX_CONSECUTIVE_READS {
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
        if shared.buffered.len() >= MAX_BUFFERED && shared.poll_write_out(context)?.is_pending() {
            shared.refused = true;
            return Poll::Pending;
        }
        if shared.buffered.is_empty() {
            shared.buffered.reserve(buffer.len().max(INITIAL_CAPACITY));
        }
        shared.buffered.extend_from_slice(buffer);
        Poll::Ready(Ok(buffer.len()))
    }

    /// Succeeds immediately: the [`CoalescedWriter`] writes the buffer.
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
    async fn small_writes_are_combined_after_other_tasks_have_run() {
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
    async fn a_fast_sender_does_not_starve_other_tasks() {
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
    async fn data_buffered_by_the_inner_stream_is_flushed_when_it_is_writable() {
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
    async fn a_full_stream_applies_backpressure() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let (mut stream, mut writer) = coalesce(near);
        let mut context = Context::from_waker(noop_waker_ref());
        let chunk = vec![b'x'; 10 << 10];
        let mut taken = 0;
        while Pin::new(&mut stream).poll_write(&mut context, &chunk).is_ready() {
            taken += chunk.len();
            assert!(taken < 2 * MAX_BUFFERED, "it takes everything");
        }
        let mut left = taken;
        let mut read = vec![0; 1 << 10];
        let mut room = false;
        while left > 0 {
            // The runtime limits how long one task runs before others are scheduled; yielding resets this limit each time.
            tokio::task::yield_now().await;
            // The first poll yields to the other tasks.
            room |= writer.poll(&mut context).is_ready() | writer.poll(&mut context).is_ready();
            left -= far.read(&mut read).await.unwrap();
        }
        assert!(
            room || writer.poll(&mut context).is_ready(),
            "the connection is not woken when the buffer has space"
        );
        assert!(Pin::new(&mut stream).poll_write(&mut context, &chunk).is_ready());
    }
}
