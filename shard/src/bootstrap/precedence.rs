//! Precedence of versions: replicas of two versions run side by side in an upgrade, and the older one may start last.
//!
//! A ConfigMap has the highest version that has filled the store. An older version creates what it misses, so that it can start,
//! and replaces nothing. Each commit of the bootstrap requires the ConfigMap as it was read, so an older version that is at work is
//! fenced off as well. Not only the leader fills the store: a newer replica could not become ready beside an older leader, and
//! an upgrade that waits for it would never end.
//!
//! A store of one process has no such record: its operator has chosen the version that runs.

use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use serde_json::{Value, json};

use super::BootstrapError;
use crate::index::Definitions;
use crate::names::SYSTEM_SHARD;
use crate::writes::Writes;

/// The ConfigMap with the version.
const RECORD: &str = "fairlead-bootstrap";

/// Begins a step of the bootstrap by a version.
///
/// # Errors
/// A conflict if another replica has changed the record meanwhile; then the step has to be repeated.
pub(super) async fn begin<'s>(
    objects: &'s ObjectStore,
    definitions: &'s Definitions,
    version: u32,
) -> Result<Writes<'s>, BootstrapError> {
    let mut writes = Writes::new(objects, definitions);
    if !objects.store().is_shared() {
        return Ok(writes);
    }
    let own = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RECORD, "namespace": "default"},
        "data": {"version": version.to_string()},
    });
    let resource = writes.resource_of(&own)?;
    loop {
        let stored = writes.stored(&resource, SYSTEM_SHARD, &own)?;
        let highest = stored.as_ref().map(|stored| writes.tree(stored)).transpose()?;
        let highest = highest.as_ref().map(version_of).transpose()?;
        match stored.filter(|_| highest >= Some(version)) {
            Some(stored) => {
                writes.require(&resource, &stored, &own);
                if highest > Some(version) {
                    tracing::info!(own = version, ?highest, "keeping the definitions of a newer version");
                    writes.keep_existing();
                }
                return Ok(writes);
            }
            None => {
                let mut claim = Writes::new(objects, definitions);
                claim.ensure(SYSTEM_SHARD, own.clone())?;
                claim.commit().await?;
            }
        }
    }
}

fn version_of(record: &Value) -> Result<u32, Status> {
    let text = record["data"]["version"].as_str().unwrap_or_default();
    text.parse().map_err(|_| {
        let place = format!("config map default/{RECORD} of {SYSTEM_SHARD}");
        Status::internal(format!("the {place} has the version {text:?}; delete it if nothing newer runs"))
    })
}
