//! The bytes of an HTTP/1 connection, what was read of them and what is to be written.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

/// Read at once.
const SCRATCH: usize = 16 << 10;
/// Taken in while nobody asks for it: the requests of a client that does not wait for answers.
const MAX_AHEAD: usize = 64 << 10;
/// Written without waiting for more.
const ENOUGH: usize = 32 << 10;

/// A connection. It holds memory only for bytes that wait: an idle one has empty buffers.
pub(super) struct Http1Connection {
    pub(super) stream: Stream,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    /// The client sends nothing any more.
    pub(super) ended: bool,
}

impl Http1Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, input: BytesMut::new(), output: BytesMut::new(), ended: false }
    }

    /// Reads some more; 0 at the end. May be dropped at any time.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        // On the stack, so that a connection that waits holds nothing.
        let mut scratch = [MaybeUninit::uninit(); SCRATCH];
        let mut buffer = ReadBuf::uninit(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        let read = buffer.filled();
        self.ended = read.is_empty();
        if self.input.is_empty() {
            self.input = BytesMut::from(read);
        } else {
            self.input.extend_from_slice(read);
        }
        Poll::Ready(Ok(read.len()))
    }

    /// Returns when the client has gone away. What it sends meanwhile is kept for later, up to a limit; a client that
    /// sends more than that is not watched any more.
    pub(super) async fn left(&mut self) {
        poll_fn(|context| {
            while self.input.len() < MAX_AHEAD {
                match ready!(self.poll_fill(context)) {
                    // It has said everything that it wanted to say, and some of that is still to be done.
                    Ok(0) if !self.input.is_empty() => return Poll::Pending,
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(_) => {}
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether it is time to write.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= ENOUGH
    }

    /// Writes everything.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        while !self.output.is_empty() {
            let written = self.stream.write(&self.output).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.output.advance(written);
        }
        self.output = BytesMut::new();
        self.stream.flush().await
    }
}
