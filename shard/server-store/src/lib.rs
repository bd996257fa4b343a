//! The store of a server, from its settings: the embedded file, or an etcd that all replicas of the server share.
//!
//! Shards and cache servers open their stores here, so that the same settings, checks and messages hold for both. They differ
//! in the name by which they own a prefix of etcd: a prefix of one is refused by the other.

mod open;
mod readiness;

pub use open::{OpenedStore, StoreError, StoreUser};
pub use readiness::check_store;
