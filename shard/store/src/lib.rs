//! A revisioned key-value log with a view: commit, get, list, watch, compact; redb or memory.
//!
//! Keys and values are bytes; the store has no notion of Kubernetes, clusters or JSON.
//!
//! # Contract
//!
//! * A [commit](Store::commit) is atomic over its mutations and has exactly one [`Revision`], a later number of one
//!   counter for the whole store; the next number, unless the counter is shared with others, as on etcd. No other commit
//!   has it: a client resumes a watch after the revision of the last event that it got. For the same reason, a caller puts
//!   two keys that one watch can see into different commits; the store cannot tell which keys these are. A commit is
//!   acknowledged only when it is durable: an acknowledged commit survives `kill -9` and power loss.
//! * Reads ([`Store::get`], [`Store::scan`], [`Store::list`]) are synchronous, served from the *view*, and see every
//!   acknowledged commit at once. A scan sees one revision, the latest or a named older one.
//! * The *feed* ([`Store::follow`]) delivers every [`Batch`] after a revision, in order, without gap or duplicate. It is
//!   fed after the commit, so it may lag behind the view: a writer cannot rely on seeing its own write there. The memory
//!   backend delays the feed at random, so that tests find such reliance. A revision of the store may have no batch, when the
//!   counter is shared: [`Follower::advance`] passes it, [`Follower::next`] does not return.
//! * [Compaction](Store::compact) discards history. Reading at, or following after, revision `r` is served exactly while
//!   `r >= compacted()`; the latest state of every key is never discarded.
//! * A commit is at most as large as [`Store::limits`] says.
//! * When the medium fails, the store stops accepting commits for good ([`CommitError::Unavailable`]): after a failed
//!   fsync the content of the disk is unknown, so nothing more is acknowledged until it has been reopened.
//! * A full disk is no such failure: commits are refused ([`CommitError::Full`]) until there is room, and reads go on.
//!
//! # Backups
//!
//! [`write_backup`] reads a store at one revision while it serves, and [`BackupReader`] verifies the result; both know only
//! records, so a backup moves between backends. [`RedbStore::restore`] makes a store of it. [`ContentDigest`] compares a copy with its source.
//!
//! # Leadership
//!
//! A store that several processes can open has an [`Election`]. The leader commits through a [`FencedStore`], whose commits
//! are refused once another process leads. A store that only one process can open needs none of this.
//!
//! # Other backends
//!
//! A backend implements [`Store`] and, for its feed, [`Log`]; [`Follower`] waits and delivers. A backend on a server, such
//! as the crate `fairlead-store-etcd`, keeps its view in a [`Replica`]: a disposable redb file with the tables of
//! [`RedbStore`], to which its only writer applies the commits of the server in their order. `commit` returns once the
//! replica has passed its revision, so reads see acknowledged commits. Everything in `tests/suite/contract` uses only the
//! trait, and every backend must pass it.

mod backup;
mod durable;
mod error;
mod follow;
mod leadership;
mod memory;
mod mutation;
mod record;
mod stats;
mod store;

pub use backup::{
    Anchor, BackupContent, BackupError, BackupHeader, BackupRange, BackupReader, BackupRecord, BackupWriter,
    ContentDigest, Ownership, RetainedRevision, RetainedRevisions, WriteBackupError, has_commits_after,
    restored_revision, write_backup,
};
pub use durable::{
    ExistingStore, Origin, Rebuild, RedbOptions, RedbStore, Replica, ReplicaOptions, ReplicaWriter,
    ReplicatedCommit, RestoreError, RestoreSummary,
};
pub use error::{Cause, CommitError, CompactError, FollowError, OpenError, ReadError};
pub use follow::{Advance, Batch, Changes, Event, Follower, Log};
pub use leadership::{Election, FencedStore, LEADER_KEY, Term, TermEnd};
pub use memory::MemoryStore;
pub use mutation::{Change, Expect, Limits, MAX_COMMIT_BYTES, MAX_KEY_BYTES, Mutation};
pub use record::{Page, Range, Record, RecordRef, Revision};
pub use stats::{
    CommitDurations, CommitTimer, DURATION_BOUNDS, DatabaseStats, DiskSpace, DurationHistogram, Durations,
    ServerStats,
};
pub use store::{Stats, Store};
