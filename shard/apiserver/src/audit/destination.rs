//! A destination of audit events: its queue, and the worker that empties it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus::IntCounterVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::batch::{BatchOptions, TokenBucket};
use super::event::Event;
use super::log_file::LogFile;
use super::webhook::AuditWebhook;

/// Bytes of events that wait in one queue at most.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Events that wait for a worker that does not batch.
const UNBATCHED_QUEUE: usize = 10_000;
/// Events that a worker takes at once if it does not batch: requests that wait at the same time share a write.
const GROUP: usize = 256;
/// Batches that are sent to a webhook at the same time.
const MAX_CONCURRENT_BATCHES: usize = 8;
/// The largest event without a configured limit. Bodies are bounded already, so only a fault exceeds it.
const MAX_EVENT_BYTES: usize = 32 << 20;
/// Time that queued events have at the end of the process.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// The relation between a request and the storage of its events.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// The response waits until an event is stored.
    Blocking,
    /// As [`Blocking`](Self::Blocking); and a request whose first event cannot be stored is refused.
    BlockingStrict,
    /// Events are stored later, in batches.
    Batch(BatchOptions),
}

/// The limits by which events are shortened.
#[derive(Clone, Copy, Debug)]
pub struct Truncation {
    /// Bytes of an event; a larger one loses its objects.
    pub max_event_bytes: usize,
    /// Bytes of a batch; a larger one is split.
    pub max_batch_bytes: usize,
}

/// The form of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineFormat {
    /// An `Event` of `audit.k8s.io/v1`.
    Json,
    /// A line of text, for log files only.
    Legacy,
}

/// The settings of a destination.
#[derive(Clone, Copy, Debug)]
pub struct DestinationOptions {
    /// The form of events.
    pub format: LineFormat,
    /// When events are stored.
    pub mode: Mode,
    /// Limits of sizes.
    pub truncation: Option<Truncation>,
}

pub(super) enum Writer {
    /// `None` while a write is in progress.
    Log(Option<LogFile>),
    Webhook(Arc<AuditWebhook>),
}

impl Writer {
    fn plugin(&self, options: &DestinationOptions) -> &'static str {
        match (self, options.mode) {
            (_, Mode::Batch(_)) => "buffered",
            (Self::Log(_), _) => "log",
            (Self::Webhook(_), _) => "webhook",
        }
    }
}

/// The end of a queue that requests use.
pub(super) struct Destination {
    queue: mpsc::Sender<Entry>,
    memory: Arc<Semaphore>,
    options: DestinationOptions,
    plugin: &'static str,
    errors: IntCounterVec,
}

/// An event in the queue.
struct Entry {
    event: Bytes,
    /// Informed when the event is stored, or lost.
    stored: Option<oneshot::Sender<bool>>,
    memory: OwnedSemaphorePermit,
}

/// Writes the events of one destination. Must run until the last request has been served.
pub struct AuditWorker {
    writer: Writer,
    queue: mpsc::Receiver<Entry>,
    options: DestinationOptions,
    plugin: &'static str,
    errors: IntCounterVec,
}

/// The two ends of a destination.
pub(super) fn open(
    writer: Writer,
    options: DestinationOptions,
    errors: IntCounterVec,
) -> (Destination, AuditWorker) {
    let capacity = match options.mode {
        Mode::Batch(batch) => batch.buffer_size,
        Mode::Blocking | Mode::BlockingStrict => UNBATCHED_QUEUE,
    };
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let plugin = writer.plugin(&options);
    let memory = Arc::new(Semaphore::new(MAX_QUEUED_BYTES));
    let destination = Destination { queue: sender, memory, options, plugin, errors: errors.clone() };
    (destination, AuditWorker { writer, queue: receiver, options, plugin, errors })
}

impl Destination {
    /// Sends an event. Returns false if it is not stored and the destination is strict.
    pub(super) async fn send(&self, event: &Event) -> bool {
        if matches!(self.options.mode, Mode::Batch(_)) {
            self.queue(event);
            return true;
        }
        let is_stored = self.store(event).await;
        is_stored || !matches!(self.options.mode, Mode::BlockingStrict)
    }

    async fn store(&self, event: &Event) -> bool {
        let Some(event) = self.encoded(event) else { return false };
        let Ok(memory) = self.memory.clone().acquire_many_owned(weight(&event)).await else { return false };
        let (stored, is_stored) = oneshot::channel();
        if self.queue.send(Entry { event, stored: Some(stored), memory }).await.is_err() {
            self.lose(1, "the audit log is closed");
            return false;
        }
        is_stored.await.unwrap_or(false)
    }

    /// Queues an event; it is lost if the queue is full.
    pub(super) fn queue(&self, event: &Event) {
        let Some(event) = self.encoded(event) else { return };
        let memory = self.memory.clone().try_acquire_many_owned(weight(&event));
        let queued =
            memory.is_ok_and(|memory| self.queue.try_send(Entry { event, stored: None, memory }).is_ok());
        if !queued {
            self.lose(1, "audit buffer queue blocked");
        }
    }

    fn encoded(&self, event: &Event) -> Option<Bytes> {
        if self.options.format == LineFormat::Legacy {
            return Some(event.legacy_line());
        }
        let limit = self.options.truncation.map_or(MAX_EVENT_BYTES, |truncation| truncation.max_event_bytes);
        let encoded = event.encode(limit.min(MAX_EVENT_BYTES));
        if encoded.is_none() {
            self.lose(1, "event is too large even after truncating");
        }
        encoded
    }

    fn lose(&self, count: u64, reason: &str) {
        lose(&self.errors, self.plugin, count, reason);
    }
}

fn lose(errors: &IntCounterVec, plugin: &'static str, count: u64, reason: &str) {
    errors.with_label_values(&[plugin]).inc_by(count);
    tracing::warn!(plugin, count, reason, "audit events are lost");
}

/// The share of the queue's memory that an event takes.
fn weight(event: &Bytes) -> u32 {
    u32::try_from(event.len().min(MAX_QUEUED_BYTES)).unwrap_or(u32::MAX)
}

impl AuditWorker {
    /// Writes events until `end`, then those that are still queued, within some seconds.
    pub async fn run(mut self, end: impl Future<Output = ()> + Send) {
        let mut end = std::pin::pin!(end);
        let mut bucket = match self.options.mode {
            Mode::Batch(BatchOptions { throttle: Some(throttle), .. }) => Some(TokenBucket::new(throttle)),
            Mode::Batch(_) | Mode::Blocking | Mode::BlockingStrict => None,
        };
        let mut sending = JoinSet::new();
        loop {
            let mut batch = Vec::new();
            // Events that are in an incomplete batch at the end stay in it.
            let is_over = tokio::select! {
                () = fill_batch(&mut self.queue, self.options.mode, &mut batch) => batch.is_empty(),
                () = &mut end => true,
            };
            if let Some(bucket) = bucket.as_mut().filter(|_| !is_over) {
                let pause = bucket.take();
                tokio::select! {
                    () = sleep(pause) => {}
                    () = &mut end => {}
                }
            }
            self.write(batch, &mut sending).await;
            if is_over {
                break;
            }
        }
        let deadline = Instant::now() + FLUSH_TIME;
        self.queue.close();
        let flushed = timeout_at(deadline, async {
            let mut rest = Vec::new();
            while self.queue.recv_many(&mut rest, GROUP).await > 0 {
                self.write(std::mem::take(&mut rest), &mut sending).await;
            }
            while sending.join_next().await.is_some() {}
        });
        if flushed.await.is_err() {
            lose(&self.errors, self.plugin, self.queue.len() as u64, "the process ends");
        }
    }

    /// Writes a batch, split by the limits of sizes. A webhook takes several at the same time.
    async fn write(&mut self, batch: Vec<Entry>, sending: &mut JoinSet<()>) {
        let limit = self.options.truncation.map_or(usize::MAX, |truncation| truncation.max_batch_bytes);
        for part in split(batch, limit).into_iter().filter(|part| !part.is_empty()) {
            let (errors, plugin) = (self.errors.clone(), self.plugin);
            let events: Vec<Bytes> = part.iter().map(|entry| entry.event.clone()).collect();
            match &mut self.writer {
                Writer::Log(slot) => {
                    let written = write_file(slot, events).await;
                    finish(part, written, &errors, plugin);
                }
                Writer::Webhook(webhook) => {
                    while sending.len() >= MAX_CONCURRENT_BATCHES {
                        sending.join_next().await;
                    }
                    let webhook = Arc::clone(webhook);
                    sending.spawn(async move {
                        let sent = webhook.write(&events).await;
                        finish(part, sent.map_err(|error| error.to_string()), &errors, plugin);
                    });
                }
            }
        }
    }
}

/// Writes to a file outside of the runtime's workers, because a disk can be slow.
async fn write_file(slot: &mut Option<LogFile>, events: Vec<Bytes>) -> Result<(), String> {
    let Some(mut file) = slot.take() else { return Err("the log file is closed".to_owned()) };
    let written = tokio::task::spawn_blocking(move || {
        let written = file.write(&events);
        (file, written)
    });
    let (file, written) = written.await.map_err(|error| error.to_string())?;
    *slot = Some(file);
    written.map_err(|error| error.to_string())
}

/// Informs the requests that wait for their events.
fn finish(batch: Vec<Entry>, outcome: Result<(), String>, errors: &IntCounterVec, plugin: &'static str) {
    if let Err(reason) = &outcome {
        lose(errors, plugin, batch.len() as u64, reason);
    }
    for Entry { event: _, stored, memory } in batch {
        drop(memory);
        // A request that was aborted does not wait any more.
        let _ = stored.map(|stored| stored.send(outcome.is_ok()));
    }
}

/// Takes the next events; none when the queue is closed. May be cancelled: the events that it has taken are in `batch`.
async fn fill_batch(queue: &mut mpsc::Receiver<Entry>, mode: Mode, batch: &mut Vec<Entry>) {
    let Mode::Batch(options) = mode else {
        queue.recv_many(batch, GROUP).await;
        return;
    };
    if queue.recv_many(batch, options.max_size.max(1)).await == 0 {
        return;
    }
    let deadline = Instant::now() + options.max_wait;
    while batch.len() < options.max_size {
        let room = options.max_size - batch.len();
        match timeout_at(deadline, queue.recv_many(batch, room)).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
}

/// Splits a batch so that each part but single events has at most `limit` bytes.
fn split(batch: Vec<Entry>, limit: usize) -> Vec<Vec<Entry>> {
    let mut parts = Vec::new();
    let (mut part, mut size) = (Vec::new(), 0_usize);
    for entry in batch {
        if !part.is_empty() && size.saturating_add(entry.event.len()) > limit {
            parts.push(std::mem::take(&mut part));
            size = 0;
        }
        size = size.saturating_add(entry.event.len());
        part.push(entry);
    }
    parts.push(part);
    parts
}
