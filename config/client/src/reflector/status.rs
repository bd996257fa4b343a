//! What a reflector tells about itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The state of a [`crate::Reflector`].
#[derive(Debug, Clone, Default)]
pub struct ReflectorStatus {
    /// What it is doing.
    pub phase: Phase,
    /// Whether its user has a complete state, if perhaps an old one: the first list was delivered, or the watch from
    /// the persisted revision was accepted.
    pub synced: bool,
    /// When an object last changed.
    pub last_event: Option<Instant>,
    /// When the server was last heard: a page, an accepted watch, an event, a bookmark.
    pub last_contact: Option<Instant>,
    /// Up to where everything was delivered.
    pub resource_version: Option<Arc<str>>,
    /// Completed lists, the first one included.
    pub relists: u64,
    /// Opened watches, the first one included.
    pub restarts: u64,
    /// Objects that did not decode.
    pub skipped: u64,
    /// Why the last try failed; cleared by the next open watch.
    pub last_error: Option<Arc<str>>,
}

/// What a reflector is doing.
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
    /// How old the mirror may be: zero while a watch is open (a dead connection is noticed by pings), else the time
    /// since the server was last heard; `None` if it never was.
    pub fn staleness(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::Watching => Some(Duration::ZERO),
            Phase::Listing | Phase::Connecting => {
                self.last_contact.map(|at| now.saturating_duration_since(at))
            }
        }
    }
}
