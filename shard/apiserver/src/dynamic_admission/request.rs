//! The request as webhooks and expressions see it, and objects in the version in which they are reviewed.

use fairlead_process::Status;
use serde_json::{Value, json};

use super::matching::Operation;
use crate::object::ScopeAnnotations;
use crate::registry::{AdmissionRequest, to_version};
use crate::request::DryRun;

/// `request` of an AdmissionReview, without `uid`, `object` and `oldObject`. `version` is that of the reviewed object.
pub(super) fn admission_request(write: &AdmissionRequest<'_>, version: &str, operation: Operation) -> Value {
    let name = &write.resource.name;
    let kind = |version: &str| match write.scale(version) {
        Some(_) => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
        None => json!({"group": *name.group, "version": version, "kind": *write.resource.kind}),
    };
    let resource =
        |version: &str| json!({"group": *name.group, "version": version, "resource": *name.resource});
    let is_dry_run = write.dry_run == DryRun::All;
    let mut options = json!({"kind": operation.options_kind(), "apiVersion": "meta.k8s.io/v1"});
    if is_dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let mut request = json!({
        "kind": kind(version),
        "resource": resource(version),
        "requestKind": kind(write.version),
        "requestResource": resource(write.version),
        "operation": operation.as_str(),
        "userInfo": serde_json::to_value(write.user).unwrap_or_default(),
        "dryRun": is_dry_run,
        "options": options,
    });
    let mut set = |field: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            request[field] = value.into();
        }
    };
    set("name", Some(write.name));
    set("subResource", write.subresource);
    set("requestSubResource", write.subresource);
    let is_namespace = name.group.is_empty() && &*name.resource == "namespaces";
    set("namespace", if is_namespace { Some(write.name) } else { write.namespace });
    request
}

/// An object in the version in which it is reviewed, with the annotations of its scope.
pub(super) async fn reviewed(
    annotations: ScopeAnnotations,
    write: &AdmissionRequest<'_>,
    version: &str,
    object: &Value,
) -> Result<Value, Status> {
    let mut reviewed = if version == write.version {
        object.clone()
    } else {
        to_version(write.resource, version, object.clone()).await?
    };
    if let Some(scale) = write.scale(version) {
        return Ok(scale.scale_of(&reviewed).map_err(Status::internal)?.object);
    }
    for (annotation, segment) in annotations.iter().zip(write.scope.as_str().split('/')) {
        reviewed["metadata"]["annotations"][*annotation] = segment.into();
    }
    Ok(reviewed)
}
