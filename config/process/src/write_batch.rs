//! One write to the socket for everything that an HTTP/2 connection sends in one poll.
//!
//! The HTTP/2 library flushes its stream after each DATA frame, and the TLS stream below it writes to the socket each time: a
//! system call, and mostly a wake-up of the client, for 16 KiB of a large response or for each of several small ones. Here the
//! TLS session keeps the records of a poll, up to [`MAX_BATCH`], and [`Batched`] sends them when the poll has ended.
//!
//! Cost: one uncontended lock per read or write, and no copy.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Bytes of TLS records after which a batch is written before the poll has ended.
const MAX_BATCH: usize = 64 << 10;

type Shared = Arc<Mutex<TlsStream<TcpStream>>>;

/// The stream of an HTTP/2 connection. Its owner polls the connection through [`Batched`], which alone flushes it.
pub(crate) struct BatchedStream(Shared);

/// Sends at the end of each poll what was written to a [`BatchedStream`].
pub(crate) struct Flusher(Shared);

impl BatchedStream {
    /// Batches the records of an established TLS stream.
    pub(crate) fn new(mut stream: TlsStream<TcpStream>) -> (Self, Flusher) {
        stream.get_mut().1.set_buffer_limit(Some(MAX_BATCH));
        let shared = Arc::new(Mutex::new(stream));
        (Self(Arc::clone(&shared)), Flusher(shared))
    }

    /// Passes data to the session; sends the batch first if the session has no room.
    fn poll_accept(
        &self,
        context: &mut Context<'_>,
        is_empty: bool,
        accept: impl Fn(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut stream = self.0.lock();
        loop {
            let accepted = accept(stream.get_mut().1)?;
            if accepted > 0 || is_empty {
                return Poll::Ready(Ok(accepted));
            }
            ready!(Pin::new(&mut *stream).poll_flush(context))?;
        }
    }
}

impl AsyncRead for BatchedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(context, buffer)
    }
}

impl AsyncWrite for BatchedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_accept(context, bytes.is_empty(), |session| session.writer().write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_empty = slices.iter().all(|slice| slice.is_empty());
        self.poll_accept(context, is_empty, |session| session.writer().write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: the batch is sent at the end of the poll.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Sends the batch and closes the stream.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(context)
    }
}

pin_project! {
    /// A connection over a [`BatchedStream`], which is flushed after each poll.
    pub(crate) struct Batched<C> {
        #[pin]
        connection: C,
        flusher: Flusher,
    }
}

impl<C> Batched<C> {
    pub(crate) fn new(connection: C, flusher: Flusher) -> Self {
        Self { connection, flusher }
    }

    pub(crate) fn connection(self: Pin<&mut Self>) -> Pin<&mut C> {
        self.project().connection
    }
}

impl<C, E> Future for Batched<C>
where
    C: Future<Output = Result<(), E>>,
{
    type Output = Result<(), E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(outcome) = this.connection.poll(context) {
            return Poll::Ready(outcome);
        }
        // If the socket has no room, the connection is polled again as soon as it has some, and then flushed again.
        match ready!(Pin::new(&mut *this.flusher.0.lock()).poll_flush(context)) {
            Ok(()) => Poll::Pending,
            Err(error) => {
                tracing::debug!(%error, "a connection ended while a response was sent");
                Poll::Ready(Ok(()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::future::poll_fn;
    use core::task::Waker;
    use std::convert::Infallible;

    use rustls::crypto::aws_lc_rs;
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use rustls_pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector, client};

    use super::*;

    async fn connected() -> (client::TlsStream<TcpStream>, BatchedStream, Flusher) {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connect, listener.accept());
        let connector = TlsConnector::from(Arc::new(client));
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let connect = connector.connect("localhost".try_into().unwrap(), near.unwrap());
        let (near, far) = tokio::join!(connect, acceptor.accept(far.unwrap().0));
        let (stream, flusher) = BatchedStream::new(far.unwrap());
        (near.unwrap(), stream, flusher)
    }

    #[tokio::test]
    async fn writes_of_one_poll_are_sent_when_it_ends() {
        let (mut client, mut stream, flusher) = connected().await;
        let connection = poll_fn(move |context| {
            for part in [b"one,", b"two,"] {
                assert!(matches!(Pin::new(&mut stream).poll_write(context, part), Poll::Ready(Ok(4))));
                assert!(Pin::new(&mut stream).poll_flush(context).is_ready());
            }
            assert!(stream.0.lock().get_ref().1.wants_write(), "both parts wait for the end of the poll");
            Poll::<Result<(), Infallible>>::Pending
        });
        let mut batched = Box::pin(Batched::new(connection, flusher));
        assert!(batched.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(!batched.flusher.0.lock().get_ref().1.wants_write());
        let mut received = [0; 8];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"one,two,");
    }

    #[tokio::test]
    async fn more_than_a_batch_and_than_the_socket_takes_arrives_whole() {
        const LENGTH: usize = 16 << 20;
        let (mut client, mut stream, flusher) = connected().await;
        let sent: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let connection = Box::pin(async move {
            stream.write_all(&sent).await?;
            stream.shutdown().await
        });
        let serving = tokio::spawn(Batched::new(connection, flusher));
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        serving.await.unwrap().unwrap();
        assert!(received == expected, "{} bytes", received.len());
    }

    #[tokio::test]
    async fn a_connection_whose_client_is_gone_ends() {
        let (client, mut stream, flusher) = connected().await;
        drop(client);
        let connection = Box::pin(async move {
            loop {
                // Only the flush writes to the socket.
                let _ = stream.write(b"event").await;
                tokio::task::yield_now().await;
            }
        });
        let ended: Result<(), Infallible> = Batched::new(connection, flusher).await;
        assert!(ended.is_ok());
    }
}
