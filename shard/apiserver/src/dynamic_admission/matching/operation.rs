//! The operations of writes, as rules of webhooks and policies name them.

use serde_json::Value;

use crate::registry::AdmissionRequest;
use crate::resource::Verb;

/// The operation of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dynamic_admission) enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// A delete.
    Delete,
}

impl Operation {
    /// The operation of a write with this old object.
    pub(in crate::dynamic_admission) fn of(write: &AdmissionRequest<'_>, old: Option<&Value>) -> Self {
        match (write.verb, old) {
            (Verb::Delete | Verb::DeleteCollection, _) => Self::Delete,
            (_, Some(_)) => Self::Update,
            (_, None) => Self::Create,
        }
    }

    pub(in crate::dynamic_admission) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// The kind of the options of the request.
    pub(in crate::dynamic_admission) fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}
