//! The permissions of a provider in the view of its export. All of these must hold: the consumer has bound the export and, for a claimed
//! resource, accepted the claim with the verb; a role in the export's logical cluster permits the verb on the content of the export; the
//! maximal permission policy of a claimed resource permits the action; and the consumer's shard permits it to the provider's account in
//! the logical cluster, as for any other request.

use fairlead_api::{AcceptedClaim, ClaimState};
use fairlead_apiserver::{Action, Attributes, Authorization, Scope, ScopeSelector};
use fairlead_authn::{AuthenticationMethod, Identity};
use fairlead_names::ResourceName;
use fairlead_process::Status;

use super::rules::warranted;
use super::source::{Binding, Export, Exports, claimed_name, names};
use super::{API_BINDINGS, APIS_GROUP};
use crate::shard::Shard;

const BINDING: &str = "virtual.apiexport.boundapi";
const CONTENT: &str = "virtual.apiexport.content";
const POLICY: &str = "virtual.apiexport.maxpermissionpolicy";

/// The authorizer of an export's view.
pub(super) struct ExportAuthorizer<'e> {
    pub(super) export: &'e Export,
    pub(super) shard: &'e dyn Shard,
    pub(super) exports: &'e dyn Exports,
}

impl ExportAuthorizer<'_> {
    pub(super) async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        match self.decide(attributes).await {
            Ok(authorization) => authorization,
            Err(status) => {
                tracing::error!(%status, "an APIExport cannot be read; the request is refused");
                Authorization::no_opinion(BINDING, "the export or a binding cannot be read")
            }
        }
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Result<Authorization, Status> {
        let cluster = attributes.scopes.and_then(ScopeSelector::one);
        let requested = requested(&attributes.action);
        if let (Some(cluster), Some((resource, verb))) = (cluster, &requested)
            && let Err(refusal) = self.check_binding(cluster, resource, verb)?
        {
            return Ok(refusal);
        }
        if !permits_content(self.exports, attributes, &self.export.cluster, &self.export.name).await {
            return Ok(Authorization::no_opinion(
                CONTENT,
                "no role permits the verb on the content of the export",
            ));
        }
        let Some((resource, _)) = &requested else {
            return Ok(Authorization::allow(CONTENT, "a role permits the verb on the content of the export"));
        };
        if let Some(refusal) = self.check_policies(attributes, resource).await? {
            return Ok(refusal);
        }
        match cluster {
            Some(cluster) => Ok(self.in_cluster(attributes, cluster).await),
            None => Ok(Authorization::allow(POLICY, "permitted by all policies")),
        }
    }

    fn check_binding(
        &self,
        cluster: &Scope,
        resource: &ResourceName,
        verb: &str,
    ) -> Result<Result<(), Authorization>, Status> {
        let deny = |reason| Ok(Err(Authorization::deny(BINDING, reason)));
        let Some(binding) = self.exports.binding(cluster, self.export)? else {
            return deny("could not find suitable APIBinding in target logical cluster");
        };
        // A resource that the consumer has bound and the export claims now instead: only the claim counts.
        let is_exported = self.export.resources.iter().any(|exported| exported.name == *resource);
        let is_claimed = !is_exported && self.export.claims.iter().any(|own| names(own, resource));
        if (binding.binds(resource) && !is_claimed) || self.is_claim_accepted(&binding, resource, verb) {
            return Ok(Ok(()));
        }
        if *resource.group == *APIS_GROUP && *resource.resource == *API_BINDINGS {
            return Ok(match verb {
                "get" | "list" | "watch" => Ok(()),
                _ => {
                    let reason = "write access to APIBinding is not allowed from virtual workspace";
                    Err(Authorization::no_opinion(BINDING, reason))
                }
            });
        }
        deny("failed to find suitable reason to allow access in APIBinding")
    }

    /// Whether the consumer has accepted a claim of the export with the verb. `*` on either side means all verbs of the other; in kcp it
    /// means itself only, so that a claim of all verbs that is accepted with some gives none.
    fn is_claim_accepted(&self, binding: &Binding, resource: &ResourceName, verb: &str) -> bool {
        let claimed = claimed_name(resource);
        let accepted = |claim: &&AcceptedClaim| {
            claim.state == Some(ClaimState::Accepted) && names(&claim.claim, &claimed)
        };
        binding.claims.iter().filter(accepted).any(|accepted| {
            let own = self
                .export
                .claims
                .iter()
                .find(|own| names(own, &claimed) && own.identity_hash == accepted.claim.identity_hash);
            own.is_some_and(|own| has(&own.verbs, verb) && has(&accepted.claim.verbs, verb))
        })
    }

    /// The refusal of the maximal permission policy of an export that provides a claimed resource.
    async fn check_policies(
        &self,
        attributes: &Attributes<'_>,
        resource: &ResourceName,
    ) -> Result<Option<Authorization>, Status> {
        // A resource of the export itself takes precedence over a claim of the same name.
        if self.export.resources.iter().any(|own| own.name == *resource) {
            return Ok(None);
        }
        let claimed = claimed_name(resource);
        let claim = self.export.claims.iter().find(|claim| names(claim, &claimed));
        let Some(claim) = claim.filter(|claim| !claim.identity_hash.is_empty()) else { return Ok(None) };
        let providers = self.exports.by_identity(&claim.identity_hash)?;
        if providers.is_empty() {
            let reason = "no API export providing claimed resources found for identity hash";
            return Ok(Some(Authorization::deny(POLICY, reason)));
        }
        // Exports may share an identity, and nothing says which of them the consumer has bound: all must agree.
        for provider in providers.iter().filter(|provider| provider.has_maximal_policy) {
            if !self.exports.is_within_policy(attributes.user, provider, &attributes.action).await {
                let reason = "the maximal permission policy of a claimed resource does not permit it";
                return Ok(Some(Authorization::no_opinion(POLICY, reason)));
            }
        }
        Ok(None)
    }

    /// The decision of the consumer's shard, which also considers the phase of the logical cluster.
    async fn in_cluster(&self, attributes: &Attributes<'_>, cluster: &Scope) -> Authorization {
        let client = Identity::new(attributes.user.clone(), AuthenticationMethod::ClientCertificate, None);
        let provider = warranted(&client, cluster);
        let in_cluster = Attributes { user: provider.user(), ..*attributes };
        self.shard.host().authorize(&in_cluster).decided().await
    }
}

/// Whether a role in the logical cluster of an export permits the verb of an action on its content.
pub(crate) async fn permits_content(
    exports: &dyn Exports,
    attributes: &Attributes<'_>,
    cluster: &Scope,
    export: &str,
) -> bool {
    let (Action::Resource { verb, .. } | Action::NonResource { verb, .. }) = attributes.action;
    let action = Action::Resource {
        verb,
        group: APIS_GROUP,
        version: "v1alpha1",
        resource: "apiexports",
        subresource: Some("content"),
        namespace: None,
        name: Some(export),
    };
    exports.permits_content(attributes.user, cluster, &action).await
}

fn requested<'a>(action: &Action<'a>) -> Option<(ResourceName, &'a str)> {
    match *action {
        Action::Resource { verb, group, resource, .. } => Some((ResourceName::new(group, resource), verb)),
        Action::NonResource { .. } => None,
    }
}

fn has(verbs: &[String], wanted: &str) -> bool {
    verbs.iter().any(|verb| verb == "*" || verb == wanted)
}
