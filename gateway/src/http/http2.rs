//! HTTP/2 with clients: one task per connection, one task per request.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fairlead_process::{FrameBudget, is_frame_budget_exceeded};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;

use crate::forward::downstream::{BodyError, ClientDisconnected, DownstreamExchange, NO_STORE};
use crate::forward::upload::some_room;
use crate::http::HttpServer;
use crate::http::http2_settings::server_builder;
use crate::http::serve::serve;
use crate::policy::connection::{Connection, HeaderMemoryGuard};
use crate::request::host;
use crate::request::target_size;
use crate::upstream::write_coalescer::coalesce;

/// Time that a new connection to a draining listener has for its first request.
const DRAIN_IDLE_TIME: Duration = Duration::from_secs(1);
/// Maximum size of a response's last part that is passed to h2 without waiting for the flow-control window: h2 buffers it, and
/// the request's task ends.
const MAX_UNCONDITIONAL_PART: usize = 16 << 10;
/// Memory for the header fields of a connection's unanswered requests, in bytes: HPACK makes them small on the wire and large here
/// (CVE-2026-49975). A CDN sends the requests of many users on one connection; this is room for 250 requests with a token
/// of 1.2 KiB and 18 fields each.
const MAX_HEADER_MEMORY: usize = 900 << 10;
/// Memory that a header map needs for a field beyond its name and value, in bytes, approximately.
const FIELD_OVERHEAD: usize = 80;
/// Number of consecutive requests with too large headers after which the client gets a GOAWAY. Open streams continue: on a
/// CDN's connection they belong to other users.
const MAX_REFUSED: u32 = 50;
/// Number of consecutive requests with too large headers after which the connection is closed, for clients that ignore the
/// GOAWAY. A client that heeds it has fewer in flight. Streams opened after the GOAWAY was acknowledged are counted by
/// [`FrameBudget`].
const MAX_REFUSED_AFTER_GOAWAY: u32 = MAX_REFUSED + 500;

/// Serves one connection until it ends. When the process drains, the client gets a GOAWAY.
pub(super) async fn serve_connection(
    server: &Arc<HttpServer>,
    connection: Arc<Connection>,
    stream: Stream,
    shutdown: &ShutdownWatch,
) {
    let mut stream = FrameBudget::for_client(stream);
    let (goaway, read_ahead) = (stream.goaway_handle(), stream.limit_header_read_ahead());
    let (stream, mut writer) = coalesce(stream);
    let options = server_builder(&connection);
    let accepting = options.handshake::<_, Bytes>(stream);
    let mut accepting = Box::pin(accepting);
    // h2 begins with a write, which the write coalescer has to be polled for.
    let accepted = poll_fn(|context| {
        loop {
            if let Poll::Ready(accepted) = accepting.as_mut().poll(context) {
                return Poll::Ready(accepted);
            }
            std::task::ready!(writer.poll(context));
        }
    });
    let mut accepted = match accepted.await {
        Ok(accepted) => accepted,
        Err(error) => return tracing::debug!(%error, "the HTTP/2 handshake with a client failed"),
    };
    drop(accepting);
    let mut shutdown = shutdown.clone();
    let new_connection = Arc::clone(&connection);
    let draining = async move {
        // Without a sender the process ends anyway.
        let _ = shutdown.wait_for(|draining| *draining).await;
        // A client that has just connected is about to send a request, and would have to connect again.
        let mut first_request = std::pin::pin!(tokio::time::sleep(
            DRAIN_IDLE_TIME.saturating_sub(new_connection.activity.idle_for())
        ));
        poll_fn(|context| match new_connection.activity.has_had_a_request() {
            true => Poll::Ready(()),
            false => first_request.as_mut().poll(context),
        })
        .await;
    };
    let mut draining = Some(Box::pin(draining));
    let mut refused = 0;
    loop {
        let next = poll_fn(|context| {
            if let Some(waiting) = &mut draining
                && waiting.as_mut().poll(context).is_ready()
            {
                draining = None;
                accepted.graceful_shutdown();
            }
            loop {
                if let Poll::Ready(next) = accepted.poll_accept(context) {
                    return Poll::Ready(next);
                }
                if read_ahead.reset() {
                    continue;
                }
                std::task::ready!(writer.poll(context));
            }
        });
        match next.await {
            Some(Ok((request, mut respond))) => {
                let (bytes, fields) = (head_size(&request), request.headers().len());
                let limits = **server.pipeline.header_limits.load();
                let max_memory = MAX_HEADER_MEMORY.max(limits.bytes.saturating_mul(2));
                // Such a request gets a 431, but its head was read completely all the same.
                let is_too_large = fields > limits.fields || bytes - fields * FIELD_OVERHEAD > limits.bytes;
                match connection.reserve_header_memory(bytes, max_memory) {
                    Some(header_memory) => {
                        spawn_request(
                            Arc::clone(server),
                            Arc::clone(&connection),
                            header_memory,
                            request,
                            respond,
                        );
                        if !is_too_large {
                            if refused < MAX_REFUSED {
                                refused = 0;
                            }
                            continue;
                        }
                    }
                    None => {
                        server
                            .forwarder()
                            .telemetry
                            .metrics
                            .header_budget_exceeded(&connection.listener.name);
                        // REFUSED_STREAM allows the client to retry (RFC 9113, 8.7).
                        respond.send_reset(Reason::REFUSED_STREAM);
                    }
                }
                refused += 1;
                match refused {
                    MAX_REFUSED => {
                        tracing::debug!(peer = %connection.peer, "a client exceeds the header limit repeatedly: it gets a GOAWAY");
                        goaway.mark_sent();
                        accepted.graceful_shutdown();
                    }
                    MAX_REFUSED_AFTER_GOAWAY => accepted.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
                    _ => {}
                }
            }
            Some(Err(error)) if error.get_io().is_some_and(is_frame_budget_exceeded) => {
                tracing::debug!(peer = %connection.peer, "a client exceeds its budget of frames without effect");
                return server.forwarder().telemetry.metrics.frame_budget_exceeded(&connection.listener.name);
            }
            // Mostly clients that close the connection without GOAWAY.
            Some(Err(error)) => return tracing::debug!(%error, "a client's connection failed"),
            None => return,
        }
    }
}

/// Memory that the head of a request needs, in bytes, approximately.
fn head_size<B>(request: &Request<B>) -> usize {
    let fields =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
    fields.sum::<usize>() + target_size(request.uri())
}

fn spawn_request(
    server: Arc<HttpServer>,
    connection: Arc<Connection>,
    header_memory: HeaderMemoryGuard,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let (mut head, body) = request.into_parts();
    // The gateway sets no extensions.
    head.extensions.clear();
    let host_error = host::host_error_over_http2(&head);
    let expects = head.headers.get(header::EXPECT);
    let expects_continue =
        expects.is_some_and(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let no_store = connection.listener.policy.load().responses.no_store;
    let mut client = Http2 {
        body,
        read: 0,
        respond,
        response: None,
        code: None,
        ended: false,
        expects_continue,
        no_store,
        header_memory: Some(header_memory),
    };
    // One async block, so that the task reserves space for each local only once.
    tokio::spawn(async move {
        // HTTP/2 has no Upgrade (RFC 9113, 8.6).
        let _ = serve(&server, &connection, &mut client, &mut head, host_error).await;
    });
}

/// The 100 response, for clients that sent `Expect: 100-continue`.
fn continue_response() -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::CONTINUE;
    head
}

/// One request and its response.
struct Http2 {
    body: RecvStream,
    /// Size of the last part of the body that was read, in bytes.
    read: usize,
    respond: SendResponse<Bytes>,
    response: Option<SendStream<Bytes>>,
    code: Option<u16>,
    ended: bool,
    /// The client waits for 100 before it sends the body.
    expects_continue: bool,
    /// True if the response gets `Cache-Control: no-store`.
    no_store: bool,
    /// The memory of the request's headers, counted until the response begins.
    header_memory: Option<HeaderMemoryGuard>,
}

impl DownstreamExchange for Http2 {
    fn is_done(&self) -> bool {
        self.body.is_end_stream()
    }

    async fn read(&mut self) -> Result<Option<Bytes>, BodyError> {
        if std::mem::take(&mut self.expects_continue) && self.response.is_none() {
            self.respond.send_informational(continue_response()).map_err(|_| ClientDisconnected)?;
        }
        // The window is opened for data only once it was forwarded, so that unsent data stays bounded by it.
        let sent = std::mem::take(&mut self.read);
        if sent > 0 {
            let _ = self.body.flow_control().release_capacity(sent);
        }
        let chunk = self.body.data().await.transpose().map_err(|_| ClientDisconnected)?;
        self.read = chunk.as_ref().map_or(0, Bytes::len);
        Ok(chunk)
    }

    fn unsent(&mut self) -> impl Fn() -> usize + Send + 'static {
        let windows = self.body.flow_control().clone();
        move || windows.used_capacity()
    }

    async fn disconnected(&mut self) {
        self.closed().await;
    }

    async fn trailers(&mut self) -> Result<Option<HeaderMap>, BodyError> {
        Ok(self.body.trailers().await.map_err(|_| ClientDisconnected)?)
    }

    async fn closed(&mut self) {
        // Whether the stream was reset or the connection broke makes no difference.
        let _ = poll_fn(|context| match &mut self.response {
            Some(response) => response.poll_reset(context),
            None => self.respond.poll_reset(context),
        })
        .await;
    }

    async fn interim(&mut self, head: Response<()>) -> Result<(), ClientDisconnected> {
        self.respond.send_informational(head).map_err(|_| ClientDisconnected)
    }

    fn begin(&mut self, mut head: Parts, ended: bool) -> Result<(), ClientDisconnected> {
        for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
            head.headers.remove(name);
        }
        if self.no_store {
            head.headers.insert(header::CACHE_CONTROL, NO_STORE);
        }
        let code = head.status.as_u16();
        let response = self
            .respond
            .send_response(Response::from_parts(head, ()), ended)
            .map_err(|_| ClientDisconnected)?;
        (self.response, self.code, self.ended) = (Some(response), Some(code), ended);
        self.header_memory = None;
        Ok(())
    }

    fn status_sent(&self) -> Option<u16> {
        self.code
    }

    async fn write(&mut self, mut chunk: Bytes, ended: bool) -> Result<(), ClientDisconnected> {
        let response = self.response.as_mut().ok_or(ClientDisconnected)?;
        if ended && chunk.len() <= MAX_UNCONDITIONAL_PART {
            self.ended = true;
            return response.send_data(chunk, true).map_err(|_| ClientDisconnected);
        }
        while !chunk.is_empty() {
            response.reserve_capacity(chunk.len());
            let room = match some_room(response).await {
                Some(Ok(room)) => room.min(chunk.len()),
                _ => return Err(ClientDisconnected),
            };
            let part = chunk.split_to(room);
            self.ended = ended && chunk.is_empty();
            response.send_data(part, self.ended).map_err(|_| ClientDisconnected)?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ClientDisconnected> {
        Ok(())
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), ClientDisconnected> {
        let response = self.response.as_mut().ok_or(ClientDisconnected)?;
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        match trailers {
            Some(trailers) => response.send_trailers(trailers),
            None => response.send_data(Bytes::new(), true),
        }
        .map_err(|_| ClientDisconnected)
    }

    fn abort(&mut self) {
        if !self.ended {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}
