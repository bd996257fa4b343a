//! HTTP/1.1 with clients: one task per connection, which serves one request after the other.
//!
//! An own implementation: available servers respond to malformed requests without a `Status`, or need a task and a
//! channel per request and buffers for idle connections (measurements: docs/decisions/0026-own-http1-server.md).
//!
//! Cost of an ordinary GET: one read, one copy of its head, one write.

mod body;
mod connection;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod request_head;
mod response;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderMap};
use http::response::Parts;
use http::{Method, Response, StatusCode, Version};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

use crate::forward::downstream::{BodyError, ClientDisconnected, DownstreamExchange, NO_STORE};
use crate::forward::local_response::own_head;
use crate::forward::request_context::RequestContext;
use crate::forward::{telemetry, tunnel};
use crate::http::HttpServer;
use crate::http::serve::{Served, serve};
use crate::policy::connection::Connection;
use crate::request::RequestClass;
use crate::request::host;
use crate::request::response::LocalResponse;
use body::{Body, Progress};
use connection::Http1Connection;
use fields::HeadError;
use request_head::Head;
use response::{ResponseContext, ResponseFraming};

/// Time for which a closed connection is still read while the client sends, because a reset could destroy the response before the
/// client has read it (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 4 << 20;

/// An idle connection of a draining listener is kept this long after its last request, at most half of the drain window, and closed with
/// the next response; closing it at once would race with a request that the client is just sending.
const DRAIN_IDLE_TIME: Duration = Duration::from_secs(5);

/// Serves one connection until it ends. When its listener drains, it ends after the open request.
pub(super) async fn serve_connection(
    server: &Arc<HttpServer>,
    connection: Arc<Connection>,
    stream: Stream,
    shutdown: &ShutdownWatch,
) {
    let mut wire = Http1Connection::new(stream);
    let mut shutdown = shutdown.clone();
    loop {
        let idle = wire.input.is_empty();
        let head = tokio::select! {
            biased;
            head = next_head(server, &connection, &mut wire) => head,
            () = drained_and_idle(&mut shutdown, &connection), if idle => break,
        };
        let outcome = match head {
            Ok(Some(head)) => {
                let last = *shutdown.borrow();
                one_request(server, &connection, &mut wire, head, last).await
            }
            Ok(None) => break,
            Err(error) => refuse(server, &connection, &mut wire, error).await,
        };
        match outcome {
            AfterRequest::NextRequest => {}
            AfterRequest::Close => return close(wire).await,
            // Without a close_notify: the response must not look complete.
            AfterRequest::Abort => return,
        }
    }
    let _ = wire.stream.shutdown().await;
}

async fn drained_and_idle(shutdown: &mut ShutdownWatch, connection: &Connection) {
    // Without a sender the process ends anyway.
    let _ = shutdown.wait_for(|draining| *draining).await;
    let idle_time = DRAIN_IDLE_TIME.min(connection.drain.window() / 2);
    loop {
        let left = idle_time.saturating_sub(connection.activity.idle_for());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// The next step of a connection after a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AfterRequest {
    /// The next request is read.
    NextRequest,
    /// The connection is closed after the response.
    Close,
    /// The connection is closed at once, because the response is incomplete.
    Abort,
}

/// Reads the head of the next request; `None` if the client has disconnected, or does not finish a head that it has begun
/// within `limits.headerReadTimeout`.
async fn next_head(
    server: &HttpServer,
    connection: &Connection,
    wire: &mut Http1Connection,
) -> Result<Option<Head>, HeadError> {
    // Heads up to twice the limit are read and get the same 431 as over HTTP/2.
    let max = server.pipeline.header_limits.load().bytes.saturating_mul(2);
    let mut seen = 0;
    let mut deadline = None;
    loop {
        if seen == 0 {
            let _ = wire.input.split_to(request_head::blank_lines(&wire.input));
        }
        if let Some(end) = fields::end(&wire.input, seen)? {
            let head = request_head::parse(&wire.input[..end])?;
            bytes::Buf::advance(&mut wire.input, end);
            return Ok(Some(head));
        }
        seen = wire.input.len();
        if seen > max {
            return Err(HeadError::TooLarge);
        }
        if seen == 0 {
            // Between two requests `limits.idleTimeout` applies.
            if !matches!(wire.fill().await, Ok(1..)) {
                return Ok(None);
            }
            continue;
        }
        let deadline = *deadline.get_or_insert_with(|| {
            Instant::now() + connection.listener.connection_policy.load().limits.header_read_timeout.get()
        });
        // Boxed, because most heads arrive in one piece, and every idle connection would reserve space for the timer.
        if !matches!(Box::pin(timeout_at(deadline, wire.fill())).await, Ok(Ok(1..))) {
            return Ok(None);
        }
    }
}

async fn one_request(
    server: &Arc<HttpServer>,
    connection: &Arc<Connection>,
    wire: &mut Http1Connection,
    head: Head,
    last: bool,
) -> AfterRequest {
    let Head { mut parts, framing, keep_alive, expects_continue } = head;
    let host_error = host::host_error_over_http1(&parts);
    // The host of such a request is ambiguous, and so may be the bytes after it: the connection is closed.
    let is_ambiguous = host_error.is_some() || parts.method == Method::CONNECT;
    let mut client = Http1 {
        wire,
        body: Body::new(framing),
        version: parts.version,
        is_head: parts.method == Method::HEAD,
        keep_alive: keep_alive && !last && !is_ambiguous,
        expects_continue,
        response: None,
        aborted: false,
        no_store: connection.listener.policy.load().responses.no_store,
    };
    match serve(server, connection, &mut client, &mut parts, host_error).await {
        Served::Responded => client.outcome().await,
        // Boxed, because it is rare.
        Served::Upgrade(upgrade) => {
            match Box::pin(tunnel::open(server.forwarder(), &mut client, upgrade)).await {
                None => client.outcome().await,
                Some(tunnel) => {
                    let wire = client.wire;
                    let status = StatusCode::SWITCHING_PROTOCOLS;
                    response::write_whole_head(&mut wire.output, status, &tunnel.headers);
                    if wire.flush().await.is_ok() {
                        let ahead = std::mem::take(&mut wire.input).freeze();
                        Box::pin(tunnel.carry(server.forwarder(), ahead, &mut wire.stream)).await;
                    }
                    AfterRequest::Close
                }
            }
        }
    }
}

/// Responds to a malformed request head.
async fn refuse(
    server: &HttpServer,
    connection: &Arc<Connection>,
    wire: &mut Http1Connection,
    error: HeadError,
) -> AfterRequest {
    let forwarder = server.forwarder();
    tracing::debug!(peer = %connection.peer, %error, "a client sent a malformed request");
    let mut context = RequestContext::begin(
        RequestClass::Read,
        connection.peer.ip(),
        connection.begin_request(),
        forwarder.telemetry.metrics.open(RequestClass::Read),
    );
    telemetry::on_malformed_request(&forwarder.telemetry, &mut context);
    let response = match error {
        HeadError::Malformed(reason) => {
            LocalResponse::bad_request(format!("the request is malformed: {reason}"))
        }
        HeadError::TooLarge => LocalResponse::status(
            &fairlead_process::Status::request_header_fields_too_large(),
            "headers_too_large",
        ),
    };
    let (head, body) = own_head(forwarder, &context, response);
    let code = head.status.as_u16();
    // The response to HEAD has no body, also if the request is malformed.
    let method = if wire.input.starts_with(b"HEAD ") { Method::HEAD } else { Method::GET };
    let response_context = ResponseContext { method: &method, version: Version::HTTP_11, keep_alive: false };
    let (mut framing, _) = response::write_head(&mut wire.output, &head, response_context, body.is_empty());
    if method != Method::HEAD {
        framing.write(&mut wire.output, &body);
    }
    let written = wire.flush().await;
    telemetry::on_complete(&forwarder.telemetry, &context, &Method::GET, code, None);
    if written.is_ok() { AfterRequest::Close } else { AfterRequest::Abort }
}

/// Closes the connection such that the client can read the response: see [`LINGER`].
async fn close(mut wire: Http1Connection) {
    if wire.flush().await.is_err() || wire.stream.shutdown().await.is_err() {
        return;
    }
    let lingering = async {
        let mut read = 0;
        while let Ok(count @ 1..) = wire.fill().await {
            wire.input.clear();
            read += count;
            if read > MAX_LINGER_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, lingering).await;
}

/// One request on a connection, and its response.
struct Http1<'w> {
    wire: &'w mut Http1Connection,
    body: Body,
    version: Version,
    is_head: bool,
    keep_alive: bool,
    expects_continue: bool,
    /// Status code of the response, and the framing of its body.
    response: Option<(u16, ResponseFraming)>,
    aborted: bool,
    /// True if the response gets `Cache-Control: no-store`.
    no_store: bool,
}

impl Http1<'_> {
    async fn outcome(self) -> AfterRequest {
        if self.aborted || self.response.is_none() {
            return AfterRequest::Abort;
        }
        if self.wire.flush().await.is_err() {
            return AfterRequest::Abort;
        }
        // The rest of an unread body would be parsed as the next request.
        if self.keep_alive && self.body.is_done() { AfterRequest::NextRequest } else { AfterRequest::Close }
    }

    /// Sends 100 if the client waits for it.
    async fn send_continue(&mut self) -> Result<(), ClientDisconnected> {
        if std::mem::take(&mut self.expects_continue) && self.response.is_none() {
            response::write_whole_head(&mut self.wire.output, StatusCode::CONTINUE, &HeaderMap::new());
            self.wire.flush().await.map_err(|_| ClientDisconnected)?;
        }
        Ok(())
    }
}

impl DownstreamExchange for Http1<'_> {
    fn is_done(&self) -> bool {
        // A client that has its final response without a 100 does not have to send the body.
        self.body.is_done() || (self.expects_continue && self.response.is_some())
    }

    async fn read(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.body.take(&mut self.wire.input) {
                Ok(Progress::Part(part)) => return Ok(Some(part)),
                Ok(Progress::End) => return Ok(None),
                Err(reason) => {
                    // The beginning of the next request is unknown.
                    self.keep_alive = false;
                    return Err(BodyError::Malformed(reason));
                }
                Ok(Progress::NeedMore) => {
                    self.send_continue().await?;
                    if !matches!(self.wire.fill().await, Ok(1..)) {
                        return Err(ClientDisconnected.into());
                    }
                }
            }
        }
    }

    async fn trailers(&mut self) -> Result<Option<HeaderMap>, BodyError> {
        Ok(self.body.take_trailers())
    }

    async fn closed(&mut self) {
        self.wire.closed().await;
    }

    async fn interim(&mut self, head: Response<()>) -> Result<(), ClientDisconnected> {
        // An HTTP/1.0 client would take it for the final response; 100 is sent by the gateway itself.
        if self.version != Version::HTTP_11 || head.status() == StatusCode::CONTINUE {
            return Ok(());
        }
        response::write_whole_head(&mut self.wire.output, head.status(), head.headers());
        self.wire.flush().await.map_err(|_| ClientDisconnected)
    }

    fn begin(&mut self, mut head: Parts, ended: bool) -> Result<(), ClientDisconnected> {
        if self.no_store {
            head.headers.insert(CACHE_CONTROL, NO_STORE);
        }
        // A client that got no 100 may or may not send the body, so the beginning of the next request is unknown.
        let keep_alive = self.keep_alive && !self.expects_continue;
        let method = if self.is_head { &Method::HEAD } else { &Method::GET };
        let response_context = ResponseContext { method, version: self.version, keep_alive };
        let (framing, keep) = response::write_head(&mut self.wire.output, &head, response_context, ended);
        self.keep_alive = keep;
        self.response = Some((head.status.as_u16(), framing));
        if ended && !framing.end(&mut self.wire.output, None) {
            self.abort();
            return Err(ClientDisconnected);
        }
        Ok(())
    }

    fn status_sent(&self) -> Option<u16> {
        self.response.map(|(code, _)| code)
    }

    async fn write(&mut self, chunk: Bytes, ended: bool) -> Result<(), ClientDisconnected> {
        let Some((_, framing)) = &mut self.response else { return Err(ClientDisconnected) };
        if !framing.write(&mut self.wire.output, &chunk) {
            self.abort();
            return Err(ClientDisconnected);
        }
        if ended {
            return self.end(None).await;
        }
        if self.wire.is_full() {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ClientDisconnected> {
        self.wire.flush().await.map_err(|_| ClientDisconnected)
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), ClientDisconnected> {
        let Some((_, framing)) = self.response else { return Err(ClientDisconnected) };
        if !framing.end(&mut self.wire.output, trailers.as_ref()) {
            self.abort();
            return Err(ClientDisconnected);
        }
        self.flush().await
    }

    fn abort(&mut self) {
        self.aborted = true;
    }
}
