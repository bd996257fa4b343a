//! Admission of LogicalClusters: the finalizer, the copy of initializers, and immutable fields.

use fairlead_api::{annotation, finalizer, group};
use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use serde_json::{Value, json};

use super::{forbidden, is_master};
use crate::host::is_in;

/// Adds the deletion finalizer. At the transition to Initializing it copies initializers and terminators from the spec
/// into the status and overwrites the client's values.
pub(super) fn mutate(object: &mut Value, old: Option<&Value>) {
    if object["metadata"]["deletionTimestamp"].is_null() {
        let finalizers = &mut object["metadata"]["finalizers"];
        let present =
            finalizers.as_array().is_some_and(|all| all.iter().any(|one| one == finalizer::LOGICAL_CLUSTER));
        if !present {
            match finalizers.as_array_mut() {
                Some(all) => all.push(finalizer::LOGICAL_CLUSTER.into()),
                None => *finalizers = json!([finalizer::LOGICAL_CLUSTER]),
            }
        }
    }
    if let Some(old) = old {
        keep_resource_locks(object, old);
    }
    let was_initializing = old.is_some_and(|old| old["status"]["phase"] == "Initializing");
    if old.is_some() && object["status"]["phase"] == "Initializing" && !was_initializing {
        for field in ["initializers", "terminators"] {
            let desired = object["spec"][field].clone();
            if let Some(status) = object["status"].as_object_mut() {
                match desired.as_array().filter(|all| !all.is_empty()) {
                    Some(_) => status.insert(field.into(), desired),
                    None => status.remove(field),
                };
            }
        }
    }
}

/// Keeps the resource locks, which only controllers change. kcp lets clients change them, and its bindings lock their resources again
/// afterwards; until then a CRD could take a bound resource. (Deliberate difference.)
fn keep_resource_locks(object: &mut Value, old: &Value) {
    let annotations = &mut object["metadata"]["annotations"];
    match &old["metadata"]["annotations"][annotation::RESOURCE_BINDINGS] {
        Value::Null => {
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.remove(annotation::RESOURCE_BINDINGS);
            }
        }
        locks if annotations.is_object() => annotations[annotation::RESOURCE_BINDINGS] = locks.clone(),
        locks => *annotations = json!({annotation::RESOURCE_BINDINGS: locks}),
    }
}

/// Denies creation, and changes to immutable fields, unless the user is privileged.
pub(super) fn validate(
    write: &AdmissionRequest<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if is_privileged(write) {
        return Ok(());
    }
    let Some(old) = old else { return Err(forbidden(write, "LogicalCluster cannot be created")) };
    for (pointer, name) in [
        ("/spec/createdBy", "spec.createdBy"),
        ("/spec/initializers", "spec.initializers"),
        // kcp guards initializers only. (Deliberate difference, as the next one.)
        ("/spec/terminators", "spec.terminators"),
    ] {
        if object.pointer(pointer) != old.pointer(pointer) {
            return Err(forbidden(write, format!("{name} is immutable")));
        }
    }
    // In kcp the administrator of a workspace can change these, and kcp relies on them for the allowed types of
    // children, the owner of the workspace and its shard. (Deliberate difference.)
    if object.pointer("/spec/owner") != old.pointer("/spec/owner") {
        return Err(forbidden(write, "spec.owner is immutable"));
    }
    for key in [annotation::TYPE, annotation::PATH, annotation::SHARD] {
        let of = |object: &Value| object["metadata"]["annotations"][key].clone();
        if of(object) != of(old) {
            return Err(forbidden(write, format!("the annotation {key} is immutable")));
        }
    }
    let (before, after) = (phase(old), phase(object));
    if let Some(reason) = terminators_refusal(old, object) {
        return Err(forbidden(write, reason));
    }
    let (had, has) = (names(old, "initializers"), names(object, "initializers"));
    if before == "Initializing" {
        if has.iter().any(|one| !had.contains(one)) {
            return Err(forbidden(write, "status.initializers must not grow"));
        }
        if after == "Ready" && !has.is_empty() {
            return Err(forbidden(write, "status.initializers is not empty"));
        }
    } else if !matches!(before, "" | "Scheduling") && had != has {
        return Err(forbidden(write, "status.initializers is immutable after initilization"));
    }
    if let (Some(from), Some(to)) = (rank(before), rank(after))
        && to < from
    {
        return Err(forbidden(write, format!("cannot transition from {before:?} to {after:?}")));
    }
    let inactive = |of: &Value| of["metadata"]["annotations"][annotation::INACTIVE] == "true";
    if inactive(object) && !inactive(old) && before != "Ready" {
        return Err(forbidden(write, "a logical cluster can only be marked inactive in phase Ready"));
    }
    Ok(())
}

/// The reason against a change of `status.terminators`. They are set at the transition to Initializing, and shrink while the logical
/// cluster is deleted. Otherwise the administrator of a workspace could delete it without the terminators of its type.
fn terminators_refusal(old: &Value, object: &Value) -> Option<&'static str> {
    let (had, has) = (names(old, "terminators"), names(object, "terminators"));
    if had == has || matches!(phase(old), "" | "Scheduling") {
        None
    } else if has.iter().any(|one| !had.contains(one)) {
        Some("status.terminators must not grow")
    } else if object["metadata"]["deletionTimestamp"].is_null() {
        Some("status.terminators is immutable before deletion")
    } else {
        None
    }
}

/// The initializers or terminators in the status.
fn names(of: &Value, field: &str) -> Vec<String> {
    let all = of["status"][field].as_array();
    all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Unprivileged users may delete only a LogicalCluster with `spec.directlyDeletable`.
pub(super) fn validate_delete(write: &AdmissionRequest<'_>, old: Option<&Value>) -> Result<(), Status> {
    let deletable = old.is_some_and(|old| old["spec"]["directlyDeletable"] == true);
    if deletable || is_privileged(write) {
        return Ok(());
    }
    Err(forbidden(write, "LogicalCluster cannot be deleted"))
}

fn is_privileged(write: &AdmissionRequest<'_>) -> bool {
    is_master(write)
        || [
            group::LOGICAL_CLUSTER_ADMIN,
            group::EXTERNAL_LOGICAL_CLUSTER_ADMIN,
            group::WORKSPACE_BOOTSTRAPPER,
        ]
        .iter()
        .any(|group| is_in(write.user, group))
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn rank(phase: &str) -> Option<u8> {
    ["", "Scheduling", "Initializing", "Ready"]
        .iter()
        .position(|known| *known == phase)
        .map(|index| index as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_change_the_resource_locks() {
        let with = |locks: &str| json!({"metadata": {"annotations": {annotation::RESOURCE_BINDINGS: locks}}});
        let without = json!({"metadata": {}});
        for (mut new, old) in [
            (with("{}"), with("{\"a.b\":{\"n\":\"c\"}}")),
            (with("garbage"), with("{}")),
            (without.clone(), with("{}")),
            (json!({"metadata": {"annotations": "malformed"}}), with("{}")),
            (with("{}"), without.clone()),
            (without.clone(), without),
        ] {
            mutate(&mut new, Some(&old));
            let of =
                |object: &Value| object["metadata"]["annotations"][annotation::RESOURCE_BINDINGS].clone();
            assert_eq!(of(&new), of(&old));
        }
    }

    #[test]
    fn terminators_are_removed_while_the_logical_cluster_is_deleted() {
        let cluster = |phase: &str, terminators: &[&str], is_deleted: bool| {
            let deletion = is_deleted.then_some("2026-01-01T00:00:00Z");
            json!({"metadata": {"deletionTimestamp": deletion}, "status": {"phase": phase, "terminators": terminators}})
        };
        let (grow, early) =
            ("status.terminators must not grow", "status.terminators is immutable before deletion");
        for (old, new, refusal) in [
            (cluster("Scheduling", &[], false), cluster("Initializing", &["a"], false), None),
            (cluster("Initializing", &["a", "b"], false), cluster("Ready", &["a", "b"], false), None),
            (cluster("Initializing", &["a"], false), cluster("Initializing", &[], false), Some(early)),
            (cluster("Ready", &["a", "b"], false), cluster("Ready", &["a"], false), Some(early)),
            (cluster("Ready", &["a"], false), cluster("Ready", &["a", "b"], false), Some(grow)),
            (cluster("Ready", &["a", "b"], true), cluster("Ready", &["a"], true), None),
            (cluster("Terminating", &["a"], true), cluster("Terminating", &["b"], true), Some(grow)),
        ] {
            assert_eq!(terminators_refusal(&old, &new), refusal, "{old} {new}");
        }
    }
}
