//! The objects of one resource that an export's view has, and the writes that it permits.

use std::sync::Arc;

use fairlead_api::{AcceptedClaim, ClaimSelector, ClaimState};
use fairlead_apiserver::registry::{ServedResource, Target};
use fairlead_apiserver::request::LabelSelector;
use fairlead_apiserver::{RequestedResource, Scope};
use fairlead_authn::Identity;
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status};
use serde_json::{Value, json};

use super::source::{Export, Exports, claimed_name, names};
use crate::filtered::ViewRules;
use crate::shard::Shard;

/// kcp's extra of users who act with the permissions of another one.
const WARRANT: &str = "authorization.kcp.io/warrant";
const CLUSTER_NAME: &str = "authentication.kcp.io/cluster-name";
const PROVIDER_ACCOUNT: &str = "system:serviceaccount:default:rest";
const ADMINISTRATORS: &str = "system:kcp:admin";

/// The reason why a view has objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Objects {
    /// They are of the export's identity.
    Exported,
    /// Consumers have accepted a claim.
    Claimed,
    /// They are bindings to the export.
    Bindings,
}

/// The rules of one resource.
pub(super) struct ExportRules {
    pub(super) export: Arc<Export>,
    pub(super) resource: ResourceName,
    pub(super) origin: Origin,
    pub(super) objects: Objects,
    pub(super) labels: LabelSelector,
    pub(super) shard: Arc<dyn Shard>,
    pub(super) exports: Arc<dyn Exports>,
}

impl ViewRules for ExportRules {
    fn labels(&self) -> &LabelSelector {
        &self.labels
    }

    /// The resource as the logical cluster serves it, whose schema may be another version of the export's. Across logical clusters it
    /// is the export's own.
    fn resource(&self, target: &Target) -> Result<Option<Arc<ServedResource>>, Status> {
        let Origin::Identity(identity) = &self.origin else { return Ok(None) };
        if target.scopes.one().is_none() {
            return Ok(None);
        }
        let wanted = RequestedResource {
            name: &self.resource,
            version: &target.version,
            identity: Some(identity),
            is_metadata_only: false,
        };
        let served = self.shard.host().resolve(&target.scopes, &wanted)?;
        // A resource that every logical cluster serves takes precedence over a bound one of the same name: it is another resource.
        let is_own = |served: &Arc<ServedResource>| {
            served.origin == self.origin && served.version(&target.version).is_some()
        };
        let served = served.filter(is_own);
        served.map(Some).ok_or_else(Status::unknown_resource)
    }

    fn identity(&self, target: &Target) -> Arc<Identity> {
        match target.scopes.one() {
            Some(cluster) => warranted(&target.identity, cluster),
            // Reads only.
            None => Arc::clone(&target.identity),
        }
    }

    fn change(
        &self,
        target: &Target,
        name: &str,
        _old: Option<&Value>,
        new: &mut Value,
    ) -> Result<(), Status> {
        let Some(selector) = self.selector(target)? else { return Ok(()) };
        for (key, value) in &selector.match_labels {
            let labels = &mut new["metadata"]["labels"];
            match labels[key].as_str() {
                None => labels[key] = value.as_str().into(),
                Some(present) if present == value => {}
                Some(_) => {
                    return Err(
                        self.forbidden(name, &format!("protected label {key} must have value {value}"))
                    );
                }
            }
        }
        self.check_selected(&selector, name, new)
    }

    fn delete(&self, target: &Target, name: &str, old: &Value) -> Result<(), Status> {
        match self.selector(target)? {
            // A deletecollection deletes what it selects.
            Some(selector) if target.name.is_some() => self.check_selected(&selector, name, old),
            Some(_) | None => Ok(()),
        }
    }
}

impl ExportRules {
    /// The selector of the accepted claim, if it restricts writes in the logical cluster of a request.
    fn selector(&self, target: &Target) -> Result<Option<ClaimSelector>, Status> {
        if self.objects == Objects::Exported {
            return Ok(None);
        }
        let binding = self.exports.binding(target.scope()?, &self.export)?.ok_or_else(|| {
            self.forbidden(
                "",
                "could not find suitable apibinding in target logical cluster: no suitable binding found",
            )
        })?;
        let claimed = claimed_name(&self.resource);
        let is_own = |claim: &&AcceptedClaim| {
            claim.state == Some(ClaimState::Accepted) && names(&claim.claim, &claimed)
        };
        let accepted = binding.claims.iter().find(is_own);
        let selector = accepted.and_then(|claim| claim.selector.clone());
        Ok(selector.filter(|selector| !selector.match_all))
    }

    fn check_selected(&self, selector: &ClaimSelector, name: &str, object: &Value) -> Result<(), Status> {
        let invalid = |error: String| {
            self.forbidden(name, &format!("error building selector from provided label selector: {error}"))
        };
        let requirements = serde_json::to_value(&selector.match_expressions).map_err(Status::internal)?;
        let text = json!({"matchLabels": selector.match_labels, "matchExpressions": requirements});
        let selector = LabelSelector::of_object(&text).map_err(|error| invalid(error.to_string()))?;
        let labels = &object["metadata"]["labels"];
        if selector.selects(|key| labels[key].as_str()) {
            return Ok(());
        }
        Err(self.forbidden(name, "object does not match required labels"))
    }

    fn forbidden(&self, name: &str, reason: &str) -> Status {
        Status::forbidden(GroupResource::new(&self.resource.group, &self.resource.resource), name, reason)
    }
}

/// The provider in a logical cluster: with the warrant of an account there that may do everything. The permissions that matter were
/// checked before, in the logical cluster of the export.
pub(super) fn warranted(client: &Identity, cluster: &Scope) -> Arc<Identity> {
    let warrant = json!({
        "user": PROVIDER_ACCOUNT,
        "groups": [ADMINISTRATORS],
        "extra": {(CLUSTER_NAME): [cluster.as_str()]},
    });
    let mut user = client.user().clone();
    user.extra.entry(WARRANT.to_owned()).or_default().push(warrant.to_string());
    Arc::new(Identity::new(user, client.method(), client.expires()))
}
