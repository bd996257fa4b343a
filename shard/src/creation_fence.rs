//! Keeps objects from being created in a logical cluster whose content is deleted.
//!
//! A create depends on the revision at which the LogicalCluster was read, and sealing changes the LogicalCluster. So
//! after the sealing no object can be added to those that exist.

use fairlead_api::{LOGICAL_CLUSTER_NAME, condition_type, conditions_of, finalizer, is_condition_true};
use fairlead_apiserver::AdmissionRequest;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::resource::Verb;
use fairlead_process::{GroupResource, Status};
use fairlead_store::{Expect, Mutation};
use serde_json::Value;

use crate::names::{CUSTOM, LOGICAL_CLUSTERS};

/// Refuses a create in a logical cluster that is sealed or does not exist. Otherwise returns an expectation that must
/// hold at the commit. Costs one read of the LogicalCluster.
///
/// # Errors
/// 403, or 500 when the store cannot be read.
pub(crate) fn creation_fence(
    objects: &ObjectStore,
    write: &AdmissionRequest<'_>,
) -> Result<Option<Mutation>, Status> {
    let cluster = write.scope.as_str();
    // System logical clusters are never deleted, and some have no LogicalCluster.
    if write.verb != Verb::Create
        || cluster.starts_with("system:")
        || write.resource.name == *LOGICAL_CLUSTERS
    {
        return Ok(None);
    }
    let key = objects.key(&LOGICAL_CLUSTERS, &CUSTOM, cluster, None, LOGICAL_CLUSTER_NAME);
    let Some(stored) = objects.get_by_key(&key, write.scope)? else {
        return Err(refusal(write, "there is no such logical cluster"));
    };
    // Most logical clusters are not being deleted. A search in the bytes shows that without parsing.
    let is_marked =
        memchr::memmem::find(stored.object.as_object().json(), b"\"deletionTimestamp\"").is_some();
    if is_marked && is_sealed(&objects.tree(&stored)?) {
        return Err(refusal(write, "the logical cluster is being deleted and its content is gone"));
    }
    Ok(Some(Mutation::fence(key, Expect::At(stored.revision))))
}

/// Whether nothing may be created in a logical cluster any more. Terminators may need new objects, so it is not sealed
/// while there are any.
pub(crate) fn is_sealed(logical_cluster: &Value) -> bool {
    let finalizers = logical_cluster["metadata"]["finalizers"].as_array();
    let is_finished = !finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer::LOGICAL_CLUSTER));
    let content_deleted =
        is_condition_true(&conditions_of(logical_cluster), condition_type::WORKSPACE_CONTENT_DELETED);
    logical_cluster["metadata"]["deletionTimestamp"].is_string()
        && !has_terminators(logical_cluster)
        && (is_finished || content_deleted)
}

/// Whether terminators are still pending.
pub(crate) fn has_terminators(logical_cluster: &Value) -> bool {
    logical_cluster["status"]["terminators"].as_array().is_some_and(|all| !all.is_empty())
}

fn refusal(write: &AdmissionRequest<'_>, message: &str) -> Status {
    let name = &write.resource.name;
    Status::forbidden(GroupResource::new(&name.group, &name.resource), write.name, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_logical_cluster_is_sealed_when_its_content_is_deleted() {
        let gone = json!([{"type": condition_type::WORKSPACE_CONTENT_DELETED, "status": "True"}]);
        let remains = json!([{"type": condition_type::WORKSPACE_CONTENT_DELETED, "status": "False"}]);
        let ours = json!([finalizer::LOGICAL_CLUSTER]);
        for (deleted, finalizers, conditions, terminators, expected) in [
            (false, &ours, &gone, json!(null), false),
            (true, &ours, &json!([]), json!(null), false),
            (true, &ours, &remains, json!(null), false),
            (true, &ours, &gone, json!(["root:t"]), false),
            (true, &ours, &gone, json!([]), true),
            (true, &json!(["example.com/other"]), &remains, json!(null), true),
        ] {
            let mut object = json!({
                "metadata": {"finalizers": finalizers},
                "status": {"conditions": conditions, "terminators": terminators},
            });
            if deleted {
                object["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            }
            assert_eq!(is_sealed(&object), expected, "{object}");
        }
    }
}
