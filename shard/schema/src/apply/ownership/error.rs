//! Errors of applied configurations and of tracking.

use super::super::typed::{TypeError, TypeErrors};
use super::conflict::Conflicts;
use super::versions::ConversionFailure;

/// Reasons why a configuration cannot be applied, or ownership cannot be tracked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration does not have the type of its kind. The client is at fault.
    #[error("{0}")]
    Configuration(TypeErrors),
    /// The stored object does not have the type of its kind: the schema has changed. A retry does not help.
    #[error("{0}")]
    Object(TypeErrors),
    /// Other managers own fields that the configuration changes. The client may force it.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The object cannot be converted to the version of a manager. A retry may help.
    #[error("{0}")]
    Conversion(#[from] ConversionFailure),
    /// The version of the write has no type: an error of the server.
    #[error("no corresponding type")]
    NoType,
}

impl From<TypeError> for ApplyError {
    fn from(error: TypeError) -> Self {
        Self::Object(error.into())
    }
}
