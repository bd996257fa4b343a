//! kcp's chain of authorizers. Each one decides or delegates to the next.
//!
//! masters → required groups → workspace content → maximal permission policy → RBAC. All decisions use data in this
//! shard's memory or store.

mod steps;

use std::sync::Arc;

use fairlead_api::{Phase, annotation, group};
use fairlead_apiserver::authz::{Policy, Rule};
use fairlead_apiserver::{Action, Attributes, Decision, Scope, ScopeSelector};
use fairlead_authn::UserInfo;
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use serde_json::Value;

use super::effective::{effective_users, has_no_scopes_or_warrants};
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions, PolicyIndex};
use crate::names::{LOGICAL_CLUSTERS, SYSTEM_ADMIN};

/// Authorizer of the shard's API server.
pub(crate) struct Authorizer {
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) policies: Arc<PolicyIndex>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) global: Arc<GlobalView>,
}

/// The fields of a LogicalCluster that authorization uses.
struct ClusterFacts {
    phase: Option<Phase>,
    required_groups: Option<Box<str>>,
    is_local: bool,
}

impl Authorizer {
    /// Decides on an action. Takes some microseconds for users without scopes and warrants, once the policies are
    /// parsed.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if is_in(attributes.user, group::MASTERS) {
            return Decision::Allow;
        }
        // Requests across all logical clusters, and those without one, are for masters only. Exception: shards watch
        // each other's LogicalClusters with fewer permissions.
        let Some(ScopeSelector::One(scope)) = attributes.scopes else {
            return if attributes.scopes.is_some() && self.watches_logical_clusters(attributes) {
                Decision::Allow
            } else {
                Decision::NoOpinion
            };
        };
        if has_no_scopes_or_warrants(attributes.user) {
            return self.chain(attributes.user, scope, &attributes.action);
        }
        let users = effective_users(attributes.user, scope.as_str());
        let mut decision = Decision::NoOpinion;
        for user in &users {
            match self.chain(user, scope, &attributes.action) {
                Decision::Allow => return Decision::Allow,
                other => decision = other,
            }
        }
        decision
    }

    fn watches_logical_clusters(&self, attributes: &Attributes<'_>) -> bool {
        let reads = matches!(
            attributes.action,
            Action::Resource {
                verb: "list" | "watch",
                group: "core.kcp.io",
                resource: "logicalclusters",
                subresource: None,
                ..
            }
        );
        reads
            && is_in(attributes.user, group::LOGICAL_CLUSTER_ADMIN)
            && self
                .policies
                .system()
                .is_ok_and(|policy| policy.permits(attributes.user, &attributes.action, None))
    }

    /// Whether RBAC alone permits an action, without the checks of required groups and workspace content: kcp's deep
    /// SubjectAccessReview, for permissions that are needed in another logical cluster.
    pub(crate) fn permits_deep(&self, user: &UserInfo, cluster: &str, action: &Action<'_>) -> bool {
        if is_in(user, group::MASTERS) {
            return true;
        }
        let is_local = self.clusters.get(cluster).is_some();
        effective_users(user, cluster).iter().any(|user| self.rbac_permits(user, cluster, action, is_local))
    }

    /// The rules that a user has in a logical cluster, for the escalation check and `kubectl auth can-i --list`. As in
    /// [`authorize`](Self::authorize), scopes and warrants count, and a service account of another logical cluster does not have the
    /// rules of the account with its name in this one.
    pub(crate) fn rules(
        &self,
        user: &UserInfo,
        cluster: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Rule>, Status> {
        let system = self.policies.system()?;
        let own = self.policies.of(cluster)?;
        let mut rules = Vec::new();
        for user in effective_users(user, cluster) {
            rules.extend(system.rules(&user, namespace, None));
            if cluster != SYSTEM_ADMIN {
                rules.extend(own.rules(&user, namespace, Some(&system)));
            }
        }
        Ok(rules)
    }

    /// The policies that grant permissions in a logical cluster: its own and the global one.
    pub(crate) fn policies(&self, cluster: &str) -> Result<(Arc<Policy>, Arc<Policy>), Status> {
        Ok((self.policies.of(cluster)?, self.policies.system()?))
    }

    fn chain(&self, user: &UserInfo, scope: &Scope, action: &Action<'_>) -> Decision {
        let cluster = scope.as_str();
        let facts = self.facts(cluster);
        let is_cluster_admin = is_in(user, group::LOGICAL_CLUSTER_ADMIN);
        if !is_cluster_admin && !is_service_account(user) {
            let Some(facts) = &facts else { return Decision::NoOpinion };
            if !is_in(user, group::EXTERNAL_LOGICAL_CLUSTER_ADMIN)
                && let Some(required) = &facts.required_groups
                && !satisfies_required_groups(user, required)
            {
                return Decision::Deny("a required group is missing");
            }
        }
        if !matches!(action, Action::NonResource { path: "/metrics", .. }) {
            if cluster.starts_with("system:") {
                return Decision::NoOpinion;
            }
            match self.content_access(user, cluster, facts.as_ref(), is_cluster_admin) {
                ContentAccess::Allowed => {}
                ContentAccess::Denied(decision) => return decision,
            }
        }
        if let Action::Resource {
            group: "apis.kcp.io",
            resource: "apibindings" | "apiexports",
            subresource: Some("status"),
            verb,
            ..
        } = *action
            && verb != "get"
        {
            return Decision::Deny("only the system writes this status");
        }
        if !self.is_within_maximal_policy(user, scope, action) {
            return Decision::NoOpinion;
        }
        let is_local = facts.is_some_and(|facts| facts.is_local);
        if self.rbac_permits(user, cluster, action, is_local) { Decision::Allow } else { Decision::NoOpinion }
    }

    /// Whether the user has access to the content of the logical cluster.
    fn content_access(
        &self,
        user: &UserInfo,
        cluster: &str,
        facts: Option<&ClusterFacts>,
        is_cluster_admin: bool,
    ) -> ContentAccess {
        if is_cluster_admin {
            return ContentAccess::Allowed;
        }
        let Some(facts) = facts else {
            return ContentAccess::Denied(Decision::Deny("there is no such logical cluster"));
        };
        let is_accessible = matches!(
            facts.phase,
            Some(Phase::Initializing | Phase::Ready | Phase::Inactive | Phase::Terminating | Phase::Deleting)
        );
        if !is_accessible {
            return ContentAccess::Denied(Decision::NoOpinion);
        }
        let account_of = user.extra.get("authentication.kcp.io/cluster-name");
        if is_service_account(user) && account_of.is_some_and(|own| own.iter().any(|own| own == cluster)) {
            return ContentAccess::Allowed;
        }
        let access = Action::NonResource { verb: "access", path: "/" };
        if self.rbac_permits(user, cluster, &access, facts.is_local) {
            ContentAccess::Allowed
        } else {
            ContentAccess::Denied(Decision::NoOpinion)
        }
    }

    /// Whether the maximal permission policy of the export permits the action on a bound resource. Roles in the
    /// export's logical cluster define the policy, for the user's name and groups with a prefix.
    fn is_within_maximal_policy(&self, user: &UserInfo, scope: &Scope, action: &Action<'_>) -> bool {
        let Action::Resource { group, resource, .. } = *action else { return true };
        let name = ResourceName::new(group, resource);
        if self.definitions.common_resource(&name).is_some() {
            return true;
        }
        let Ok(catalog) = self.definitions.catalog(scope) else { return false };
        let bound = catalog
            .resources
            .iter()
            .any(|served| served.name == name && matches!(served.origin, Origin::Identity(_)));
        if !bound || fairlead_api::root_export_of(group, resource) != Some("tenancy.kcp.io") {
            return true;
        }
        let renamed = UserInfo {
            name: format!("{}{}", group::BINDING_PREFIX, user.name),
            groups: user.groups.iter().map(|group| format!("{}{group}", group::BINDING_PREFIX)).collect(),
            ..UserInfo::default()
        };
        let root_is_local = self.clusters.get("root").is_some();
        self.rbac_permits(&renamed, "root", action, root_is_local)
    }

    fn rbac_permits(&self, user: &UserInfo, cluster: &str, action: &Action<'_>, is_local: bool) -> bool {
        let permitted = || -> Result<bool, Status> {
            let system = self.policies.system()?;
            if system.permits(user, action, None) {
                return Ok(true);
            }
            if is_local {
                return Ok(self.policies.of(cluster)?.permits(user, action, Some(&system)));
            }
            Ok(self.policies.replicated(cluster)?.permits(user, action, Some(&system)))
        };
        permitted().unwrap_or_else(|status| {
            tracing::error!(cluster, %status, "roles cannot be read; the request is refused");
            false
        })
    }

    fn facts(&self, cluster: &str) -> Option<ClusterFacts> {
        if let Some(state) = self.clusters.get(cluster) {
            return Some(ClusterFacts {
                phase: state.phase,
                required_groups: state.required_groups.clone(),
                is_local: true,
            });
        }
        let replica = self.global.get(&LOGICAL_CLUSTERS, cluster, fairlead_api::LOGICAL_CLUSTER_NAME)?;
        let text = |value: &Value| value.as_str().map(Into::into);
        Some(ClusterFacts {
            phase: replica["status"]["phase"].as_str().and_then(Phase::parse),
            required_groups: text(&replica["metadata"]["annotations"][annotation::REQUIRED_GROUPS]),
            is_local: false,
        })
    }
}

enum ContentAccess {
    Allowed,
    Denied(Decision),
}

/// Whether a user is in the required groups. `a,b;c` means (a and b) or c. Administrators and bootstrappers always
/// are.
fn satisfies_required_groups(user: &UserInfo, required: &str) -> bool {
    required.split(';').any(|all| all.split(',').all(|one| is_in(user, one.trim())))
        || is_in(user, group::ADMIN)
        || is_in(user, group::WORKSPACE_BOOTSTRAPPER)
}

fn is_service_account(user: &UserInfo) -> bool {
    user.name.starts_with("system:serviceaccount:")
}

/// Whether a user is a member of a group.
pub(crate) fn is_in(user: &UserInfo, group: &str) -> bool {
    user.groups.iter().any(|own| own == group)
}
