//! The store on etcd: commits are transactions of an etcd, reads are those of a local copy that one watch keeps current.
//!
//! The crate does not know Kubernetes, logical clusters or JSON, and no metrics, settings or flags: keys and values are
//! bytes, as of `fairlead-store`, whose contract it implements.
//!
//! # How it works
//!
//! [`EtcdStore::open`] connects to one member of the cluster at a time. It claims the prefix for an owner, opens the local
//! copy ([`Replica`](fairlead_store::Replica)), fills it by ranged reads at one revision unless a good one exists, and then
//! watches the prefix from the next revision on. After each connection it writes one key and waits until the watch has
//! delivered it: from then on the copy has everything that was committed before. It does so again once a minute, so that a
//! watch that has stopped is noticed, and a store that is quiet knows how far it has seen an etcd that others write to.
//!
//! A commit is one transaction that compares the `mod_revision` of its keys, and the owner's record: so nothing is written
//! into another cluster that has taken over the address. It returns when the copy has passed the revision of the
//! transaction.
//!
//! While the cluster has no quorum, reads go on, and commits get `Unavailable` after [`Timing::patience`]. When a
//! connection is lost during a transaction, its outcome is read from the feed; [`CommitError::Unknown`] remains only for
//! commits that neither show up there nor have become impossible within [`Timing::resolution`].
//!
//! Of several stores that are open on a prefix, one leads: [`EtcdStore::election`]. The leader's key has a lease, so that
//! another store leads soon after the leader has died.
//!
//! # Costs
//!
//! A commit costs one round trip, one transaction of etcd (a sync of its log on a majority of the members), and one
//! transaction of the copy in memory, which all commits that arrive together share. A read costs the same as on redb. etcd
//! stores one key more for the owner, one for the barrier and one for the leader; each replica of a shard adds one watch. The
//! leader's lease is renewed every 0.5 s, which etcd does not write to its log.
//!
//! [`CommitError::Unknown`]: fairlead_store::CommitError::Unknown

mod barrier;
mod client;
mod commit;
mod copy;
mod election;
mod error;
mod feed;
mod history;
mod installation;
mod keys;
mod link;
mod load;
mod offset;
mod options;
mod owner;
mod progress;
mod store;
mod tls;
mod transaction;
mod view;

pub use copy::{CopyError, CopySummary};
pub use error::EtcdError;
pub use options::{EtcdOptions, EtcdUser, Timing, TlsFiles};
pub use store::EtcdStore;
