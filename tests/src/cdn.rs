//! A content delivery network. It terminates the clients' TLS, connects to the origin with a client certificate of its own,
//! sends the client's address in a header, aborts responses that pause too long, and supports no upgrade except
//! WebSocket.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority as HostAndPort, Scheme, Uri};
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The header with the client's address.
pub const CLIENT: &str = "cf-connecting-ip";

/// Configuration of a CDN.
pub struct CdnOptions {
    /// TLS for its clients.
    pub public: Arc<ServerConfig>,
    /// Address of the origin.
    pub origin: SocketAddr,
    /// TLS for the origin: trusted authorities and client certificate. The CDN sets the protocol (ALPN).
    pub towards_origin: ClientConfig,
    /// Name of the origin in TLS, and in requests if `rewrites_host`.
    pub origin_name: ServerName<'static>,
    /// Whether the Host of all requests is replaced by the origin's name, as a provider's rule can do.
    pub rewrites_host: bool,
    /// Maximum pause in a response.
    pub idle: Duration,
    /// Maximum concurrent requests per connection to the origin.
    pub streams: usize,
}

/// A running CDN. Dropping it stops it.
pub struct Cdn {
    address: SocketAddr,
    edge: Arc<Edge>,
    accepting: AbortHandle,
}

struct Edge {
    options: CdnOptions,
    connections: Mutex<Vec<Origin>>,
    opened: AtomicUsize,
}

/// A connection to the origin.
#[derive(Clone)]
struct Origin {
    sender: http2::SendRequest<Incoming>,
    open: Arc<AtomicUsize>,
}

impl Cdn {
    /// Listens on a free port of the loopback.
    ///
    /// # Errors
    /// If the system cannot listen.
    pub async fn start(options: CdnOptions) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tls = TlsAcceptor::from(Arc::clone(&options.public));
        let edge = Arc::new(Edge { options, connections: Mutex::default(), opened: AtomicUsize::new(0) });
        let shared = Arc::clone(&edge);
        let accepting = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, peer)) = listener.accept().await {
                let (tls, edge) = (tls.clone(), Arc::clone(&shared));
                clients.spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let edge = Arc::clone(&edge);
                        async move { Ok::<_, Infallible>(edge.forward(peer.ip(), request).await) }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    // Clients may disconnect at any time.
                    let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
                });
                while clients.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, edge, accepting: accepting.abort_handle() })
    }

    /// The address for its clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections that it has opened to its origin.
    pub fn opened(&self) -> usize {
        self.edge.opened.load(Ordering::SeqCst)
    }
}

impl Drop for Cdn {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Edge {
    async fn forward(self: Arc<Self>, client: IpAddr, mut request: Request<Incoming>) -> Response<Body> {
        let is_websocket =
            request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes() == b"websocket");
        let Some(host) = self.host(&request) else { return status(StatusCode::BAD_REQUEST) };
        rewrite(request.headers_mut(), client);
        if is_websocket {
            return self.tunnel(&host, request).await.unwrap_or_else(|_| provider_error(520));
        }
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(host);
        let Ok(uri) = Uri::from_parts(uri) else { return status(StatusCode::BAD_REQUEST) };
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(header::HOST);
        let Ok(mut origin) = self.origin().await else { return provider_error(525) };
        let open = CountDown(Arc::clone(&origin.open));
        let idle = self.options.idle;
        match timeout(idle, origin.sender.send_request(request)).await {
            Err(_) => provider_error(524),
            Ok(Err(_)) => provider_error(520),
            Ok(Ok(response)) => {
                let (head, body) = response.into_parts();
                let frames = stream::unfold((body, open), move |(mut body, open)| async move {
                    let frame = match timeout(idle, body.frame()).await {
                        Ok(frame) => frame?.map_err(io::Error::other),
                        Err(_) => Err(io::ErrorKind::TimedOut.into()),
                    };
                    Some((frame, (body, open)))
                });
                Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
            }
        }
    }

    /// The host of the request to the origin.
    fn host(&self, request: &Request<Incoming>) -> Option<HostAndPort> {
        if self.options.rewrites_host {
            return self.options.origin_name.to_str().parse().ok();
        }
        match request.uri().authority() {
            Some(authority) => Some(authority.clone()),
            None => request.headers().get(header::HOST)?.to_str().ok()?.parse().ok(),
        }
    }

    /// A connection with room for a request, which is counted already.
    async fn origin(&self) -> io::Result<Origin> {
        // Locked while a connection is opened, so that only one is opened at a time.
        let mut known = self.connections.lock().await;
        known.retain(|origin| !origin.sender.is_closed());
        for origin in known.iter() {
            if origin.open.fetch_add(1, Ordering::SeqCst) < self.options.streams {
                return Ok(origin.clone());
            }
            origin.open.fetch_sub(1, Ordering::SeqCst);
        }
        let stream = self.connect(b"h2").await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        self.opened.fetch_add(1, Ordering::SeqCst);
        let origin = Origin { sender, open: Arc::new(AtomicUsize::new(1)) };
        known.push(origin.clone());
        Ok(origin)
    }

    async fn connect(&self, protocol: &[u8]) -> io::Result<TlsStream<TcpStream>> {
        let options = &self.options;
        let mut config = options.towards_origin.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(options.origin).await?;
        TlsConnector::from(Arc::new(config)).connect(options.origin_name.clone(), stream).await
    }

    /// Each WebSocket has its own connection to the origin.
    async fn tunnel(&self, host: &HostAndPort, mut request: Request<Incoming>) -> io::Result<Response<Body>> {
        let stream = self.connect(b"http/1.1").await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection.with_upgrades());
        let mut upgrade = Request::new(Empty::<Bytes>::new());
        *upgrade.uri_mut() = request.uri().path().parse().map_err(io::Error::other)?;
        *upgrade.headers_mut() = request.headers().clone();
        upgrade.headers_mut().insert(header::HOST, host.as_str().parse().map_err(io::Error::other)?);
        upgrade.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        upgrade.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let mut response = sender.send_request(upgrade).await.map_err(io::Error::other)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (origin, client) = (hyper::upgrade::on(&mut response), hyper::upgrade::on(&mut request));
            tokio::spawn(async move {
                let (Ok(origin), Ok(client)) = tokio::join!(origin, client) else { return };
                let (mut origin, mut client) = (TokioIo::new(origin), TokioIo::new(client));
                // Either side may disconnect at any time.
                let _ = tokio::io::copy_bidirectional(&mut origin, &mut client).await;
            });
        }
        Ok(response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    }
}

/// Rewrites the headers of a client's request.
fn rewrite(headers: &mut HeaderMap, client: IpAddr) {
    for name in ["connection", "keep-alive", "te", "upgrade", "transfer-encoding", "true-client-ip"] {
        headers.remove(name);
    }
    let text = client.to_string();
    let before = headers.get("x-forwarded-for").and_then(|value| value.to_str().ok());
    let list = before.map_or_else(|| text.clone(), |before| format!("{before},{text}"));
    for (name, value) in [
        (CLIENT, text.as_str()),
        ("x-forwarded-for", &list),
        ("x-forwarded-proto", "https"),
        ("cf-ray", "8c1b5d2c3f4e0000-FRA"),
        ("cdn-loop", "cloudflare; loops=1"),
        ("accept-encoding", "gzip, br"),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// A response with a status code of CloudFlare's own.
fn provider_error(code: u16) -> Response<Body> {
    status(StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY))
}

fn status(code: StatusCode) -> Response<Body> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

struct CountDown(Arc<AtomicUsize>);

impl Drop for CountDown {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
