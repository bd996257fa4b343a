//! One HTTP/2 request from its head to the last byte of its answer, in one straight pass.
//!
//! pingora accepts the connection and speaks HTTP/2 with the client; the stream to the shard is the library's own. Its
//! proxy trait is not used on this way: it copies the request, carries every frame through a channel, and its future
//! has room for a handshake with a shard, for each open watch (ARCHITECTURE.md has the figures).
//!
//! Cost of an ordinary GET beyond the two HTTP/2 libraries: the decision, one copy of the headers (for the second try of
//! a read), no lock of our own on an open connection. An idle watch keeps the head of its answer and this future.
//! `make bench` measures both.

use std::future::{pending, poll_fn};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::{RecvStream, SendStream};
use http::header;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Method, Request, Response, Uri, Version};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::v2::server::HttpSession;

use super::context::Context;
use super::failure::{self, Failure};
use super::{CLIENT_LEFT, REMOVED_FROM_ANSWERS, forward, own_head, record};
use crate::answer::Answer;
use crate::core::{Asked, Core, Decision, Forward};
use crate::ending::Ending;
use crate::listener::connection_in;
use crate::observe::GatewayPhase;
use crate::request::RequestClass;
use crate::upstream::{StreamPermit, UpstreamError};

/// Connections tried for one request. Each that takes no more requests is out of use from then on, so this is reached
/// only if new ones are refused as well.
const MAX_CONNECTIONS_TRIED: usize = 100;

/// How much of a request's body is thrown away after we have answered without it, and for how long.
const MAX_DRAINED_BYTES: usize = 4 << 20;
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// Serves one request. Gives it back untouched if this is not the way for it.
pub(super) async fn serve(core: &Core, number: u64, mut session: HttpSession) -> Option<HttpSession> {
    let Some(connection) = session.digest().and_then(connection_in).cloned() else {
        session.shutdown();
        return None;
    };
    let head = session.req_header();
    if head.method == Method::CONNECT {
        return Some(session);
    }
    let class = RequestClass::of(&head.method, head.uri.query(), head.version, &head.headers);
    let mut context = Context::new();
    context.begin(class, connection.peer.ip(), connection.begin_request(), core.metrics.open(class));
    let decision = if head.raw_path_is_utf8() {
        let asked =
            Asked { method: &head.method, uri: &head.uri, headers: &head.headers, connection: &connection };
        core.decide(asked).await
    } else {
        Decision::Answer(Answer::bad_request("malformed request path: not UTF-8"))
    };
    let method = head.method.clone();
    let code = match decision {
        Decision::PickShard => return Some(session),
        Decision::Answer(answer) => answer_itself(core, &mut session, &method, answer).await,
        Decision::Forward(forward) => {
            let asked = Instant::now();
            let permit = tokio::select! {
                biased;
                // Also when there is a stream at once: see `Exchange::another`.
                _ = session.idle() => None,
                permit = core.upstreams.stream(&forward.upstream) => Some(permit),
            };
            let Some(permit) = permit else {
                record(core, &context, &method, CLIENT_LEFT);
                return None;
            };
            let code = match permit {
                Err(UpstreamError::OnlyHttp1) => return Some(session),
                Err(error) => {
                    failure::note_connect(&forward.upstream, &error);
                    let answer = Answer::unavailable("the shard cannot be reached", "connect_failed");
                    answer_itself(core, &mut session, &method, answer).await
                }
                Ok(permit) => {
                    core.metrics.phase(GatewayPhase::Connect, asked.elapsed());
                    let ending = (class == RequestClass::Watch)
                        .then(|| Ending::new(&core.shutdown, &forward.sender, number));
                    let exchange = Exchange { core, session: &mut session, context: &mut context, ending };
                    exchange.run(&forward, &method, permit).await
                }
            };
            context.forward = Some(forward);
            code
        }
    };
    record(core, &context, &method, code);
    None
}

/// Answers without a shard; returns the code.
async fn answer_itself(core: &Core, session: &mut HttpSession, method: &Method, answer: Answer) -> u16 {
    let Answer { response, why, .. } = answer;
    let (parts, body) = (*response).into_parts();
    core.metrics.answered(parts.status.as_u16(), why);
    let code = parts.status.as_u16();
    let Ok(head) = own_head(&parts, body.len()) else {
        session.shutdown();
        return code;
    };
    let bodiless = *method == Method::HEAD || body.is_empty();
    let written = match session.write_response_header(head, bodiless) {
        Ok(()) if !bodiless => session.write_body(body, true).await,
        outcome => outcome,
    };
    match written {
        Ok(()) => drain(session).await,
        Err(error) => tracing::debug!(%error, "the client left before it could be told"),
    }
    code
}

/// Takes in the body of a request that is answered already. A stream that ends with a body unread is reset, and some
/// clients then forget the answer that they have (curl: error 92).
pub(super) async fn drain(session: &mut HttpSession) {
    if session.is_body_done() {
        return;
    }
    let reading = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = session.read_body_bytes().await {
            read += chunk.len();
            if read > MAX_DRAINED_BYTES {
                break;
            }
        }
    };
    // Who sends more, or slowly, has had the answer, and is told by the reset to stop.
    let _ = tokio::time::timeout(MAX_DRAIN, reading).await;
}

/// A request on its way to a shard and the answer on its way back.
struct Exchange<'e> {
    core: &'e Core,
    session: &'e mut HttpSession,
    context: &'e mut Context,
    /// Of a watch.
    ending: Option<Ending>,
}

impl Exchange<'_> {
    /// Carries both; returns the code that the client got.
    async fn run(mut self, forward: &Forward, method: &Method, permit: StreamPermit) -> u16 {
        let request = match self.request(forward) {
            Ok(request) => request,
            Err(failure) => return self.fail(method, failure).await,
        };
        let limit = self.limit();
        let outcome = match self.ask(forward, method, request, permit, limit).await {
            Ok((answer, upload, permit)) => {
                forward.upstream.metrics.first_byte(self.context.class, self.context.began.elapsed());
                let outcome = self.answer(answer, upload, limit).await;
                outcome.map_err(|failure| failure.of(&permit))
            }
            Err(failure) => Err(failure),
        };
        match (outcome, self.session.response_written()) {
            (Ok(code), _) => code,
            (Err(failure), None) => self.fail(method, failure).await,
            (Err(failure), Some(head)) => {
                let code = head.status.as_u16();
                // A watch may end between two events; anything else is broken, and must look like it.
                let cleanly = code == 200
                    && self.context.class == RequestClass::Watch
                    && self.context.at_line_end
                    && !matches!(failure, Failure::ClientLeft);
                tracing::debug!(%failure, cleanly, "an answer was broken off");
                if !(cleanly && self.session.finish().is_ok()) {
                    self.session.shutdown();
                }
                code
            }
        }
    }

    /// For how long a shard may be silent; watches have no limit.
    fn limit(&self) -> Option<Duration> {
        (!self.context.class.is_long_running()).then(|| self.core.upstreams.response_timeout())
    }

    /// The request as the shard sees it. The headers are taken from the session: nobody reads them there any more.
    fn request(&mut self, forward: &Forward) -> Result<Request<()>, Failure> {
        let nothing: Parts = Request::new(()).into_parts().0;
        let sent = std::mem::replace(self.session.req_header_mut(), RequestHeader::from(nothing));
        let mut parts: Parts = sent.into();
        let hop = forward::Hop::of(&parts.headers);
        name_authority(&mut parts)?;
        let decided = forward::Forwarded {
            path_and_query: &forward.path_and_query,
            sender: &forward.sender,
            asserted_by: forward.asserted_by.as_deref(),
            hops: forward.hops,
            client: self.context.client,
            class: self.context.class,
        };
        let forged = forward::prepare(&mut parts, &hop, &decided).map_err(|error| {
            tracing::warn!(%error, "a request could not be forwarded");
            Failure::Internal
        })?;
        self.core.metrics.forged(forged);
        parts.version = Version::HTTP_2;
        Ok(Request::from_parts(parts, ()))
    }

    /// Sends the request and waits for the head of the answer.
    async fn ask(
        &mut self,
        forward: &Forward,
        method: &Method,
        mut request: Request<()>,
        mut permit: StreamPermit,
        limit: Option<Duration>,
    ) -> Result<(Response<RecvStream>, Upload, StreamPermit), Failure> {
        let safe = is_safe(method);
        // The body of a read means nothing. It is taken in and not passed on: its frames would count against a
        // connection that others share.
        let ended = safe || self.session.is_body_done();
        if safe {
            request.headers_mut().remove(header::CONTENT_LENGTH);
        }
        let mut sent = 0;
        for _ in 0..MAX_CONNECTIONS_TRIED {
            if let Ok(mut sender) = permit.ready().await {
                // What changes nothing is sent once more if the connection turns out to be closing.
                let spare = (safe && sent == 0).then(|| copy(&request));
                let sending = sender.send_request(request, ended);
                drop(sender);
                let (mut answered, body) = match sending {
                    Ok(sending) => sending,
                    Err(error) => {
                        tracing::debug!(%error, "a request could not be sent");
                        let closing = error.is_io() || error.is_go_away();
                        request =
                            spare.ok_or(if closing { Failure::Unreachable } else { Failure::Internal })?;
                        sent += 1;
                        permit = self.another(forward).await?;
                        continue;
                    }
                };
                sent += 1;
                let mut upload = Upload { body, chunk: Bytes::new(), done: ended, unwanted: ended };
                match self.head(&mut answered, &mut upload, limit).await {
                    Ok(answer) => return Ok((answer, upload, permit)),
                    Err(Failure::Shard(error)) if !permit.is_silent() => {
                        request = spare.ok_or(Failure::Shard(error))?;
                    }
                    Err(failure) => return Err(failure.of(&permit)),
                }
            }
            permit = self.another(forward).await?;
        }
        Err(Failure::Unreachable)
    }

    /// Another stream. A client that leaves meanwhile must not be asked for: a request that is taken back at once
    /// looks like an attack to the shard (CVE-2023-44487).
    async fn another(&mut self, forward: &Forward) -> Result<StreamPermit, Failure> {
        tokio::select! {
            biased;
            _ = self.session.idle() => Err(Failure::ClientLeft),
            permit = self.core.upstreams.stream(&forward.upstream) => permit.map_err(|error| {
                failure::note_connect(&forward.upstream, &error);
                Failure::Unreachable
            }),
        }
    }

    async fn head(
        &mut self,
        answered: &mut h2::client::ResponseFuture,
        upload: &mut Upload,
        limit: Option<Duration>,
    ) -> Result<Response<RecvStream>, Failure> {
        loop {
            tokio::select! {
                biased;
                answer = &mut *answered => return answer.map_err(Failure::Shard),
                sent = upload.step(self.session) => self.context.request_bytes += sent? as u64,
                () = silence(limit) => return Err(Failure::Timeout),
                () = over(self.ending.as_ref()) => return Err(Failure::Over),
            }
        }
    }

    /// Carries the answer to the client; returns its code.
    async fn answer(
        &mut self,
        answer: Response<RecvStream>,
        mut upload: Upload,
        limit: Option<Duration>,
    ) -> Result<u16, Failure> {
        let (mut parts, mut body) = answer.into_parts();
        for name in REMOVED_FROM_ANSWERS {
            parts.headers.remove(name);
        }
        let code = parts.status.as_u16();
        let mut ended = body.is_end_stream();
        self.session
            .write_response_header(Box::new(ResponseHeader::from(parts)), ended)
            .map_err(|_| Failure::ClientLeft)?;
        while !ended {
            let chunk = tokio::select! {
                biased;
                chunk = body.data() => chunk,
                sent = upload.step(self.session) => {
                    self.context.request_bytes += sent? as u64;
                    continue;
                }
                () = silence(limit) => return Err(Failure::Timeout),
                () = over(self.ending.as_ref()) => return Err(Failure::Over),
            };
            match chunk {
                Some(chunk) => {
                    let chunk = chunk.map_err(Failure::Shard)?;
                    let size = chunk.len();
                    // An end that is known already goes with the last bytes. One that comes from an error looks the
                    // same, but then there is more to be had: the error.
                    ended = body.is_end_stream()
                        && body.data().await.transpose().map_err(Failure::Shard)?.is_none();
                    self.write(chunk, ended).await?;
                    // Only now may the shard send more: a client that does not read holds up its own stream.
                    let _ = body.flow_control().release_capacity(size);
                }
                None => {
                    self.end(&mut body).await?;
                    ended = true;
                }
            }
        }
        drain(self.session).await;
        Ok(code)
    }

    async fn write(&mut self, chunk: Bytes, ended: bool) -> Result<(), Failure> {
        // A watch that never pauses must not outlive its credential.
        if over(self.ending.as_ref()).now_or_never().is_some() {
            return Err(Failure::Over);
        }
        if let Some(last) = chunk.last() {
            self.context.response_bytes += chunk.len() as u64;
            self.context.at_line_end = *last == b'\n';
        }
        tokio::select! {
            biased;
            written = self.session.write_body(chunk, ended) => written.map_err(|_| Failure::ClientLeft),
            () = over(self.ending.as_ref()) => {
                self.context.at_line_end = false;
                Err(Failure::Over)
            }
        }
    }

    /// The end after the last byte, with trailers or without.
    async fn end(&mut self, body: &mut RecvStream) -> Result<(), Failure> {
        let trailers = match body.trailers().await {
            // "No more of the request is wanted" (RFC 9113, 8.1): the answer is complete.
            Err(error) if error.reason() == Some(h2::Reason::NO_ERROR) => None,
            trailers => trailers.map_err(Failure::Shard)?,
        };
        let ended = match trailers {
            Some(mut trailers) => {
                fairlead_authn::strip_identity_headers(&mut trailers);
                self.session.write_trailers(trailers)
            }
            None => self.session.finish(),
        };
        ended.map_err(|_| Failure::ClientLeft)
    }

    async fn fail(&mut self, method: &Method, failure: Failure) -> u16 {
        match failure.answer() {
            Some(answer) => {
                tracing::debug!(%failure, "a request could not be forwarded");
                answer_itself(self.core, self.session, method, answer).await
            }
            None => CLIENT_LEFT,
        }
    }
}

/// The body of the request on its way to the shard.
struct Upload {
    body: SendStream<Bytes>,
    /// Read from the client and not sent yet.
    chunk: Bytes,
    /// Everything was sent, or the shard wants no more.
    done: bool,
    /// There may be more from the client, to be thrown away.
    unwanted: bool,
}

impl Upload {
    /// Does the next bit of work and returns how many bytes it sent. When everything was sent it waits for the client
    /// to go away. May be dropped at any time.
    async fn step(&mut self, session: &mut HttpSession) -> Result<usize, Failure> {
        if !self.chunk.is_empty() {
            return self.send_some().await;
        }
        if self.done && !self.unwanted {
            let _ = session.idle().await;
            return Err(Failure::ClientLeft);
        }
        match session.read_body_bytes().await {
            Ok(Some(_)) if self.unwanted => {}
            Ok(Some(chunk)) => self.chunk = chunk,
            // Trailers that nobody reads keep the stream from being at its end.
            Ok(None) if self.unwanted => self.unwanted = false,
            // Trailers of a request are not for the shard.
            Ok(None) => {
                self.done = true;
                let _ = self.body.send_data(Bytes::new(), true);
            }
            Err(_) => return Err(Failure::ClientLeft),
        }
        Ok(0)
    }

    async fn send_some(&mut self) -> Result<usize, Failure> {
        self.body.reserve_capacity(self.chunk.len());
        let room = match poll_fn(|context| self.body.poll_capacity(context)).await {
            Some(Ok(room)) => room.min(self.chunk.len()),
            // It has answered, or will fail, without the rest.
            _ => {
                (self.chunk, self.done) = (Bytes::new(), true);
                return Ok(0);
            }
        };
        let part = self.chunk.split_to(room);
        if self.body.send_data(part, false).is_err() {
            (self.chunk, self.done) = (Bytes::new(), true);
            return Ok(0);
        }
        Ok(room)
    }
}

/// HTTP/2 wants the authority in the target; a client may have written it as `Host`, which then goes.
fn name_authority(parts: &mut Parts) -> Result<(), Failure> {
    let named = match parts.headers.remove(header::HOST) {
        Some(host) => Authority::try_from(host.as_bytes()).ok(),
        None => parts.uri.authority().cloned(),
    };
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(named.ok_or(Failure::Malformed("it names no authority"))?);
    parts.uri = Uri::from_parts(uri).map_err(|_| Failure::Malformed("its target is not a URI"))?;
    Ok(())
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn copy(request: &Request<()>) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// Returns when a shard has been silent for too long.
async fn silence(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}

/// Returns when a watch is over.
async fn over(ending: Option<&Ending>) {
    match ending {
        Some(ending) => ending.reached().await,
        None => pending().await,
    }
}
