//! What is known of a client's connection, and the stream that carries it through pingora's interface.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use async_trait::async_trait;
use fairlead_authn::ConnectionCredentials;
use fairlead_process::{Activity, Connected, Drain, PeerChain};
use pingora::http::ResponseHeader;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::socket::Socket;
use super::{CertificateMeaning, Door, Frame};
use crate::gulp::Gulp;
use crate::peers::ClientHeader;
use crate::untaken::Untaken;

/// One client connection. Shared by all requests on it.
pub(crate) struct Connection {
    /// Different for every connection of the process.
    pub(crate) id: u64,
    /// The door that it came through.
    pub(crate) door: Arc<Door>,
    /// When what has no end of its own ends here.
    pub(crate) drain: Drain,
    /// The other end, as TCP sees it.
    pub(crate) peer: SocketAddr,
    /// How it may say whose requests it brings.
    pub(crate) said: ClientHeader,
    /// The name that the peer asked for when it connected.
    pub(crate) server_name: Option<Box<str>>,
    /// The certificates that the peer presented, and what was made of them so far.
    pub(crate) credentials: ConnectionCredentials,
    /// Of its answers.
    pub(crate) untaken: Untaken,
    /// Of the bodies of its requests, by servers.
    pub(crate) unsent: Untaken,
    /// Its requests.
    pub(crate) activity: Activity,
    /// Bytes of header of those requests over HTTP/2 that are not answered yet.
    heads: AtomicUsize,
    /// Counts it among those of its address.
    _connected: Option<Connected>,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        (door, frame): (Arc<Door>, &Frame),
        drain: Drain,
        peer: SocketAddr,
        chain: &PeerChain,
        server_name: Option<&str>,
    ) -> Self {
        let credentials = match (&chain.0, frame.certificates) {
            (Some(chain), CertificateMeaning::Identity) => ConnectionCredentials::new(Arc::clone(chain)),
            _ => ConnectionCredentials::none(),
        };
        Self {
            id,
            door,
            drain,
            peer,
            said: frame.peers.said.clone(),
            server_name: server_name.map(Box::from),
            credentials,
            untaken: Untaken::default(),
            unsent: Untaken::default(),
            activity: Activity::begin(),
            heads: AtomicUsize::new(0),
            _connected: None,
        }
    }

    /// The same, counted until it ends.
    pub(super) fn counted(self, connected: Option<Connected>) -> Self {
        Self { _connected: connected, ..self }
    }

    /// Counts the head of one more request until the guard is dropped, unless they would be more than `most` bytes together.
    pub(crate) fn hold_head(self: &Arc<Self>, bytes: usize, most: usize) -> Option<HeldHead> {
        let more = |held: usize| Some(held + bytes).filter(|held| *held <= most);
        self.heads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(HeldHead { connection: Arc::clone(self), bytes })
    }

    /// Counts a request as open until the guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> OpenRequest {
        OpenRequest::of(self)
    }
}

impl AsRef<Activity> for Connection {
    fn as_ref(&self) -> &Activity {
        &self.activity
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// An open request of a connection.
pub(crate) type OpenRequest = fairlead_process::OpenRequest<Connection>;

/// The head of a request, while it is kept.
#[derive(Debug)]
pub(crate) struct HeldHead {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for HeldHead {
    fn drop(&mut self) {
        self.connection.heads.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A client's TLS stream as pingora's `ServerApp` takes it.
///
/// Own, in place of pingora's, because that one parses the peer's certificates with `expect` and has no
/// place for what we know of a connection.
pub(super) struct ClientStream {
    stream: TlsStream<Gulp<Socket>>,
    /// pingora has a place for this; our [`Connection`] travels in it.
    carrier: Arc<ProxyDigest>,
}

impl ClientStream {
    pub(super) fn new(stream: TlsStream<Gulp<Socket>>, connection: Arc<Connection>) -> pingora::Result<Self> {
        // Nobody reads it; with neither, it has no room for headers.
        let response = Box::new(ResponseHeader::build_no_case(200, Some(0))?);
        let carried: Box<dyn Any + Send + Sync> = Box::new(connection);
        Ok(Self { stream, carrier: Arc::new(ProxyDigest::new(response, Some(carried))) })
    }
}

/// What is known of the connection that a stream of ours belongs to.
pub(crate) fn connection_of(stream: &Stream) -> Option<Arc<Connection>> {
    let carrier = stream.get_proxy_digest()?;
    carrier.user_data.as_ref()?.downcast_ref().cloned()
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
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
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        // The peer may be gone already; then there is nobody to tell.
        let _ = AsyncWriteExt::shutdown(&mut self.stream).await;
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.stream.get_ref().0.socket().as_raw_fd()
    }
}

impl Ssl for ClientStream {
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        match self.stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(ALPN::H2),
            Some(b"http/1.1") => Some(ALPN::H1),
            _ => None,
        }
    }
}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(Arc::clone(&self.carrier))
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }

    fn set_socket_digest(&mut self, _socket_digest: SocketDigest) {}
}

impl Peek for ClientStream {}

impl fmt::Debug for ClientStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientStream")
    }
}
