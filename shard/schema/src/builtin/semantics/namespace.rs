//! The kind Namespace.

use serde_json::{Map, Value, json};

use super::{Semantics, keep_all_but_status, list, text};
use crate::field::{FieldError, FieldPath};
use crate::metadata::unqualified_finalizer;
use crate::names::qualified_name;

/// The label with the namespace's name, for label selectors. The server always sets it.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The finalizer of the namespace controller.
const FINALIZER: &str = "kubernetes";

/// Namespace. `spec.finalizers` changes through `/finalize` only.
#[derive(Debug)]
pub(crate) struct Namespace;

impl Semantics for Namespace {
    fn default(&self, object: &mut Value) {
        let Value::Object(fields) = object else { return };
        for (field, default) in [("spec", json!({})), ("status", json!({}))] {
            fields.entry(field).or_insert(default);
        }
        if text(&fields["status"], "phase").is_empty() {
            fields["status"]["phase"] = json!("Active");
        }
        set_name_label(fields);
    }

    fn prepare_create(&self, object: &mut Value) {
        let Value::Object(fields) = object else { return };
        fields.insert("status".to_owned(), json!({"phase": "Active"}));
        let mut finalizers = list(fields.get("spec").unwrap_or(&Value::Null), "finalizers").to_vec();
        if !finalizers.contains(&json!(FINALIZER)) {
            finalizers.push(json!(FINALIZER));
        }
        fields.insert("spec".to_owned(), json!({"finalizers": finalizers}));
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let Value::Object(fields) = object else { return };
        for field in ["spec", "status"] {
            match old.get(field) {
                Some(value) => fields.insert(field.to_owned(), value.clone()),
                None => fields.remove(field),
            };
        }
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::new("spec").child("finalizers");
        let mut errors = Vec::new();
        for finalizer in list(&object["spec"], "finalizers").iter().filter_map(Value::as_str) {
            let problems = qualified_name(finalizer);
            errors.extend(problems.iter().map(|p| FieldError::invalid_str(path.clone(), finalizer, p)));
            if problems.is_empty() {
                errors.extend(unqualified_finalizer(finalizer, path.clone()));
            }
        }
        errors
    }

    /// Also validates updates of `/status` and `/finalize`: the phase must match the deletion timestamp.
    fn validate_update(&self, object: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(object);
        let phase = text(&object["status"], "phase");
        let path = || FieldPath::new("status").child("Phase");
        match object["metadata"].get("deletionTimestamp") {
            None if phase != "Active" => {
                let detail = "may only be 'Active' if `deletionTimestamp` is empty";
                errors.push(FieldError::invalid_str(path(), phase, detail));
            }
            Some(_) if phase != "Terminating" => {
                let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                errors.push(FieldError::invalid_str(path(), phase, detail));
            }
            _ => {}
        }
        errors
    }
}

/// Sets the name label. For a `generateName`, it is set once the name is known.
fn set_name_label(fields: &mut Map<String, Value>) {
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else {
        return;
    };
    let Some(name) = metadata.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert(NAMESPACE_NAME_LABEL.to_owned(), Value::String(name));
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    #[test]
    fn new_namespaces_are_active_and_finalized_by_the_controller() {
        let mut namespace =
            json!({"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Terminating"}});
        Namespace.prepare_create(&mut namespace);
        Namespace.default(&mut namespace);
        assert_eq!(
            namespace,
            json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
        );
        let again = namespace.clone();
        Namespace.default(&mut namespace);
        assert_eq!(namespace, again);
    }

    #[test]
    fn updates_change_metadata_only_and_status_updates_status_only() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"}});
        let new = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {},
            "status": {"phase": "Terminating"}});
        let mut update = new.clone();
        Namespace.prepare_update(&mut update, &old);
        assert_eq!(update["spec"], old["spec"]);
        assert_eq!(update["status"], old["status"]);
        assert_eq!(update["metadata"], new["metadata"]);
        let mut update = new.clone();
        Namespace.prepare_status_update(&mut update, &old);
        assert_eq!(update["spec"], old["spec"]);
        assert_eq!(update["status"], new["status"]);
    }

    #[test]
    fn phases_match_the_deletion_timestamp() {
        let active = json!({"metadata": {}, "status": {"phase": "Active"}});
        let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Active"}});
        assert!(Namespace.validate_update(&active, &active).is_empty());
        assert_eq!(
            texts(&Namespace.validate_update(&ending, &active)),
            [
                "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
            ]
        );
    }

    #[test]
    fn finalizers_are_qualified_or_standard() {
        let object = |name: &str| json!({"spec": {"finalizers": [name]}});
        assert!(Namespace.validate(&object("example.com/f")).is_empty());
        assert!(Namespace.validate(&object("kubernetes")).is_empty());
        assert_eq!(
            texts(&Namespace.validate(&object("mine"))),
            [
                "spec.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully \
              qualified"
            ]
        );
    }
}
