//! HTTP/2 with clients: a task per connection, a task per request.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fairlead_process::{Chatter, said_too_much};
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

/// How long a client that has come to a listener that drains has for its first request.
const LULL: Duration = Duration::from_secs(1);
/// A last part up to this size is handed over at once, whatever window there is. The library keeps it until then.
const SMALL: usize = 16 << 10;
/// So much may the heads of a connection's unanswered requests be together: what is small on the wire can be large here
/// (CVE-2026-49975). A CDN has the requests of many people on one connection: there is room for 250 of them with a token of
/// 1.2 KiB and 18 fields each.
const HEADS: usize = 900 << 10;
/// What a field counts beyond its name and value: about what a map of headers needs for it.
const FIELD: usize = 80;
/// Who goes on after so many requests in a row that had too much header is told to go on over another connection. What is open stays:
/// a CDN has the requests of others on it, who have done nothing.
const MOST_REFUSED: u32 = 50;
/// Who does not hear it loses the connection after so many; those that were under way when it was said are fewer. Once it is
/// heard, what comes in spite of it is not seen here: [`Chatter`] counts it.
const MOST_REFUSED_AND_DEAF: u32 = MOST_REFUSED + 500;

/// Serves one connection until it ends. When the process drains, the client is told to open no more streams.
pub(super) async fn serve_connection(
    server: &Arc<HttpServer>,
    connection: Arc<Connection>,
    stream: Stream,
    shutdown: &ShutdownWatch,
) {
    let stream = Chatter::of_client(stream);
    let farewell = stream.farewell();
    let (stream, mut writer) = coalesce(stream);
    let options = server_builder(&connection.listener.frame.load().limits);
    let accepting = options.handshake::<_, Bytes>(stream);
    let mut accepting = Box::pin(accepting);
    // The library begins with a write, and somebody has to see to it.
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
        Err(error) => return tracing::debug!(%error, "a client does not speak HTTP/2 as it should"),
    };
    drop(accepting);
    let mut shutdown = shutdown.clone();
    let newcomer = Arc::clone(&connection);
    let draining = async move {
        // No sender any more: the process ends anyway.
        let _ = shutdown.wait_for(|draining| *draining).await;
        // Whoever has just come has a request to make, and would have to come once more.
        let mut lull = std::pin::pin!(tokio::time::sleep(LULL.saturating_sub(newcomer.activity.idle_for())));
        poll_fn(|context| match newcomer.activity.has_had_a_request() {
            true => Poll::Ready(()),
            false => lull.as_mut().poll(context),
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
                std::task::ready!(writer.poll(context));
            }
        });
        match next.await {
            Some(Ok((request, mut respond))) => {
                let (bytes, fields) = (size(&request), request.headers().len());
                let limits = **server.pipeline.header_limits.load();
                let most = HEADS.max(limits.bytes.saturating_mul(2));
                // It is answered with a Status, but was read to its end all the same.
                let is_too_large = fields > limits.fields || bytes - fields * FIELD > limits.bytes;
                match connection.hold_head(bytes, most) {
                    Some(held) => {
                        spawn_request(Arc::clone(server), Arc::clone(&connection), held, request, respond);
                        if !is_too_large {
                            if refused < MOST_REFUSED {
                                refused = 0;
                            }
                            continue;
                        }
                    }
                    None => {
                        server.forwarder().telemetry.metrics.heads_refused(&connection.listener.name);
                        // It may be sent again, once others are answered.
                        respond.send_reset(Reason::REFUSED_STREAM);
                    }
                }
                refused += 1;
                match refused {
                    MOST_REFUSED => {
                        tracing::debug!(peer = %connection.peer, "a client sends more header than it may");
                        farewell.said();
                        accepted.graceful_shutdown();
                    }
                    MOST_REFUSED_AND_DEAF => accepted.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
                    _ => {}
                }
            }
            Some(Err(error)) if error.get_io().is_some_and(said_too_much) => {
                tracing::debug!(peer = %connection.peer, "a client says too much that means nothing");
                return server.forwarder().telemetry.metrics.chatter_refused(&connection.listener.name);
            }
            // Mostly clients that close the connection without a word.
            Some(Err(error)) => return tracing::debug!(%error, "a client's connection has broken"),
            None => return,
        }
    }
}

/// How much memory a head takes, about.
fn size<B>(request: &Request<B>) -> usize {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    fields.sum::<usize>() + target_size(request.uri())
}

fn spawn_request(
    server: Arc<HttpServer>,
    connection: Arc<Connection>,
    held: HeaderMemoryGuard,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let (mut head, body) = request.into_parts();
    // Nobody here sets any.
    head.extensions.clear();
    let fault = host::fault_over_http2(&head);
    let expects = head.headers.get(header::EXPECT);
    let expects_continue =
        expects.is_some_and(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let no_store = connection.listener.policy.load().answers.no_store;
    let mut client = Http2 {
        body,
        read: 0,
        respond,
        answer: None,
        code: None,
        ended: false,
        expects_continue,
        no_store,
        held: Some(held),
    };
    // One block, so that the task has room for each of these once.
    tokio::spawn(async move {
        // An upgrade is not a thing of HTTP/2.
        let _ = serve(&server, &connection, &mut client, &mut head, fault).await;
    });
}

/// What a client waits for that expects to be told.
fn go_on() -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::CONTINUE;
    head
}

/// One request.
struct Http2 {
    body: RecvStream,
    /// The size of the last part that was read.
    read: usize,
    respond: SendResponse<Bytes>,
    answer: Option<SendStream<Bytes>>,
    code: Option<u16>,
    ended: bool,
    /// The client waits for an interim answer before it sends the body.
    expects_continue: bool,
    /// Nobody on the way may keep the answer.
    no_store: bool,
    /// Its head, as long as there is no answer.
    held: Option<HeaderMemoryGuard>,
}

impl DownstreamExchange for Http2 {
    fn is_done(&self) -> bool {
        self.body.is_end_stream()
    }

    async fn read(&mut self) -> Result<Option<Bytes>, BodyError> {
        if std::mem::take(&mut self.expects_continue) && self.answer.is_none() {
            self.respond.send_informational(go_on()).map_err(|_| ClientDisconnected)?;
        }
        // What was read here is passed on before more is read. Until then it counts as unsent.
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

    async fn gone(&mut self) {
        self.left().await;
    }

    async fn trailers(&mut self) -> Result<Option<HeaderMap>, BodyError> {
        Ok(self.body.trailers().await.map_err(|_| ClientDisconnected)?)
    }

    async fn left(&mut self) {
        // However the stream ended, it did.
        let _ = poll_fn(|context| match &mut self.answer {
            Some(answer) => answer.poll_reset(context),
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
        let answer = self
            .respond
            .send_response(Response::from_parts(head, ()), ended)
            .map_err(|_| ClientDisconnected)?;
        (self.answer, self.code, self.ended) = (Some(answer), Some(code), ended);
        self.held = None;
        Ok(())
    }

    fn begun(&self) -> Option<u16> {
        self.code
    }

    async fn write(&mut self, mut chunk: Bytes, ended: bool) -> Result<(), ClientDisconnected> {
        let answer = self.answer.as_mut().ok_or(ClientDisconnected)?;
        if ended && chunk.len() <= SMALL {
            self.ended = true;
            return answer.send_data(chunk, true).map_err(|_| ClientDisconnected);
        }
        while !chunk.is_empty() {
            answer.reserve_capacity(chunk.len());
            let room = match some_room(answer).await {
                Some(Ok(room)) => room.min(chunk.len()),
                _ => return Err(ClientDisconnected),
            };
            let part = chunk.split_to(room);
            self.ended = ended && chunk.is_empty();
            answer.send_data(part, self.ended).map_err(|_| ClientDisconnected)?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ClientDisconnected> {
        Ok(())
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), ClientDisconnected> {
        let answer = self.answer.as_mut().ok_or(ClientDisconnected)?;
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        match trailers {
            Some(trailers) => answer.send_trailers(trailers),
            None => answer.send_data(Bytes::new(), true),
        }
        .map_err(|_| ClientDisconnected)
    }

    fn abort(&mut self) {
        if !self.ended {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}
