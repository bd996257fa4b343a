//! Keeps the conversion rules of bound CRDs equal to the APIConversions of their schemas.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::annotation;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::{Shutdown, Status, Tasks};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::time::Instant;

use super::deletion::commit;
use crate::bound_conversion::{rules_of, set_rules};
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive, feed};
use crate::exports::ExportLookup;
use crate::global::GlobalView;
use crate::index::Definitions;
use crate::names::{
    API_CONVERSIONS, API_RESOURCE_SCHEMAS, BOUND_CRDS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS,
};
use crate::writes::Writes;

/// The time for which the replica of an APIConversion must be missing before its rules are removed: an emptied cache server gets its
/// replicas one by one, and meanwhile a conversion without rules would lose data.
const REMOVAL_DELAY: Duration = Duration::from_secs(10);

/// Controller of the rules. Keys are UIDs of schemas, which are the names of the CRDs.
pub(crate) struct BoundConversions {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) exports: Arc<ExportLookup>,
    pub(crate) global: Arc<GlobalView>,
    missing: Mutex<FxHashMap<Box<str>, Instant>>,
}

impl BoundConversions {
    pub(crate) fn new(
        objects: ObjectStore,
        definitions: Arc<Definitions>,
        exports: Arc<ExportLookup>,
        global: Arc<GlobalView>,
    ) -> Self {
        Self { objects, definitions, exports, global, missing: Mutex::default() }
    }

    /// Starts the controller. It runs until the process drains.
    pub(crate) fn start(self: Arc<Self>, hub: &Hub, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::<Box<str>>::new());
        self.follow_conversions(&queue, hub, tasks, shutdown);
        self.follow_definitions(&queue, hub, tasks, shutdown);
        // An APIConversion that was deleted while this shard was down has no event.
        let (controller, synced_queue, draining) = (self.clone(), queue.clone(), shutdown.clone());
        tasks.spawn("conversion rules of other shards", async move {
            tokio::select! {
                () = draining.draining() => {}
                () = controller.global.synced() => controller.add_all(&synced_queue),
            }
        });
        tasks.spawn("conversion rules", drive(self, queue, shutdown.clone()));
    }

    fn follow_conversions(
        self: &Arc<Self>,
        queue: &Arc<Queue<Box<str>>>,
        hub: &Hub,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let (controller, event_queue) = (self.clone(), queue.clone());
        let changed = move |event: &ObjectEvent| {
            if let Ok(Some(schema)) = controller.exports.schema(&event.scope, &event.name) {
                event_queue.add(uid_of(&schema).into());
            }
        };
        let (controller, resync_queue) = (self.clone(), queue.clone());
        let resync = move || controller.add_all(&resync_queue);
        let resource = API_CONVERSIONS.clone();
        tasks.spawn(
            "events of conversions",
            feed(hub.clone(), resource, Some(CUSTOM), shutdown.clone(), resync, changed),
        );
        let (global, replica_queue) = (Arc::downgrade(&self.global), queue.clone());
        self.global.on_change(
            API_CONVERSIONS.clone(),
            Box::new(move |cluster| {
                let Some(global) = global.upgrade() else { return };
                let schemas = global.list(&API_RESOURCE_SCHEMAS, Some(cluster));
                schemas.iter().for_each(|schema| replica_queue.add(uid_of(schema).into()));
            }),
        );
    }

    /// A CRD may be created while its APIConversion is.
    fn follow_definitions(
        self: &Arc<Self>,
        queue: &Arc<Queue<Box<str>>>,
        hub: &Hub,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let event_queue = queue.clone();
        let created = move |event: &ObjectEvent| {
            if &*event.scope == BOUND_CRDS && matches!(event.change, ObjectChange::Created(_)) {
                event_queue.add(event.name.clone());
            }
        };
        let (controller, resync_queue) = (self.clone(), queue.clone());
        let resync = move || controller.add_all(&resync_queue);
        let resource = CUSTOM_RESOURCE_DEFINITIONS.clone();
        tasks.spawn(
            "events of bound definitions",
            feed(hub.clone(), resource, Some(BUILT_IN), shutdown.clone(), resync, created),
        );
    }

    fn add_all(&self, queue: &Queue<Box<str>>) {
        let one = ScopeSelector::One(Scope::new(BOUND_CRDS));
        let read = self.objects.for_each(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, &mut |listed| {
            if let Ok(meta) = fairlead_apiserver::object::ObjectMetaRef::parse(listed.object) {
                queue.add((*meta.name).into());
            }
        });
        if let Err(status) = read {
            tracing::error!(%status, "bound definitions cannot be read");
        }
    }

    /// The time after which the rules of a schema of another shard may be removed. `None` if they may be removed now.
    fn remaining_delay(&self, schema: &str) -> Option<Duration> {
        let since = *self.missing.lock().entry(schema.into()).or_insert_with(Instant::now);
        REMOVAL_DELAY.checked_sub(since.elapsed()).filter(|remaining| !remaining.is_zero())
    }
}

#[async_trait]
impl Controller for BoundConversions {
    type Key = Box<str>;

    const NAME: &'static str = "bound-conversion";
    const WORKERS: usize = 2;

    async fn reconcile(&self, schema: &Box<str>) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(BOUND_CRDS);
        let stored = self.objects.get(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &scope, None, schema)?;
        let Some(stored) = stored else { return Ok(ReconcileOutcome::Done) };
        let definition = self.objects.tree(&stored)?;
        let annotations = &definition["metadata"]["annotations"];
        let (Some(cluster), Some(name)) =
            (annotations[annotation::SCHEMA_CLUSTER].as_str(), annotations[annotation::SCHEMA_NAME].as_str())
        else {
            return Ok(ReconcileOutcome::Done);
        };
        // Objects keep their rules if the schema is gone, or is another one of that name.
        match self.exports.schema(cluster, name)? {
            Some(current) if uid_of(&current) == &**schema => {}
            _ => return Ok(ReconcileOutcome::Done),
        }
        let conversion = self.exports.conversion(cluster, name)?;
        if conversion.is_none()
            && rules_of(&definition).is_some()
            && !self.exports.is_local(cluster)
            && let Some(remaining) = self.remaining_delay(schema)
        {
            return Ok(ReconcileOutcome::RequeueAfter(remaining));
        }
        self.missing.lock().remove(schema);
        let mut new = definition.clone();
        set_rules(&mut new, conversion.as_deref());
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&definition)?;
        writes.replace(&resource, &stored, new)?;
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

fn uid_of(schema: &Value) -> &str {
    schema["metadata"]["uid"].as_str().unwrap_or_default()
}
