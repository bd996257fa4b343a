//! Sends the request upstream: a stream on a connection, the head, and retries.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokio::time::sleep;

use crate::forward::downstream::DownstreamExchange;
use crate::forward::exchange::relay_response::remove_hop_by_hop;
use crate::forward::exchange::{Exchange, deadline_reached, elapsed};
use crate::forward::failure;
use crate::forward::failure::{Broken, Failure};
use crate::forward::response_body::Download;
use crate::forward::retry_headers::RetryHeaders;
use crate::forward::upload::{Sink, Upload};
use crate::forward::upstream_request::is_safe;
use crate::request::{REVISION, RequestClass};
use crate::telemetry::metrics::RequestStage;
use crate::upstream::{Fault, ReplicaState, StreamPermit, UpstreamError};

/// Connections tried for one request. A connection that refuses a stream is closed to new ones, so this limit is reached only
/// if new connections refuse as well.
const MAX_CONNECTIONS_TRIED: usize = 100;
/// How often a request may reach an upstream.
pub(super) const MAX_SENT: usize = 3;
/// Time for the response head of a watch whose deadline has passed.
const LATE_HEAD: Duration = Duration::from_secs(2);

/// The connection that a request is sent on.
enum UpstreamStream {
    Http2(StreamPermit),
    /// The upstream speaks HTTP/1.1 only.
    Http1,
}

/// A response head from upstream.
pub(super) enum Next<B> {
    Interim(Response<()>),
    Final(Response<B>),
}

impl<C: DownstreamExchange> Exchange<'_, C> {
    /// Sends the request and waits for the head of the response.
    pub(super) async fn send_request(&mut self, upload: &mut Upload) -> Result<Response<Download>, Failure> {
        let began = Instant::now();
        self.forward.upstream.retries.earn();
        let mut sent = 0;
        // A replica that was behind.
        let mut avoided = None;
        for _ in 0..MAX_CONNECTIONS_TRIED {
            let permit = match self.open_stream(avoided).await? {
                UpstreamStream::Http2(permit) => permit,
                // Boxed, because it is rare.
                UpstreamStream::Http1 => return Box::pin(self.send_request_over_http1(upload)).await,
            };
            let Ok(mut sender) = permit.ready().await else { continue };
            if sent == 0 {
                self.context.stats.stage(RequestStage::Connect, began.elapsed());
            }
            sent += 1;
            let (ended, done) = self.is_ended(upload);
            let required_revision = self.forward.upstream.required_revision();
            let request = self.request_to_send(required_revision);
            let (mut response_future, body) = match sender.send_request(request, ended) {
                Ok(sending) => sending,
                Err(error) => {
                    // The connection has just ended: the request was not sent.
                    tracing::debug!(%error, "a request could not be sent");
                    if sent == MAX_SENT {
                        break;
                    }
                    continue;
                }
            };
            let sink = if ended { Sink::Nowhere } else { Sink::Http2(body) };
            upload.begin_again(sink, done);
            self.record_send(upload);
            let response_future = self.head(upload, |context| {
                let next = std::task::ready!(Next::poll(&mut response_future, context));
                Poll::Ready(next.map_err(|error| Failure::of_stream(error, &permit)))
            });
            let mut response = response_future.await;
            let state = match &mut response {
                Ok(response) if required_revision.is_some() => {
                    self.forward.upstream.take_revision(response.headers_mut())
                }
                Ok(_) | Err(_) => ReplicaState::Served,
            };
            if state == ReplicaState::Behind {
                self.forward.upstream.record_failure(&permit, Fault::Behind, false);
                if sent < MAX_SENT && self.may_retry(&Failure::Refused, upload) {
                    avoided = Some(permit.address());
                    continue;
                }
            } else {
                self.record_health(&permit, response.as_ref().err(), upload.is_sent());
            }
            match response {
                Ok(response) => {
                    upload.forget();
                    return Ok(response.map(|body| Download::Http2 { body, permit }));
                }
                Err(failure) if sent < MAX_SENT && self.may_retry(&failure, upload) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Unreachable)
    }

    /// The head to send, with the revision that the replica must have passed. What a retry needs is kept as a compact copy.
    fn request_to_send(&mut self, required_revision: Option<u64>) -> Request<()> {
        self.restore();
        let headers = std::mem::take(&mut self.request.headers);
        self.retry_headers = RetryHeaders::of(&headers);
        let mut head = copy(self.request);
        *head.headers_mut() = headers;
        if let Some(revision) = required_revision {
            head.headers_mut().insert(REVISION, revision.into());
        }
        head
    }

    /// Restores the request from its compact copy, after an attempt.
    pub(super) fn restore(&mut self) {
        if self.request.headers.is_empty() {
            self.request.headers = std::mem::take(&mut self.retry_headers).unpack();
        }
    }

    /// Starts the clock of the concurrency permit once the request is sent.
    fn record_send(&mut self, upload: &Upload) {
        if let Some(admission) = &mut self.admission
            && upload.is_sent()
        {
            admission.request_sent();
        }
    }

    /// Reports the result to the health of the address that was used.
    fn record_health(&self, permit: &StreamPermit, failure: Option<&Failure>, is_sent: bool) {
        let upstream = &self.forward.upstream;
        match failure {
            None => upstream.record_success(permit),
            Some(Failure::Shard(Broken::Http2(error))) => {
                upstream.record_failure(permit, Fault::BrokeOff, !error.is_reset());
            }
            Some(Failure::Hung) => upstream.record_failure(permit, Fault::Hung, true),
            // Before the request is complete, the client is the slow one.
            Some(Failure::Timeout) if is_sent => upstream.record_failure(permit, Fault::Silent, false),
            Some(_) => {}
        }
    }

    /// Whether nothing follows the request head, and whether the client has sent everything. Evaluated at each attempt: a failed one
    /// may have read the end of the body.
    pub(super) fn is_ended(&self, upload: &Upload) -> (bool, bool) {
        let done = self.client.is_done();
        // The body of a GET or HEAD has no meaning. It is read and dropped: on a shared connection, its frames could exceed the
        // upstream's limits.
        ((done && upload.is_untouched()) || is_safe(&self.request.method), done)
    }

    /// Whether the request may be retried: its body can be sent again, it is idempotent or was not processed, and the retry budget
    /// allows it.
    pub(super) fn may_retry(&self, failure: &Failure, upload: &Upload) -> bool {
        let repeatable = match failure {
            Failure::Refused => upload.may_begin_again(),
            Failure::Shard(_) | Failure::Hung => {
                is_safe(&self.request.method) && self.context.class != RequestClass::Watch
            }
            _ => false,
        };
        repeatable && self.forwarder.upstreams.may_retry(&self.forward.upstream)
    }

    /// A stream to the upstream. Does not watch for the client's disconnection: a stream that is opened and reset at once looks like
    /// an attack to the shard (CVE-2023-44487).
    async fn open_stream(&mut self, avoided: Option<SocketAddr>) -> Result<UpstreamStream, Failure> {
        let upstream = &self.forward.upstream;
        let stream = tokio::select! {
            biased;
            () = self.client.closed() => return Err(Failure::ClientDisconnected),
            stream = self.forwarder.upstreams.stream(upstream, avoided) => stream,
        };
        match stream {
            Ok(permit) => Ok(UpstreamStream::Http2(permit)),
            Err(UpstreamError::OnlyHttp1) => Ok(UpstreamStream::Http1),
            Err(error) => {
                failure::record_connect_failure(upstream, &error);
                Err(Failure::Unreachable)
            }
        }
    }

    /// Waits for the response head and forwards interim responses. Meanwhile the request body is sent.
    pub(super) async fn head<B>(
        &mut self,
        upload: &mut Upload,
        mut next: impl FnMut(&mut std::task::Context<'_>) -> Poll<Result<Next<B>, Failure>>,
    ) -> Result<Response<B>, Failure> {
        let patience = self.forwarder.slow_clients.load().request_body_timeout.get();
        let mut silent = Duration::ZERO;
        loop {
            let pause = match &self.admission {
                Some(admission) => Some(admission.remaining().min(self.limit.unwrap_or(Duration::MAX))),
                None => self.limit.map(|limit| limit.saturating_sub(silent)),
            };
            silent = Duration::ZERO;
            let interim = tokio::select! {
                biased;
                next = poll_fn(&mut next) => match next? {
                    Next::Interim(interim) => interim,
                    Next::Final(response) => return Ok(response),
                },
                sent = upload.step(self.client, &self.context.connection().upload_backlog, patience) => {
                    self.count_sent(sent?);
                    self.record_send(upload);
                    continue;
                }
                () = elapsed(pause) => match self.admission.take() {
                    // The upstream was silent for the whole time, which counts as overload; the request may take longer.
                    Some(admission) => {
                        silent = pause.unwrap_or_default();
                        admission.expired();
                        continue;
                    }
                    None => return Err(Failure::Timeout),
                },
                () = deadline_reached(&mut self.deadline) => {
                    if self.is_ending {
                        return Err(Failure::StreamEnded);
                    }
                    // A watch that arrives while the gateway drains gets its response head and an orderly end: a refusal would look like a
                    // failure to the client.
                    self.is_ending = true;
                    self.deadline = Some(Box::pin(sleep(LATE_HEAD)));
                    continue;
                }
            };
            // 100 is sent by the gateway itself, and an unrequested 101 is not forwarded.
            if !matches!(interim.status(), StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
                // Boxed, because it is rare.
                Box::pin(self.client.interim(interim)).await?;
            }
        }
    }
}

impl Next<h2::RecvStream> {
    /// Polls for the next response head on a stream.
    fn poll(
        response_future: &mut h2::client::ResponseFuture,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Result<Self, h2::Error>> {
        // Polled first, because the final response hides interim ones.
        if let Poll::Ready(Some(interim)) = response_future.poll_informational(context) {
            return Poll::Ready(interim.map(|mut interim| {
                remove_hop_by_hop(interim.headers_mut());
                Self::Interim(interim)
            }));
        }
        Pin::new(response_future).poll(context).map(|response| response.map(Self::Final))
    }
}

pub(super) fn copy(request: &Parts) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method.clone();
    *copy.uri_mut() = request.uri.clone();
    *copy.version_mut() = request.version;
    *copy.headers_mut() = request.headers.clone();
    copy
}
