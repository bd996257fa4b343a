//! Forwards one request upstream and streams the response back, without intermediate tasks or channels.
//!
//! Cost of an ordinary GET beyond the protocols' own: the decision, a copy of its header bytes (for a retry), no lock of our
//! own on an open connection. An idle watch keeps this future and nothing of its request or of the response's head. Rare or
//! large parts are boxed, because every request's task reserves space for its largest state. `make bench-gateway` measures
//! time and memory.

mod relay_response;
mod send_request;
mod send_request_http1;

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Response, StatusCode, Version};
use tokio::time::sleep;

use crate::forward::body_copy::BodyCopy;
use crate::forward::downstream::DownstreamExchange;
use crate::forward::failure::Failure;
use crate::forward::keep_alive::KeepAlive;
use crate::forward::local_response::send_local_response;
use crate::forward::request_context::RequestContext;
use crate::forward::response_body::Download;
use crate::forward::retry_headers::RetryHeaders;
use crate::forward::stream_deadline::StreamDeadline;
use crate::forward::target::Forward;
use crate::forward::telemetry;
use crate::forward::upload::{Sink, Upload};
use crate::forward::{CLIENT_CLOSED_REQUEST, Forwarder, upstream_request};
use crate::request::RequestClass;
use crate::telemetry::metrics::RequestStage;
use crate::upstream::ConcurrencyPermit;

/// A request on its way upstream and the response on its way back.
pub(crate) struct Exchange<'e, C> {
    forwarder: &'e Forwarder,
    client: &'e mut C,
    context: &'e mut RequestContext,
    forward: &'e Forward,
    /// The request; emptied when the response starts, except for the method.
    request: &'e mut Parts,
    /// A compact copy of its headers, while they are in use by an attempt.
    retry_headers: RetryHeaders,
    /// Resolves when the watch's deadline has passed; `None` for requests without one.
    deadline: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The watch ends as soon as the event is complete that is being sent.
    is_ending: bool,
    /// Time for which the upstream may be silent; `None` for watches.
    limit: Option<Duration>,
    /// Held while the request counts among those that the shard works on.
    admission: Option<ConcurrencyPermit>,
    /// Writes to idle watches, so that intermediaries do not time them out.
    keep_alive: Option<Box<KeepAlive>>,
}

/// A response whose head has been sent to the client.
struct StartedResponse {
    code: u16,
    /// The response is complete.
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
        let deadline = (context.class == RequestClass::Watch).then(|| {
            let ending = StreamDeadline::new(
                forwarder.drain(context.connection()),
                &forward.identity,
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
            retry_headers: RetryHeaders::default(),
            deadline,
            is_ending: false,
            limit,
            admission: None,
            keep_alive: None,
        }
    }

    /// Forwards the request and relays the response; returns the status code that the client got.
    pub(crate) async fn run(&mut self) -> u16 {
        match self.try_run().await {
            Ok(code) => code,
            Err(failure) => self.fail(&failure).await,
        }
    }

    /// Reports a failure to the client, as far as that is still possible.
    async fn fail(&mut self, failure: &Failure) -> u16 {
        tracing::debug!(%failure, "an exchange failed");
        match failure {
            Failure::SlowBody => self.forwarder.telemetry.metrics.slow_body(),
            Failure::SlowReader => self.forwarder.telemetry.metrics.slow_reader(),
            _ => {}
        }
        let Some(code) = self.client.status_sent() else {
            return match failure.response(self.forwarder.upstreams.unreachable()) {
                Some(response) => {
                    self.restore();
                    let request = &*self.request;
                    let response = response.into_accepted_format(&request.headers, request.uri.query());
                    let response = match &self.forward.allowed_origin {
                        Some(origin) => origin.decorate(response),
                        None => response,
                    };
                    send_local_response(
                        self.forwarder,
                        self.client,
                        self.context,
                        &self.request.method,
                        response,
                    )
                    .await
                }
                None => CLIENT_CLOSED_REQUEST,
            };
        };
        // A watch may end between two events; any other response is incomplete, and must be seen to be.
        let cleanly = code == 200
            && self.context.class == RequestClass::Watch
            && self.context.framing.is_between()
            && !matches!(failure, Failure::ClientDisconnected | Failure::SlowReader);
        if !(cleanly && self.client.end(None).await.is_ok()) {
            self.client.abort();
        }
        code
    }

    /// Relays a response to a request that was sent elsewhere; returns the status code that the client got.
    pub(crate) async fn relay(&mut self, response: Response<Download>) -> u16 {
        let outcome = async {
            let mut started = self.start_response(response)?;
            self.relay_response(&mut started, &mut self.no_upload()).await?;
            self.finish_response(started).await
        };
        match outcome.await {
            Ok(code) => code,
            Err(failure) => self.fail(&failure).await,
        }
    }

    /// An upload that waits for a sink.
    fn no_upload(&self) -> Upload {
        let copy = BodyCopy::new(Arc::clone(&self.forwarder.body_copies));
        Upload::new(Sink::Nowhere, true, copy).with_trusted_headers(self.forward.trusted.as_ref())
    }

    async fn try_run(&mut self) -> Result<u16, Failure> {
        self.prepare()?;
        let mut upload = self.no_upload();
        let mut started = {
            self.acquire_admission().await?;
            let response = self.send_request(&mut upload).await;
            release_admission(self.admission.take(), &response, upload.is_sent());
            let response = response?;
            telemetry::on_first_byte(self.context, self.forward);
            self.start_response(response)?
        };
        self.relay_response(&mut started, &mut upload).await?;
        self.finish_response(started).await
    }

    /// Waits for admission only, for a request that is sent elsewhere (an upgrade).
    pub(crate) async fn admit_only(mut self) -> Result<Option<ConcurrencyPermit>, Failure> {
        self.acquire_admission().await?;
        Ok(self.admission.take())
    }

    /// Waits for admission, if the shard is at its concurrency limit.
    async fn acquire_admission(&mut self) -> Result<(), Failure> {
        let upstream = &self.forward.upstream;
        if !self.forwarder.upstreams.limits_concurrency(upstream) {
            return Ok(());
        }
        let flow_key = self.forward.flow_key(self.context.class, &self.request.method, self.context.client);
        self.admission = self.forwarder.upstreams.try_admit(upstream, flow_key);
        if self.admission.is_some() {
            return Ok(());
        }
        let began = Instant::now();
        // Boxed, because it is rare, and every request's task would reserve space for it.
        let entered = Box::pin(async {
            tokio::select! {
                biased;
                () = self.client.closed() => Err(Failure::ClientDisconnected),
                () = deadline_reached(&mut self.deadline) => Err(Failure::StreamEnded),
                entered = self.forwarder.upstreams.admit(upstream, flow_key) => Ok(entered?),
            }
        });
        let entered = entered.await;
        self.context.stats.stage(RequestStage::Queue, began.elapsed());
        self.admission = Some(entered?);
        Ok(())
    }

    /// Rewrites the request for the upstream.
    fn prepare(&mut self) -> Result<(), Failure> {
        let stripped = upstream_request::build_upstream_request(
            self.forwarder,
            self.forward,
            self.request,
            self.context.client,
            self.context.class,
        )?;
        self.forwarder.telemetry.metrics.stripped(stripped);
        telemetry::inject_traceparent(self.context, &mut self.request.headers);
        self.request.version = Version::HTTP_2;
        Ok(())
    }

    /// Counts bytes of the request body.
    fn count_sent(&mut self, bytes: usize) {
        self.context.request_bytes += bytes as u64;
        self.forward.count_bytes(bytes);
    }
}

/// Releases the admission of a request that has a response, or will not get one. `is_sent`: the upstream has the whole request.
fn release_admission(
    admission: Option<ConcurrencyPermit>,
    response: &Result<Response<Download>, Failure>,
    is_sent: bool,
) {
    let Some(admission) = admission else { return };
    match response {
        Ok(response) if is_rejection(response) => admission.overloaded(),
        // The client may have asked for that timeout (`?timeout=1s`): it says nothing about the shard's load.
        Ok(response) if response.status() == StatusCode::GATEWAY_TIMEOUT => drop(admission),
        Ok(_) => admission.response_started(),
        Err(Failure::Timeout) if is_sent => admission.overloaded(),
        Err(_) => drop(admission),
    }
}

/// Whether the upstream rejected the request because of its load. Kubernetes API servers, kcp's shards among them, send 429 as
/// `text/plain` before they look at the request, both for the limit of requests in flight and for priority and fairness. A 429 with a
/// `Status` is an ordinary response, for example to an eviction that a disruption budget forbids. The headers of priority and fairness
/// do not tell them apart, because every response has them.
fn is_rejection(response: &Response<Download>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    response.status() == StatusCode::TOO_MANY_REQUESTS && kind.starts_with(b"text/plain")
}

/// Returns after this time; never without a limit.
async fn elapsed(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// Returns when the watch's deadline has passed.
async fn deadline_reached(deadline: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match deadline {
        Some(deadline) => deadline.await,
        None => pending().await,
    }
}
