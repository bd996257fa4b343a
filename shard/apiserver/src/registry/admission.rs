//! Admission: the checks and changes of a write between validation and commit.

use async_trait::async_trait;
use fairlead_authn::UserInfo;
use fairlead_process::Status;
use fairlead_store::Mutation;
use serde_json::Value;

use super::ServedResource;
use crate::request::DryRun;
use crate::resource::Verb;
use crate::scope::Scope;

/// Looks at writes before they are stored. Mutation runs before validation; both run again when the
/// commit conflicts.
#[async_trait]
pub trait Admission: Send + Sync {
    /// Changes the object.
    ///
    /// # Errors
    /// The refusal.
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status>;

    /// Refuses the write, or names what must hold when it is committed. `object` is `None` for a delete.
    ///
    /// # Errors
    /// The refusal.
    async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status>;
}

/// A write, as admission sees it.
#[derive(Clone, Copy)]
pub struct AdmissionRequest<'r> {
    /// `create`, `update`, `patch` or `delete`.
    pub verb: Verb,
    /// The scope that is written to.
    pub scope: &'r Scope,
    /// Of which resource.
    pub resource: &'r ServedResource,
    /// In which version.
    pub version: &'r str,
    /// The subresource.
    pub subresource: Option<&'r str>,
    /// The namespace.
    pub namespace: Option<&'r str>,
    /// The name; empty for a create that has a generated name.
    pub name: &'r str,
    /// The user who writes.
    pub user: &'r UserInfo,
    /// Whether it will be carried out.
    pub dry_run: DryRun,
}
