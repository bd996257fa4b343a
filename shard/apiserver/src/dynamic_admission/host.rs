//! The interface to the host: what webhooks and policies ask about scopes, resources and permissions.

use std::sync::Arc;

use fairlead_authn::UserInfo;
use fairlead_process::Status;

use crate::host::Action;
use crate::registry::{AdmissionRequest, Catalog};
use crate::scope::Scope;

/// Answers questions of webhooks and policies. All answers come from memory or the store.
pub trait AdmissionHost: Send + Sync {
    /// The scope whose configurations review the write, if it is not the written scope.
    ///
    /// # Errors
    /// 503 while it or its configurations are not known.
    fn configuration_scope(&self, write: &AdmissionRequest<'_>) -> Result<Option<Scope>, Status> {
        let _ = write;
        Ok(None)
    }

    /// Whether the objects of a scope are in this server's store. Parameters of policies are read from it.
    fn has_objects(&self, scope: &Scope) -> bool {
        let _ = scope;
        true
    }

    /// The resources that are served in a scope, for parameters of policies.
    ///
    /// # Errors
    /// 503 while they are not known.
    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status>;

    /// Whether a user may perform an action in a scope.
    fn is_allowed(&self, scope: &Scope, user: &UserInfo, action: &Action<'_>) -> bool;

    /// The user of a service account of a scope.
    fn service_account(&self, scope: &Scope, namespace: &str, name: &str) -> UserInfo;
}
