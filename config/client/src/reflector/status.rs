//! Status of a reflector.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The state of a [`crate::Reflector`].
#[derive(Debug, Clone, Default)]
pub struct ReflectorStatus {
    /// Current activity.
    pub phase: Phase,
    /// Whether its user has a complete, possibly old state: the first list was delivered, or the watch from
    /// the persisted revision was accepted.
    pub synced: bool,
    /// Time of the last change of an object.
    pub last_event: Option<Instant>,
    /// Time of the last sign of the server: a page, an accepted watch, an event, a bookmark.
    pub last_contact: Option<Instant>,
    /// Revision up to which everything was delivered.
    pub resource_version: Option<Arc<str>>,
    /// Completed lists, the first one included.
    pub relists: u64,
    /// Opened watches, the first one included.
    pub restarts: u64,
    /// Objects that did not decode.
    pub skipped: u64,
    /// Error of the last attempt; cleared by the next open watch.
    pub last_error: Option<Arc<str>>,
}

/// Activity of a reflector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Reading the whole collection, or waiting to.
    #[default]
    Listing,
    /// Opening a watch, or waiting to.
    Connecting,
    /// Following an open watch.
    Watching,
}

impl ReflectorStatus {
    /// Maximum age of the state: zero while a watch is open (a dead connection is noticed by pings), else the time
    /// since the last sign of the server; `None` if there was none.
    pub fn staleness(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::Watching => Some(Duration::ZERO),
            Phase::Listing | Phase::Connecting => {
                self.last_contact.map(|at| now.saturating_duration_since(at))
            }
        }
    }
}
