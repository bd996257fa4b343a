//! Writes the status of ResourceQuotas: the limits that are in force, and what is used of them.
//!
//! The status is for users. Admission counts by itself, so a status that lags does not permit anything.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use serde_json::{Map, Value, json};

use super::deletion::commit;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::Definitions;
use crate::names::{BUILT_IN, RESOURCE_QUOTAS};
use crate::quota::{Quota, QuotaKey, UsageTracker};
use crate::writes::Writes;

/// Controller of ResourceQuotas.
pub(crate) struct ResourceQuotas {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) usage: Arc<UsageTracker>,
}

#[async_trait]
impl Controller for ResourceQuotas {
    type Key = QuotaKey;

    const NAME: &'static str = "resource-quota";
    const WORKERS: usize = 16;

    async fn reconcile(&self, key: &QuotaKey) -> Result<ReconcileOutcome, Status> {
        let (cluster, namespace, name) = key;
        let scope = Scope::new(cluster);
        let stored = self.objects.get(&RESOURCE_QUOTAS, &BUILT_IN, &scope, Some(namespace), name)?;
        let Some(stored) = stored else { return Ok(ReconcileOutcome::Done) };
        let Some(quota) = Quota::decode(stored.object.as_object().json()) else {
            return Ok(ReconcileOutcome::Done);
        };
        // A quota that the tracker does not know yet has an event to come.
        let Some(used) = self.usage.used(key, &quota).await? else { return Ok(ReconcileOutcome::Done) };
        let old = self.objects.tree(&stored)?;
        let mut new = old.clone();
        new["status"] = status(&old, &used);
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&old)?;
        writes.replace(&resource, &stored, new)?;
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

fn status(quota: &Value, used: &[(Box<str>, u64)]) -> Value {
    let mut status = Map::new();
    if let Some(hard) = quota["spec"].get("hard") {
        status.insert("hard".to_owned(), hard.clone());
    }
    if !used.is_empty() {
        let used = used.iter().map(|(name, count)| (name.to_string(), json!(count.to_string())));
        status.insert("used".to_owned(), Value::Object(used.collect()));
    }
    Value::Object(status)
}

#[cfg(test)]
mod tests;
