//! The connection pool of one endpoint: a few multiplexed connections, dialled one at a time and replaced when they break or
//! when the credentials change.
//!
//! The lock is held to inspect a few entries, never across I/O.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::connection::{Connection, dial};
use crate::credentials::Credentials;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::request_body::RequestBody;
use crate::revision::SeenRevision;

pub(crate) struct Pool {
    endpoint: Endpoint,
    options: ClientOptions,
    credentials: Arc<ArcSwap<Credentials>>,
    revision: SeenRevision,
    state: Mutex<State>,
}

/// The right to send one request. The connection counts it as in flight until it is dropped.
pub(crate) enum Lease {
    Http2 { sender: http2::SendRequest<RequestBody>, in_flight: InFlight },
    Http1(Exclusive),
}

/// Counts one request of a multiplexed connection.
pub(crate) struct InFlight(Arc<AtomicUsize>);

/// A connection for one request at a time, with a reference to its pool.
pub(crate) struct Exclusive {
    pub(crate) sender: http1::SendRequest<RequestBody>,
    credentials: Arc<Credentials>,
    pool: Weak<Pool>,
}

impl Pool {
    pub(crate) fn new(
        endpoint: Endpoint,
        credentials: Arc<ArcSwap<Credentials>>,
        options: ClientOptions,
    ) -> Arc<Self> {
        let state = State {
            multiplexed: Vec::new(),
            idle: Vec::new(),
            dial: None,
            backoff: Backoff::new(FIRST_REDIAL, LONGEST_REDIAL),
            not_before: None,
            dials: 0,
        };
        let revision = SeenRevision::default();
        Arc::new(Self { endpoint, options, credentials, revision, state: Mutex::new(state) })
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.options
    }

    pub(crate) fn credentials(&self) -> &ArcSwap<Credentials> {
        &self.credentials
    }

    /// The revision for requests; `None` if the server has no replicas.
    pub(crate) fn revision(&self) -> Option<&SeenRevision> {
        self.options.follows_revisions.then_some(&self.revision)
    }

    /// Sends no further requests on a connection. Those that it has go on.
    pub(crate) fn retire(&self, in_flight: &InFlight) {
        let mut state = self.state.lock();
        state.multiplexed.retain(|connection| !Arc::ptr_eq(&connection.in_flight, &in_flight.0));
    }

    /// The right to use a connection: the least loaded one, or the one that is being dialled.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease, ClientError> {
        loop {
            let dialling = match self.lease_or_dial() {
                Ok(lease) => return Ok(lease),
                Err(dialling) => dialling,
            };
            dialling.await?;
        }
    }

    fn lease_or_dial(self: &Arc<Self>) -> Result<Lease, DialOutcome> {
        let current = self.credentials.load_full();
        let mut state = self.state.lock();
        state.remove_closed();
        // Connections with older credentials only finish their requests.
        state.multiplexed.retain(|c| Arc::ptr_eq(&c.credentials, &current));
        state.idle.retain(|c| !c.sender.is_closed() && Arc::ptr_eq(&c.credentials, &current));
        let count = state.multiplexed.len();
        let least = state.multiplexed.iter().min_by_key(|c| c.in_flight.load(Ordering::Relaxed)).map(|c| {
            let is_full = c.in_flight.load(Ordering::Relaxed) >= self.options.streams_per_connection;
            (Lease::Http2 { sender: c.sender.clone(), in_flight: InFlight::count(&c.in_flight) }, is_full)
        });
        if let Some((lease, is_full)) = least {
            if is_full && count < self.options.max_connections {
                // Later requests use it; this one does not wait.
                drop(state.dial(self));
            }
            return Ok(lease);
        }
        match state.idle.pop() {
            Some(connection) => Ok(Lease::Http1(connection)),
            None => Err(state.dial(self)),
        }
    }

    /// Opens a connection and adds it to the pool. Waits for the back-off after a failed attempt.
    async fn dial(self: Arc<Self>, not_before: Option<Instant>, attempt: usize) -> Result<(), ClientError> {
        if let Some(time) = not_before {
            tokio::time::sleep_until(time).await;
        }
        let credentials = self.credentials.load_full();
        let limit = self.options.connect_timeout;
        let dialling = dial(&self.endpoint, &credentials, &self.options, attempt);
        let result = tokio::time::timeout(limit, dialling).await.unwrap_or_else(|_| {
            let subject = format!("dialling {}:{}", self.endpoint.host(), self.endpoint.port());
            Err(ClientError::Timeout { subject: subject.into(), after: limit })
        });
        let mut state = self.state.lock();
        state.dial = None;
        match result {
            Ok(connection) => {
                state.not_before = None;
                match connection {
                    Connection::Http2(sender) => {
                        state.multiplexed.push(Multiplexed {
                            sender,
                            in_flight: Arc::new(AtomicUsize::new(0)),
                            credentials,
                            since: Instant::now(),
                        });
                    }
                    Connection::Http1(sender) => {
                        state.backoff.reset();
                        let pool = Arc::downgrade(&self);
                        state.idle.push(Exclusive { sender, credentials, pool });
                    }
                }
                Ok(())
            }
            Err(error) => {
                state.not_before = Some(Instant::now() + state.backoff.next_delay());
                Err(error)
            }
        }
    }
}

impl Exclusive {
    /// Returns the connection to the pool, after its response was read to the end.
    pub(crate) fn return_to_pool(self) {
        if let Some(pool) = self.pool.upgrade() {
            let mut state = pool.state.lock();
            if state.idle.len() < pool.options.max_connections {
                state.idle.push(self);
            }
        }
    }
}

impl InFlight {
    fn count(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Delays after failed dials. They are short: callers have their own back-off, and this one only prevents many callers from
/// dialling in a tight loop.
const FIRST_REDIAL: Duration = Duration::from_millis(50);
const LONGEST_REDIAL: Duration = Duration::from_secs(1);

type DialOutcome = Shared<BoxFuture<'static, Result<(), ClientError>>>;

struct State {
    multiplexed: Vec<Multiplexed>,
    idle: Vec<Exclusive>,
    dial: Option<DialOutcome>,
    backoff: Backoff,
    not_before: Option<Instant>,
    /// Number of dials so far. Each begins with another address of the server, because one may accept and never respond.
    dials: usize,
}

struct Multiplexed {
    sender: http2::SendRequest<RequestBody>,
    in_flight: Arc<AtomicUsize>,
    credentials: Arc<Credentials>,
    since: Instant,
}

impl State {
    /// Removes closed connections. A server that closes connections right after accepting them is treated like one that cannot
    /// be connected to.
    fn remove_closed(&mut self) {
        const SHORT_LIVED: Duration = Duration::from_secs(1);
        let now = Instant::now();
        for closed in self.multiplexed.extract_if(.., |connection| connection.sender.is_closed()) {
            if now.duration_since(closed.since) < SHORT_LIVED {
                self.not_before = Some(now + self.backoff.next_delay());
            } else {
                self.backoff.reset();
            }
        }
    }

    /// Joins the running dial or starts one. It runs as a task of its own, limited by the connect timeout, so that a cancelled
    /// caller does not stop it for the others.
    fn dial(&mut self, pool: &Arc<Pool>) -> DialOutcome {
        if let Some(dial) = &self.dial {
            return dial.clone();
        }
        let (done, outcome) = oneshot::channel();
        let pool = pool.clone();
        let (not_before, attempt) = (self.not_before, self.dials);
        self.dials = attempt.wrapping_add(1);
        let endpoint: Arc<str> = pool.endpoint.to_string().into();
        tokio::spawn(async move {
            // All callers may have been cancelled; the connection is added to the pool nevertheless.
            let _ = done.send(pool.dial(not_before, attempt).await);
        });
        let outcome = async move {
            outcome.await.unwrap_or_else(|stopped| {
                Err(ClientError::Closed { subject: endpoint, source: Arc::new(stopped) })
            })
        };
        let outcome = outcome.boxed().shared();
        self.dial = Some(outcome.clone());
        outcome
    }
}
