//! Admission: changes to a write before validation, and checks after it.

use async_trait::async_trait;
use fairlead_authn::UserInfo;
use fairlead_process::{GroupResource, Status};
use fairlead_schema::crd::ScalePaths;
use fairlead_store::Mutation;
use serde_json::Value;

use super::{Reservations, ServedResource, Subresource};
use crate::request::{AuditAnnotations, DeleteOptions, DryRun, Warnings, WriteOptions};
use crate::resource::{SCALE, Verb};
use crate::scope::Scope;

/// The admission chain of a registry. Mutation runs before validation; both run again when the commit
/// conflicts.
#[async_trait]
pub trait Admission: Send + Sync {
    /// Changes the object. Its `metadata.managedFields`, if there are any afterwards, replace those that the write leaves.
    /// Returns mutations of other objects for the same commit: changes that belong to the write, and
    /// fences on what the changes depend on. The default changes nothing.
    ///
    /// # Errors
    /// The refusal.
    async fn mutate(
        &self,
        _write: &AdmissionRequest<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        Ok(Vec::new())
    }

    /// Refuses the write, or returns mutations of other objects for the same commit. `object` is `None` for a delete. The default
    /// refuses nothing.
    ///
    /// # Errors
    /// The refusal.
    async fn validate(
        &self,
        _write: &AdmissionRequest<'_>,
        _object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        Ok(Vec::new())
    }
}

/// Refuses every write. For resources without a verb for one, of which a view might have some.
pub struct ReadOnly;

#[async_trait]
impl Admission for ReadOnly {
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        Err(read_only(write))
    }

    async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        _object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        Err(read_only(write))
    }
}

fn read_only(write: &AdmissionRequest<'_>) -> Status {
    let name = &write.resource.name;
    Status::method_not_allowed(GroupResource::new(&name.group, &name.resource), "write")
}

impl<'r> AdmissionRequest<'r> {
    /// The `scale` subresource, if it is written: then the reviewed object is the Scale in this version.
    pub(crate) fn scale(&self, version: &str) -> Option<&'r ScalePaths> {
        let resource: &'r ServedResource = self.resource;
        (self.subresource == Some(SCALE)).then(|| resource.strategy(version).scale()).flatten()
    }

    /// The written subresource, if its objects are not of the kind of the resource.
    pub(crate) fn subresource_of_own_kind(&self) -> Option<&'r Subresource> {
        let resource: &'r ServedResource = self.resource;
        resource.subresource(self.version, self.subresource?).filter(|subresource| subresource.kind.is_some())
    }
}

/// The options of the request.
#[derive(Clone, Copy)]
pub enum AdmissionOptions<'r> {
    /// Those of a create, update or patch.
    Write(&'r WriteOptions),
    /// Those of a delete.
    Delete(&'r DeleteOptions),
}

impl<'r> AdmissionOptions<'r> {
    pub(super) fn dry_run(self) -> DryRun {
        match self {
            Self::Write(options) => options.dry_run,
            Self::Delete(options) => options.dry_run,
        }
    }

    pub(super) fn warnings(self) -> &'r Warnings {
        match self {
            Self::Write(options) => &options.warnings,
            Self::Delete(options) => &options.warnings,
        }
    }

    pub(super) fn audit_annotations(self) -> &'r AuditAnnotations {
        match self {
            Self::Write(options) => &options.audit_annotations,
            Self::Delete(options) => &options.audit_annotations,
        }
    }
}

/// `metadata.managedFields` of the objects of a write, as JSON; empty for none. Webhooks and policies see them, so they are
/// parsed only if one of these reviews the write.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReviewedManagedFields<'r> {
    /// Those that the write leaves, unless admission has set others in the object.
    pub new: &'r [u8],
    /// Those of the old object.
    pub old: &'r [u8],
}

/// The write that is to be admitted.
#[derive(Clone, Copy)]
pub struct AdmissionRequest<'r> {
    /// `create`, `update`, `patch` or `delete`.
    pub verb: Verb,
    /// The scope that is written to.
    pub scope: &'r Scope,
    /// The resource.
    pub resource: &'r ServedResource,
    /// The requested version.
    pub version: &'r str,
    /// The subresource.
    pub subresource: Option<&'r str>,
    /// The namespace.
    pub namespace: Option<&'r str>,
    /// The name; empty for a create that has a generated name.
    pub name: &'r str,
    /// The user who writes.
    pub user: &'r UserInfo,
    /// The options of the request.
    pub options: AdmissionOptions<'r>,
    /// `metadata.managedFields`, which the objects do not have.
    pub managed_fields: ReviewedManagedFields<'r>,
    /// Whether the write is committed.
    pub dry_run: DryRun,
    /// Holds what is reserved for a create until its outcome is known; `None` for other writes.
    pub reservations: Option<&'r Reservations>,
    /// Receives warnings for the client.
    pub warnings: &'r Warnings,
    /// Receives annotations for the audit event.
    pub audit_annotations: &'r AuditAnnotations,
}
