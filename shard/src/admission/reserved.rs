//! Admission of reserved names, labels and annotations.

use fairlead_api::{annotation, label};
use fairlead_apiserver::AdmissionRequest;
use fairlead_apiserver::resource::Verb;
use fairlead_process::Status;
use serde_json::{Map, Value};

use super::{forbidden, is_master, resource_of};
use crate::names::{BOUND_CRDS, SYSTEM_CRDS};

/// Refuses reserved names and groups, and changes of reserved labels and annotations.
pub(super) fn validate(
    write: &AdmissionRequest<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if resource_of(write) == ("apiextensions.k8s.io", "customresourcedefinitions") {
        validate_definition(write, object)?;
    }
    let is_type = resource_of(write) == ("tenancy.kcp.io", "workspacetypes");
    if is_type && write.verb == Verb::Create && matches!(write.name, "any" | "system") {
        return Err(forbidden(write, "name is reserved"));
    }
    if is_master(write) {
        return Ok(());
    }
    for (field, kind, writable) in
        [("annotations", "annotation", &WRITABLE_ANNOTATIONS[..]), ("labels", "label", &[])]
    {
        let empty = Map::new();
        let of = |object: &Value| object["metadata"][field].as_object().cloned();
        let (before, after) =
            (old.and_then(of).unwrap_or_default(), of(object).unwrap_or_else(|| empty.clone()));
        let changed = before.iter().chain(&after).find(|(key, _)| {
            key.ends_with("kcp.io")
                && !writable.contains(&key.as_str())
                && !key.starts_with(label::CLAIMED_PREFIX)
                && before.get(*key) != after.get(*key)
        });
        if let Some((key, _)) = changed {
            return Err(forbidden(write, format!("modification of reserved {kind}: {key:?}")));
        }
    }
    Ok(())
}

const WRITABLE_ANNOTATIONS: [&str; 3] = [annotation::OWNER, annotation::REQUIRED_GROUPS, annotation::PATH];

fn validate_definition(write: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
    let cluster = write.scope.as_str();
    if cluster != BOUND_CRDS {
        let annotations = object["metadata"]["annotations"].as_object();
        for key in annotations.into_iter().flat_map(Map::keys) {
            let domain = key.split('/').next().unwrap_or_default();
            if domain == "apis.kcp.io" || domain.ends_with(".apis.kcp.io") {
                return Err(forbidden(write, format!("{key} is a reserved annotation")));
            }
        }
    }
    let group = object["spec"]["group"].as_str().unwrap_or_default();
    if cluster != SYSTEM_CRDS && cluster != BOUND_CRDS && group.ends_with("apis.kcp.io") {
        return Err(forbidden(write, format!("{group} is a reserved group")));
    }
    Ok(())
}
