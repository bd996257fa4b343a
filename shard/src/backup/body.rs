//! The body of a response that a thread writes. The channel between both holds few chunks, so the thread waits for the client.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use fairlead_process::BodyError;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that wait for the client.
const CHUNKS: usize = 2;

/// The writer's side. Its calls block while the client does not read, and fail when it has left.
pub(super) struct ChunkWriter {
    chunk: BytesMut,
    chunks: mpsc::Sender<Bytes>,
}

/// The reader's side.
pub(super) struct ChunkBody(mpsc::Receiver<Bytes>);

/// Both sides of a body.
pub(super) fn channel() -> (ChunkWriter, ChunkBody) {
    let (chunks, receiver) = mpsc::channel(CHUNKS);
    (ChunkWriter { chunk: BytesMut::with_capacity(CHUNK_BYTES), chunks }, ChunkBody(receiver))
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        if self.chunk.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let next = BytesMut::with_capacity(CHUNK_BYTES);
        let chunk = std::mem::replace(&mut self.chunk, next).freeze();
        self.chunks.blocking_send(chunk).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_has_the_bytes_that_were_written() {
        let (mut writer, body) = channel();
        let written: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let expected = written.clone();
        let writing = tokio::task::spawn_blocking(move || {
            writer.write_all(&written).unwrap();
            writer.flush().unwrap();
        });
        let read = body.collect().await.unwrap().to_bytes();
        writing.await.unwrap();
        assert_eq!(read, expected);
    }

    #[tokio::test]
    async fn the_writer_fails_when_the_reader_has_left() {
        let (mut writer, body) = channel();
        drop(body);
        let written = tokio::task::spawn_blocking(move || writer.write_all(&[0; 2 * CHUNK_BYTES]));
        assert_eq!(written.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
