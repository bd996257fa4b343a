//! kcp's chain of authorizers for roles and bindings. Each step decides or delegates to the next.
//!
//! 01 required groups → 02 workspace content → 03 status of exports and bindings → 04 maximal permission policy →
//! 05 RBAC. All decisions use data in this shard's memory or store: no I/O.

mod steps;

use std::sync::Arc;

use fairlead_api::{Phase, annotation, group};
use fairlead_apiserver::authz::{Policy, Rule};
use fairlead_apiserver::{Action, Attributes, Authorization, Scope, ScopeSelector};
use fairlead_authn::UserInfo;
use fairlead_names::ResourceName;
use fairlead_process::Status;
use serde_json::Value;

use super::effective::{effective_users, has_no_scopes_or_warrants, is_in_scope, with_binding_prefix};
use crate::exports::ExportLookup;
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions, PolicyIndex};
use crate::names::{LOGICAL_CLUSTERS, SYSTEM_ADMIN};

const REQUIRED_GROUPS: &str = "01-requiredgroups";
const CONTENT: &str = "02-content";
const SYSTEM_CRD: &str = "03-systemcrd";
const MAXIMAL_POLICY: &str = "04-maxpermissionpolicy";
const BOOTSTRAP: &str = "05-bootstrap";
const LOCAL: &str = "05-local";
const GLOBAL: &str = "05-global";

/// Groups that virtual workspaces add to requests of initializers and terminators which they have authorized.
pub(super) const LIFECYCLE_GROUPS: [&str; 2] = ["system:kcp:initializer:", "system:kcp:terminator:"];

/// The steps that a review takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReviewDepth {
    /// All steps, as for a request.
    Request,
    /// kcp's deep review: without the checks of required groups, workspace content and maximal permission policy. For
    /// permissions that a user needs in a logical cluster to which it may have no access.
    Deep,
}

/// The authorizer `RBAC`.
pub(crate) struct RbacChain {
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) policies: Arc<PolicyIndex>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) exports: Arc<ExportLookup>,
    pub(crate) global: Arc<GlobalView>,
}

/// The fields of a LogicalCluster that authorization uses.
struct ClusterFacts {
    phase: Option<Phase>,
    required_groups: Option<Box<str>>,
    is_local: bool,
}

/// A user, with all users whose permissions it has in the logical cluster of the request.
struct Subjects<'u> {
    user: &'u UserInfo,
    effective: &'u [UserInfo],
}

impl Subjects<'_> {
    fn are_in(&self, group: &str) -> bool {
        self.effective.iter().any(|user| is_in(user, group))
    }
}

impl RbacChain {
    /// Decides on an action, for members of `system:masters` too. Takes some microseconds for users without scopes and
    /// warrants, once the policies are parsed, and allocates nothing.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>, depth: ReviewDepth) -> Authorization {
        // Requests across all logical clusters, and those without one, are for masters only. Exception: shards watch
        // each other's LogicalClusters with fewer permissions.
        let Some(ScopeSelector::One(scope)) = attributes.scopes else {
            return if attributes.scopes.is_some() && self.watches_logical_clusters(attributes) {
                Authorization::allow(BOOTSTRAP, "shards watch the LogicalClusters of each other")
            } else {
                Authorization::no_opinion(CONTENT, "empty or system workspace")
            };
        };
        let user = attributes.user;
        if has_no_scopes_or_warrants(user) {
            let subjects = Subjects { user, effective: std::slice::from_ref(user) };
            return self.decide(&subjects, scope, &attributes.action, depth);
        }
        let users = effective_users(user, scope.as_str());
        self.decide(&Subjects { user, effective: &users }, scope, &attributes.action, depth)
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

    /// The rules that a user has in a logical cluster, each once, for the escalation check and `kubectl auth can-i --list`.
    /// As in [`authorize`](Self::authorize), scopes and warrants count, and a service account of another logical cluster does
    /// not have the rules of the account with its name in this one.
    pub(crate) fn rules(
        &self,
        user: &UserInfo,
        cluster: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Rule>, Status> {
        let system = self.policies.system()?;
        let own = self.policies.of(cluster)?;
        let mut rules: Vec<Rule> = Vec::new();
        for user in effective_users(user, cluster) {
            let mut granted = system.rules(&user, namespace, None);
            if cluster != SYSTEM_ADMIN {
                granted.extend(own.rules(&user, namespace, Some(&system)));
            }
            for rule in granted {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        Ok(rules)
    }

    /// The policies that grant permissions in a logical cluster: its own and the global one.
    pub(crate) fn policies(&self, cluster: &str) -> Result<(Arc<Policy>, Arc<Policy>), Status> {
        Ok((self.policies.of(cluster)?, self.policies.system()?))
    }

    fn decide(
        &self,
        subjects: &Subjects<'_>,
        scope: &Scope,
        action: &Action<'_>,
        depth: ReviewDepth,
    ) -> Authorization {
        let cluster = scope.as_str();
        let facts = self.facts(cluster);
        if depth == ReviewDepth::Request {
            if let Err(decided) = check_required_groups(subjects, facts.as_ref()) {
                return decided;
            }
            match self.content_access(subjects, cluster, facts.as_ref(), action) {
                ContentAccess::Delegated => {}
                ContentAccess::Decided(decided) => return decided,
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
            return Authorization::deny(SYSTEM_CRD, "only the system writes this status");
        }
        if depth == ReviewDepth::Request && !self.is_within_maximal_policy(subjects.user, scope, action) {
            return Authorization::no_opinion(
                MAXIMAL_POLICY,
                "the maximal permission policy of the export does not permit it",
            );
        }
        let is_local = facts.is_some_and(|facts| facts.is_local);
        match self.rbac_permits(subjects.effective, cluster, action, is_local) {
            Some(step) => Authorization::allow(step, "a role permits it"),
            None => Authorization::no_opinion(LOCAL, "no role permits it"),
        }
    }

    /// Whether the user has access to the content of the logical cluster.
    fn content_access(
        &self,
        subjects: &Subjects<'_>,
        cluster: &str,
        facts: Option<&ClusterFacts>,
        action: &Action<'_>,
    ) -> ContentAccess {
        if is_of_shard(action) {
            return ContentAccess::Delegated;
        }
        if cluster.starts_with("system:") {
            return ContentAccess::Decided(Authorization::no_opinion(CONTENT, "empty or system workspace"));
        }
        if subjects.are_in(group::LOGICAL_CLUSTER_ADMIN) {
            return ContentAccess::Delegated;
        }
        let Some(facts) = facts else {
            return ContentAccess::Decided(Authorization::deny(CONTENT, "there is no such logical cluster"));
        };
        let is_accessible = matches!(
            facts.phase,
            Some(Phase::Initializing | Phase::Ready | Phase::Inactive | Phase::Terminating | Phase::Deleting)
        );
        if !is_accessible {
            let reason = "the phase of the logical cluster does not permit access";
            return ContentAccess::Decided(Authorization::no_opinion(CONTENT, reason));
        }
        let has_lifecycle_group = subjects
            .user
            .groups
            .iter()
            .any(|group| LIFECYCLE_GROUPS.iter().any(|prefix| group.starts_with(prefix)));
        if has_lifecycle_group
            && matches!(facts.phase, Some(Phase::Initializing | Phase::Terminating | Phase::Deleting))
        {
            let reason = "authorized by the virtual workspace of an initializer or terminator";
            return ContentAccess::Decided(Authorization::allow(CONTENT, reason));
        }
        // As in kcp, one without a logical cluster is an account of this one: that of an impersonation or of a review.
        if is_service_account(subjects.user) && is_in_scope(subjects.user, cluster) {
            return ContentAccess::Delegated;
        }
        let access = Action::NonResource { verb: "access", path: "/" };
        match self.rbac_permits(subjects.effective, cluster, &access, facts.is_local) {
            Some(_) => ContentAccess::Delegated,
            None => {
                let reason = "no role has the verb access on /";
                ContentAccess::Decided(Authorization::no_opinion(CONTENT, reason))
            }
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
        let bound = match self.definitions.export_of(scope, &name) {
            Ok(Some(bound)) => bound,
            Ok(None) => return true,
            Err(status) => {
                tracing::error!(%scope, %status, "bindings cannot be read; the request is refused");
                return false;
            }
        };
        match self.exports.in_cluster(&bound.cluster, &bound.name) {
            Ok(Some(export)) if export.has_maximal_policy() => {}
            // Without the export there is no policy.
            Ok(_) => return true,
            Err(status) => {
                tracing::error!(%scope, %status, "exports cannot be read; the request is refused");
                return false;
            }
        }
        let renamed = effective_users(&with_binding_prefix(user), scope.as_str());
        let is_local = self.clusters.get(&bound.cluster).is_some();
        self.rbac_permits(&renamed, &bound.cluster, action, is_local).is_some()
    }

    /// The step whose roles permit an action to one of the users.
    fn rbac_permits(
        &self,
        users: &[UserInfo],
        cluster: &str,
        action: &Action<'_>,
        is_local: bool,
    ) -> Option<&'static str> {
        let permitted = || -> Result<Option<&'static str>, Status> {
            let system = self.policies.system()?;
            if users.iter().any(|user| system.permits(user, action, None)) {
                return Ok(Some(BOOTSTRAP));
            }
            let (policy, step) = if is_local {
                (self.policies.of(cluster)?, LOCAL)
            } else {
                (self.policies.replicated(cluster)?, GLOBAL)
            };
            Ok(users.iter().any(|user| policy.permits(user, action, Some(&system))).then_some(step))
        };
        permitted().unwrap_or_else(|status| {
            tracing::error!(cluster, %status, "roles cannot be read; the request is refused");
            None
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
    /// The next step decides.
    Delegated,
    Decided(Authorization),
}

/// Step 01. Service accounts and the administrators of logical clusters need no groups.
fn check_required_groups(subjects: &Subjects<'_>, facts: Option<&ClusterFacts>) -> Result<(), Authorization> {
    if subjects.are_in(group::LOGICAL_CLUSTER_ADMIN) || is_service_account(subjects.user) {
        return Ok(());
    }
    let Some(facts) = facts else {
        return Err(Authorization::no_opinion(REQUIRED_GROUPS, "there is no such logical cluster"));
    };
    match &facts.required_groups {
        Some(required)
            if !subjects.are_in(group::EXTERNAL_LOGICAL_CLUSTER_ADMIN)
                && !satisfies_required_groups(subjects, required) =>
        {
            Err(Authorization::deny(REQUIRED_GROUPS, "a required group is missing"))
        }
        _ => Ok(()),
    }
}

/// Whether a user is in the required groups. `a,b;c` means (a and b) or c. Administrators and bootstrappers always
/// are.
fn satisfies_required_groups(subjects: &Subjects<'_>, required: &str) -> bool {
    required.split(';').any(|all| all.split(',').all(|one| subjects.are_in(one.trim())))
        || subjects.are_in(group::ADMIN)
        || subjects.are_in(group::WORKSPACE_BOOTSTRAPPER)
}

/// Whether an action is on a path of the shard, which permissions in root decide about whatever shard root is on.
fn is_of_shard(action: &Action<'_>) -> bool {
    matches!(action, Action::NonResource { path: "/metrics" | "/backup", .. })
}

fn is_service_account(user: &UserInfo) -> bool {
    user.name.starts_with("system:serviceaccount:")
}

/// Whether a user is a member of a group.
pub(crate) fn is_in(user: &UserInfo, group: &str) -> bool {
    user.groups.iter().any(|own| own == group)
}
