//! A reflector: lists a collection, then watches it, as long as its user requests the next event.
//!
//! [`step::Machine`] decides on each step without I/O; this file performs it.

mod list_watch;
mod status;
mod step;

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, warn};

use crate::backoff::random_fraction;
use crate::client::Client;
use crate::error::ClientError;
use crate::object::{List, ListMeta};
use crate::watch::{WatchEvent, WatchEventKind, WatchStream};
pub use list_watch::ListWatch;
pub use status::{Phase, ReflectorStatus};
use step::{Command, Delivery, Failure, Input, ReflectorState, Step};

/// Follows one collection of one server and decodes its objects into `T`, which declares only the required fields.
///
/// It runs inside [`Reflector::next`] and has no task of its own. It never fails: errors are retried, counted and
/// shown in its [`ReflectorStatus`]. An object that does not decode is skipped, counted and logged.
///
/// After an interruption it resumes from the last complete revision: events of that revision may be repeated, none is lost.
/// Objects deleted while the history was lost are absent from [`Event::Replaced`].
pub struct Reflector<T> {
    client: Client,
    source: ListWatch,
    options: ReflectorOptions,
    machine: ReflectorState,
    io: Io<T>,
    /// Whether the next page begins a list.
    at_first_page: bool,
    /// Items of the pages so far, for [`Reflector::next`].
    items: Vec<T>,
    status: watch::Sender<ReflectorStatus>,
}

/// A change of the collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<T> {
    /// All objects of the collection; others were deleted.
    Replaced {
        /// The objects.
        items: Vec<T>,
        /// The revision at which they were read.
        resource_version: String,
    },
    /// An object was added or changed.
    Applied(T),
    /// An object is gone; this is its last state.
    Deleted(T),
    /// Everything up to this revision was delivered: a point to persist and resume from.
    Progress(String),
}

/// The result of [`Reflector::next_piece`]: the same as [`Event`], but a list is delivered page by page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<T> {
    /// The next objects of a list.
    Page {
        /// The objects.
        items: Vec<T>,
        /// Whether a list begins here. The caller drops earlier pages of an unfinished list.
        is_first: bool,
        /// Revision of the list, set on its last page: objects on no page of it were deleted.
        complete_at: Option<String>,
    },
    /// An object was added or changed.
    Applied(T),
    /// An object is gone; this is its last state.
    Deleted(T),
    /// Everything up to this revision was delivered.
    Progress(String),
}

/// Times of a [`Reflector`].
#[derive(Debug, Clone)]
pub struct ReflectorOptions {
    /// Objects per page of a list.
    pub page_size: u32,
    /// Minimum timeout of a watch in requests to the server; the actual one is up to twice as long.
    pub watch_timeout: Duration,
    /// Delay after a first failure.
    pub initial_backoff: Duration,
    /// Longest delay between attempts.
    pub longest_backoff: Duration,
    /// A watch that lasted this long counts as healthy even without events.
    pub healthy_after: Duration,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            page_size: 500,
            watch_timeout: Duration::from_secs(300),
            initial_backoff: Duration::from_millis(800),
            longest_backoff: Duration::from_secs(30),
            healthy_after: Duration::from_secs(1),
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> Reflector<T> {
    /// Starts with a list.
    pub fn new(client: Client, source: ListWatch, options: ReflectorOptions) -> Self {
        let machine = ReflectorState::listing(&options);
        Self::start(client, source, options, machine)
    }

    /// Starts with a watch from a persisted revision, whose state the caller holds; lists only if the server no
    /// longer has the history since then.
    pub fn resume(
        client: Client,
        source: ListWatch,
        options: ReflectorOptions,
        resource_version: String,
    ) -> Self {
        let machine = ReflectorState::watching(&options, resource_version);
        Self::start(client, source, options, machine)
    }

    /// Waits for the next event. Cancel-safe. Holds a whole list in memory.
    pub async fn next(&mut self) -> Event<T> {
        loop {
            match self.next_piece().await {
                Piece::Page { items, is_first, complete_at } => {
                    if is_first {
                        self.items = Vec::new();
                    }
                    self.items.extend(items);
                    if let Some(resource_version) = complete_at {
                        return Event::Replaced { items: std::mem::take(&mut self.items), resource_version };
                    }
                }
                Piece::Applied(item) => return Event::Applied(item),
                Piece::Deleted(item) => return Event::Deleted(item),
                Piece::Progress(version) => return Event::Progress(version),
            }
        }
    }

    /// Waits for the next piece; holds one page of a list. Cancel-safe.
    pub async fn next_piece(&mut self) -> Piece<T> {
        loop {
            if let Some(piece) = self.advance().await {
                return piece;
            }
        }
    }

    /// The status, for readiness and metrics. The receiver outlives the reflector.
    pub fn status(&self) -> watch::Receiver<ReflectorStatus> {
        self.status.subscribe()
    }

    /// The collection.
    pub fn source(&self) -> &ListWatch {
        &self.source
    }

    fn start(client: Client, source: ListWatch, options: ReflectorOptions, machine: ReflectorState) -> Self {
        let status = watch::Sender::new(ReflectorStatus::default());
        let mut reflector = Self {
            client,
            source,
            options,
            machine,
            io: Io::Idle,
            at_first_page: true,
            items: Vec::new(),
            status,
        };
        let first = reflector.machine.first();
        reflector.execute(Duration::ZERO, first);
        reflector
    }

    /// Waits for one outcome and acts on it.
    async fn advance(&mut self) -> Option<Piece<T>> {
        match &mut self.io {
            Io::Working(work) => {
                let outcome = work.as_mut().await;
                self.io = Io::Idle;
                match outcome {
                    Outcome::Listed(Ok(page)) => self.on_page(page),
                    Outcome::Listed(Err(error)) => self.on_failure(Input::ListFailed, &error),
                    Outcome::Opened(Ok(stream)) => self.on_opened(stream),
                    Outcome::Opened(Err(error)) => self.on_failure(Input::WatchFailed, &error),
                }
            }
            Io::Watching { stream, opened, deadline } => {
                let opened = *opened;
                // A server ends its watches before the deadline. If it is silent beyond it, on a connection that cannot be
                // pinged, it is considered dead.
                match timeout_at(*deadline, stream.next()).await {
                    Ok(Some(Ok(event))) => self.on_event(event),
                    Ok(Some(Err(error))) => {
                        self.note_watch_age(opened.elapsed());
                        self.on_failure(Input::WatchFailed, &error)
                    }
                    Ok(None) | Err(_) => {
                        self.note_watch_age(opened.elapsed());
                        let step = self.machine.step(Input::WatchEnded);
                        self.follow(step, None)
                    }
                }
            }
            // Unreachable after `execute`; starting again is always correct.
            Io::Idle => {
                let first = self.machine.first();
                self.execute(Duration::ZERO, first);
                None
            }
        }
    }

    fn on_page(&mut self, page: Page<T>) -> Option<Piece<T>> {
        let Page { items, meta, skipped } = page;
        let is_first = std::mem::take(&mut self.at_first_page);
        let now = Instant::now();
        self.status.send_modify(|status| {
            status.last_contact = Some(now);
            status.skipped += skipped;
        });
        let step = self.machine.step(Input::Page {
            resource_version: meta.resource_version,
            continue_token: meta.continue_token,
        });
        self.follow(step, Some(Piece::Page { items, is_first, complete_at: None }))
    }

    fn on_opened(&mut self, stream: WatchStream) -> Option<Piece<T>> {
        let opened = Instant::now();
        let deadline = opened + self.watch_deadline();
        self.io = Io::Watching { stream, opened, deadline };
        let step = self.machine.step(Input::WatchOpened);
        self.status.send_modify(|status| {
            status.phase = Phase::Watching;
            status.synced = true;
            status.last_contact = Some(opened);
            status.last_error = None;
            status.restarts += 1;
        });
        self.follow(step, None)
    }

    fn on_event(&mut self, event: WatchEvent) -> Option<Piece<T>> {
        if event.kind == WatchEventKind::Error {
            let error = ClientError::Status(Box::new(event.status()));
            return self.on_failure(Input::WatchFailed, &error);
        }
        let now = Instant::now();
        let version = match serde_json::from_slice::<VersionOnly<'_>>(&event.object) {
            Ok(object) => object.metadata.resource_version.into_owned(),
            Err(error) => {
                let error = ClientError::decode(self.source.path().to_owned(), error);
                return self.on_failure(Input::WatchFailed, &error);
            }
        };
        let item = match event.kind {
            WatchEventKind::Added | WatchEventKind::Modified => self.decode(&event).map(Piece::Applied),
            WatchEventKind::Deleted => self.decode(&event).map(Piece::Deleted),
            WatchEventKind::Bookmark | WatchEventKind::Error => None,
        };
        let step = self.machine.step(match event.kind {
            WatchEventKind::Bookmark => Input::Bookmark { resource_version: version },
            _ => Input::Change { resource_version: version },
        });
        self.status.send_modify(|status| {
            status.last_contact = Some(now);
            if event.kind != WatchEventKind::Bookmark {
                status.last_event = Some(now);
            }
        });
        self.follow(step, item)
    }

    fn on_failure(&mut self, input: fn(Failure) -> Input, error: &ClientError) -> Option<Piece<T>> {
        debug!(path = self.source.path(), %error, "reflector interrupted");
        self.status.send_modify(|status| status.last_error = Some(error.to_string().into()));
        let step = self.machine.step(input(Failure::of(error)));
        self.follow(step, None)
    }

    /// Performs a step; `item` is the item of the input.
    fn follow(&mut self, step: Step, item: Option<Piece<T>>) -> Option<Piece<T>> {
        let Step { delivery, delay, command } = step;
        self.execute(delay, command);
        let resume_at = self.machine.resume_at();
        self.status.send_modify(|status| {
            if status.resource_version.as_deref() != resume_at {
                status.resource_version = resume_at.map(Into::into);
            }
        });
        match (delivery, item) {
            // A page that does not complete the list is delivered, too.
            (Delivery::Nothing, page @ Some(Piece::Page { .. })) | (Delivery::Item, page) => page,
            (Delivery::Replaced(version), Some(Piece::Page { items, is_first, .. })) => {
                self.status.send_modify(|status| {
                    status.synced = true;
                    status.relists += 1;
                });
                Some(Piece::Page { items, is_first, complete_at: Some(version) })
            }
            (Delivery::Progress(version), _) => Some(Piece::Progress(version)),
            (Delivery::Nothing | Delivery::Replaced(_), _) => None,
        }
    }

    fn execute(&mut self, delay: Duration, command: Command) {
        let (client, source) = (self.client.clone(), self.source.clone());
        let phase = match command {
            Command::KeepReading => return,
            Command::List { continue_token, page_size } => {
                self.at_first_page = continue_token.is_empty();
                let request = source.list_request(page_size, &continue_token);
                let work = async move {
                    sleep(delay).await;
                    let subject = request.path_and_query.clone();
                    let outcome = client.request(request).await;
                    Outcome::Listed(outcome.and_then(|response| Page::decode(&response.body, &subject)))
                };
                self.io = Io::Working(work.boxed());
                Phase::Listing
            }
            Command::Watch { resource_version } => {
                let request = source.watch_request(&resource_version, self.random_watch_timeout());
                let work = async move {
                    sleep(delay).await;
                    Outcome::Opened(client.watch_with(request).await)
                };
                self.io = Io::Working(work.boxed());
                Phase::Connecting
            }
        };
        self.status.send_modify(|status| status.phase = phase);
    }

    fn decode(&self, event: &WatchEvent) -> Option<T> {
        match serde_json::from_slice(&event.object) {
            Ok(item) => Some(item),
            Err(error) => {
                warn!(path = self.source.path(), %error, "an object does not decode and is skipped");
                self.status.send_modify(|status| status.skipped += 1);
                None
            }
        }
    }

    fn note_watch_age(&mut self, lived: Duration) {
        if lived >= self.options.healthy_after {
            self.machine.record_healthy();
        }
    }

    fn random_watch_timeout(&self) -> Duration {
        self.options.watch_timeout.mul_f64(1.0 + random_fraction())
    }

    fn watch_deadline(&self) -> Duration {
        const GRACE: Duration = Duration::from_secs(30);
        self.options.watch_timeout * 2 + GRACE
    }
}

enum Io<T> {
    Idle,
    /// A delay and a request, kept here so that they survive the cancellation of `next`.
    Working(BoxFuture<'static, Outcome<T>>),
    Watching {
        stream: WatchStream,
        opened: Instant,
        deadline: Instant,
    },
}

enum Outcome<T> {
    Listed(Result<Page<T>, ClientError>),
    Opened(Result<WatchStream, ClientError>),
}

struct Page<T> {
    items: Vec<T>,
    meta: ListMeta,
    skipped: u64,
}

impl<T: DeserializeOwned> Page<T> {
    /// Decodes in one pass, or object by object if one of them does not decode.
    fn decode(body: &[u8], subject: &str) -> Result<Self, ClientError> {
        if let Ok(List { metadata, items }) = serde_json::from_slice::<List<T>>(body) {
            return Ok(Self { items, meta: metadata, skipped: 0 });
        }
        let List { metadata, items } = serde_json::from_slice::<List<Box<RawValue>>>(body)
            .map_err(|error| ClientError::decode(subject.to_owned(), error))?;
        let mut skipped = 0;
        let decoded = items.iter().filter_map(|raw| match serde_json::from_str(raw.get()) {
            Ok(item) => Some(item),
            Err(error) => {
                warn!(path = subject, %error, "an object does not decode and is skipped");
                skipped += 1;
                None
            }
        });
        Ok(Self { items: decoded.collect(), meta: metadata, skipped })
    }
}

/// The one field of an event that a reflector itself needs.
#[derive(Deserialize)]
struct VersionOnly<'a> {
    #[serde(borrow)]
    metadata: VersionMeta<'a>,
}

#[derive(Deserialize)]
struct VersionMeta<'a> {
    #[serde(rename = "resourceVersion", borrow)]
    resource_version: std::borrow::Cow<'a, str>,
}
