//! An HTTP/1.1 connection: bytes that were read and not parsed yet, and bytes that are to be written.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

/// Maximum number of bytes per read.
const READ_SIZE: usize = 16 << 10;
/// Maximum number of bytes read ahead while a response is in progress, for clients that pipeline requests.
const MAX_AHEAD: usize = 64 << 10;
/// Size of the buffered output, in bytes, at which it is written without waiting for more.
const FLUSH_THRESHOLD: usize = 32 << 10;

/// A connection. It holds memory only for buffered bytes: an idle one has empty buffers.
pub(super) struct Http1Connection {
    pub(super) stream: Stream,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    /// True if the client has closed its side.
    pub(super) ended: bool,
}

impl Http1Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, input: BytesMut::new(), output: BytesMut::new(), ended: false }
    }

    /// Reads more input; returns 0 at the end. Cancel-safe.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        // On the stack, so that a waiting connection holds no buffer.
        let mut scratch = [MaybeUninit::uninit(); READ_SIZE];
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

    /// Returns when the client has disconnected. Input that arrives meanwhile is buffered up to [`MAX_AHEAD`]; if the client
    /// sends more, its disconnection is not noticed.
    pub(super) async fn closed(&mut self) {
        poll_fn(|context| {
            while self.input.len() < MAX_AHEAD {
                match ready!(self.poll_fill(context)) {
                    // The client has half-closed the connection, and its buffered requests are still to be served.
                    Ok(0) if !self.input.is_empty() => return Poll::Pending,
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(_) => {}
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// True if the output should be written now.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= FLUSH_THRESHOLD
    }

    /// Writes all buffered output.
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
