//! The host of webhooks and policies: where their configurations come from, and whom they may ask about.

use std::sync::Arc;

use fairlead_apiserver::registry::Catalog;
use fairlead_apiserver::{Action, AdmissionHost, AdmissionRequest, Attributes, Scope, ScopeSelector};
use fairlead_authn::UserInfo;
use fairlead_names::Origin;
use fairlead_process::Status;

use crate::global::GlobalView;
use crate::host::Authorizer;
use crate::index::ClusterIndex;

/// Answers questions of webhooks and policies.
pub(super) struct ConfigurationHost {
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) clusters: Arc<ClusterIndex>,
    pub(super) global: Arc<GlobalView>,
}

impl AdmissionHost for ConfigurationHost {
    /// Only the configurations of the export's logical cluster review a bound resource, so that a workspace cannot change
    /// the API of its provider.
    fn configuration_scope(&self, write: &AdmissionRequest<'_>) -> Result<Option<Scope>, Status> {
        if !matches!(write.resource.origin, Origin::Identity(_)) {
            return Ok(None);
        }
        let export = self.authorizer.definitions().export_of(write.scope, &write.resource.name)?;
        // Without a known export no configurations apply, in any case not those of the workspace.
        let cluster = export.map_or_else(String::new, |export| export.cluster.clone());
        let is_remote = !cluster.is_empty() && self.clusters.get(&cluster).is_none();
        // A shard that has started without the cache server does not know what a provider on another shard forbids. It serves
        // root's exports in any case, without which it cannot work.
        if is_remote && cluster != "root" && !self.global.is_synced() {
            return Err(Status::service_unavailable("not yet ready to handle request", 1));
        }
        Ok(Some(Scope::new(&cluster)))
    }

    /// System logical clusters are on every shard.
    fn has_objects(&self, scope: &Scope) -> bool {
        scope.as_str().starts_with("system:") || self.clusters.get(scope.as_str()).is_some()
    }

    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
        self.authorizer.definitions().catalog(scope)
    }

    fn is_allowed(&self, scope: &Scope, user: &UserInfo, action: &Action<'_>) -> bool {
        let scopes = ScopeSelector::One(scope.clone());
        self.authorizer.is_allowed_locally(&Attributes::new(user, Some(&scopes), *action))
    }

    fn service_account(&self, scope: &Scope, namespace: &str, name: &str) -> UserInfo {
        UserInfo {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                fairlead_authn::AUTHENTICATED.to_owned(),
            ],
            extra: [("authentication.kcp.io/cluster-name".to_owned(), vec![scope.as_str().to_owned()])]
                .into(),
            ..UserInfo::default()
        }
    }
}
