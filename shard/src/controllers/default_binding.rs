//! Maintains the default APIBindings of workspaces whose type says so: `defaultAPIBindingLifecycle: Maintain`.
//!
//! A missing binding is created again, and the claims of an existing one follow those of its export. The initial bindings of a
//! workspace are part of its initialization.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{
    Condition, ExportReference, LOGICAL_CLUSTER_NAME, LocatedType, PermissionClaim, Severity, annotation,
    condition_type, conditions_of, is_condition_true, set_condition, write_conditions,
};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::{Shutdown, Status, Tasks};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::deletion::commit;
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive, feed};
use crate::exports::ExportLookup;
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{API_BINDINGS, API_EXPORTS, CUSTOM, LOGICAL_CLUSTERS, WORKSPACE_TYPES};
use crate::workspace_types::{TypeLookup, type_reference};
use crate::writes::Writes;

/// The lifecycle of types whose bindings are maintained.
const MAINTAIN: &str = "Maintain";

/// Interval of the look-ups of bindings that are not complete.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Controller of the default bindings of logical clusters.
pub(crate) struct DefaultBindings {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) types: Arc<TypeLookup>,
    pub(crate) exports: Arc<ExportLookup>,
}

impl DefaultBindings {
    /// Starts the controller. It runs until the process drains.
    pub(crate) fn start(self: Arc<Self>, hub: &Hub, global: &GlobalView, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::new());
        tasks.spawn("default bindings", drive(Arc::clone(&self), Arc::clone(&queue), shutdown.clone()));
        // A change of a type or an export may concern every logical cluster.
        for (name, resource, origin) in [
            ("types of default bindings", &WORKSPACE_TYPES, None),
            ("exports of default bindings", &API_EXPORTS, Some(CUSTOM)),
        ] {
            let (resync_controller, resync_queue) = (Arc::clone(&self), Arc::clone(&queue));
            let (event_controller, event_queue) = (Arc::clone(&self), Arc::clone(&queue));
            let (replica_controller, replica_queue) = (Arc::clone(&self), Arc::clone(&queue));
            global.on_change(
                (**resource).clone(),
                Box::new(move |_| replica_controller.add_all(&replica_queue)),
            );
            let resync = move || resync_controller.add_all(&resync_queue);
            let keys = move |_: &ObjectEvent| event_controller.add_all(&event_queue);
            tasks
                .spawn(name, feed(hub.clone(), (**resource).clone(), origin, shutdown.clone(), resync, keys));
        }
        let keys = move |event: &ObjectEvent| {
            if event.is_deletion() && self.is_maintained(&event.scope) {
                queue.add((*event.scope).into());
            }
        };
        let resource = API_BINDINGS.clone();
        tasks.spawn(
            "deleted default bindings",
            feed(hub.clone(), resource, Some(CUSTOM), shutdown.clone(), || {}, keys),
        );
    }

    /// Adds the logical clusters whose type maintains bindings. Costs a look-up for each type, and a comparison for each logical cluster.
    fn add_all(&self, queue: &Queue<Box<str>>) {
        let mut types: FxHashMap<Box<str>, bool> = FxHashMap::default();
        for cluster in self.clusters.names() {
            let Some(reference) = self.clusters.get(&cluster).and_then(|state| state.type_reference.clone())
            else {
                continue;
            };
            let is_maintained =
                *types.entry(reference).or_insert_with_key(|reference| self.maintains(reference));
            if is_maintained {
                queue.add(cluster);
            }
        }
    }

    fn is_maintained(&self, cluster: &str) -> bool {
        let state = self.clusters.get(cluster).filter(|state| !state.is_deleted);
        let reference = state.and_then(|state| state.type_reference.clone());
        reference.is_some_and(|reference| self.maintains(&reference))
    }

    fn maintains(&self, reference: &str) -> bool {
        self.maintained_types(reference).is_ok_and(|types| !types.is_empty())
    }

    /// The aliases of a type whose default bindings are maintained; none if the type is not known.
    fn maintained_types(&self, reference: &str) -> Result<Vec<LocatedType>, Status> {
        let Some(own) = self.types.find(&type_reference(reference))? else { return Ok(Vec::new()) };
        let mut aliases = self.types.aliases(own)?.unwrap_or_default();
        aliases.retain(|alias| alias.spec.default_api_binding_lifecycle.as_deref() == Some(MAINTAIN));
        Ok(aliases)
    }
}

#[async_trait]
impl Controller for DefaultBindings {
    type Key = Box<str>;

    const NAME: &'static str = "default-apibinding";
    const WORKERS: usize = 8;

    async fn reconcile(&self, cluster: &Box<str>) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let holder = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &scope, None, LOGICAL_CLUSTER_NAME)?;
        let Some(holder) = holder else { return Ok(ReconcileOutcome::Done) };
        let logical_cluster = self.objects.tree(&holder)?;
        let is_ready = logical_cluster["status"]["phase"] == "Ready";
        let reference = logical_cluster["metadata"]["annotations"][annotation::TYPE].as_str();
        let (Some(reference), true) = (reference, is_ready) else { return Ok(ReconcileOutcome::Done) };
        let types = self.maintained_types(reference)?;
        if types.is_empty() {
            return Ok(ReconcileOutcome::Done);
        }
        let mut desired = Vec::new();
        for binding in fairlead_api::default_bindings(&types) {
            // A missing export is followed: its creation adds this key again.
            let Some(export) = self.exports.find(&binding.path, &binding.export)? else { continue };
            let claims =
                export.claims().iter().filter_map(|claim| serde_json::from_value(claim.clone()).ok());
            let claims: Vec<PermissionClaim> = claims.collect();
            let reference = ExportReference { path: binding.path, name: binding.export };
            let path =
                logical_cluster["metadata"]["annotations"][annotation::PATH].as_str().unwrap_or(cluster);
            desired.push(fairlead_api::default_api_binding(
                cluster,
                &reference,
                &export.cluster,
                path,
                &claims,
            ));
        }
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let one = ScopeSelector::One(scope.clone());
        let mut incomplete = Vec::new();
        let stored = self.objects.list(&API_BINDINGS, &CUSTOM, &one, None)?;
        let existing: Vec<_> = stored
            .into_iter()
            .map(|stored| self.objects.tree(&stored).map(|tree| (stored, tree)))
            .collect::<Result<_, _>>()?;
        for binding in desired {
            let name = binding["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match existing.iter().find(|(_, known)| known["metadata"]["name"] == name.as_str()) {
                None => {
                    incomplete.push(name);
                    writes.create(cluster, binding)?;
                }
                Some((_, known)) if known["metadata"]["deletionTimestamp"].is_string() => {
                    incomplete.push(name)
                }
                Some((stored, known)) => {
                    if !is_condition_true(&conditions_of(known), condition_type::INITIAL_BINDING_COMPLETED) {
                        incomplete.push(name);
                    }
                    let mut new = known.clone();
                    new["spec"] = binding["spec"].clone();
                    if new != *known {
                        let generation = new["metadata"]["generation"].as_u64().unwrap_or_default();
                        new["metadata"]["generation"] = (generation + 1).into();
                        let resource = writes.resource_of(&new)?;
                        writes.replace(&resource, stored, new)?;
                    }
                }
            }
        }
        let resource = writes.resource_of(&logical_cluster)?;
        let new = with_condition(&logical_cluster, &mut incomplete, Timestamp::now());
        writes.replace_or_fence(&resource, &holder, new)?;
        Ok(match commit(writes).await? {
            None => ReconcileOutcome::Retry,
            Some(_) if incomplete.is_empty() => ReconcileOutcome::Done,
            // The completion of a binding is no event for this key.
            Some(_) => ReconcileOutcome::RequeueAfter(RECHECK_INTERVAL),
        })
    }
}

/// The LogicalCluster with kcp's condition of its maintained bindings.
fn with_condition(old: &Value, incomplete: &mut [String], now: Timestamp) -> Value {
    let mut conditions = conditions_of(old);
    let kind = condition_type::API_BINDINGS_RECONCILED;
    let condition = if incomplete.is_empty() {
        Condition::met(kind)
    } else {
        incomplete.sort_unstable();
        let message = format!("APIBinding(s) not yet fully reconciled: {}", incomplete.join(", "));
        Condition::unmet(kind, Severity::Info, "WaitingOnAPIBindings", message)
    };
    set_condition(&mut conditions, condition, now);
    let mut new = old.clone();
    write_conditions(&mut new, &conditions);
    new
}
