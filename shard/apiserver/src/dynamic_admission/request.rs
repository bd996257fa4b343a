//! The request as webhooks and expressions see it, and objects in the version in which they are reviewed.

use fairlead_process::Status;
use serde_json::{Map, Value, json};

use super::matching::Operation;
use crate::object::ScopeAnnotations;
use crate::registry::{
    AdmissionOptions, AdmissionRequest, managed_fields_of, set_managed_fields, take_managed_fields,
    to_version,
};
use crate::request::DryRun;

/// `request` of an AdmissionReview, without `uid`, `object` and `oldObject`. `version` is that of the reviewed object.
pub(super) fn admission_request(write: &AdmissionRequest<'_>, version: &str, operation: Operation) -> Value {
    let name = &write.resource.name;
    let own_kind = write.subresource_of_own_kind().and_then(|subresource| subresource.kind);
    let kind = |version: &str| match own_kind {
        Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
        None => json!({"group": *name.group, "version": version, "kind": *write.resource.kind}),
    };
    let resource =
        |version: &str| json!({"group": *name.group, "version": version, "resource": *name.resource});
    let is_dry_run = write.dry_run == DryRun::All;
    let mut request = json!({
        "kind": kind(version),
        "resource": resource(version),
        "requestKind": kind(write.version),
        "requestResource": resource(write.version),
        "operation": operation.as_str(),
        "userInfo": serde_json::to_value(write.user).unwrap_or_default(),
        "dryRun": is_dry_run,
        "options": request_options(write, operation),
    });
    let mut set = |field: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            request[field] = value.into();
        }
    };
    let is_of_collection =
        matches!(write.options, AdmissionOptions::Delete(options) if options.is_of_collection);
    set("name", Some(write.name).filter(|_| !is_of_collection));
    set("subResource", write.subresource);
    set("requestSubResource", write.subresource);
    let is_namespace = name.group.is_empty() && &*name.resource == "namespaces";
    set("namespace", if is_namespace { Some(write.name) } else { write.namespace });
    request
}

/// `options` of an AdmissionReview. As in Kubernetes, a patch has the options of the create or update that it is.
fn request_options(write: &AdmissionRequest<'_>, operation: Operation) -> Value {
    let mut options = json!({"kind": operation.options_kind(), "apiVersion": "meta.k8s.io/v1"});
    let mut set = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            options[field] = value;
        }
    };
    set("dryRun", (write.dry_run == DryRun::All).then(|| json!(["All"])));
    match write.options {
        AdmissionOptions::Write(given) => {
            set("fieldManager", Some(&*given.field_manager).filter(|name| !name.is_empty()).map(Value::from));
            set("fieldValidation", given.field_validation.map(|validation| validation.as_str().into()));
        }
        AdmissionOptions::Delete(given) => {
            set("gracePeriodSeconds", given.grace_period_seconds.map(Value::from));
            set("orphanDependents", given.orphan_dependents.map(Value::from));
            // The older option is seen as it was given.
            let policy = given.propagation.filter(|_| given.orphan_dependents.is_none());
            set("propagationPolicy", policy.map(|policy| policy.as_str().into()));
            let mut preconditions = Map::new();
            for (field, value) in [("uid", &given.uid), ("resourceVersion", &given.resource_version)] {
                if let Some(value) = value {
                    preconditions.insert(field.to_owned(), value.as_str().into());
                }
            }
            set("preconditions", (!preconditions.is_empty()).then_some(Value::Object(preconditions)));
        }
    }
    options
}

/// An object of a write.
#[derive(Clone, Copy)]
pub(super) enum WrittenObject<'o> {
    /// The new or changed object.
    New(&'o Value),
    /// The object before a change or delete.
    Old(&'o Value),
}

/// An object in the version in which it is reviewed, with the annotations of its scope and its managedFields.
pub(super) async fn reviewed(
    annotations: ScopeAnnotations,
    write: &AdmissionRequest<'_>,
    version: &str,
    object: WrittenObject<'_>,
) -> Result<Value, Status> {
    let (object, managed) = match object {
        WrittenObject::New(object) => (object, write.managed_fields.new),
        WrittenObject::Old(object) => (object, write.managed_fields.old),
    };
    let mut reviewed = object.clone();
    // Admission may have set others already.
    let set = take_managed_fields(&mut reviewed);
    let is_of_resource = write.subresource_of_own_kind().is_none() || write.scale(version).is_some();
    if version != write.version && is_of_resource {
        reviewed = to_version(write.resource, version, reviewed).await?;
    }
    if let Some(scale) = write.scale(version) {
        reviewed = scale.scale_of(&reviewed).map_err(Status::internal)?.object;
    } else {
        for (annotation, segment) in annotations.iter().zip(write.scope.as_str().split('/')) {
            reviewed["metadata"]["annotations"][*annotation] = segment.into();
        }
    }
    let managed = if set.is_some() { set } else { managed_fields_of(managed)? };
    set_managed_fields(&mut reviewed, managed);
    Ok(reviewed)
}
