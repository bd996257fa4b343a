//! pingora's interface: a client's TLS stream as its `Stream`, and the HTTP server as its `ServerApp`.

use std::fmt;
use std::future::ready;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use pingora::apps::ServerApp;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::http::HttpServer;
use crate::listener::socket::Socket;
use crate::policy::connection::Connection;
use crate::upstream::read_ahead::ReadAhead;

/// A client's TLS stream as pingora's `Stream`, with the [`Connection`] that it belongs to.
///
/// pingora's own TLS stream is not used, because it parses the peer's certificate with `expect`: a malformed certificate
/// would panic the task.
pub(super) struct DownstreamTlsStream {
    stream: TlsStream<ReadAhead<Socket>>,
    connection: Arc<Connection>,
}

impl DownstreamTlsStream {
    pub(super) fn new(stream: TlsStream<ReadAhead<Socket>>, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }
}

impl ServerApp for HttpServer {
    /// Serves a connection until it ends. An explicit future in place of `async fn`, because the state of an HTTP/1.1
    /// request would otherwise be part of every idle HTTP/2 connection.
    fn process_new<'s, 'w, 'f>(
        self: &'s Arc<Self>,
        stream: Stream,
        shutdown: &'w ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<Stream>> + Send + 'f>>
    where
        's: 'f,
        'w: 'f,
        Self: 'f,
    {
        let Some(client) = stream.as_any().downcast_ref::<DownstreamTlsStream>() else {
            tracing::error!(
                "a stream of an unknown type was handed to the HTTP server: its connection is closed"
            );
            return Box::pin(ready(None));
        };
        let connection = Arc::clone(&client.connection);
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            Box::pin(self.serve_http2(connection, stream, shutdown).map(|()| None))
        } else {
            Box::pin(self.serve_http1(connection, stream, shutdown).map(|()| None))
        }
    }
}

impl AsyncRead for DownstreamTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for DownstreamTlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
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
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[async_trait]
impl Shutdown for DownstreamTlsStream {
    async fn shutdown(&mut self) {
        // The peer may have disconnected; an error does not matter then.
        let _ = AsyncWriteExt::shutdown(&mut self.stream).await;
    }
}

impl UniqueID for DownstreamTlsStream {
    fn id(&self) -> UniqueIDType {
        self.stream.get_ref().0.socket().as_raw_fd()
    }
}

impl Ssl for DownstreamTlsStream {
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        match self.stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(ALPN::H2),
            Some(b"http/1.1") => Some(ALPN::H1),
            _ => None,
        }
    }
}

impl GetTimingDigest for DownstreamTlsStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for DownstreamTlsStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for DownstreamTlsStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }

    fn set_socket_digest(&mut self, _socket_digest: SocketDigest) {}
}

impl Peek for DownstreamTlsStream {}

impl fmt::Debug for DownstreamTlsStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DownstreamTlsStream")
    }
}
