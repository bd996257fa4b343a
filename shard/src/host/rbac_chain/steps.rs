//! The steps of an authorization for the audit log, by the names that kcp's have. Each step decides or delegates to the next, and a
//! step that delegates has the decision of the next.

use fairlead_api::group;
use fairlead_apiserver::{Action, Attributes, AuthorizationStep, Decision, Scope, ScopeSelector};

use super::super::effective::effective_users;
use super::{
    ContentAccess, RbacChain, Subjects, is_in, is_of_shard, is_service_account, satisfies_required_groups,
};
use crate::names::SYSTEM_ADMIN;

impl RbacChain {
    /// The steps, outermost first; none for members of `system:masters`, who are not subject to them. They repeat the authorization,
    /// so they are for requests that are recorded.
    pub(crate) fn steps(&self, attributes: &Attributes<'_>) -> Vec<AuthorizationStep> {
        if is_in(attributes.user, group::MASTERS) {
            return Vec::new();
        }
        let Some(ScopeSelector::One(scope)) = attributes.scopes else {
            return vec![step("01-requiredgroups", Decision::NoOpinion, "empty cluster name")];
        };
        let users = effective_users(attributes.user, scope.as_str());
        let subjects = Subjects { user: attributes.user, effective: &users };
        self.steps_of(&subjects, scope, &attributes.action)
    }

    fn steps_of(
        &self,
        subjects: &Subjects<'_>,
        scope: &Scope,
        action: &Action<'_>,
    ) -> Vec<AuthorizationStep> {
        let cluster = scope.as_str();
        let facts = self.facts(cluster);
        let mut steps = Delegations::default();
        let required = match &facts {
            _ if subjects.are_in(group::LOGICAL_CLUSTER_ADMIN) => "logical cluster admin access".to_owned(),
            _ if is_service_account(subjects.user) => "service account access to logical cluster".to_owned(),
            None => {
                return steps.ended("01-requiredgroups", Decision::NoOpinion, "logical cluster not found");
            }
            Some(_) if subjects.are_in(group::EXTERNAL_LOGICAL_CLUSTER_ADMIN) => {
                "external logical cluster admin access".to_owned()
            }
            Some(facts) => match &facts.required_groups {
                None => "logical cluster does not require groups".to_owned(),
                Some(required) if satisfies_required_groups(subjects, required) => {
                    format!("user is member of required groups: {required}")
                }
                Some(required) => {
                    let reason = format!("user is not a member of required groups: {required}");
                    return steps.ended("01-requiredgroups", Decision::Deny(""), &reason);
                }
            },
        };
        steps.delegate("01-requiredgroups", &required);
        if is_of_shard(action) {
            steps.delegate("02-content", "shard-level path");
        } else if cluster.starts_with("system:") {
            return steps.ended("02-content", Decision::NoOpinion, "empty or system workspace");
        } else {
            match self.content_access(subjects, cluster, facts.as_ref(), action) {
                ContentAccess::Delegated => steps.delegate("02-content", "user logical cluster access"),
                ContentAccess::Decided(decided) => match decided.decision {
                    Decision::Deny(_) => {
                        return steps.ended("02-content", Decision::Deny(""), "LogicalCluster not found");
                    }
                    decision => return steps.ended("02-content", decision, &decided.reason),
                },
            }
        }
        if let Action::Resource {
            group: "apis.kcp.io",
            resource: resource @ ("apibindings" | "apiexports"),
            subresource: Some("status"),
            verb,
            ..
        } = *action
            && verb != "get"
        {
            let reason = format!("{} status updates not permitted", resource.trim_end_matches('s'));
            return steps.ended("03-systemcrd", Decision::Deny(""), &reason);
        }
        steps.delegate("03-systemcrd", "no status of a system CRD");
        if !self.is_within_maximal_policy(subjects.user, scope, action) {
            let reason = "access not permitted by the maximal permission policy";
            return steps.ended("04-maxpermissionpolicy", Decision::NoOpinion, reason);
        }
        steps.delegate("04-maxpermissionpolicy", "within the maximal permission policy");
        let is_local = facts.is_some_and(|facts| facts.is_local);
        let system = self.policies.system();
        let by_bootstrap = system
            .as_ref()
            .is_ok_and(|system| subjects.effective.iter().any(|user| system.permits(user, action, None)));
        if by_bootstrap {
            return steps.ended("05-bootstrap", Decision::Allow, "bootstrap policy: access granted");
        }
        let inner = step("05-bootstrap", Decision::NoOpinion, "bootstrap policy: access denied");
        let (name, kind) = if is_local { ("05-local", "local") } else { ("05-global", "global") };
        let is_allowed = cluster != SYSTEM_ADMIN
            && self.rbac_permits(subjects.effective, cluster, action, is_local).is_some();
        let (decision, verdict) = match is_allowed {
            true => (Decision::Allow, "access granted"),
            false => (Decision::NoOpinion, "access denied"),
        };
        let mut all = steps.ended(name, decision, &format!("{kind} cluster {cluster:?} policy: {verdict}"));
        all.insert(all.len() - 1, inner);
        all
    }
}

/// Steps that delegate to the next one.
#[derive(Default)]
struct Delegations(Vec<(&'static str, String)>);

impl Delegations {
    fn delegate(&mut self, name: &'static str, reason: &str) {
        self.0.push((name, format!("delegating due to {reason}")));
    }

    /// All steps, with the one that decides.
    fn ended(self, name: &'static str, decision: Decision, reason: &str) -> Vec<AuthorizationStep> {
        let delegations = self.0.into_iter();
        let mut steps: Vec<AuthorizationStep> =
            delegations.map(|(name, reason)| step(name, decision.clone(), &reason)).collect();
        steps.push(step(name, decision, reason));
        steps
    }
}

fn step(name: &'static str, decision: Decision, reason: &str) -> AuthorizationStep {
    AuthorizationStep { name, decision, reason: reason.to_owned() }
}
