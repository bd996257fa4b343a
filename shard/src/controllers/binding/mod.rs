//! Binds APIBindings to root's exports if their resources are free, and removes the objects of deleted bindings.
//!
//! The LogicalCluster records which binding owns which resource (kcp's resource locks). Binding and lock are written
//! in one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{
    Condition, LOGICAL_CLUSTER_NAME, Severity, condition_type, conditions_of, finalizer, is_condition_true,
    set_condition, set_summary, write_conditions,
};
use fairlead_apiserver::hub::ObjectEvent;
use fairlead_apiserver::object::ObjectBytes;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_store::Range;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::deletion::{Sweep, commit, pause, visit_resource};
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::exports::RootExports;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{API_BINDINGS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, LOGICAL_CLUSTERS};
use crate::resource_locks::ResourceLocks;
use crate::writes::Writes;

/// Logical cluster and name of an APIBinding.
pub(crate) type BindingKey = (Box<str>, Box<str>);

/// Controller of APIBindings.
pub(crate) struct Bindings {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) exports: Arc<RootExports>,
}

impl Bindings {
    /// The bindings to reconcile after an event of an APIBinding or a CRD: the binding itself, or all that may have
    /// waited for a resource.
    pub(crate) fn keys_of(&self, event: &ObjectEvent) -> Vec<BindingKey> {
        let is_binding = event.resource == *API_BINDINGS;
        if !event.is_deletion() {
            let is_relevant = is_binding && !is_settled(event.object().json());
            let own = is_relevant.then(|| ((*event.scope).into(), event.name.clone()));
            return own.into_iter().collect();
        }
        if !is_binding && event.resource != *CUSTOM_RESOURCE_DEFINITIONS {
            return Vec::new();
        }
        let all = self.list(&Scope::new(&event.scope)).inspect_err(|error| {
            tracing::error!(cluster = %event.scope, %error, "waiting bindings cannot be read");
        });
        let names = all.unwrap_or_default();
        names.iter().filter_map(|(_, one)| Some(((*event.scope).into(), name_of(one)?.into()))).collect()
    }

    /// The bindings of all logical clusters that need a reconciliation.
    pub(crate) fn unsettled(&self) -> Vec<BindingKey> {
        let range = Range::prefix(self.objects.codec().range(&API_BINDINGS, &CUSTOM, "", None));
        let mut keys = Vec::new();
        let read = self.objects.store().scan(&range, None, &mut |record| {
            if let (Ok(key), Ok(object)) =
                (self.objects.codec().decode(record.key), ObjectBytes::parse(record.value))
                && !is_settled(object.json())
            {
                keys.push((key.scope.into(), key.name.into()));
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = read {
            tracing::error!(%error, "bindings cannot be read");
        }
        keys
    }
}

/// Whether a binding is bound and not being deleted. Bindings are created in this state with a workspace, and mostly
/// stay in it.
fn is_settled(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Wire {
        metadata: WireMetadata,
        #[serde(default)]
        status: WireStatus,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireMetadata {
        #[serde(default)]
        deletion_timestamp: Option<serde::de::IgnoredAny>,
    }
    #[derive(Default, Deserialize)]
    struct WireStatus {
        #[serde(default)]
        phase: String,
    }
    serde_json::from_slice::<Wire>(json)
        .is_ok_and(|binding| binding.metadata.deletion_timestamp.is_none() && binding.status.phase == "Bound")
}

#[async_trait]
impl Controller for Bindings {
    type Key = BindingKey;

    const NAME: &'static str = "apibinding";
    const WORKERS: usize = 16;

    async fn reconcile(&self, (cluster, name): &BindingKey) -> Result<ReconcileOutcome, Status> {
        // The `deletion` controller removes the content of a deleted logical cluster.
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let scope = Scope::new(cluster);
        let bindings = self.list(&scope)?;
        let Some((stored, binding)) = bindings.iter().find(|(_, one)| name_of(one) == Some(name)) else {
            return Ok(ReconcileOutcome::Done);
        };
        let lock_holder = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
        let Some(lock_holder) = lock_holder else { return Ok(ReconcileOutcome::Done) };
        let logical_cluster = self.objects.tree(&lock_holder)?;
        let others: Vec<&Value> = bindings.iter().map(|(_, one)| one).filter(|one| *one != binding).collect();
        let context = BindingContext {
            exports: &self.exports,
            locks: ResourceLocks::of(&logical_cluster),
            others: &others,
            crds: self.crds(&scope)?,
        };
        let mut sweep = Sweep::default();
        let plan = if binding["metadata"]["deletionTimestamp"].is_null() {
            bind(binding, &context, Timestamp::now())
        } else {
            self.sweep(&scope, binding, &others, &mut sweep).await?;
            unbind(binding, &context, &sweep, Timestamp::now())
        };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(binding)?;
        writes.extend(sweep.into_mutations());
        match plan.binding {
            Some(new) => writes.replace(&resource, stored, new)?,
            None => writes.remove(&resource, stored, binding),
        }
        // A CRD that takes one of the resources meanwhile changes the LogicalCluster, too.
        let mut new = logical_cluster.clone();
        plan.locks.set(&mut new);
        let resource = writes.resource_of(&new)?;
        writes.replace_or_fence(&resource, &lock_holder, new)?;
        Ok(if commit(writes).await?.is_some() { plan.next } else { ReconcileOutcome::Retry })
    }
}

impl Bindings {
    fn list(&self, scope: &Scope) -> Result<Vec<(StoredObject, Value)>, Status> {
        let all = self.objects.list(&API_BINDINGS, &CUSTOM, &ScopeSelector::One(scope.clone()), None)?;
        all.into_iter().map(|stored| self.objects.tree(&stored).map(|tree| (stored, tree))).collect()
    }

    /// The resources of established CRDs in a logical cluster, in the form of lock names.
    fn crds(&self, scope: &Scope) -> Result<BTreeSet<String>, Status> {
        let one = ScopeSelector::One(scope.clone());
        let mut names = BTreeSet::new();
        for stored in self.objects.list(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, None)? {
            let crd = self.objects.tree(&stored)?;
            let conditions = crd["status"]["conditions"].as_array();
            let is_established = conditions.is_some_and(|all| {
                all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
            });
            names.extend(name_of(&crd).filter(|_| is_established).map(str::to_owned));
        }
        Ok(names)
    }

    /// Collects the objects of the bound resources, unless another binding adopts them.
    async fn sweep(
        &self,
        scope: &Scope,
        binding: &Value,
        others: &[&Value],
        sweep: &mut Sweep,
    ) -> Result<(), Status> {
        if others.iter().any(|other| adopts(other, binding)) {
            return Ok(());
        }
        for bound in binding["status"]["boundResources"].as_array().into_iter().flatten() {
            let (Some(resource), Some(identity)) = (
                bound["resource"].as_str(),
                bound["schema"]["identityHash"].as_str().filter(|hash| !hash.is_empty()),
            ) else {
                continue;
            };
            let resource = ResourceName::new(bound["group"].as_str().unwrap_or_default(), resource);
            let origin = Origin::Identity(identity.into());
            let cluster = scope.as_str();
            // A full sweep stops by itself.
            let _ = visit_resource(&self.objects, &resource, &origin, cluster, None, &mut |found| {
                sweep.add(&self.objects, found)
            })
            .await?;
            if sweep.is_truncated() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Inputs of a decision about a binding.
struct BindingContext<'a> {
    exports: &'a RootExports,
    locks: ResourceLocks,
    /// The other bindings of the logical cluster.
    others: &'a [&'a Value],
    crds: BTreeSet<String>,
}

/// The change to a binding, in the same commit as the sweep of its objects.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired binding; `None` removes it.
    binding: Option<Value>,
    locks: ResourceLocks,
    next: ReconcileOutcome,
}

/// Decides about a binding that is not being deleted. It binds all of its resources or none.
fn bind(old: &Value, context: &BindingContext<'_>, now: Timestamp) -> Plan {
    let mut locks = context.locks.clone();
    let name = name_of(old).unwrap_or_default();
    let Some(mut new) = context.exports.as_bound(old.clone(), now) else {
        let binding = Some(without_export(old, now));
        return Plan { binding, locks, next: ReconcileOutcome::Done };
    };
    new["metadata"]["finalizers"] = old["metadata"]["finalizers"].clone();
    add_finalizer(&mut new);
    let desired = context.exports.locks(std::slice::from_ref(old));
    let conflicts: BTreeMap<&String, (&str, bool)> = desired
        .0
        .keys()
        .filter_map(|resource| {
            let exists = |holder: &str| context.others.iter().any(|other| name_of(other) == Some(holder));
            if context.crds.contains(resource) {
                return Some((resource, ("", true)));
            }
            let holder = context.locks.0.get(resource)?.binding.as_deref()?;
            (holder != name && exists(holder)).then_some((resource, (holder, false)))
        })
        .collect();
    if conflicts.is_empty() {
        locks.0.extend(desired.0);
        return Plan { binding: Some(new), locks, next: ReconcileOutcome::Done };
    }
    // Formats conflicts as Go prints a map of structs.
    let conflicts: Vec<String> = conflicts
        .iter()
        .map(|(resource, (holder, is_crd))| format!("{resource}:{{{holder} {is_crd}}}"))
        .collect();
    let message = format!(
        "Unable to bind APIs because they are bound by other APIBindings or CRDs: map[{}]",
        conflicts.join(" ")
    );
    let completed = is_condition_true(&conditions_of(old), condition_type::INITIAL_BINDING_COMPLETED);
    if !completed {
        new["status"]["phase"] = "Binding".into();
    }
    match old["status"].get("boundResources") {
        Some(before) => new["status"]["boundResources"] = before.clone(),
        None => {
            if let Some(status) = new["status"].as_object_mut() {
                status.remove("boundResources");
            }
        }
    }
    let mut conditions = conditions_of(old);
    for kind in [
        condition_type::API_EXPORT_VALID,
        condition_type::PERMISSION_CLAIMS_APPLIED,
        condition_type::PERMISSION_CLAIMS_VALID,
    ] {
        set_condition(&mut conditions, Condition::met(kind), now);
    }
    let unmet = |kind| Condition::unmet(kind, Severity::Error, "NamingConflicts", message.clone());
    set_condition(&mut conditions, unmet(condition_type::BINDING_UP_TO_DATE), now);
    if !completed {
        set_condition(&mut conditions, unmet(condition_type::INITIAL_BINDING_COMPLETED), now);
    }
    set_summary(&mut conditions, &[condition_type::INITIAL_BINDING_COMPLETED], now);
    write_conditions(&mut new, &conditions);
    Plan { binding: Some(new), locks, next: ReconcileOutcome::Done }
}

/// Decides about a binding that is being deleted, given the result of a sweep of its objects.
fn unbind(old: &Value, context: &BindingContext<'_>, sweep: &Sweep, now: Timestamp) -> Plan {
    let mut new = old.clone();
    let mut locks = context.locks.clone();
    if !sweep.leaves_nothing() {
        let mut conditions = conditions_of(old);
        let problem = match (sweep.finalizers(), sweep.remaining()) {
            (Some(all), _) => Some((
                "SomeFinalizersRemain",
                format!("Some content in the workspace has finalizers remaining: {all}"),
            )),
            (None, Some(all)) => {
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {all}")))
            }
            (None, None) => None,
        };
        if let Some((reason, message)) = problem {
            let kind = condition_type::BINDING_RESOURCE_DELETE_SUCCESS;
            set_condition(&mut conditions, Condition::unmet(kind, Severity::Info, reason, message), now);
        }
        write_conditions(&mut new, &conditions);
        let next = ReconcileOutcome::RequeueAfter(if sweep.is_truncated() {
            Duration::ZERO
        } else {
            pause(old, now)
        });
        return Plan { binding: Some(new), locks, next };
    }
    let name = name_of(old);
    locks.0.retain(|_, lock| lock.binding.as_deref() != name);
    let mut conditions = conditions_of(old);
    set_condition(&mut conditions, Condition::met(condition_type::BINDING_RESOURCE_DELETE_SUCCESS), now);
    write_conditions(&mut new, &conditions);
    let mut is_kept = false;
    if let Some(all) = new["metadata"]["finalizers"].as_array_mut() {
        all.retain(|one| one != finalizer::API_BINDING);
        is_kept = !all.is_empty();
    }
    Plan { binding: is_kept.then_some(new), locks, next: ReconcileOutcome::Done }
}

/// A binding whose export is not one of root's.
fn without_export(old: &Value, now: Timestamp) -> Value {
    let mut new = old.clone();
    let reference = &old["spec"]["reference"]["export"];
    let (path, name) =
        (reference["path"].as_str().unwrap_or_default(), reference["name"].as_str().unwrap_or_default());
    let mut conditions = conditions_of(old);
    let message = format!("APIExport {path}|{name} not found");
    let kind = condition_type::API_EXPORT_VALID;
    set_condition(
        &mut conditions,
        Condition::unmet(kind, Severity::Error, "APIExportNotFound", message),
        now,
    );
    write_conditions(&mut new, &conditions);
    if new["status"]["phase"].is_null() {
        new["status"]["phase"] = "Binding".into();
    }
    new
}

/// Whether `other` refers to the same export as a binding that is being deleted, and so keeps its objects.
fn adopts(other: &Value, binding: &Value) -> bool {
    other["metadata"]["deletionTimestamp"].is_null()
        && other["spec"]["reference"]["export"] == binding["spec"]["reference"]["export"]
}

fn add_finalizer(binding: &mut Value) {
    let finalizers = &mut binding["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(all) if all.iter().any(|one| one == finalizer::API_BINDING) => {}
        Some(all) => all.push(finalizer::API_BINDING.into()),
        None => *finalizers = json!([finalizer::API_BINDING]),
    }
}

fn name_of(object: &Value) -> Option<&str> {
    object["metadata"]["name"].as_str()
}

#[cfg(test)]
mod tests;
