//! Removes the CRDs of bound schemas that no binding of this shard uses any more, some time after their creation.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::{Shutdown, Status, Tasks};
use jiff::Timestamp;
use serde_json::Value;

use super::deletion::commit;
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive};
use crate::index::Definitions;
use crate::names::{BOUND_CRDS, BUILT_IN, CUSTOM_RESOURCE_DEFINITIONS};
use crate::writes::Writes;

/// The age at which an unused CRD is removed; that of kcp.
const MINIMUM_AGE: Duration = Duration::from_secs(30 * 60);

/// Controller of the CRDs in `system:bound-crds`. Keys are UIDs of schemas.
pub(crate) struct BoundDefinitionCleanup {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
}

impl BoundDefinitionCleanup {
    /// Starts the controller. It runs until the process drains.
    pub(crate) fn start(self: Arc<Self>, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::<Box<str>>::new());
        let one = ScopeSelector::One(Scope::new(BOUND_CRDS));
        let read = self.objects.for_each(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, &mut |listed| {
            let object = serde_json::from_slice::<Value>(listed.object.json()).unwrap_or_default();
            if let Some(name) = object["metadata"]["name"].as_str() {
                queue.add(name.into());
            }
        });
        if let Err(status) = read {
            tracing::error!(%status, "bound definitions cannot be read");
        }
        let released = Arc::clone(&queue);
        self.definitions.bindings().on_change(Box::new(move |change| {
            let after = change.after.map(|binding| &*binding.resources).unwrap_or_default();
            let before = change.before.into_iter().flat_map(|binding| binding.resources.iter());
            for resource in before.filter(|resource| !after.contains(resource)) {
                released.add(resource.schema.clone());
            }
        }));
        tasks.spawn("unused bound definitions", drive(self, queue, shutdown.clone()));
    }
}

#[async_trait]
impl Controller for BoundDefinitionCleanup {
    type Key = Box<str>;

    const NAME: &'static str = "bound-crd-cleanup";
    const WORKERS: usize = 2;

    async fn reconcile(&self, schema: &Box<str>) -> Result<ReconcileOutcome, Status> {
        if self.definitions.bindings().uses_schema(schema) {
            return Ok(ReconcileOutcome::Done);
        }
        let scope = Scope::new(BOUND_CRDS);
        let stored = self.objects.get(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &scope, None, schema)?;
        let Some(stored) = stored else { return Ok(ReconcileOutcome::Done) };
        let definition = self.objects.tree(&stored)?;
        if let Some(remaining) = remaining_age(&definition, Timestamp::now()) {
            return Ok(ReconcileOutcome::RequeueAfter(remaining));
        }
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&definition)?;
        // A binding that uses it meanwhile requires that it exists unchanged.
        writes.remove(&resource, &stored, &definition);
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

/// The time until a definition has the age at which it is removed; `None` if it has that age.
fn remaining_age(definition: &Value, now: Timestamp) -> Option<Duration> {
    let created: Timestamp = definition["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
    let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    MINIMUM_AGE.checked_sub(age).filter(|remaining| !remaining.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_kept_until_it_has_the_minimum_age() {
        let definition = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}});
        for (seconds, expected) in [(0, Some(1800)), (1799, Some(1)), (1800, None), (9999, None)] {
            let now = Timestamp::from_second(seconds).unwrap_or_default();
            assert_eq!(remaining_age(&definition, now), expected.map(Duration::from_secs), "{seconds}");
        }
    }
}
