//! One request from its head to the last byte of its answer, in one straight pass.
//!
//! Cost of an ordinary GET beyond the protocols' own: the decision, a copy of its header bytes (for a second try), no lock
//! of our own on an open connection. An idle watch keeps this future and nothing of its request or its answer's head;
//! what is rare or large is boxed, because every request's task has room for the largest moment of its life and is
//! moved whole. `make bench-gateway` measures both.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri, Version};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::backend::Download;
use super::boundary::Boundary;
use super::client::Client;
use super::context::Context;
use super::failure::{self, Broken, Failure};
use super::keep_alive::{self, KeepAlive};
use super::rehearsal::{self, is_safe};
use super::spare::Spare;
use super::upload::{Sink, Upload};
use super::{CLIENT_LEFT, DataPlane, answer_itself, date, record};
use crate::core::{Core, Forward};
use crate::ending::Ending;
use crate::observe::Phase;
use crate::request::{RequestClass, connection_nominations, is_hop_by_hop};
use crate::upstream::{Fault, Lease, RequestBody, Slot, StreamPermit, UpstreamError};

/// Connections tried for one request. Each that takes no more requests is out of use from then on, so this is reached
/// only if new ones are refused as well.
const MAX_CONNECTIONS_TRIED: usize = 100;
/// How often a request may reach a server.
const MAX_SENT: usize = 3;

/// How long the rest of an event is waited for when its watch is over.
const REST_OF_EVENT: Duration = Duration::from_secs(1);

/// How much of a request's body is thrown away after we have answered without it, and for how long.
const MAX_DRAINED_BYTES: usize = 4 << 20;
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// Takes in the body of a request that is answered already. A stream that ends with a body unread is reset, and some
/// clients then forget the answer that they have (curl: error 92); over HTTP/1 the connection could not be kept.
pub(super) async fn drain<C: Client>(client: &mut C) {
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
pub(super) struct Exchange<'e, C> {
    core: &'e Core,
    client: &'e mut C,
    context: &'e mut Context,
    forward: &'e Forward,
    /// What is asked; emptied once it is answered, but for the method.
    request: &'e mut Parts,
    /// Its fields while it is on its way.
    spare: Spare,
    /// Returns when a watch is over; nothing else is ever.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Whether a watch is over as soon as the event is complete that is being sent.
    is_ending: bool,
    /// For how long a shard may be silent; watches have no limit.
    limit: Option<Duration>,
    /// While the request counts among those that the shard works on.
    slot: Option<Slot>,
    /// What keeps a silent watch open, where something on the way might give up on it.
    keep_alive: Option<Box<KeepAlive>>,
}

/// An answer whose head the client has been told.
struct Begun {
    code: u16,
    /// Nothing follows.
    ended: bool,
    body: Download,
}

/// Where a request can be sent.
enum Place {
    Http2(StreamPermit),
    /// The server speaks HTTP/1.1 only.
    Http1,
}

impl<'e, C: Client> Exchange<'e, C> {
    pub(super) fn new(
        plane: &'e DataPlane,
        client: &'e mut C,
        context: &'e mut Context,
        forward: &'e Forward,
        request: &'e mut Parts,
    ) -> Self {
        let core = &*plane.core;
        let over = (context.class == RequestClass::Watch).then(|| {
            let ending = Ending::new(core.drain(context.connection()), &forward.sender, plane.number());
            Box::pin(ending.reached()) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        let limit = (!context.class.is_long_running()).then(|| core.upstreams.response_timeout());
        Self {
            core,
            client,
            context,
            forward,
            request,
            spare: Spare::default(),
            over,
            is_ending: false,
            limit,
            slot: None,
            keep_alive: None,
        }
    }

    /// Carries both; returns the code that the client got.
    pub(super) async fn run(&mut self) -> u16 {
        match self.carry().await {
            Ok(code) => code,
            Err(failure) => self.fail(&failure).await,
        }
    }

    /// Tells the client, as far as that is still possible.
    async fn fail(&mut self, failure: &Failure) -> u16 {
        tracing::debug!(%failure, "a request did not come to its end");
        match failure {
            Failure::SlowBody => self.core.metrics.slow_body(),
            Failure::Untaken => self.core.metrics.untaken(),
            _ => {}
        }
        let Some(code) = self.client.begun() else {
            return match failure.answer(self.core.upstreams.unreachable()) {
                Some(answer) => {
                    self.restore();
                    let request = &*self.request;
                    let answer = answer.into_wanted_form(&request.headers, request.uri.query());
                    let answer = match &self.forward.allowed_origin {
                        Some(origin) => origin.decorate(answer),
                        None => answer,
                    };
                    answer_itself(self.core, self.client, self.context, &self.request.method, answer).await
                }
                None => CLIENT_LEFT,
            };
        };
        // A watch may end between two events; anything else is broken, and must look like it.
        let cleanly = code == 200
            && self.context.class == RequestClass::Watch
            && self.context.boundary.is_between()
            && !matches!(failure, Failure::ClientLeft | Failure::Untaken);
        if !(cleanly && self.client.end(None).await.is_ok()) {
            self.client.abort();
        }
        code
    }

    /// Carries an answer that somebody else asked for; returns the code that the client got.
    pub(super) async fn pass_on(&mut self, answer: Response<Download>) -> u16 {
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
            record::first_byte(self.context, self.forward);
            self.begin_answer(answer)?
        };
        self.answer(&mut begun, &mut upload).await?;
        self.conclude(begun).await
    }

    /// Waits until it is the request's turn, if the shard has enough to do.
    async fn enter(&mut self) -> Result<(), Failure> {
        let upstream = &self.forward.upstream;
        if !self.core.upstreams.limits(upstream) {
            return Ok(());
        }
        let share = self.forward.share(self.context.class, &self.request.method, self.context.client);
        self.slot = self.core.upstreams.enter_at_once(upstream, share);
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
                entered = self.core.upstreams.enter(upstream, share) => Ok(entered?),
            }
        });
        let entered = entered.await;
        self.context.seen.phase(Phase::Queue, began.elapsed());
        self.slot = Some(entered?);
        Ok(())
    }

    /// Makes of the request what the shard is to see.
    fn prepare(&mut self) -> Result<(), Failure> {
        let forged = rehearsal::as_sent(
            self.core,
            self.forward,
            self.request,
            self.context.client,
            self.context.class,
        )?;
        self.core.metrics.forged(forged);
        record::stamp(self.context, &mut self.request.headers);
        self.request.version = Version::HTTP_2;
        Ok(())
    }

    /// Sends the request and waits for the head of the answer.
    async fn ask(&mut self, upload: &mut Upload) -> Result<Response<Download>, Failure> {
        let began = Instant::now();
        self.forward.upstream.retries.earn();
        let mut sent = 0;
        for _ in 0..MAX_CONNECTIONS_TRIED {
            let permit = match self.place().await? {
                Place::Http2(permit) => permit,
                // Boxed, because it is rare.
                Place::Http1 => return Box::pin(self.ask_over_http1(upload)).await,
            };
            let Ok(mut sender) = permit.ready().await else { continue };
            if sent == 0 {
                self.context.seen.phase(Phase::Connect, began.elapsed());
            }
            sent += 1;
            let (ended, done) = self.is_ended();
            let (mut answered, body) = match sender.send_request(self.head_to_send(), ended) {
                Ok(sending) => sending,
                Err(error) => {
                    // Its connection has ended just now: it was not sent.
                    tracing::debug!(%error, "a request could not be sent");
                    if sent == MAX_SENT {
                        break;
                    }
                    continue;
                }
            };
            let sink = if ended { Sink::Nowhere } else { Sink::Http2(body) };
            *upload = Upload::new(sink, done).hiding(self.forward.believed.as_ref());
            self.note_asked(upload);
            let answered = self.head(upload, |context| {
                let next = std::task::ready!(Next::poll(&mut answered, context));
                Poll::Ready(next.map_err(|error| Failure::of_stream(error, &permit)))
            });
            let answered = answered.await;
            self.note_health(&permit, answered.as_ref().err(), upload.is_sent());
            match answered {
                Ok(answer) => return Ok(answer.map(|body| Download::Http2 { body, permit })),
                Err(failure) if sent < MAX_SENT && self.may_repeat(&failure, upload) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Unreachable)
    }

    /// The head as it is sent. What may be needed once more is kept in little room.
    fn head_to_send(&mut self) -> Request<()> {
        self.restore();
        let headers = std::mem::take(&mut self.request.headers);
        self.spare = Spare::of(&headers);
        let mut head = copy(self.request);
        *head.headers_mut() = headers;
        head
    }

    /// Makes the request whole again if it has been sent.
    fn restore(&mut self) {
        if self.request.headers.is_empty() {
            self.request.headers = std::mem::take(&mut self.spare).unpack();
        }
    }

    /// From when on the server takes its time.
    fn note_asked(&mut self, upload: &Upload) {
        if let Some(slot) = &mut self.slot
            && upload.is_sent()
        {
            slot.asked();
        }
    }

    /// Says how the address is doing that was asked.
    fn note_health(&self, permit: &StreamPermit, failure: Option<&Failure>, is_sent: bool) {
        let upstream = &self.forward.upstream;
        match failure {
            None => upstream.answered_over(permit),
            Some(Failure::Shard(Broken::Http2(error))) => {
                upstream.failed_over(permit, Fault::BrokeOff, !error.is_reset());
            }
            Some(Failure::Hung) => upstream.failed_over(permit, Fault::Hung, true),
            // Before that it is the client who takes his time.
            Some(Failure::Timeout) if is_sent => upstream.failed_over(permit, Fault::Silent, false),
            Some(_) => {}
        }
    }

    /// Whether nothing follows the head that is sent, and whether the client has nothing more to say. Asked for every
    /// attempt: one that failed may have read the end of the body.
    fn is_ended(&self) -> (bool, bool) {
        let done = self.client.is_done();
        // The body of a read means nothing. It is taken in and not passed on: its frames would count against a
        // connection that others share.
        (done || is_safe(&self.request.method), done)
    }

    /// Whether the request may be sent once more: nothing of it is lost, it changes nothing if it is done twice, and
    /// not too many are repeated.
    fn may_repeat(&self, failure: &Failure, upload: &Upload) -> bool {
        let repeatable = match failure {
            Failure::Refused => !upload.is_consumed(),
            Failure::Shard(_) | Failure::Hung => {
                is_safe(&self.request.method) && self.context.class != RequestClass::Watch
            }
            _ => false,
        };
        repeatable && self.core.upstreams.may_repeat(&self.forward.upstream)
    }

    /// A way to the shard. A client that leaves meanwhile must not be asked for: a request that is taken back at once
    /// looks like an attack to the shard (CVE-2023-44487).
    async fn place(&mut self) -> Result<Place, Failure> {
        let upstream = &self.forward.upstream;
        let place = tokio::select! {
            biased;
            () = self.client.left() => return Err(Failure::ClientLeft),
            place = self.core.upstreams.stream(upstream) => place,
        };
        match place {
            Ok(permit) => Ok(Place::Http2(permit)),
            Err(UpstreamError::OnlyHttp1) => Ok(Place::Http1),
            Err(error) => {
                failure::note_connect(upstream, &error);
                Err(Failure::Unreachable)
            }
        }
    }

    /// Waits for the head of the answer, passing on interim ones. Meanwhile the body goes the other way.
    async fn head<B>(
        &mut self,
        upload: &mut Upload,
        mut next: impl FnMut(&mut std::task::Context<'_>) -> Poll<Result<Next<B>, Failure>>,
    ) -> Result<Response<B>, Failure> {
        let patience = self.core.slow_clients.load().body.get();
        let mut silent = Duration::ZERO;
        loop {
            let pause = match &self.slot {
                Some(slot) => Some(slot.rest().min(self.limit.unwrap_or(Duration::MAX))),
                None => self.limit.map(|limit| limit.saturating_sub(silent)),
            };
            silent = Duration::ZERO;
            let interim = tokio::select! {
                biased;
                next = poll_fn(&mut next) => match next? {
                    Next::Interim(interim) => interim,
                    Next::Final(answer) => return Ok(answer),
                },
                sent = upload.step(self.client, patience) => {
                    self.sent(sent?);
                    self.note_asked(upload);
                    continue;
                }
                () = silence(pause) => match self.slot.take() {
                    // It has been silent for that long, and may be for as long as it may.
                    Some(slot) => {
                        silent = pause.unwrap_or_default();
                        slot.expired();
                        continue;
                    }
                    None => return Err(Failure::Timeout),
                },
                () = over(&mut self.over) => return Err(Failure::Over),
            };
            // These two are between neighbours: the first is ours to say, and nobody has asked for the second.
            if !matches!(interim.status(), StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
                // Boxed, because it is rare.
                Box::pin(self.client.interim(interim)).await?;
            }
        }
    }

    /// The same on a connection of its own, for a server that speaks HTTP/1.1 only.
    async fn ask_over_http1(&mut self, upload: &mut Upload) -> Result<Response<Download>, Failure> {
        self.restore();
        make_http1(self.request)?;
        let mut fresh = false;
        for _ in 0..MAX_SENT {
            let mut lease = self.lease(fresh).await?;
            let mut request = copy(self.request);
            let (ended, done) = self.is_ended();
            let (body, sink) = body_for_http1(&request, ended);
            *upload = Upload::new(sink, done).hiding(self.forward.believed.as_ref());
            let mut interims = interims_over_http1(&mut request);
            let mut sending = Box::pin(lease.sender.try_send_request(request.map(|()| body)).fuse());
            let mut final_answer = None;
            let answered = self.head(upload, |context| {
                // First, so that every interim answer from before is there when it is.
                if let Poll::Ready(answered) = sending.as_mut().poll(context) {
                    final_answer = Some(answered);
                }
                if let Poll::Ready(Some(interim)) = interims.poll_recv(context) {
                    return Poll::Ready(Ok(Next::Interim(interim)));
                }
                let Some(answered) = final_answer.take() else { return Poll::Pending };
                Poll::Ready(answered.map(Next::Final).map_err(|mut error| match error.take_message() {
                    Some(_) => Failure::Refused,
                    None => Failure::Shard(Broken::Http1(error.into_error())),
                }))
            });
            match answered.await {
                Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(Failure::Shard(Broken::Switched));
                }
                Ok(answer) => {
                    drop(sending);
                    let lease = Some(Box::new(lease));
                    return Ok(answer.map(|body| Download::Http1 { body, trailers: None, lease }));
                }
                // The server closes idle connections when it likes.
                Err(failure) if lease.reused && self.may_repeat(&failure, upload) => fresh = true,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Unreachable)
    }

    async fn lease(&mut self, fresh: bool) -> Result<Lease, Failure> {
        let (upstreams, upstream) = (&self.core.upstreams, &self.forward.upstream);
        let lease = async {
            if fresh { upstreams.fresh_lease(upstream).await } else { upstreams.lease(upstream).await }
        };
        tokio::select! {
            biased;
            () = self.client.left() => Err(Failure::ClientLeft),
            lease = lease => lease.map_err(|error| {
                failure::note_connect(upstream, &error);
                Failure::Unreachable
            }),
        }
    }

    /// Tells the client the head of the answer; returns its code and what follows.
    fn begin_answer(&mut self, answer: Response<Download>) -> Result<Begun, Failure> {
        // Nobody asks again: what a watch keeps is little.
        (self.request.uri, self.request.headers) = (Uri::default(), HeaderMap::new());
        self.spare = Spare::default();
        let (mut parts, body) = answer.into_parts();
        record::answered(self.context, &parts.headers);
        remove_hop_by_hop(&mut parts.headers);
        self.context.boundary = Boundary::of(&parts.headers);
        parts.headers.entry(header::DATE).or_insert_with(date::now);
        if let Some(origin) = &self.forward.allowed_origin {
            for (name, value) in origin.fields() {
                parts.headers.insert(name, value);
            }
        }
        let (code, ended) = (parts.status.as_u16(), body.is_end());
        self.keep_alive =
            self.context.keep_alive.and_then(|pause| KeepAlive::of(&parts, pause).map(Box::new));
        self.client.begin(parts, ended)?;
        Ok(Begun { code, ended, body })
    }

    /// Carries the body of the answer to the client. What it works on is borrowed, because a future keeps its arguments
    /// beside what becomes of them.
    async fn answer(&mut self, begun: &mut Begun, upload: &mut Upload) -> Result<(), Failure> {
        let Begun { ended, body, .. } = begun;
        let (patience, untaken) = {
            let slow = self.core.slow_clients.load();
            (slow.body.get(), slow.answer.get())
        };
        while !*ended {
            let at_once = body.data().now_or_never();
            let chunk = match at_once {
                Some(chunk) => chunk,
                None => {
                    // Nothing more for now: what there is must not wait.
                    tokio::select! {
                        biased;
                        flushed = self.client.flush() => flushed?,
                        () = over(&mut self.over) => return self.too_late(),
                        () = silence(Some(untaken)) => return Err(Failure::Untaken),
                    }
                    tokio::select! {
                        biased;
                        chunk = body.data() => chunk,
                        sent = upload.step(self.client, patience) => {
                            self.sent(sent?);
                            continue;
                        }
                        () = keep_alive::due(&mut self.keep_alive) => {
                            self.keep_open().await?;
                            continue;
                        }
                        () = silence(self.limit) => return Err(Failure::Timeout),
                        () = over(&mut self.over) => {
                            self.ends_here()?;
                            continue;
                        }
                    }
                }
            };
            let Some(chunk) = chunk.transpose()? else {
                let mut trailers = body.trailers().await?;
                if let Some(trailers) = &mut trailers {
                    fairlead_authn::strip_identity_headers(trailers);
                }
                tokio::select! {
                    biased;
                    ended = self.client.end(trailers) => ended?,
                    () = silence(Some(untaken)) => return Err(Failure::Untaken),
                }
                break;
            };
            if let Some(keep_alive) = &mut self.keep_alive {
                keep_alive.begin_again();
            }
            // A watch that never pauses must not outlive its credential.
            if over(&mut self.over).now_or_never().is_some() {
                self.ends_here()?;
            }
            let size = chunk.len();
            self.forward.carried(size);
            self.context.response_bytes += size as u64;
            self.context.boundary.pass(&chunk);
            // An end that is known already goes with the last bytes. One that comes from an error looks the same, but
            // then there is more to be had: the error.
            *ended = body.is_end() && body.data().await.transpose()?.is_none();
            tokio::select! {
                biased;
                written = self.client.write(chunk, *ended) => written?,
                () = over(&mut self.over) => return self.too_late(),
                () = silence(Some(untaken)) => return Err(Failure::Untaken),
            }
            body.release(size);
            if self.is_ending && self.context.boundary.is_between() {
                return Err(Failure::Over);
            }
        }
        Ok(())
    }

    /// Lets everybody on the way know that a silent watch is open.
    async fn keep_open(&mut self) -> Result<(), Failure> {
        // Within an event it would be a part of it.
        if !self.context.boundary.is_between() {
            return Ok(());
        }
        let untaken = self.core.slow_clients.load().answer.get();
        tokio::select! {
            biased;
            () = over(&mut self.over) => self.too_late(),
            written = self.client.write(keep_alive::BLANK, false) => Ok(written?),
            () = silence(Some(untaken)) => Err(Failure::Untaken),
        }
    }

    /// Sees a complete answer off; returns its code.
    async fn conclude(&mut self, begun: Begun) -> Result<u16, Failure> {
        begun.body.finish();
        let untaken = self.core.slow_clients.load().answer.get();
        tokio::select! {
            biased;
            flushed = self.client.flush() => flushed?,
            () = silence(Some(untaken)) => return Err(Failure::Untaken),
        }
        drain(self.client).await;
        Ok(begun.code)
    }

    /// Counts what went to the shard.
    fn sent(&mut self, bytes: usize) {
        self.context.request_bytes += bytes as u64;
        self.forward.carried(bytes);
    }

    /// The time of a watch is over. Within an event it goes on for a moment: most likely the rest is on its way.
    ///
    /// # Errors
    /// [`Failure::Over`], where it ends now.
    fn ends_here(&mut self) -> Result<(), Failure> {
        if self.context.boundary.is_between() || self.is_ending {
            return Err(Failure::Over);
        }
        self.is_ending = true;
        self.over = Some(Box::pin(tokio::time::sleep(REST_OF_EVENT)));
        Ok(())
    }

    /// The time of a watch is over, and part of an event may be on its way.
    fn too_late(&mut self) -> Result<(), Failure> {
        self.context.boundary = Boundary::Lines { is_between: false };
        Err(Failure::Over)
    }
}

/// Gives back the slot of a request that is answered, or will not be. `is_sent`: the server had all of it.
fn settle(slot: Option<Slot>, answer: &Result<Response<Download>, Failure>, is_sent: bool) {
    let Some(slot) = slot else { return };
    match answer {
        Ok(answer) => match answer.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::GATEWAY_TIMEOUT => slot.overloaded(),
            _ => slot.answered(),
        },
        Err(Failure::Timeout) if is_sent => slot.overloaded(),
        Err(_) => drop(slot),
    }
}

/// What a server says before its body.
enum Next<B> {
    Interim(Response<()>),
    Final(Response<B>),
}

impl Next<h2::RecvStream> {
    /// The next head on a stream.
    fn poll(
        answered: &mut h2::client::ResponseFuture,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Result<Self, h2::Error>> {
        // First, because the answer passes over interim ones.
        if let Poll::Ready(Some(interim)) = answered.poll_informational(context) {
            return Poll::Ready(interim.map(|mut interim| {
                remove_hop_by_hop(interim.headers_mut());
                Self::Interim(interim)
            }));
        }
        Pin::new(answered).poll(context).map(|answer| answer.map(Self::Final))
    }
}

/// Takes away what a server says about the connection to us.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let nominated: Vec<_> = connection_nominations(headers).collect();
        for name in nominated.into_iter().filter(|name| *name != header::CONTENT_LENGTH) {
            headers.remove(name);
        }
    }
    let unwanted = |name: &&header::HeaderName| is_hop_by_hop(name);
    // Mostly there is nothing.
    while let Some(name) = headers.keys().find(unwanted).cloned() {
        headers.remove(name);
    }
}

/// Makes the request one for a server that speaks HTTP/1.1: the authority goes back into `Host`.
fn make_http1(request: &mut Parts) -> Result<(), Failure> {
    const INVALID: Failure = Failure::Malformed("its target is not a URI");
    let uri = std::mem::take(&mut request.uri).into_parts();
    if let Some(authority) = uri.authority {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| INVALID)?;
        request.headers.insert(header::HOST, host);
    }
    request.uri = uri.path_and_query.ok_or(INVALID)?.into();
    request.version = Version::HTTP_11;
    Ok(())
}

/// The interim answers to a request. They are hints: more than a few at a time are not kept.
fn interims_over_http1(request: &mut Request<()>) -> mpsc::Receiver<Response<()>> {
    const KEPT: usize = 8;
    let (sender, interims) = mpsc::channel(KEPT);
    hyper::ext::on_informational(request, move |head| {
        let mut interim = Response::new(());
        *interim.status_mut() = head.status();
        *interim.headers_mut() = head.headers().clone();
        remove_hop_by_hop(interim.headers_mut());
        let _ = sender.try_send(interim);
    });
    interims
}

fn body_for_http1(request: &Request<()>, ended: bool) -> (RequestBody, Sink) {
    if ended {
        return (RequestBody::Empty, Sink::Nowhere);
    }
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let (sink, parts) = mpsc::channel(1);
    (RequestBody::Streamed { parts, length }, Sink::Http1(sink))
}

fn copy(request: &Parts) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method.clone();
    *copy.uri_mut() = request.uri.clone();
    *copy.version_mut() = request.version;
    *copy.headers_mut() = request.headers.clone();
    copy
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
