//! Removes deleted logical clusters: first the content, then the LogicalCluster. No key is left.
//!
//! 1. Content is removed tier by tier, as far as finalizers permit: objects of the logical cluster's own resources,
//!    then namespaces and CRDs, then objects of bound resources (child workspaces among them), then bindings, and last
//!    the roles, which clients need to remove finalizers.
//! 2. When no content is left, the logical cluster is sealed: `WorkspaceContentDeleted` becomes true, and from that
//!    revision on nothing can be created in it ([`creation_fence`](crate::creation_fence::creation_fence)).
//! 3. The content is checked once more, then the LogicalCluster is removed.

mod content;
mod sweep;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{
    Condition, LOGICAL_CLUSTER_NAME, Severity, condition_type, conditions_of, finalizer, set_condition,
    write_conditions,
};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::Origin;
use fairlead_process::Status;
use fairlead_store::{CommitError, Expect, Limits, Mutation, Revision};
use jiff::Timestamp;
use serde_json::Value;

use super::logical_cluster::{set_life_cycle_labels, sync_terminator_finalizer};
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::creation_fence::{has_terminators, is_sealed};
use crate::index::Definitions;
use crate::names::{CUSTOM, LOGICAL_CLUSTERS, WORKSPACES};
use crate::writes::Writes;

pub(super) use content::{FoundObject, origin_of, visit_all, visit_resource};
pub(super) use sweep::{NAMESPACE_FINALIZER, Sweep, mark_for_deletion, pause};

/// Controller of LogicalClusters that are being deleted.
pub(crate) struct Deletion {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) hub: Hub,
}

impl Deletion {
    /// The logical cluster to reconcile after an event of a LogicalCluster or a Workspace: one that is being deleted
    /// or was removed, or one that may have waited for a workspace in it.
    pub(crate) fn keys_of(event: &ObjectEvent) -> Option<Box<str>> {
        let is_relevant = if event.resource == *LOGICAL_CLUSTERS {
            event.is_deletion() || event.metadata().is_ok_and(|meta| meta.deletion_timestamp.is_some())
        } else {
            event.resource == *WORKSPACES && event.is_deletion()
        };
        is_relevant.then(|| (*event.scope).into())
    }
}

#[async_trait]
impl Controller for Deletion {
    type Key = Box<str>;

    const NAME: &'static str = "logicalcluster-deletion";
    const WORKERS: usize = 16;

    async fn reconcile(&self, cluster: &Box<str>) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        // Read before the content: a create that is committed after the sealing fails, because it depends on an older
        // revision.
        let Some(stored) =
            self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?
        else {
            return self.remove_leftovers(&scope).await;
        };
        let old = self.objects.tree(&stored)?;
        if old["metadata"]["deletionTimestamp"].is_null() {
            return Ok(ReconcileOutcome::Done);
        }
        let sweep = sweep(&self.objects, (&self.definitions, &self.hub), cluster).await?;
        let plan = plan(&old, &sweep, Timestamp::now());
        let writes = Writes::new(&self.objects, &self.definitions);
        let done = commit_sweep(writes, sweep, (&stored, &old), plan.logical_cluster).await?;
        Ok(if done.is_some() { plan.next } else { ReconcileOutcome::Retry })
    }
}

impl Deletion {
    /// Removes the content of a logical cluster that was removed without this controller (a client removed its
    /// finalizer), and ends its watches.
    async fn remove_leftovers(&self, scope: &Scope) -> Result<ReconcileOutcome, Status> {
        if scope.as_str().starts_with("system:") {
            return Ok(ReconcileOutcome::Done);
        }
        let mut rest = Sweep::within(self.objects.store().limits());
        visit_all(&self.objects, (&self.definitions, &self.hub), scope.as_str(), None, &mut |found| {
            if is_logical_cluster(found) { ControlFlow::Continue(()) } else { rest.remove(found) }
        })
        .await?;
        if !rest.has_no_mutations() {
            let mut writes = Writes::new(&self.objects, &self.definitions);
            writes.extend(rest.into_mutations());
            let key =
                self.objects.key(&LOGICAL_CLUSTERS, &CUSTOM, scope.as_str(), None, LOGICAL_CLUSTER_NAME);
            writes.extend([Mutation::fence(key, Expect::Absent)]);
            return Ok(if commit(writes).await?.is_some() {
                ReconcileOutcome::RequeueAfter(Duration::ZERO)
            } else {
                ReconcileOutcome::Retry
            });
        }
        // Watches receive the deletions before they end.
        if self.hub.wait(self.objects.store().revision()).await.is_ok() {
            let deleted = ScopeSelector::One(scope.clone());
            self.hub.end(|interest| interest.scopes == deleted);
        }
        Ok(ReconcileOutcome::Done)
    }
}

/// Commits a sweep and then the change of the object that it belongs to: `old`, read as `stored`, is replaced by
/// `new` or removed. Returns `None` after a conflict with another writer.
///
/// # Errors
/// As [`commit`]; and 500 when the object's kind is not served.
pub(super) async fn commit_sweep(
    mut writes: Writes<'_>,
    sweep: Sweep,
    (stored, old): (&StoredObject, &Value),
    new: Option<Value>,
) -> Result<Option<Revision>, Status> {
    let resource = writes.resource_of(old)?;
    writes.extend(sweep.into_mutations());
    match new {
        Some(new) => writes.replace(&resource, stored, new)?,
        None => writes.remove(&resource, stored, old),
    }
    commit(writes).await
}

/// Commits; returns `None` after a conflict with another writer.
///
/// # Errors
/// 500 when the store refuses for another reason.
pub(super) async fn commit(writes: Writes<'_>) -> Result<Option<Revision>, Status> {
    match writes.commit().await {
        Ok(revision) => Ok(Some(revision)),
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(Status::internal(error)),
    }
}

/// The change to the LogicalCluster, in the last commit of a sweep.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired LogicalCluster; `None` removes it.
    logical_cluster: Option<Value>,
    next: ReconcileOutcome,
}

/// Decides about a logical cluster that is being deleted, given the result of a sweep of its content.
fn plan(old: &Value, sweep: &Sweep, now: Timestamp) -> Plan {
    let mut new = old.clone();
    new["status"]["phase"] = if has_terminators(old) { "Terminating" } else { "Deleting" }.into();
    let mut next = ReconcileOutcome::RequeueAfter(Duration::ZERO);
    let mut conditions = conditions_of(old);
    let kind = condition_type::WORKSPACE_CONTENT_DELETED;
    if sweep.leaves_nothing() {
        if is_sealed(old) {
            if let Some(all) = new["metadata"]["finalizers"].as_array_mut() {
                all.retain(|one| one != finalizer::LOGICAL_CLUSTER);
            }
            next = ReconcileOutcome::Done;
        }
        set_condition(&mut conditions, Condition::met(kind), now);
        if has_terminators(old) {
            // The change that removes the last terminator requeues the logical cluster.
            next = ReconcileOutcome::Done;
        }
    } else if let Some(message) = message(sweep) {
        let unmet = Condition::unmet(kind, Severity::Info, "SomeResourcesRemain", message);
        set_condition(&mut conditions, unmet, now);
        if !sweep.is_truncated() {
            next = ReconcileOutcome::RequeueAfter(pause(old, now));
        }
    }
    write_conditions(&mut new, &conditions);
    set_life_cycle_labels(&mut new);
    sync_terminator_finalizer(&mut new);
    let is_kept = new["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    Plan {
        logical_cluster: is_kept.then_some(new),
        next: if is_kept { next } else { ReconcileOutcome::Done },
    }
}

fn message(sweep: &Sweep) -> Option<String> {
    let remaining = format!("Some resources are remaining: {}", sweep.remaining()?);
    Some(match sweep.finalizers() {
        Some(finalizers) => {
            format!("{remaining}; Some content in the logical cluster has finalizers remaining: {finalizers}")
        }
        None => remaining,
    })
}

/// Sweeps all content of a logical cluster.
async fn sweep(objects: &ObjectStore, index: (&Definitions, &Hub), cluster: &str) -> Result<Sweep, Status> {
    let mut tiers = Tiers::within(objects.store().limits());
    visit_all(objects, index, cluster, None, &mut |found| tiers.add(objects, found)).await?;
    Ok(tiers.into_sweep())
}

/// The content by tier, in the order of deletion. A tier is deleted when nothing is left of those before it.
struct Tiers {
    content: Sweep,
    /// Namespaces and CRDs, if they are removed in this pass.
    holders: Sweep,
    /// Namespaces and CRDs, if they wait for their content: they are marked, so that nothing is added to them.
    waiting_holders: Sweep,
    bound: Sweep,
    bindings: Sweep,
    roles: Sweep,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tier {
    Content,
    Holders,
    Bound,
    Bindings,
    Roles,
}

impl Tiers {
    fn within(limits: Limits) -> Self {
        let sweep = || Sweep::within(limits);
        Self {
            content: sweep(),
            holders: sweep(),
            waiting_holders: sweep(),
            bound: sweep(),
            bindings: sweep(),
            roles: sweep(),
        }
    }

    fn add(&mut self, objects: &ObjectStore, found: &FoundObject<'_>) -> ControlFlow<()> {
        if is_logical_cluster(found) {
            return ControlFlow::Continue(());
        }
        let tier =
            tier_of(found.parts.group, found.parts.resource, &origin_of(&found.parts), found.parts.namespace);
        let sweep = match tier {
            // No other tier is deleted while content fills a whole commit.
            Tier::Content => return self.content.add(objects, found),
            Tier::Holders => {
                self.waiting_holders.mark_holder(objects, found);
                &mut self.holders
            }
            Tier::Bound => &mut self.bound,
            Tier::Bindings => &mut self.bindings,
            Tier::Roles => &mut self.roles,
        };
        // A truncated sweep records that itself.
        let _ = sweep.add(objects, found);
        ControlFlow::Continue(())
    }

    fn into_sweep(self) -> Sweep {
        let mut sweep = self.content;
        if !sweep.leaves_nothing() {
            sweep.append(self.waiting_holders);
            return sweep;
        }
        for tier in [self.holders, self.bound, self.bindings, self.roles] {
            if sweep.leaves_nothing() {
                sweep.append(tier);
            }
        }
        sweep
    }
}

fn tier_of(group: &str, resource: &str, origin: &Origin, namespace: Option<&str>) -> Tier {
    match (group, resource) {
        _ if namespace.is_some() => Tier::Content,
        _ if matches!(origin, Origin::Identity(_)) => Tier::Bound,
        ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions") => Tier::Holders,
        ("apis.kcp.io", "apibindings") => Tier::Bindings,
        ("rbac.authorization.k8s.io", "clusterroles" | "clusterrolebindings") => Tier::Roles,
        _ => Tier::Content,
    }
}

fn is_logical_cluster(found: &FoundObject<'_>) -> bool {
    found.parts.group == &*LOGICAL_CLUSTERS.group
        && found.parts.resource == &*LOGICAL_CLUSTERS.resource
        && found.parts.name == LOGICAL_CLUSTER_NAME
}

#[cfg(test)]
mod tests;
