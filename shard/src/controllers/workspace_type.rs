//! Maintains the status of this shard's WorkspaceTypes: the URLs of their virtual workspaces.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{
    Condition, condition_type, conditions_of, set_condition, set_summary, virtual_workspace_url,
    write_conditions,
};
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use fairlead_store::CommitError;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::Definitions;
use crate::names::WORKSPACE_TYPES;
use crate::placement::{Placement, ShardInfo};
use crate::writes::Writes;

/// Logical cluster and name of a WorkspaceType.
pub(crate) type TypeKey = (Box<str>, Box<str>);

/// Controller of WorkspaceTypes.
pub(crate) struct WorkspaceTypes {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) placement: Arc<Placement>,
}

#[async_trait]
impl Controller for WorkspaceTypes {
    type Key = TypeKey;

    const NAME: &'static str = "workspacetype";
    const WORKERS: usize = 4;

    async fn reconcile(&self, (cluster, name): &TypeKey) -> Result<ReconcileOutcome, Status> {
        let Some(resource) = self.definitions.exported(&WORKSPACE_TYPES) else {
            return Ok(ReconcileOutcome::Retry);
        };
        let scope = Scope::new(cluster);
        let stored = self.objects.get(&WORKSPACE_TYPES, &resource.origin, &scope, None, name)?;
        let Some(stored) = stored else { return Ok(ReconcileOutcome::Done) };
        let old = self.objects.tree(&stored)?;
        if old["metadata"]["deletionTimestamp"].is_string() {
            return Ok(ReconcileOutcome::Done);
        }
        let mut writes = Writes::new(&self.objects, &self.definitions);
        writes.replace(&resource, &stored, plan(old, cluster, self.placement.shards(), Timestamp::now()))?;
        match writes.commit().await {
            Ok(_) => Ok(ReconcileOutcome::Done),
            Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
            Err(error) => Err(Status::internal(error)),
        }
    }
}

/// The type with its URLs on all shards, sorted by shard name. As in kcp, it has the URLs of both services, whether or
/// not it has an initializer or a terminator. A type without URLs is ready, too.
fn plan(mut object: Value, cluster: &str, mut shards: Vec<ShardInfo>, now: Timestamp) -> Value {
    shards.sort_by(|one, other| one.name.cmp(&other.name));
    let subject = format!("{cluster}:{}", object["metadata"]["name"].as_str().unwrap_or_default());
    let mut urls = Vec::new();
    for shard in shards.iter().filter(|shard| !shard.virtual_workspace_url.is_empty()) {
        for (kind, service) in
            [("initializing", "initializingworkspaces"), ("terminating", "terminatingworkspaces")]
        {
            let url = virtual_workspace_url(&shard.virtual_workspace_url, service, &subject);
            urls.push(json!({"url": url, "type": kind}));
        }
    }
    let mut conditions = conditions_of(&object);
    set_condition(&mut conditions, Condition::met(condition_type::VIRTUAL_WORKSPACE_URLS_READY), now);
    set_summary(&mut conditions, &[condition_type::VIRTUAL_WORKSPACE_URLS_READY], now);
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if let Some(status) = object["status"].as_object_mut() {
        match urls.is_empty() {
            true => status.remove("virtualWorkspaces"),
            false => status.insert("virtualWorkspaces".into(), urls.into()),
        };
    }
    write_conditions(&mut object, &conditions);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str, url: &str) -> ShardInfo {
        ShardInfo { name: name.into(), virtual_workspace_url: url.into(), ..ShardInfo::default() }
    }

    #[test]
    fn a_type_has_urls_on_every_shard_with_virtual_workspaces() {
        let object = json!({"metadata": {"name": "golden"}, "spec": {}});
        let shards = vec![shard("b", "https://b/"), shard("a", "https://a"), shard("c", "")];
        let planned = plan(object, "abc", shards, Timestamp::UNIX_EPOCH);
        assert_eq!(
            planned["status"]["virtualWorkspaces"],
            json!([
                {"type": "initializing", "url": "https://a/services/initializingworkspaces/abc:golden"},
                {"type": "terminating", "url": "https://a/services/terminatingworkspaces/abc:golden"},
                {"type": "initializing", "url": "https://b/services/initializingworkspaces/abc:golden"},
                {"type": "terminating", "url": "https://b/services/terminatingworkspaces/abc:golden"},
            ])
        );
        assert_eq!(planned["status"]["conditions"][0]["type"], "Ready");
    }

    #[test]
    fn without_shards_a_type_is_ready_and_planning_again_changes_nothing() {
        let object = json!({"metadata": {"name": "plain"}, "spec": {}});
        let planned = plan(object, "abc", vec![shard("a", "")], Timestamp::UNIX_EPOCH);
        assert_eq!(planned["status"]["virtualWorkspaces"], Value::Null);
        assert_eq!(plan(planned.clone(), "abc", Vec::new(), Timestamp::now()), planned);
    }
}
