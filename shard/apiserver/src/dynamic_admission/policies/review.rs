//! The write that policies review, and where they are.

use std::sync::Arc;

use fairlead_process::Status;

use super::super::host::AdmissionHost;
use super::super::matching::{NamespaceReader, Operation};
use super::index::{BoundPolicy, PolicyIndex};
use super::policy::PolicyKind;
use crate::registry::{AdmissionRequest, ObjectStore};
use crate::scope::Scope;

/// A write that policies review.
#[derive(Clone, Copy)]
pub(in crate::dynamic_admission) struct PolicyReview<'r> {
    pub(in crate::dynamic_admission) objects: &'r ObjectStore,
    pub(in crate::dynamic_admission) index: &'r PolicyIndex,
    pub(in crate::dynamic_admission) namespaces: &'r NamespaceReader,
    pub(in crate::dynamic_admission) host: Option<&'r Arc<dyn AdmissionHost>>,
    /// The scope of the policies and their parameters.
    pub(in crate::dynamic_admission) scope: &'r Scope,
    pub(in crate::dynamic_admission) write: &'r AdmissionRequest<'r>,
    pub(in crate::dynamic_admission) operation: Operation,
}

impl PolicyReview<'_> {
    /// The policies of a kind in the scope; `None` if there are none, which costs a map look-up.
    pub(super) fn bound(&self, kind: PolicyKind) -> Option<Arc<[BoundPolicy]>> {
        self.index.bound(kind, self.scope.as_str())
    }

    pub(super) fn host(&self) -> Result<&Arc<dyn AdmissionHost>, Status> {
        self.host.ok_or_else(|| Status::service_unavailable("not yet ready to handle request", 1))
    }
}
