//! Histories of concurrent clients, and a checker of what they may have seen.
//!
//! Each object is a register with a content that only one write has, and with the resourceVersion of that write.
//! - [`Operation`]s are writes and reads with the time between their request and their response. [`History::check`] finds
//!   an order for each object in which all responses are correct (Wing and Gong 1993, with the cache of Lowe 2017). An
//!   operation without a response may have happened, wholly, or not. Replicas of a server may be late with the writes of
//!   each other; `replicas.rs` says what each of them still promises.
//! - [`WatchLog`]s are lists and events as watchers received them. They must be in order, without a gap or a repetition, and
//!   must agree with each other and with the acknowledged writes.

mod linearizability;
mod record;
mod replicas;
mod violation;
mod watches;

pub use record::{
    Action, Change, Content, History, Key, Operation, Outcome, Register, Revision, Version, WatchEntry,
    WatchLog,
};
pub use violation::Violation;
