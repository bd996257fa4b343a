//! The request body on its way upstream.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::SendStream;
use http::HeaderMap;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::forward::body_copy::BodyCopy;
use crate::forward::downstream::DownstreamExchange;
use crate::forward::failure::Failure;
use crate::policy::client_address::is_proxy_header;
use crate::policy::connection_backlog::ConnectionBacklog;
use crate::policy::request_filter::is_impersonation_header;
use crate::request::identity_headers::TrustedIdentityHeaders;
use crate::request::is_hop_by_hop;
use crate::upstream::BodyPart;

/// No limit on the time for which an upstream reads nothing: the response timeout limits it.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// Bytes that extend the client's deadline by one second.
const LEAST_RATE: u64 = 512;
/// Limit of all extensions. Without it a body of 3 MiB at the lowest rate would hold a stream to a shard for 100 minutes.
const MAX_EXTENSION: Duration = Duration::from_secs(600);

/// The destination of the body.
pub(crate) enum Sink {
    Http2(SendStream<Bytes>),
    Http1(mpsc::Sender<BodyPart>),
    /// The body is dropped: it has no meaning, or the upstream wants no more.
    Nowhere,
}

/// A request body and its progress.
pub(crate) struct Upload {
    sink: Sink,
    /// Read from the client and not sent yet.
    chunk: Bytes,
    /// Boxed, because they are rare.
    trailers: Option<Box<HeaderMap>>,
    /// Further headers that the upstream trusts, for the filter of trailers.
    trusted: Option<Arc<TrustedIdentityHeaders>>,
    /// Bytes received from the client, and the time spent waiting for it.
    received: u64,
    waited: Duration,
    /// The client has sent everything.
    read: bool,
    /// The upstream has everything.
    sent: bool,
    /// The body has a meaning: what is read is kept even after a sink has failed.
    wanted: bool,
    /// The part that was read from the client, until the response begins.
    copy: BodyCopy,
}

impl Upload {
    /// An upload to this sink. `read`: the request has no body. `copy`: of nothing.
    pub(crate) fn new(sink: Sink, read: bool, copy: BodyCopy) -> Self {
        let sent = matches!(sink, Sink::Nowhere);
        Self {
            wanted: !sent,
            sink,
            chunk: Bytes::new(),
            trailers: None,
            trusted: None,
            received: 0,
            waited: Duration::ZERO,
            read,
            sent: sent || read,
            copy,
        }
    }

    /// Begins again with another sink: first with what was read before, then with the rest of the client's body. `read`: the client
    /// has sent everything. To be called only if [`may_begin_again`](Self::may_begin_again).
    pub(crate) fn begin_again(&mut self, sink: Sink, read: bool) {
        self.wanted = !matches!(sink, Sink::Nowhere);
        self.chunk = self.copy.complete().map(Bytes::copy_from_slice).unwrap_or_default();
        self.sent = (read || !self.wanted) && self.chunk.is_empty();
        (self.sink, self.read, self.trailers) = (sink, read, None);
    }

    /// Whether nothing of the body was read.
    pub(crate) fn is_untouched(&self) -> bool {
        self.copy.complete().is_some_and(<[u8]>::is_empty)
    }

    /// The same with these headers removed from trailers: the upstream would trust them there as well.
    pub(crate) fn with_trusted_headers(self, trusted: Option<&Arc<TrustedIdentityHeaders>>) -> Self {
        Self { trusted: trusted.cloned(), ..self }
    }

    /// Whether the upstream has the whole body.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    /// Whether everything that was read of the body can be sent once more.
    pub(crate) fn may_begin_again(&self) -> bool {
        self.copy.complete().is_some()
    }

    /// Drops what was kept: there will be no further attempt.
    pub(crate) fn forget(&mut self) {
        self.copy.drop_bytes();
    }

    /// Does the next step and returns the bytes sent. Once everything is sent it waits for the client to disconnect. While the body
    /// is incomplete the client has `patience` for it. Cancel-safe.
    pub(crate) async fn step<C: DownstreamExchange>(
        &mut self,
        client: &mut C,
        backlog: &ConnectionBacklog,
        patience: Duration,
    ) -> Result<usize, Failure> {
        if !self.chunk.is_empty() {
            let sent = match self.send_some().now_or_never() {
                Some(sent) => sent,
                // Boxed, because it is large, and there is usually room in the window.
                None => Box::pin(self.send_some_in_time(client, backlog)).await?,
            };
            backlog.drained(sent);
            return Ok(sent);
        }
        if !self.read {
            // An unwanted body is dropped as fast as it arrives: buffered frames would count against the client.
            let next = loop {
                match self.read_some(client, patience).await? {
                    Some(part) if self.sent => {
                        if self.wanted {
                            self.copy.add(&part);
                        }
                    }
                    next => break next,
                }
            };
            match next {
                Some(chunk) => {
                    self.copy.add(&chunk);
                    self.chunk = chunk;
                }
                None => {
                    // Unread trailers keep a stream from being complete.
                    let trusted = self.trusted.as_deref();
                    let trailers = client.trailers().await?;
                    self.trailers = trailers.map(|trailers| Box::new(without_claims(trailers, trusted)));
                    if self.trailers.is_some() {
                        self.forget();
                    }
                    self.read = true;
                }
            }
            return Ok(0);
        }
        if !self.sent {
            self.finish().await;
            return Ok(0);
        }
        client.closed().await;
        Err(Failure::ClientDisconnected)
    }

    /// Reads with a deadline that counts only time spent waiting for the client: the upstream may be slow, too.
    async fn read_some<C: DownstreamExchange>(
        &mut self,
        client: &mut C,
        patience: Duration,
    ) -> Result<Option<Bytes>, Failure> {
        let began = Instant::now();
        let allowed = waiting_time(patience, self.received);
        let read = timeout(allowed.saturating_sub(self.waited), client.read());
        let next = read.await.map_err(|_| Failure::SlowBody)??;
        self.waited += began.elapsed();
        self.received += next.as_ref().map_or(0, Bytes::len) as u64;
        Ok(next)
    }

    /// Waits for room in the window until the client disconnects or too much waits on its connection.
    async fn send_some_in_time<C: DownstreamExchange>(
        &mut self,
        client: &mut C,
        backlog: &ConnectionBacklog,
    ) -> Result<usize, Failure> {
        let waiting = client.unsent();
        tokio::select! {
            biased;
            sent = self.send_some() => Ok(sent),
            () = client.disconnected() => Err(Failure::ClientDisconnected),
            () = backlog.stalled(FOR_EVER, waiting) => Err(Failure::StalledUpload),
        }
    }

    async fn send_some(&mut self) -> usize {
        let sent = match &mut self.sink {
            Sink::Http2(stream) => {
                stream.reserve_capacity(self.chunk.len());
                match some_room(stream).await {
                    Some(Ok(room)) => {
                        let part = self.chunk.split_to(room.min(self.chunk.len()));
                        let size = part.len();
                        stream.send_data(part, false).ok().map(|()| size)
                    }
                    _ => None,
                }
            }
            // Boxed, because it is larger than the rest, and upstreams without HTTP/2 are rare.
            Sink::Http1(parts) => match Box::pin(parts.reserve()).await {
                Ok(place) => {
                    let part = std::mem::take(&mut self.chunk);
                    let size = part.len();
                    place.send(BodyPart::Frame(Frame::data(part)));
                    Some(size)
                }
                Err(_) => None,
            },
            Sink::Nowhere => None,
        };
        sent.unwrap_or_else(|| {
            // The upstream has responded, or failed, without the rest.
            (self.chunk, self.sink, self.sent) = (Bytes::new(), Sink::Nowhere, true);
            0
        })
    }

    async fn finish(&mut self) {
        match &mut self.sink {
            Sink::Http2(stream) => {
                // A stream that was reset needs no end.
                let _ = match self.trailers.take() {
                    Some(trailers) => stream.send_trailers(*trailers),
                    None => stream.send_data(Bytes::new(), true),
                };
            }
            Sink::Http1(parts) => {
                if self.trailers.is_some()
                    && let Ok(place) = Box::pin(parts.reserve()).await
                    && let Some(trailers) = self.trailers.take()
                {
                    place.send(BodyPart::Frame(Frame::trailers(*trailers)));
                }
                if let Ok(place) = Box::pin(parts.reserve()).await {
                    place.send(BodyPart::End);
                }
            }
            Sink::Nowhere => {}
        }
        self.sent = true;
    }
}

/// The time that the gateway waits for a client in all, if it has received this many bytes.
fn waiting_time(timeout: Duration, received: u64) -> Duration {
    timeout + Duration::from_secs(received / LEAST_RATE).min(MAX_EXTENSION)
}

/// Waits for room in the window. The library may report a capacity of 0; an empty DATA frame is useless, and counts against
/// the sender.
pub(crate) async fn some_room(stream: &mut SendStream<Bytes>) -> Option<Result<usize, h2::Error>> {
    loop {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(Ok(0)) => {}
            room => return room,
        }
    }
}

/// Removes from trailers what must not come from the client there: identity headers, forwarding headers, framing and routing.
fn without_claims(mut trailers: HeaderMap, trusted: Option<&TrustedIdentityHeaders>) -> HeaderMap {
    use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST};
    fairlead_authn::strip_identity_headers(&mut trailers);
    let unwanted = |name: &&http::HeaderName| {
        is_hop_by_hop(name)
            || matches!(**name, AUTHORIZATION | CONTENT_LENGTH | CONTENT_TYPE | COOKIE | HOST)
            || is_impersonation_header(name.as_str())
            || is_proxy_header(name.as_str())
            || trusted.is_some_and(|trusted| trusted.contains(name))
    };
    for name in trailers.keys().filter(unwanted).cloned().collect::<Vec<_>>() {
        trailers.remove(name);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_extend_the_deadline_up_to_a_limit() {
        let seconds = Duration::from_secs;
        for (received, expected) in
            [(0, 30), (511, 30), (512, 31), (51_200, 130), (307_200, 630), (3 << 20, 630), (u64::MAX, 630)]
        {
            assert_eq!(waiting_time(seconds(30), received), seconds(expected), "{received}");
        }
    }
}
