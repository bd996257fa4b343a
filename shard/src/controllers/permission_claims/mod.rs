//! Labels the existing objects of a logical cluster when its permission claims change, and writes the status of the claims.
//!
//! The status of a binding says which claims are applied: those whose labels are set. It is written after the labels, and only if
//! the binding has not changed since it was read. So a process that ends in between repeats the work.

mod relabel;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use jiff::Timestamp;
use serde_json::Value;

use self::relabel::relabel;
use self::status::{Failures, with_status};
use super::deletion::commit;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::{ClusterIndex, Definitions};
use crate::names::{API_BINDINGS, CUSTOM};
use crate::permission_claims::{BindingClaims, ClusterClaims, OutdatedLabels};
use crate::writes::Writes;

/// Controller of the claims of a logical cluster.
pub(crate) struct PermissionClaimLabels {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
}

#[async_trait]
impl Controller for PermissionClaimLabels {
    type Key = Box<str>;

    const NAME: &'static str = "permission-claims";
    const WORKERS: usize = 16;

    async fn reconcile(&self, cluster: &Box<str>) -> Result<ReconcileOutcome, Status> {
        // Taken before the bindings are read: later changes queue the logical cluster again.
        let outdated = self.definitions.claims().take_outdated(cluster);
        // The `deletion` controller removes the content of a deleted logical cluster.
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let outcome = self.reconcile_cluster(cluster, &outdated).await;
        if !matches!(outcome, Ok(ReconcileOutcome::Done)) {
            self.definitions.claims().return_outdated(cluster, outdated);
        }
        outcome
    }
}

/// An APIBinding as it was read.
struct ReadBinding {
    stored: StoredObject,
    object: Value,
    claims: BindingClaims,
}

impl PermissionClaimLabels {
    async fn reconcile_cluster(
        &self,
        cluster: &str,
        outdated: &OutdatedLabels,
    ) -> Result<ReconcileOutcome, Status> {
        let bindings = self.bindings(cluster)?;
        let rules = bindings.iter().map(|binding| (name_of(&binding.object).into(), binding.claims.rules()));
        let claims = ClusterClaims::of(rules);
        let mut resources = outdated.resources.clone();
        for binding in &bindings {
            resources.append(&mut binding.claims.outdated_resources());
            if outdated.are_all {
                resources.append(&mut binding.claims.resources());
            }
        }
        let mut failures: Failures = BTreeMap::new();
        for resource in resources {
            match relabel(&self.objects, cluster, &resource, &claims).await {
                Ok(()) => {}
                // Other writers were faster, again and again.
                Err(status) if status.code == 409 => return Err(status),
                Err(status) => {
                    failures.insert(resource, status);
                }
            }
        }
        let mut outcome = match failures.is_empty() {
            true => ReconcileOutcome::Done,
            false => ReconcileOutcome::Retry,
        };
        for binding in &bindings {
            let new = with_status(&binding.object, &binding.claims, &failures, Timestamp::now());
            if new == binding.object {
                continue;
            }
            let mut writes = Writes::new(&self.objects, &self.definitions);
            let resource = writes.resource_of(&new)?;
            writes.replace(&resource, &binding.stored, new)?;
            if commit(writes).await?.is_none() {
                outcome = ReconcileOutcome::Retry;
            }
        }
        if let Some((resource, status)) = failures.iter().next() {
            tracing::warn!(cluster, resource = %resource.0, %status, "claimed objects cannot be labelled");
        }
        Ok(outcome)
    }

    fn bindings(&self, cluster: &str) -> Result<Vec<ReadBinding>, Status> {
        let one = ScopeSelector::One(Scope::new(cluster));
        let mut bindings = Vec::new();
        for stored in self.objects.list(&API_BINDINGS, &CUSTOM, &one, None)? {
            let object = self.objects.tree(&stored)?;
            // The index reports malformed ones.
            let claims = BindingClaims::parse(stored.object.as_object().json()).unwrap_or_default();
            bindings.push(ReadBinding { stored, object, claims });
        }
        Ok(bindings)
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
