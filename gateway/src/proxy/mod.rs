//! The data plane on pingora: asks the core what happens to a request, and carries bytes.
//!
//! HTTP/2 requests go the straight way of [`exchange`]. What is left for pingora's own loop are HTTP/1.1 clients,
//! servers without HTTP/2, and the questions of shards.

mod context;
mod exchange;
mod failure;
mod forward;
mod tunnel;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{self, Entry, HeaderMap, HeaderValue};
use http::uri::Authority;
use http::{Method, StatusCode, Version};
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::HttpPeer;
use pingora::protocols::Digest;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::proxy::{FailToProxy, HttpProxy, ProxyHttp, Session};
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;
use pingora::{Error, ErrorSource, ErrorType, OrErr, Result};

use crate::answer::{AUDIT_ID, Answer};
use crate::core::{Asked, Core, Decision};
use crate::ending::Ending;
use crate::listener::connection_of;
use crate::local::MAX_PICK_BYTES;
use crate::observe::GatewayPhase;
use crate::request::RequestClass;
use context::Connect;
pub(crate) use context::Context;
use watch::WATCH_IS_OVER;

/// How long an idle HTTP/1.1 connection is kept, in seconds: longer than Go's clients do, so that it is the client
/// that closes it and no request meets a closing connection.
const KEEP_ALIVE: u64 = 120;
/// The status of requests whose client left before there was an answer, in metrics only.
const CLIENT_LEFT: u16 = 499;

/// Fields of a shard's answer that are not for the client.
const REMOVED_FROM_ANSWERS: [&str; 3] = ["keep-alive", "proxy-connection", "proxy-authenticate"];

/// The gateway as pingora's listeners see it.
pub(crate) struct DataPlane {
    core: Arc<Core>,
    looped: Arc<HttpProxy<GatewayProxy>>,
    exchanges: AtomicU64,
    h2_options: H2Options,
}

impl DataPlane {
    /// A data plane for this core; `conf` is for pingora's loop.
    pub(crate) fn new(core: Arc<Core>, conf: ServerConf, h2_options: H2Options) -> Self {
        let mut looped = HttpProxy::new(GatewayProxy::new(Arc::clone(&core)), Arc::new(conf));
        looped.handle_init_modules();
        Self { core, looped: Arc::new(looped), exchanges: AtomicU64::new(0), h2_options }
    }
}

#[async_trait]
impl HttpServerApp for DataPlane {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let session = match session {
            ServerSession::H2(session) => {
                let number = self.exchanges.fetch_add(1, Ordering::Relaxed);
                ServerSession::H2(exchange::serve(&self.core, number, session).await?)
            }
            other => other,
        };
        self.looped.process_new_http(session, shutdown).await
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(self.h2_options.clone())
    }

    async fn http_cleanup(&self) {
        self.looped.http_cleanup().await;
    }
}

/// The gateway as pingora's loop sees it.
pub(crate) struct GatewayProxy {
    core: Arc<Core>,
    exchanges: AtomicU64,
}

/// The head of an answer of the gateway itself.
fn own_head(parts: &http::response::Parts, length: usize) -> Result<Box<ResponseHeader>> {
    let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len() + 2))?;
    for (name, value) in &parts.headers {
        head.append_header(name.clone(), value.clone())?;
    }
    head.insert_header(AUDIT_ID, uuid::Uuid::new_v4().to_string())?;
    head.insert_header(header::CONTENT_LENGTH, length)?;
    Ok(Box::new(head))
}

/// What is wrong with the `Host` of a request (RFC 9112, 3.2). HTTP/1.0 does without.
fn host_fault(head: &RequestHeader) -> Option<&'static str> {
    let Some(host) = head.headers.get(header::HOST) else {
        let must = head.version == Version::HTTP_11 && head.uri.authority().is_none();
        return must.then_some("a request over HTTP/1.1 must have a Host header");
    };
    let wrong = Authority::try_from(host.as_bytes()).is_err();
    wrong.then_some("the Host header is not a host with an optional port")
}

/// What is wrong with the framing of a request (RFC 9112, 6.1). pingora takes the one of two announcements that counts
/// and removes the other, which may be what another server goes by.
fn framing_fault(session: &Session) -> Option<&'static str> {
    if !session.req_header().headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    let raw = session.downstream_session.as_http1()?.get_headers_raw_bytes();
    let name = header::CONTENT_LENGTH.as_str().as_bytes();
    let mut lines = raw.split(|byte| *byte == b'\n');
    let both = lines.any(|line| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)));
    both.then_some("the request has both a content length and a transfer encoding")
}

/// Counts a request that has ended.
fn record(core: &Core, context: &Context, method: &Method, code: u16) {
    let duration = context.began.elapsed();
    core.metrics.finished(method, code, duration);
    if let Some(forward) = &context.forward {
        let metrics = &forward.upstream.metrics;
        metrics.total(context.class, duration);
        metrics.request_bytes.inc_by(context.request_bytes);
        metrics.response_bytes.inc_by(context.response_bytes);
    }
    let path = context.forward.as_ref().map(|forward| forward.path_and_query.path());
    tracing::trace!(%method, path, code, micros = duration.as_micros() as u64, "request");
}

impl GatewayProxy {
    fn new(core: Arc<Core>) -> Self {
        Self { core, exchanges: AtomicU64::new(0) }
    }

    /// Another number for every exchange without an end.
    fn number(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed)
    }

    async fn write(&self, session: &mut Session, answer: Answer) -> Result<()> {
        let Answer { response, why, .. } = answer;
        let (parts, body) = (*response).into_parts();
        self.core.metrics.answered(parts.status.as_u16(), why);
        let head = own_head(&parts, body.len())?;
        let bodiless = session.req_header().method == Method::HEAD || body.is_empty();
        session.write_response_header(head, bodiless).await?;
        let body = if bodiless { None } else { Some(body) };
        session.write_response_body(body, true).await?;
        // pingora does it itself for HTTP/1.1.
        if let ServerSession::H2(session) = &mut *session.downstream_session {
            exchange::drain(session).await;
        }
        Ok(())
    }

    /// Reads the question of a shard and answers it.
    async fn pick_shard(&self, session: &mut Session) -> Result<Answer> {
        let mut body = BytesMut::new();
        while let Some(chunk) = session.read_request_body().await? {
            if body.len() + chunk.len() > MAX_PICK_BYTES {
                let status = fairlead_process::Status::request_entity_too_large(MAX_PICK_BYTES as u64);
                return Ok(Answer::status(&status, "body_too_large"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(self.core.pick_shard(&body))
    }

    /// Ends a watch that its shard has left, or whose time is over, so that the client sees a clean end where it is possible: between two
    /// events.
    async fn end_watch(&self, session: &mut Session, error: &Error, context: &Context) -> bool {
        let started = session.response_written().is_some_and(|head| head.status == StatusCode::OK);
        let cut_off = *error.esource() != ErrorSource::Downstream || *error.etype() == WATCH_IS_OVER;
        if context.class != RequestClass::Watch || !started || !cut_off || !context.at_line_end {
            return false;
        }
        session.write_response_body(None, true).await.is_ok()
    }
}

#[async_trait]
impl ProxyHttp for GatewayProxy {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::new()
    }

    /// No modules: pingora would add a compression step to every response.
    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    async fn request_filter(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        let Some(connection) = connection_of(session).cloned() else {
            return Error::e_explain(ErrorType::InternalError, "a request without a connection");
        };
        if session.get_keepalive().is_some() {
            session.set_keepalive(Some(KEEP_ALIVE));
        }
        let head = session.req_header();
        let class = RequestClass::of(&head.method, head.uri.query(), head.version, &head.headers);
        let gauge = self.core.metrics.open(class);
        context.begin(class, connection.peer.ip(), connection.begin_request(), gauge);
        let decision = if let Some(why) = host_fault(head).or_else(|| framing_fault(session)) {
            Decision::Answer(Answer::bad_request(why))
        } else if head.raw_path_is_utf8() {
            let asked = Asked {
                method: &head.method,
                uri: &head.uri,
                headers: &head.headers,
                connection: &connection,
            };
            self.core.decide(asked).await
        } else {
            Decision::Answer(Answer::bad_request("malformed request path: not UTF-8"))
        };
        let answer = match decision {
            Decision::Forward(forward) if class == RequestClass::Upgrade => {
                let ending = Ending::new(&self.core.shutdown, &forward.sender, self.number());
                let tunnelled = self.tunnel(session, context, &forward, &ending).await;
                context.forward = Some(forward);
                return tunnelled.map(|()| true);
            }
            Decision::Forward(forward) => {
                // The shard does not hear of it: whoever waits before he sends his body waits for us.
                let waits = session.req_header().headers.get(header::EXPECT);
                if waits.is_some_and(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue"))
                    && session.req_header().version == Version::HTTP_11
                {
                    session.write_continue_response().await?;
                }
                if class == RequestClass::Watch {
                    watch::end_by(session, Ending::new(&self.core.shutdown, &forward.sender, self.number()));
                }
                context.forward = Some(forward);
                return Ok(false);
            }
            Decision::Answer(answer) => answer,
            Decision::PickShard => self.pick_shard(session).await?,
        };
        self.write(session, answer).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _session: &mut Session, context: &mut Context) -> Result<Box<HttpPeer>> {
        let Some(forward) = &context.forward else {
            return Error::e_explain(ErrorType::InternalError, "a request without a shard");
        };
        context.asked_pool = Some(std::time::Instant::now());
        match forward.upstream.gate.enter().await {
            Ok(pass) => context.pass = Some(pass),
            Err(_) => {
                context.connect = Connect::Failed;
                return Err(
                    Error::explain(ErrorType::ConnectError, "the shard could not be reached").into_up()
                );
            }
        }
        match self.core.upstreams.peer(&forward.upstream, context.class).await {
            Ok(peer) => Ok(Box::new(peer)),
            Err(error) => {
                context.connect = Connect::Failed;
                Err(Error::because(ErrorType::ConnectError, "the shard has no address", error).into_up())
            }
        }
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        _fd: std::os::unix::io::RawFd,
        _digest: Option<&Digest>,
        context: &mut Context,
    ) -> Result<()> {
        context.pass = None;
        context.connect = Connect::Done;
        if let Some(since) = context.asked_pool.take() {
            self.core.metrics.phase(GatewayPhase::Connect, since.elapsed());
        }
        Ok(())
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        context: &mut Context,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if let Some(pass) = context.pass.take() {
            pass.failed();
        }
        context.connect = Connect::Failed;
        if let Some(forward) = &context.forward {
            forward.upstream.avoid_address();
            if let Some(kind) = failure::tls_error(&error) {
                forward.upstream.metrics.tls_error(kind);
            }
            tracing::debug!(shard = %forward.upstream.name, %error, "cannot connect to the shard");
        }
        error.set_retry(false);
        error
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        outgoing: &mut RequestHeader,
        context: &mut Context,
    ) -> Result<()> {
        let Some(forward) = &context.forward else {
            return Error::e_explain(ErrorType::InternalError, "a request without a shard");
        };
        let decided = forward::Forwarded {
            path_and_query: &forward.path_and_query,
            sender: &forward.sender,
            asserted_by: forward.asserted_by.as_deref(),
            hops: forward.hops,
            client: context.client,
            class: context.class,
        };
        let hop = forward::Hop::of(&session.req_header().headers);
        let mut parts: http::request::Parts = outgoing.clone().into();
        let forged = forward::prepare(&mut parts, &hop, &decided)?;
        if parts.uri.authority().is_none()
            && let Entry::Vacant(host) = parts.headers.entry(header::HOST)
        {
            let authority = forward.upstream.authority();
            host.insert(HeaderValue::try_from(authority).or_err(ErrorType::InternalError, "naming a host")?);
        }
        if matches!(context.class, RequestClass::Read | RequestClass::Watch) {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        *outgoing = parts.into();
        self.core.metrics.forged(forged);
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        context: &mut Context,
    ) -> Result<()> {
        if matches!(context.class, RequestClass::Read | RequestClass::Watch) {
            // It means nothing, and small frames of it would count against a connection that others share.
            *body = body.as_ref().map(|_| Bytes::new());
        }
        context.request_bytes += body.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(())
    }

    async fn response_filter(
        &self,
        _session: &mut Session,
        head: &mut ResponseHeader,
        context: &mut Context,
    ) -> Result<()> {
        if let Some(forward) = &context.forward {
            forward.upstream.metrics.first_byte(context.class, context.began.elapsed());
        }
        for name in REMOVED_FROM_ANSWERS {
            head.remove_header(name);
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        context: &mut Context,
    ) -> Result<Option<Duration>> {
        if let Some(chunk) = body
            && !chunk.is_empty()
        {
            context.response_bytes += chunk.len() as u64;
            context.at_line_end = chunk.last() == Some(&b'\n');
        }
        Ok(None)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        _context: &mut Context,
        client_reused: bool,
    ) -> Box<Error> {
        // A connection from the pool may have died unnoticed: what changes nothing is tried once more, on another
        // one, as long as nothing was answered. Anything else is the client's to repeat.
        let safe = matches!(session.req_header().method, Method::GET | Method::HEAD | Method::OPTIONS);
        let unanswered = session.response_written().is_none() && !session.as_ref().retry_buffer_truncated();
        let upstream = *error.esource() == ErrorSource::Upstream && *error.etype() != ErrorType::ReadTimedout;
        error.set_retry(safe && unanswered && upstream && client_reused);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        context: &mut Context,
    ) -> FailToProxy {
        if session.response_written().is_some() {
            let ended = self.end_watch(session, error, context).await;
            tracing::debug!(%error, ended, "an answer was broken off");
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        let Some(answer) = failure::answer_for(error, context.connect) else {
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        };
        let code = answer.response.status().as_u16();
        tracing::debug!(%error, code, "a request could not be forwarded");
        // The rest of the request's body is not read any more.
        session.set_keepalive(None);
        if let Err(error) = self.write(session, answer).await {
            tracing::debug!(%error, "the client left before it could be told");
        }
        FailToProxy { error_code: code, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, context: &mut Context) {
        let code = session.response_written().map_or(CLIENT_LEFT, |head| head.status.as_u16());
        record(&self.core, context, &session.req_header().method, code);
    }

    /// The gateway logs what matters itself.
    fn suppress_error_log(&self, _session: &Session, _context: &Context, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _context: &Context,
        _error: &Error,
        _why: pingora::proxy::ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn upstream_response_trailer_filter(
        &self,
        _session: &mut Session,
        trailers: &mut HeaderMap,
        _context: &mut Context,
    ) -> Result<()> {
        fairlead_authn::strip_identity_headers(trailers);
        Ok(())
    }
}
