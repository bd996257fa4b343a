//! The API exports and bindings that a shard knows.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{AcceptedClaim, PermissionClaim};
use fairlead_apiserver::registry::ServedResource;
use fairlead_apiserver::{Action, Scope};
use fairlead_authn::UserInfo;
use fairlead_names::ResourceName;
use fairlead_process::Status;

/// The API exports of all shards and the bindings of one.
#[async_trait]
pub trait Exports: Send + Sync + 'static {
    /// An export. The same `Arc` is returned until it changes, or one of its schemas.
    ///
    /// # Errors
    /// 500 if it cannot be read.
    fn export(&self, cluster: &Scope, name: &str) -> Result<Option<Arc<Export>>, Status>;

    /// The exports with an identity.
    ///
    /// # Errors
    /// 500 if they cannot be read.
    fn by_identity(&self, identity: &str) -> Result<Vec<Arc<Export>>, Status>;

    /// The binding of a logical cluster to an export.
    ///
    /// # Errors
    /// 500 if it cannot be read.
    fn binding(&self, cluster: &Scope, export: &Export) -> Result<Option<Arc<Binding>>, Status>;

    /// Whether a user has access to the logical cluster of an export and the permission for an action there.
    async fn permits_content(&self, user: &UserInfo, cluster: &Scope, action: &Action<'_>) -> bool;

    /// Whether the maximal permission policy of an export permits an action: whether its logical cluster permits it to the user under
    /// its prefixed name, without the scopes of a service account.
    async fn is_within_policy(&self, user: &UserInfo, export: &Export, action: &Action<'_>) -> bool;
}

/// An API export.
#[derive(Debug)]
pub struct Export {
    /// Its logical cluster.
    pub cluster: Scope,
    /// Its name.
    pub name: Box<str>,
    /// The hash of its identity; without one it has no objects.
    pub identity: Option<Arc<str>>,
    /// Its permission claims.
    pub claims: Vec<PermissionClaim>,
    /// Whether roles in its logical cluster limit what users may do with its resources.
    pub has_maximal_policy: bool,
    /// Its resources, for objects of its identity in any logical cluster.
    pub resources: Vec<Arc<ServedResource>>,
}

/// A binding to an API export.
#[derive(Clone, Debug, Default)]
pub struct Binding {
    /// The bound resources. Those that another definition occupies are not among them.
    pub bound: Vec<ResourceName>,
    /// The decisions about the claims of the export.
    pub claims: Vec<AcceptedClaim>,
}

impl Binding {
    pub(super) fn binds(&self, resource: &ResourceName) -> bool {
        self.bound.contains(resource)
    }
}

/// The resource under which claims name a resource: both groups of events are one.
pub(super) fn claimed_name(name: &ResourceName) -> ResourceName {
    match (&*name.group, &*name.resource) {
        ("events.k8s.io", "events") => ResourceName::new("", "events"),
        _ => name.clone(),
    }
}

/// Whether a claim names a resource. Claims name events by the core group.
pub(super) fn names(claim: &PermissionClaim, claimed: &ResourceName) -> bool {
    *claim.group == *claimed.group && *claim.resource == *claimed.resource
}
