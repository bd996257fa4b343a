//! One request from its head to the last byte of its answer, in one straight pass.
//!
//! Cost of an ordinary GET beyond the protocols' own: the decision, a copy of its header bytes (for a second try), no lock
//! of our own on an open connection. An idle watch keeps this future and nothing of its request or its answer's head;
//! what is rare or large is boxed, because every request's task has room for the largest moment of its life and is
//! moved whole. `make bench-gateway` measures both.

mod relay_response;
mod send_request;
mod send_request_http1;

use std::future::pending;
use std::pin::Pin;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Response, StatusCode, Version};
use tokio::time::{sleep, timeout};

use crate::forward::downstream::DownstreamExchange;
use crate::forward::failure::Failure;
use crate::forward::keep_alive::KeepAlive;
use crate::forward::local_response::answer_itself;
use crate::forward::request_context::RequestContext;
use crate::forward::response_body::Download;
use crate::forward::retry_headers::RetryHeaders;
use crate::forward::stream_deadline::StreamDeadline;
use crate::forward::target::Forward;
use crate::forward::telemetry;
use crate::forward::upload::{Sink, Upload};
use crate::forward::{CLIENT_LEFT, Forwarder, upstream_request};
use crate::request::RequestClass;
use crate::telemetry::metrics::RequestStage;
use crate::upstream::ConcurrencyPermit;

/// How much of a request's body is thrown away after we have answered without it, and for how long.
const MAX_DRAINED_BYTES: usize = 4 << 20;
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// Takes in the body of a request that is answered already. A stream that ends with a body unread is reset, and some
/// clients then forget the answer that they have (curl: error 92); over HTTP/1 the connection could not be kept.
pub(crate) async fn drain<C: DownstreamExchange>(client: &mut C) {
    if client.is_done() {
        return;
    }
    let reading = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = client.read().await {
            read += chunk.len();
            if read > MAX_DRAINED_BYTES {
                break;
            }
        }
    };
    // Who sends more, or slowly, has had the answer, and is told by the end of the stream to stop.
    let _ = Box::pin(timeout(MAX_DRAIN, reading)).await;
}

/// A request on its way to a shard and the answer on its way back.
pub(crate) struct Exchange<'e, C> {
    forwarder: &'e Forwarder,
    client: &'e mut C,
    context: &'e mut RequestContext,
    forward: &'e Forward,
    /// What is asked; emptied once it is answered, but for the method.
    request: &'e mut Parts,
    /// Its fields while it is on its way.
    spare: RetryHeaders,
    /// Returns when a watch is over; nothing else is ever.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Whether a watch is over as soon as the event is complete that is being sent.
    is_ending: bool,
    /// For how long a shard may be silent; watches have no limit.
    limit: Option<Duration>,
    /// While the request counts among those that the shard works on.
    slot: Option<ConcurrencyPermit>,
    /// What keeps a silent watch open, where something on the way might give up on it.
    keep_alive: Option<Box<KeepAlive>>,
}

/// An answer whose head the client has been told.
struct StartedResponse {
    code: u16,
    /// Nothing follows.
    ended: bool,
    body: Download,
}

impl<'e, C: DownstreamExchange> Exchange<'e, C> {
    pub(crate) fn new(
        forwarder: &'e Forwarder,
        client: &'e mut C,
        context: &'e mut RequestContext,
        forward: &'e Forward,
        request: &'e mut Parts,
    ) -> Self {
        let over = (context.class == RequestClass::Watch).then(|| {
            let ending = StreamDeadline::new(
                forwarder.drain(context.connection()),
                &forward.sender,
                forwarder.number(),
            );
            Box::pin(ending.reached()) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        let limit = (!context.class.is_long_running()).then(|| forwarder.upstreams.response_timeout());
        Self {
            forwarder,
            client,
            context,
            forward,
            request,
            spare: RetryHeaders::default(),
            over,
            is_ending: false,
            limit,
            slot: None,
            keep_alive: None,
        }
    }

    /// Carries both; returns the code that the client got.
    pub(crate) async fn run(&mut self) -> u16 {
        match self.carry().await {
            Ok(code) => code,
            Err(failure) => self.fail(&failure).await,
        }
    }

    /// Tells the client, as far as that is still possible.
    async fn fail(&mut self, failure: &Failure) -> u16 {
        tracing::debug!(%failure, "a request did not come to its end");
        match failure {
            Failure::SlowBody => self.forwarder.telemetry.metrics.slow_body(),
            Failure::SlowReader => self.forwarder.telemetry.metrics.slow_reader(),
            _ => {}
        }
        let Some(code) = self.client.begun() else {
            return match failure.answer(self.forwarder.upstreams.unreachable()) {
                Some(answer) => {
                    self.restore();
                    let request = &*self.request;
                    let answer = answer.into_wanted_form(&request.headers, request.uri.query());
                    let answer = match &self.forward.allowed_origin {
                        Some(origin) => origin.decorate(answer),
                        None => answer,
                    };
                    answer_itself(self.forwarder, self.client, self.context, &self.request.method, answer)
                        .await
                }
                None => CLIENT_LEFT,
            };
        };
        // A watch may end between two events; anything else is broken, and must look like it.
        let cleanly = code == 200
            && self.context.class == RequestClass::Watch
            && self.context.boundary.is_between()
            && !matches!(failure, Failure::ClientLeft | Failure::SlowReader);
        if !(cleanly && self.client.end(None).await.is_ok()) {
            self.client.abort();
        }
        code
    }

    /// Carries an answer that somebody else asked for; returns the code that the client got.
    pub(crate) async fn pass_on(&mut self, answer: Response<Download>) -> u16 {
        let outcome = async {
            let mut begun = self.begin_answer(answer)?;
            self.answer(&mut begun, &mut Upload::new(Sink::Nowhere, true)).await?;
            self.conclude(begun).await
        };
        match outcome.await {
            Ok(code) => code,
            Err(failure) => self.fail(&failure).await,
        }
    }

    async fn carry(&mut self) -> Result<u16, Failure> {
        self.prepare()?;
        let mut upload = Upload::new(Sink::Nowhere, true);
        let mut begun = {
            self.enter().await?;
            let answer = self.ask(&mut upload).await;
            settle(self.slot.take(), &answer, upload.is_sent());
            let answer = answer?;
            telemetry::on_first_byte(self.context, self.forward);
            self.begin_answer(answer)?
        };
        self.answer(&mut begun, &mut upload).await?;
        self.conclude(begun).await
    }

    /// Waits until it is the turn of a request that is not carried here, if the shard has enough to do.
    pub(crate) async fn turn(mut self) -> Result<Option<ConcurrencyPermit>, Failure> {
        self.enter().await?;
        Ok(self.slot.take())
    }

    /// Waits until it is the request's turn, if the shard has enough to do.
    async fn enter(&mut self) -> Result<(), Failure> {
        let upstream = &self.forward.upstream;
        if !self.forwarder.upstreams.limits(upstream) {
            return Ok(());
        }
        let share = self.forward.share(self.context.class, &self.request.method, self.context.client);
        self.slot = self.forwarder.upstreams.enter_at_once(upstream, share);
        if self.slot.is_some() {
            return Ok(());
        }
        let began = Instant::now();
        // Boxed, because it is rare, and every request's task would have room for it.
        let entered = Box::pin(async {
            tokio::select! {
                biased;
                () = self.client.left() => Err(Failure::ClientLeft),
                () = over(&mut self.over) => Err(Failure::Over),
                entered = self.forwarder.upstreams.enter(upstream, share) => Ok(entered?),
            }
        });
        let entered = entered.await;
        self.context.seen.phase(RequestStage::Queue, began.elapsed());
        self.slot = Some(entered?);
        Ok(())
    }

    /// Makes of the request what the shard is to see.
    fn prepare(&mut self) -> Result<(), Failure> {
        let forged = upstream_request::as_sent(
            self.forwarder,
            self.forward,
            self.request,
            self.context.client,
            self.context.class,
        )?;
        self.forwarder.telemetry.metrics.forged(forged);
        telemetry::inject_traceparent(self.context, &mut self.request.headers);
        self.request.version = Version::HTTP_2;
        Ok(())
    }

    /// Counts what went to the shard.
    fn sent(&mut self, bytes: usize) {
        self.context.request_bytes += bytes as u64;
        self.forward.carried(bytes);
    }
}

/// Gives back the slot of a request that is answered, or will not be. `is_sent`: the server had all of it.
fn settle(slot: Option<ConcurrencyPermit>, answer: &Result<Response<Download>, Failure>, is_sent: bool) {
    let Some(slot) = slot else { return };
    match answer {
        Ok(answer) if is_turned_away(answer) => slot.overloaded(),
        // A client may have asked for that (`?timeout=1s`): it says nothing about the server.
        Ok(answer) if answer.status() == StatusCode::GATEWAY_TIMEOUT => drop(slot),
        Ok(_) => slot.answered(),
        Err(Failure::Timeout) if is_sent => slot.overloaded(),
        Err(_) => drop(slot),
    }
}

/// Whether a server says that it has too much to do. Kubernetes' API servers, kcp's shards among them, say so in plain words
/// before anything has looked at the request, whether the limit is that of requests in flight or one of priority and fairness. A
/// `Status` with that code is an answer like any other: whom a disruption budget keeps from evicting a pod gets one, as often
/// as he likes. The headers of priority and fairness do not tell them apart, for every answer has them.
fn is_turned_away(answer: &Response<Download>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    answer.status() == StatusCode::TOO_MANY_REQUESTS && kind.starts_with(b"text/plain")
}

/// Returns when a shard has been silent for too long.
async fn silence(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// Returns when a watch is over.
async fn over(ending: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match ending {
        Some(ending) => ending.await,
        None => pending().await,
    }
}
