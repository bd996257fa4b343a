//! The body of a request on its way to a server.

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

use crate::forward::downstream::DownstreamExchange;
use crate::forward::failure::Failure;
use crate::policy::client_address::is_word_of_carriers;
use crate::policy::connection_backlog::ConnectionBacklog;
use crate::policy::request_filter::impersonates;
use crate::request::identity_headers::TrustedIdentityHeaders;
use crate::request::is_hop_by_hop;
use crate::upstream::BodyPart;

/// How long a server may take over a body is said elsewhere.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// Bytes that earn a client one more second.
const LEAST_RATE: u64 = 512;

/// Where the body goes.
pub(crate) enum Sink {
    Http2(SendStream<Bytes>),
    Http1(mpsc::Sender<BodyPart>),
    /// Nowhere: it means nothing, or nobody wants it any more.
    Nowhere,
}

/// A body and how far it has come.
pub(crate) struct Upload {
    sink: Sink,
    /// Read from the client and not sent yet.
    chunk: Bytes,
    /// Boxed, because they are rare.
    trailers: Option<Box<HeaderMap>>,
    /// Further headers by which the server is told who asks.
    believed: Option<Arc<TrustedIdentityHeaders>>,
    /// Bytes that the client has sent, and for how long it was waited for.
    received: u64,
    waited: Duration,
    /// Nothing more is to be read from the client.
    read: bool,
    /// Nothing more is to be sent.
    sent: bool,
    consumed: bool,
}

impl Upload {
    /// `read`: the client has nothing more to say.
    pub(crate) fn new(sink: Sink, read: bool) -> Self {
        let sent = matches!(sink, Sink::Nowhere);
        Self {
            sink,
            chunk: Bytes::new(),
            trailers: None,
            believed: None,
            received: 0,
            waited: Duration::ZERO,
            read,
            sent: sent || read,
            consumed: false,
        }
    }

    /// The same without what these headers say: the server would believe them in trailers, too.
    pub(crate) fn hiding(self, believed: Option<&Arc<TrustedIdentityHeaders>>) -> Self {
        Self { believed: believed.cloned(), ..self }
    }

    /// Whether the server has all of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    /// Whether a part of the body was taken from the client, so that the request cannot be made again.
    pub(crate) fn is_consumed(&self) -> bool {
        self.consumed
    }

    /// Does the next bit of work and returns how many bytes it sent. When everything was sent it waits for the client
    /// to go away, which for a body that is not there yet may take `patience`. May be dropped at any time.
    pub(crate) async fn step<C: DownstreamExchange>(
        &mut self,
        client: &mut C,
        backlog: &ConnectionBacklog,
        patience: Duration,
    ) -> Result<usize, Failure> {
        if !self.chunk.is_empty() {
            let sent = match self.send_some().now_or_never() {
                Some(sent) => sent,
                // Boxed, because it is large, and mostly there is room.
                None => Box::pin(self.send_some_in_time(client, backlog)).await?,
            };
            backlog.drained(sent);
            return Ok(sent);
        }
        if !self.read {
            // What nobody wants is thrown away as fast as it comes: frames that wait count against the client.
            let next = loop {
                match self.read_some(client, patience).await? {
                    Some(_) if self.sent => {}
                    next => break next,
                }
            };
            match next {
                Some(chunk) => (self.chunk, self.consumed) = (chunk, true),
                None => {
                    // Trailers that nobody reads keep a stream from being at its end.
                    let believed = self.believed.as_deref();
                    let trailers = client.trailers().await?;
                    self.trailers = trailers.map(|trailers| Box::new(without_claims(trailers, believed)));
                    self.consumed |= self.trailers.is_some();
                    self.read = true;
                }
            }
            return Ok(0);
        }
        if !self.sent {
            self.finish().await;
            return Ok(0);
        }
        client.left().await;
        Err(Failure::ClientLeft)
    }

    /// Only the time counts for which the client was waited for: the server may be slow, too.
    async fn read_some<C: DownstreamExchange>(
        &mut self,
        client: &mut C,
        patience: Duration,
    ) -> Result<Option<Bytes>, Failure> {
        let earned = Duration::from_secs(self.received / LEAST_RATE);
        let began = Instant::now();
        let read = timeout((patience + earned).saturating_sub(self.waited), client.read());
        let next = read.await.map_err(|_| Failure::SlowBody)??;
        self.waited += began.elapsed();
        self.received += next.as_ref().map_or(0, Bytes::len) as u64;
        Ok(next)
    }

    /// Waits for room, as long as its client does and not too much waits.
    async fn send_some_in_time<C: DownstreamExchange>(
        &mut self,
        client: &mut C,
        backlog: &ConnectionBacklog,
    ) -> Result<usize, Failure> {
        let waiting = client.unsent();
        tokio::select! {
            biased;
            sent = self.send_some() => Ok(sent),
            () = client.gone() => Err(Failure::ClientLeft),
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
            // Boxed, because it is larger than all the rest, and servers without HTTP/2 are rare.
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
            // It has answered, or will fail, without the rest.
            (self.chunk, self.sink, self.sent) = (Bytes::new(), Sink::Nowhere, true);
            0
        })
    }

    async fn finish(&mut self) {
        match &mut self.sink {
            Sink::Http2(stream) => {
                // A stream that is over needs no end.
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

/// The library may say that there is room where there is none any more; a part without a byte means nothing, and counts against
/// whoever sends it.
pub(crate) async fn some_room(stream: &mut SendStream<Bytes>) -> Option<Result<usize, h2::Error>> {
    loop {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(Ok(0)) => {}
            room => return room,
        }
    }
}

/// Trailers say nothing about who sends them and from where, nor about the message that they end.
fn without_claims(mut trailers: HeaderMap, believed: Option<&TrustedIdentityHeaders>) -> HeaderMap {
    use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST};
    fairlead_authn::strip_identity_headers(&mut trailers);
    let unwanted = |name: &&http::HeaderName| {
        is_hop_by_hop(name)
            || matches!(**name, AUTHORIZATION | CONTENT_LENGTH | CONTENT_TYPE | COOKIE | HOST)
            || impersonates(name.as_str())
            || is_word_of_carriers(name.as_str())
            || believed.is_some_and(|believed| believed.include(name))
    };
    for name in trailers.keys().filter(unwanted).cloned().collect::<Vec<_>>() {
        trailers.remove(name);
    }
    trailers
}
