//! The annotation of client-side apply, which kubectl's server-side apply takes over and keeps up to date.

use serde_json::Value;

use super::super::fields::{FieldSet, go_json};
use super::super::typed::{Duplicates, compare, fields_of, validate};
use super::super::types::ObjectType;

/// The annotation in which client-side apply keeps the applied configuration.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The total size of an object's annotations, in bytes. A larger configuration is not kept.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields that client-side apply has set and that are unchanged since; `None` without a usable annotation.
pub(super) fn allowed_conflicts(
    object_type: ObjectType<'_>,
    live: &Value,
    api_version: &str,
) -> Option<FieldSet> {
    let text = annotation(live)?;
    let last: Value = serde_json::from_str(text).ok()?;
    // The strict check of Kubernetes: lists with duplicates are not understood.
    validate(object_type, live, Duplicates::Refused).ok()?;
    if last["apiVersion"] != api_version || last["kind"].as_str().is_none_or(str::is_empty) {
        return None;
    }
    validate(object_type, &last, Duplicates::Refused).ok()?;
    let fields = fields_of(object_type, &last).ok()?;
    let changes = compare(object_type, &last, live).ok()?;
    Some(fields.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Sets the annotation to the configuration, if the object has one.
pub(super) fn update_annotation(object: &mut Value, configuration: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut configuration = configuration.clone();
    if let Some(annotations) =
        configuration.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
    }
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    let text = format!("{}\n", go_json(&configuration));
    annotations.insert(LAST_APPLIED.into(), text.into());
    let size = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if size.sum::<usize>() > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][LAST_APPLIED].as_str().filter(|text| !text.is_empty())
}
