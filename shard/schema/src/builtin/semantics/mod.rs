//! Defaulting, preparation and validation of built-in kinds beyond their schema, as pure functions on normalized
//! objects.
//!
//! The order on a write is: normalize, `prepare_create` or `prepare_update`, `default`, admission, `validate` or
//! `validate_update` (with the rules of `metadata`, which are not part of this module), store.

mod admission_policy;
mod certificate_signing_request;
mod data;
mod event;
mod lease;
mod match_conditions;
mod match_resources;
mod namespace;
mod policy_binding;
mod rbac;
mod resource_quota;
mod review;
mod webhook_configuration;

use serde_json::Value;

pub(super) use admission_policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
pub(super) use certificate_signing_request::CertificateSigningRequest;
pub(super) use data::{ConfigMap, Secret};
pub(super) use event::{CoreEvent, EventsEvent};
pub use event::{event_to_core_form, event_to_events_form};
pub(super) use lease::{Lease, SchemaOnly};
pub use namespace::NAMESPACE_NAME_LABEL;
pub(super) use namespace::Namespace;
pub(super) use policy_binding::PolicyBinding;
pub(super) use rbac::{Role, RoleBinding};
pub(super) use resource_quota::ResourceQuota;
pub(super) use review::AccessReview;
pub(super) use webhook_configuration::WebhookConfiguration;

use crate::field::{FieldError, FieldPath};

/// Defaulting, preparation and validation of one kind. All methods are optional. `old` is always the stored object.
pub trait Semantics: Sync + std::fmt::Debug {
    /// Fills in fields that clients may omit. It is idempotent and also runs on patched objects.
    fn default(&self, _object: &mut Value) {}

    /// Removes fields that a client may not set on creation, and adds those that the server sets.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Restores fields that an update of the object itself may not change, such as its status.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Restores fields that an update of `/status` may not change: only the status is taken from the new object.
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
    }

    /// Restores fields that an update of another subresource may not change.
    fn prepare_subresource_update(&self, _name: &str, object: &mut Value, old: &Value) {
        self.prepare_status_update(object, old);
    }

    /// Checks a new object.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Checks an updated object, including everything that `validate` checks.
    fn validate_update(&self, object: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(object)
    }

    /// Checks an object that was updated through a subresource.
    fn validate_subresource_update(&self, _name: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(object, old)
    }
}

fn keep_all_but_status(object: &mut Value, old: &Value) {
    let status = object.get_mut("status").map(Value::take);
    let metadata = object.get_mut("metadata").map(Value::take);
    *object = old.clone();
    if let Value::Object(fields) = object {
        fields.remove("status");
        if let Some(status) = status {
            fields.insert("status".to_owned(), status);
        }
        // The registry decides which metadata a status update may change.
        if let Some(metadata) = metadata {
            fields.insert("metadata".to_owned(), metadata);
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn insert_missing_text(object: &mut Value, field: &str, value: &str) {
    if let Value::Object(fields) = object {
        let entry = fields.entry(field).or_insert(Value::Null);
        if entry.as_str().is_none_or(str::is_empty) {
            *entry = Value::from(value);
        }
    }
}

/// The error `field is immutable` if the field differs.
fn immutable(object: &Value, old: &Value, field: &str) -> Option<FieldError> {
    let (new, old) = (&object[field], &old[field]);
    (new != old).then(|| FieldError::invalid(FieldPath::new(field), new, "field is immutable"))
}

#[cfg(test)]
fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
