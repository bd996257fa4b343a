//! The backend behind every proxy: a cheap server with objects, lists and watches like a shard's. It also serves the part of
//! a root shard that the index of a front proxy reads.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::error::BenchError;
use crate::root_shard::RootShard;

/// Streams per connection. The limit is high, so that a proxy with a single connection is not slowed down.
const MAX_STREAMS: u32 = 20_000;
/// Size of the chunks of a list.
const CHUNK: usize = 64 << 10;
/// Size of the object that most measurements read.
const OBJECT_BYTES: usize = 1024;

/// The path that triggers an event for all watches.
pub(crate) const EVENT_PATH: &str = "/bench/event";
/// Size of the first event of every watch.
pub(crate) const FIRST_EVENT_BYTES: usize = FIRST_EVENT.len();
/// Size of each triggered event.
pub(crate) const EVENT_BYTES: usize = 600;
const FIRST_EVENT: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\"}}\n";

pub(crate) type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// The prepared parts of responses.
struct Backend {
    /// An object of 1 KiB as JSON.
    object: Bytes,
    chunk: Bytes,
    event: Bytes,
    /// Number of triggered events.
    events: watch::Sender<u64>,
    shard: RootShard,
}

/// Serves until the process is killed.
pub(crate) async fn serve(port: u16, tls: Arc<rustls::ServerConfig>) -> Result<(), BenchError> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = TcpListener::bind(address).await.map_err(BenchError::system("binding the backend"))?;
    let acceptor = TlsAcceptor::from(tls);
    let backend = Arc::new(Backend::new(format!("https://{address}")));
    loop {
        let (tcp, _) = listener.accept().await.map_err(BenchError::system("accepting"))?;
        let (acceptor, backend) = (acceptor.clone(), Arc::clone(&backend));
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let is_http2 = tls.get_ref().1.alpn_protocol() == Some(crate::tls::H2);
            let service = service_fn(move |request| {
                let response = backend.respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let io = TokioIo::new(tls);
            // Clients may disconnect at any time.
            if is_http2 {
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
                let _ = server.serve_connection(io, service).await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            }
        });
    }
}

impl Backend {
    fn new(url: String) -> Self {
        let filled = |start: &str, end: &str, length: usize| {
            format!("{start}{}{end}", "x".repeat(length - start.len() - end.len()))
        };
        let object = filled(r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":""#, "\"}}", OBJECT_BYTES);
        let event =
            filled(r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","data":""#, "\"}}\n", EVENT_BYTES);
        Self {
            object: Bytes::from(object),
            chunk: Bytes::from(vec![b'x'; CHUNK]),
            event: Bytes::from(event),
            events: watch::Sender::new(0),
            shard: RootShard::new(url),
        }
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        if let Some(response) = self.shard.respond(path, query) {
            return response;
        }
        if path == EVENT_PATH {
            self.events.send_modify(|count| *count += 1);
            return json(Bytes::new());
        }
        if parameter(query, "watch").is_some() {
            return self.watch();
        }
        match parameter(query, "bytes").and_then(|bytes| bytes.parse().ok()) {
            Some(bytes) => self.list(bytes),
            None => json(self.object.clone()),
        }
    }

    /// Sends a first event at once, so that every proxy forwards the response headers, and then each triggered event.
    fn watch(&self) -> Response<Body> {
        let event = self.event.clone();
        let first = Bytes::from_static(FIRST_EVENT.as_bytes());
        let start = (self.events.subscribe(), Some(first));
        let frames = stream::unfold(start, move |(mut events, mut first)| {
            let event = event.clone();
            async move {
                let line = match first.take() {
                    Some(line) => line,
                    None => events.changed().await.ok().map(|()| event)?,
                };
                Some((Ok(Frame::data(line)), (events, first)))
            }
        });
        streaming(StreamBody::new(frames).boxed_unsync())
    }

    /// A long list, generated while it is read.
    fn list(&self, bytes: usize) -> Response<Body> {
        let chunk = self.chunk.clone();
        let frames = (0..bytes / CHUNK).map(move |_| Ok(Frame::data(chunk.clone())));
        streaming(StreamBody::new(stream::iter(frames)).boxed_unsync())
    }
}

/// The value of a query parameter.
pub(crate) fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// A complete response.
pub(crate) fn json(body: Bytes) -> Response<Body> {
    with_type(Either::Left(Full::new(body)))
}

/// A response without a length.
pub(crate) fn streaming(body: UnsyncBoxBody<Bytes, Infallible>) -> Response<Body> {
    with_type(Either::Right(body))
}

fn with_type(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    *response.status_mut() = StatusCode::OK;
    response
}
