//! Clients of the gateway: several identities over both protocols, on connections that are kept and shared.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::{Authority, client_config_of};

/// Streams on one connection.
const STREAMS: usize = 60;

/// Attempts per request.
const MAX_TRIES: usize = 5;

/// The reason why a request has no response.
enum Unanswered {
    /// The gateway has certainly not seen the request.
    Unseen(io::Error),
    /// The gateway may have seen the request.
    Lost(io::Error),
}

impl Unanswered {
    fn of<B>(error: TrySendError<B>) -> Self {
        let unsent = error.message().is_some();
        let error = error.into_error();
        // A stream above the last one that the connection's goodbye names.
        let refused =
            error.source().and_then(|cause| cause.downcast_ref::<h2::Error>()).is_some_and(|cause| {
                let reason = cause.reason();
                cause.is_remote()
                    && ((cause.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
                        || (cause.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)))
            });
        let unseen = unsent || refused;
        let error = io::Error::other(error);
        if unseen { Self::Unseen(error) } else { Self::Lost(error) }
    }
}

/// Users of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Alice,
    Bob,
    /// By a token.
    Carol,
}

pub const IDENTITIES: [Identity; 3] = [Identity::Alice, Identity::Bob, Identity::Carol];
/// For the gateway's token file.
pub const TOKENS: &str = "carols-token,carol,3,team\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Whether a request may go over a connection that is open already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    Reused,
    Own,
}

/// Client certificates and trusted authorities.
pub struct Credentials {
    http1: [Arc<rustls::ClientConfig>; 3],
    http2: [Arc<rustls::ClientConfig>; 3],
}

pub struct Clients {
    address: SocketAddr,
    credentials: watch::Sender<Arc<Credentials>>,
    http2: [tokio::sync::Mutex<Vec<Arc<Http2>>>; 3],
    http1: [Mutex<VecDeque<Http1>>; 3],
}

struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    open: AtomicUsize,
    credentials: Arc<Credentials>,
}

struct Http1 {
    sender: http1::SendRequest<Full<Bytes>>,
    credentials: Arc<Credentials>,
}

/// The connection of an answer that is still being read.
pub struct ConnectionLease(Kind);

enum Kind {
    Http1(Http1, Identity),
    Http2(#[expect(dead_code, reason = "kept for its end")] Stream),
}

/// One stream of a connection.
struct Stream(Arc<Http2>);

impl Identity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Carol => "carol",
        }
    }
}

impl Credentials {
    pub fn new(believed: &[&Authority], users: &Authority) -> Self {
        let of = |alpn: &[u8]| {
            IDENTITIES.map(|identity| {
                let certificate =
                    (identity != Identity::Carol).then(|| users.client(identity.name(), &["team"]));
                client_config_of(believed, certificate.as_ref(), alpn)
            })
        };
        Self { http1: of(b"http/1.1"), http2: of(b"h2") }
    }
}

impl Clients {
    pub fn new(address: SocketAddr, credentials: Credentials) -> Self {
        Self {
            address,
            credentials: watch::Sender::new(Arc::new(credentials)),
            http2: Default::default(),
            http1: Default::default(),
        }
    }

    /// Requests go over new connections with these credentials from now on; watches are notified.
    pub fn change_credentials(&self, credentials: Credentials) {
        self.credentials.send_replace(Arc::new(credentials));
    }

    pub fn credentials(&self) -> watch::Receiver<Arc<Credentials>> {
        self.credentials.subscribe()
    }

    /// Sends a request and returns the head of the response. The connection must be kept until the body was read.
    ///
    /// As Kubernetes' clients do, it retries requests that the gateway has certainly not seen: a connection with a GOAWAY takes no
    /// more requests.
    pub async fn send(
        &self,
        identity: Identity,
        protocol: Protocol,
        connection: Connection,
        mut request: Request<Full<Bytes>>,
    ) -> io::Result<(Response<Incoming>, ConnectionLease)> {
        if identity == Identity::Carol {
            let token = HeaderValue::from_static("Bearer carols-token");
            request.headers_mut().insert(http::header::AUTHORIZATION, token);
        }
        let mut tries = 0;
        loop {
            match self.try_to_send(identity, protocol, connection, request.clone()).await {
                Err(Unanswered::Unseen(_)) if tries < MAX_TRIES => tries += 1,
                Err(Unanswered::Unseen(error) | Unanswered::Lost(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn try_to_send(
        &self,
        identity: Identity,
        protocol: Protocol,
        connection: Connection,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, ConnectionLease), Unanswered> {
        match protocol {
            Protocol::Http2 => {
                let connection = match connection {
                    Connection::Reused => self.shared(identity).await.map_err(Unanswered::Lost)?,
                    Connection::Own => Arc::new(self.open_http2(identity).await.map_err(Unanswered::Lost)?),
                };
                let held = ConnectionLease(Kind::Http2(Stream(Arc::clone(&connection))));
                let mut sender = connection.sender.clone();
                sender.ready().await.map_err(|error| Unanswered::Unseen(io::Error::other(error)))?;
                let answer = sender.try_send_request(request).await;
                Ok((answer.map_err(Unanswered::of)?, held))
            }
            Protocol::Http1 => {
                *request.version_mut() = Version::HTTP_11;
                request.headers_mut().insert(http::header::HOST, HeaderValue::from_static("localhost"));
                let idle = match connection {
                    Connection::Reused => self.idle(identity),
                    Connection::Own => None,
                };
                let mut connection = match idle {
                    Some(idle) => idle,
                    None => self.open_http1(identity).await.map_err(Unanswered::Lost)?,
                };
                let answer = connection.sender.try_send_request(request).await;
                Ok((answer.map_err(Unanswered::of)?, ConnectionLease(Kind::Http1(connection, identity))))
            }
        }
    }

    /// The body was read to its end: the connection may serve again.
    pub fn give_back(&self, held: ConnectionLease) {
        if let ConnectionLease(Kind::Http1(connection, identity)) = held {
            self.http1[identity as usize].lock().push_back(connection);
        }
    }

    fn now(&self) -> Arc<Credentials> {
        Arc::clone(&self.credentials.borrow())
    }

    /// An open connection over HTTP/2 with room, or a new one; others wait meanwhile.
    async fn shared(&self, identity: Identity) -> io::Result<Arc<Http2>> {
        let now = self.now();
        let mut pool = self.http2[identity as usize].lock().await;
        pool.retain(|known| !known.sender.is_closed() && Arc::ptr_eq(&known.credentials, &now));
        let room = pool.iter().find(|known| known.open.load(Ordering::Relaxed) < STREAMS);
        let connection = match room {
            Some(connection) => Arc::clone(connection),
            None => {
                let connection = Arc::new(self.open_http2(identity).await?);
                pool.push(Arc::clone(&connection));
                return Ok(connection);
            }
        };
        connection.open.fetch_add(1, Ordering::Relaxed);
        Ok(connection)
    }

    fn idle(&self, identity: Identity) -> Option<Http1> {
        let now = self.now();
        let mut idle = self.http1[identity as usize].lock();
        idle.retain(|known| !known.sender.is_closed() && Arc::ptr_eq(&known.credentials, &now));
        let ready = idle.iter().position(|known| known.sender.is_ready())?;
        idle.remove(ready)
    }

    /// With one stream counted.
    async fn open_http2(&self, identity: Identity) -> io::Result<Http2> {
        let credentials = self.now();
        let stream = self.connect(&credentials.http2[identity as usize]).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Http2 { sender, open: AtomicUsize::new(1), credentials })
    }

    async fn open_http1(&self, identity: Identity) -> io::Result<Http1> {
        let credentials = self.now();
        let stream = self.connect(&credentials.http1[identity as usize]).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Http1 { sender, credentials })
    }

    async fn connect(&self, tls: &Arc<rustls::ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(tls)).connect(name, stream).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
