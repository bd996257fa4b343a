//! Large reads for a reader of small ones.
//!
//! The TLS library reads 4 KiB from the socket at a time, which is one system call for three responses of a busy
//! connection. This buffer reads more at once and keeps the rest only until it is read, so that an idle connection
//! keeps no memory.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read from the socket at once.
const READ_SIZE: usize = 16 << 10;

/// A socket that is read in large pieces.
#[derive(Debug)]
pub(crate) struct ReadAhead<S> {
    socket: S,
    rest: Bytes,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, rest: Bytes::new() }
    }

    /// The socket itself. Bytes that are already in the buffer cannot be read from it.
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            if buffer.remaining() >= READ_SIZE {
                return Pin::new(&mut self.socket).poll_read(context, buffer);
            }
            let mut space = [MaybeUninit::uninit(); READ_SIZE];
            let mut read = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut read))?;
            let (now, later) = read.filled().split_at(read.filled().len().min(buffer.remaining()));
            buffer.put_slice(now);
            if !later.is_empty() {
                self.rest = Bytes::copy_from_slice(later);
            }
            return Poll::Ready(Ok(()));
        }
        let size = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..size]);
        self.rest.advance(size);
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_read_ahead_are_returned_by_later_reads() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut socket = ReadAhead::new(near);
        let sent: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
        far.write_all(&sent).await.unwrap();
        drop(far);
        let mut read = Vec::new();
        let mut sizes = [1, 7, 4096, 20_000].into_iter().cycle();
        loop {
            let mut piece = vec![0; sizes.next().unwrap()];
            match socket.read(&mut piece).await.unwrap() {
                0 => break,
                count => read.extend_from_slice(&piece[..count]),
            }
        }
        assert!(read == sent);
    }
}
