//! Many watches, idle until the backend sends one event to all of them.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::backend::{EVENT_BYTES, FIRST_EVENT_BYTES};
use crate::error::BenchError;
use crate::wire::{Connection, Protocol, RequestSpec, ResponseEvent};

/// Number of watches, and their distribution over connections.
pub(crate) struct WatchLoad {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    pub(crate) request: RequestSpec,
    pub(crate) per_connection: usize,
}

/// Open watches. Dropping it ends them. Needs a `LocalSet`.
pub(crate) struct Watches {
    load: WatchLoad,
    tally: Rc<Tally>,
    workers: Vec<JoinHandle<()>>,
    count: usize,
    events: usize,
}

#[derive(Default)]
struct Tally {
    bytes: Cell<usize>,
    expected: Cell<usize>,
    complete: Notify,
    failure: RefCell<Option<BenchError>>,
}

/// Concurrent handshakes.
const MAX_CONCURRENT: usize = 64;
/// Limit for opening, and for an event.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Watches {
    pub(crate) fn new(load: WatchLoad) -> Self {
        Self { load, tally: Rc::default(), workers: Vec::new(), count: 0, events: 0 }
    }

    /// Opens more watches. Returns the time until each had its first event.
    pub(crate) async fn open(&mut self, more: usize) -> Result<Duration, BenchError> {
        let start = Instant::now();
        let places = Rc::new(Semaphore::new(MAX_CONCURRENT));
        self.count += more;
        self.expect();
        for first in (0..more).step_by(self.load.per_connection) {
            let streams = self.load.per_connection.min(more - first);
            let (address, tls, request) =
                (self.load.address, Arc::clone(&self.load.tls), self.load.request.clone());
            let (tally, places) = (Rc::clone(&self.tally), Rc::clone(&places));
            self.workers.push(tokio::task::spawn_local(async move {
                if let Err(error) = follow(address, &tls, &request, streams, &tally, &places).await {
                    tally.failure.borrow_mut().get_or_insert(error);
                    tally.complete.notify_one();
                }
            }));
        }
        self.completed().await?;
        Ok(start.elapsed())
    }

    /// Waits until every watch has one more event, which `send` triggers. Returns the time that this took.
    pub(crate) async fn event(
        &mut self,
        send: impl Future<Output = Result<(), BenchError>>,
    ) -> Result<Duration, BenchError> {
        self.events += 1;
        self.expect();
        let start = Instant::now();
        send.await?;
        self.completed().await?;
        Ok(start.elapsed())
    }

    /// The bytes of all events so far, if all watches were opened before the first event.
    fn expect(&self) {
        self.tally.expected.set(self.count * (FIRST_EVENT_BYTES + self.events * EVENT_BYTES));
    }

    async fn completed(&self) -> Result<(), BenchError> {
        let tally = &self.tally;
        while tally.bytes.get() < tally.expected.get() {
            let waited = tokio::time::timeout(TIMEOUT, tally.complete.notified()).await;
            if let Some(error) = tally.failure.take() {
                return Err(error);
            }
            if waited.is_err() {
                let (got, of) = (tally.bytes.get(), tally.expected.get());
                return Err(BenchError::unexpected(format!("of {of} bytes of events, {got} have arrived")));
            }
        }
        Ok(())
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

async fn follow(
    address: SocketAddr,
    tls: &Arc<rustls::ClientConfig>,
    request: &RequestSpec,
    streams: usize,
    tally: &Tally,
    places: &Semaphore,
) -> Result<(), BenchError> {
    let mut place = places.acquire().await.ok();
    let mut connection = Connection::open(address, tls, Protocol::Http2, request).await?;
    for _ in 0..streams {
        connection.send();
    }
    let (mut events, mut own) = (Vec::new(), 0);
    loop {
        connection.flush().await?;
        connection.receive(&mut events).await?;
        for event in events.drain(..) {
            match event {
                ResponseEvent::Data { length, .. } => {
                    own += length;
                    tally.bytes.set(tally.bytes.get() + length);
                }
                ResponseEvent::Head { is_success: true, .. } => {}
                _ => return Err(BenchError::unexpected("a watch was rejected or has ended")),
            }
        }
        if own >= streams * FIRST_EVENT_BYTES {
            place.take();
        }
        if tally.bytes.get() >= tally.expected.get() {
            tally.complete.notify_one();
        }
    }
}
