//! The content of a logical cluster for an initializer or terminator.
//!
//! The WorkspaceType decides how: with permissions of its own, a request that they permit is carried out as the client in a
//! group by which the shard permits everything; without them, it is carried out as the user who created the logical
//! cluster.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::authz::Rule;
use fairlead_apiserver::{Action, IdentityAssumption, Scope, ScopeSelector, forbidden};
use fairlead_authn::{Identity, UserInfo};
use fairlead_process::{GroupResource, Status, StatusReason};
use serde::Deserialize;
use serde_json::Value;

use super::{CORE_GROUP, Controller, LOGICAL_CLUSTERS, Lifecycle, SYSTEM, TENANCY_GROUP};
use crate::host::is_master;
use crate::shard::Shard;

/// The name of every LogicalCluster.
const LOGICAL_CLUSTER_NAME: &str = fairlead_api::LOGICAL_CLUSTER_NAME;

/// The access of a controller to the content of one logical cluster.
pub(super) struct ContentAccess {
    pub(super) shard: Arc<dyn Shard>,
    pub(super) controller: Controller,
    pub(super) cluster: Scope,
}

#[async_trait]
impl IdentityAssumption for ContentAccess {
    async fn assume(
        &self,
        client: &Arc<Identity>,
        _scopes: Option<&ScopeSelector>,
        action: &Action<'_>,
    ) -> Result<Arc<Identity>, Status> {
        let user = client.user();
        if !is_master(user) && !self.controller.admits(user, &*self.shard).await {
            return Err(forbidden(user, action));
        }
        let logical_cluster = self.logical_cluster()?;
        let assumed = match self.permissions()? {
            Some(rules) => {
                self.check_permissions(&rules, action)?;
                self.in_lifecycle_group(user)
            }
            None => self.creator(&logical_cluster)?,
        };
        Ok(Arc::new(Identity::new(assumed, client.method(), client.expires())))
    }
}

impl ContentAccess {
    /// The LogicalCluster, which must wait for the controller. One of another shard is not found, where kcp fails.
    fn logical_cluster(&self) -> Result<Value, Status> {
        let found = self.shard.logical_cluster(&self.cluster)?;
        let Some(logical_cluster) = found else {
            return Err(Status::not_found(
                GroupResource::new(CORE_GROUP, LOGICAL_CLUSTERS),
                LOGICAL_CLUSTER_NAME,
            ));
        };
        if self.controller.is_awaited(&logical_cluster) {
            return Ok(logical_cluster);
        }
        let Controller { lifecycle, name } = &self.controller;
        let message = format!("{} {name:?} cannot access this workspace", lifecycle.role());
        Err(Status::new(403, StatusReason::Forbidden, message))
    }

    /// The permissions that the WorkspaceType gives to the controller; `None`: those of the creator. A type that cannot be found gives
    /// neither, because its permissions might be fewer than those of the creator.
    fn permissions(&self) -> Result<Option<Vec<Rule>>, Status> {
        let Controller { lifecycle, name } = &self.controller;
        let role = lifecycle.role();
        let unavailable = |reason: String| {
            let message = format!(
                "{role} {name:?}: WorkspaceType not found in local or cached indexer; refusing to fall back to owner \
                 impersonation: {reason}"
            );
            Status::service_unavailable(message, 1)
        };
        let Some((cluster, type_name)) = self.controller.workspace_type() else {
            return Err(unavailable(format!("malformed {role} {name:?}")));
        };
        if cluster.as_str() == SYSTEM {
            return Ok(None);
        }
        let Some(spec) = self.shard.workspace_type(&cluster, type_name)? else {
            let missing = Status::not_found(GroupResource::new(TENANCY_GROUP, "workspacetypes"), type_name);
            return Err(unavailable(missing.message));
        };
        let rules = match lifecycle {
            Lifecycle::Initializing => spec.initializer_permissions,
            Lifecycle::Terminating => spec.terminator_permissions,
        };
        let rules: Vec<Rule> = rules
            .into_iter()
            .map(|rule| Rule {
                verbs: rule.verbs,
                api_groups: rule.api_groups,
                resources: rule.resources,
                resource_names: rule.resource_names,
                non_resource_urls: rule.non_resource_urls,
            })
            .collect();
        Ok((!rules.is_empty()).then_some(rules))
    }

    fn check_permissions(&self, rules: &[Rule], action: &Action<'_>) -> Result<(), Status> {
        if rules.iter().any(|rule| rule.permits(action)) {
            return Ok(());
        }
        let Controller { lifecycle, name } = &self.controller;
        let message = format!(
            "{} {name:?} denied by {}: no rule allows {}",
            lifecycle.role(),
            lifecycle.permissions_field(),
            described(action)
        );
        Err(Status::new(403, StatusReason::Forbidden, message))
    }

    /// The client in the group of requests that this virtual workspace has authorized.
    fn in_lifecycle_group(&self, user: &UserInfo) -> UserInfo {
        let Controller { lifecycle, name } = &self.controller;
        let mut assumed = user.clone();
        assumed.groups.insert(0, format!("system:kcp:{}:{name}", lifecycle.role()));
        assumed
    }

    fn creator(&self, logical_cluster: &Value) -> Result<UserInfo, Status> {
        let creator = &logical_cluster["spec"]["createdBy"];
        let creator = Option::<Creator>::deserialize(creator).map_err(Status::internal)?;
        let creator = creator.ok_or_else(|| {
            Status::internal(format!(
                "LogicalCluster {}|{LOGICAL_CLUSTER_NAME} had no createdBy recorded",
                self.cluster
            ))
        })?;
        let Creator { username, uid, groups, extra } = creator;
        Ok(UserInfo { name: username, uid, groups, extra })
    }
}

/// `spec.createdBy` of a LogicalCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Creator {
    username: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// The action in kcp's refusals: `get on core/secrets (name) in namespace ns`.
fn described(action: &Action<'_>) -> String {
    match *action {
        Action::Resource { verb, group, resource, subresource, namespace, name, .. } => {
            let group = if group.is_empty() { "core" } else { group };
            let mut text = format!("{verb} on {group}/{resource}");
            for (before, part, after) in
                [("/", subresource, ""), (" (", name, ")"), (" in namespace ", namespace, "")]
            {
                if let Some(part) = part {
                    text.push_str(&format!("{before}{part}{after}"));
                }
            }
            text
        }
        Action::NonResource { verb, path } => format!("{verb} on {path}"),
    }
}
