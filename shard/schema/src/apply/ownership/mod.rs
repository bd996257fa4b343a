//! Ownership of fields: `metadata.managedFields`, and its changes by updates and applied configurations.

mod apply;
mod cap;
mod conflict;
mod entries;
mod error;
mod last_applied;
mod prune;
mod scale;
mod update;
mod versions;

pub use apply::{Applied, apply};
pub use conflict::{Conflict, Conflicts};
pub use entries::{InvalidManagedFields, ManagedFields, Operation, is_reset};
pub use error::ApplyError;
pub use last_applied::LAST_APPLIED;
pub use scale::ReplicasPaths;
pub use update::{Manager, track_create, track_update};
pub use versions::{ConversionFailure, ObjectVersions};
