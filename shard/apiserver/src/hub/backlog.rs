//! The events between the revision from which a watch resumes and the start of its subscription.
//!
//! Three sources, by cost: the last distributed events, which are already decoded and shared by all watches that
//! resume; the rows of the watched range, whose number depends on what is stored there and not on what others write; the
//! store's log. The last two are read on a blocking thread, two watches at a time. The events that all resuming watches
//! hold are bounded; a watch that exceeds the bound must list again, as if its history was compacted.

use std::collections::VecDeque;
use std::sync::Arc;

use fairlead_names::KeyCodec;
use fairlead_store::{Advance, Range, ReadError, Revision, Store};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::event::ObjectEvent;
use super::queue::Interest;

/// Events that stay decoded after their distribution.
const RECENT_EVENTS: usize = 4096;
/// Bytes of the objects of these events.
const RECENT_BYTES: usize = 8 << 20;

/// Bytes of the objects that one backlog may hold.
const BACKLOG_BYTES: usize = 16 << 20;
/// KiB of the objects that all backlogs may hold that are not among the recent events.
const ALL_BACKLOGS_KIB: usize = 48 << 10;
/// Backlogs that are read at the same time.
const CONCURRENT_READS: usize = 2;

/// Rows of a range that are read in the time of one event of the log, which needs three look-ups.
const ROWS_PER_LOG_EVENT: u64 = 8;
/// Rows of a range that are always worth reading before the log.
const MIN_ROWS: u64 = 1024;

/// The events of a watch before its subscription, in order.
#[derive(Default)]
pub struct Backlog {
    events: VecDeque<Arc<ObjectEvent>>,
    /// Returned when the backlog has been sent.
    _budget: Option<OwnedSemaphorePermit>,
}

impl Iterator for Backlog {
    type Item = Arc<ObjectEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        self.events.pop_front()
    }
}

/// The reason why a backlog cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BacklogError {
    /// The history is compacted or unreadable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The events exceed the memory that watches may hold. The client must list again.
    #[error("too many events since the requested revision")]
    TooLarge,
}

/// The sources of backlogs, shared by all watches of a hub.
pub(super) struct Backlogs {
    recent: Mutex<RecentEvents>,
    budget: Arc<Semaphore>,
    reads: Semaphore,
}

impl Backlogs {
    /// The sources of a hub that distributes the events after a revision.
    pub(super) fn new(revision: Revision) -> Self {
        Self {
            recent: Mutex::new(RecentEvents { floor: revision, events: VecDeque::new(), bytes: 0 }),
            budget: Arc::new(Semaphore::new(ALL_BACKLOGS_KIB)),
            reads: Semaphore::new(CONCURRENT_READS),
        }
    }

    /// Adds an event that is distributed.
    pub(super) fn push(&self, event: Arc<ObjectEvent>) {
        self.recent.lock().push(event);
    }

    /// The events of an interest after `after` and up to `up_to`, where `range` has all keys of the interest.
    pub(super) async fn read(
        &self,
        store: &Arc<dyn Store>,
        codec: KeyCodec,
        request: BacklogRequest,
    ) -> Result<Backlog, BacklogError> {
        if request.after >= request.up_to {
            return Ok(Backlog::default());
        }
        // One rule for all sources: a watch resumes from the revisions that the store can read.
        let oldest = store.compacted();
        if request.after < oldest {
            return Err(ReadError::Compacted { oldest }.into());
        }
        if let Some(events) = self.recent.lock().select(&request) {
            return Ok(Backlog { events, _budget: None });
        }
        // The semaphore is never closed.
        let _turn = self.reads.acquire().await;
        let store = Arc::clone(store);
        let runtime = tokio::runtime::Handle::current();
        let read = tokio::task::spawn_blocking(move || {
            let mut collected = CollectedEvents { request, events: VecDeque::new(), bytes: 0 };
            if !collected.read_range(&*store, &codec)? {
                runtime.block_on(collected.read_log(&*store, &codec))?;
            }
            Ok::<_, BacklogError>(collected)
        });
        let collected = read.await.map_err(|error| ReadError::Io(Arc::new(error)))??;
        let kib = u32::try_from(collected.bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let budget =
            Arc::clone(&self.budget).try_acquire_many_owned(kib).map_err(|_| BacklogError::TooLarge)?;
        Ok(Backlog { events: collected.events, _budget: Some(budget) })
    }
}

/// A watch that resumes.
pub(super) struct BacklogRequest {
    pub(super) interest: Interest,
    pub(super) range: Range,
    pub(super) after: Revision,
    pub(super) up_to: Revision,
}

/// The last distributed events.
struct RecentEvents {
    /// All events after this revision are here.
    floor: Revision,
    events: VecDeque<Arc<ObjectEvent>>,
    bytes: usize,
}

impl RecentEvents {
    fn push(&mut self, event: Arc<ObjectEvent>) {
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.events.len() > RECENT_EVENTS || self.bytes > RECENT_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.bytes();
            // The other events of its commit are not complete any more.
            self.floor = oldest.revision;
        }
    }

    /// The requested events, if all of them are here.
    fn select(&self, request: &BacklogRequest) -> Option<VecDeque<Arc<ObjectEvent>>> {
        if request.after < self.floor {
            return None;
        }
        let first = self.events.partition_point(|event| event.revision <= request.after);
        let later = self.events.range(first..).take_while(|event| event.revision <= request.up_to);
        Some(later.filter(|event| request.interest.wants(event)).cloned().collect())
    }
}

/// The events that a reader has found.
struct CollectedEvents {
    request: BacklogRequest,
    events: VecDeque<Arc<ObjectEvent>>,
    bytes: usize,
}

impl CollectedEvents {
    /// Reads the rows of the range. Returns false if the log is cheaper.
    fn read_range(&mut self, store: &dyn Store, codec: &KeyCodec) -> Result<bool, BacklogError> {
        let BacklogRequest { range, after, up_to, .. } = &self.request;
        let max_rows = (up_to.0 - after.0).saturating_mul(ROWS_PER_LOG_EVENT).max(MIN_ROWS);
        let max_rows = usize::try_from(max_rows).unwrap_or(usize::MAX);
        let Some(changes) = store.changes(range, *after, max_rows)? else { return Ok(false) };
        for (revision, event) in changes.events {
            self.add(revision, &event, codec)?;
        }
        Ok(true)
    }

    async fn read_log(&mut self, store: &dyn Store, codec: &KeyCodec) -> Result<(), BacklogError> {
        let mut follower = store.follow(self.request.after)?;
        // The last revision may be one without a batch.
        while follower.position() < self.request.up_to {
            let advance = follower.advance().await;
            let advance = advance
                .map_err(|_| BacklogError::Read(ReadError::Compacted { oldest: store.compacted() }))?;
            let Advance::Batch(batch) = advance else { continue };
            for event in &batch.events {
                self.add(batch.revision, event, codec)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        revision: Revision,
        event: &fairlead_store::Event,
        codec: &KeyCodec,
    ) -> Result<(), BacklogError> {
        if revision > self.request.up_to || !self.request.range.contains(&event.key) {
            return Ok(());
        }
        let decoded = match ObjectEvent::decode(revision, event, codec) {
            Ok(decoded) if self.request.interest.wants(&decoded) => decoded,
            Ok(_) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, revision = revision.0, "a resumed watch skipped a malformed event");
                return Ok(());
            }
        };
        self.bytes += decoded.bytes();
        if self.bytes > BACKLOG_BYTES {
            return Err(BacklogError::TooLarge);
        }
        self.events.push_back(Arc::new(decoded));
        Ok(())
    }
}
