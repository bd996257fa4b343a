//! The kind Event in its two forms: `v1`, in which events are stored, and `events.k8s.io/v1`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Semantics, text};
use crate::field::{FieldError, FieldPath};
use crate::names::qualified_name;

/// Largest number of characters of an action, a reason and a reporting instance.
const MAX_SHORT_TEXT: usize = 128;
/// Largest number of bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// Fields with other names in the form `events.k8s.io/v1`: the name in `v1`, and the other one.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// An event in the form `events.k8s.io/v1`, from the form `v1`.
#[must_use]
pub fn event_to_events_form(mut event: Value) -> Value {
    let Some(fields) = event.as_object_mut() else { return event };
    for (name, renamed) in RENAMED {
        if let Some(value) = fields.remove(name) {
            fields.insert(renamed.to_owned(), value);
        }
    }
    for field in ["reportingController", "reportingInstance"] {
        if fields.get(field).is_some_and(|value| value == "") {
            fields.remove(field);
        }
    }
    add_always_written(fields, &[("regarding", json!({})), ("deprecatedSource", json!({}))]);
    add_always_written(
        fields,
        &[
            ("eventTime", Value::Null),
            ("deprecatedFirstTimestamp", Value::Null),
            ("deprecatedLastTimestamp", Value::Null),
        ],
    );
    set_api_version(fields, "events.k8s.io/v1");
    event
}

/// An event in the form `v1`, from the form `events.k8s.io/v1`.
#[must_use]
pub fn event_to_core_form(mut event: Value) -> Value {
    let Some(fields) = event.as_object_mut() else { return event };
    for (name, renamed) in RENAMED {
        if let Some(value) = fields.remove(renamed) {
            fields.insert(name.to_owned(), value);
        }
    }
    add_always_written(fields, &[("involvedObject", json!({})), ("source", json!({}))]);
    add_always_written(fields, &[("firstTimestamp", Value::Null), ("lastTimestamp", Value::Null)]);
    set_api_version(fields, "v1");
    let mut core = event;
    CoreEvent.default(&mut core);
    core
}

fn add_always_written(fields: &mut Map<String, Value>, defaults: &[(&str, Value)]) {
    for (field, value) in defaults {
        fields.entry(*field).or_insert_with(|| value.clone());
    }
}

fn set_api_version(fields: &mut Map<String, Value>, version: &str) {
    if fields.contains_key("apiVersion") {
        fields.insert("apiVersion".to_owned(), version.into());
    }
}

/// The kind Event of the core group: it describes another object of the same namespace.
#[derive(Debug)]
pub(crate) struct CoreEvent;

impl Semantics for CoreEvent {
    /// Adds fields that Kubernetes always writes, even if the client did not set them.
    fn default(&self, object: &mut Value) {
        if let Value::Object(fields) = object {
            fields.entry("eventTime").or_insert(Value::Null);
            for field in ["reportingComponent", "reportingInstance"] {
                fields.entry(field).or_insert_with(|| Value::from(""));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        legacy_errors(object, "reportingComponent")
    }
}

/// The kind Event of the group events.k8s.io.
#[derive(Debug)]
pub(crate) struct EventsEvent;

impl Semantics for EventsEvent {
    fn default(&self, object: &mut Value) {
        if let Value::Object(fields) = object {
            fields.entry("eventTime").or_insert(Value::Null);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        // The errors name the fields of the core form, as in Kubernetes.
        let event = event_to_core_form(object.clone());
        let mut errors = legacy_errors(&event, "reportingController");
        series_errors(&event, &mut errors);
        if time_of(&event, "eventTime").is_none() {
            errors.push(FieldError::required(FieldPath::new("eventTime"), ""));
        }
        let kind = text(&event, "type");
        if !["Normal", "Warning"].contains(&kind) {
            let detail = format!("has invalid value: {kind}");
            errors.push(FieldError::invalid_str(FieldPath::new("type"), "", &detail));
        }
        let is_set = |field: &str| match field {
            "count" => event["count"].as_i64().is_some_and(|count| count != 0),
            "source" => ["component", "host"].iter().any(|part| !text(&event["source"], part).is_empty()),
            _ => time_of(&event, field).is_some(),
        };
        for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
            if is_set(field) {
                errors.push(FieldError::invalid_str(FieldPath::new(field), "", "needs to be unset"));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let (event, old) = (event_to_core_form(object.clone()), event_to_core_form(old.clone()));
        let mut errors = legacy_errors(&event, "reportingController");
        if event.get("series") != old.get("series") {
            series_errors(&event, &mut errors);
        }
        for field in
            ["involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count"]
        {
            errors.extend(immutable(&event, &old, field, field));
        }
        errors.extend(immutable(&event, &old, "type", "type"));
        // Clients may send fewer digits than are stored.
        let micros = |event: &Value| time_of(event, "eventTime").map(|time| time.as_microsecond());
        if micros(&event) != micros(&old) {
            errors.extend(immutable(&event, &old, "eventTime", "eventTime"));
        }
        for (field, shown) in [
            ("action", "action"),
            ("related", "related"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            errors.extend(immutable(&event, &old, field, shown));
        }
        errors
    }
}

fn immutable(event: &Value, old: &Value, field: &str, shown: &str) -> Option<FieldError> {
    let is_empty = |value: &Value| value.is_null() || value == "" || value == 0;
    let (new, old) = (&event[field], &old[field]);
    let differs = new != old && !(is_empty(new) && is_empty(old));
    differs.then(|| FieldError::invalid(FieldPath::new(shown), new, "field is immutable"))
}

fn time_of(object: &Value, field: &str) -> Option<Timestamp> {
    object[field].as_str()?.parse().ok()
}

fn series_errors(event: &Value, errors: &mut Vec<FieldError>) {
    let Some(series) = event.get("series").filter(|series| series.is_object()) else { return };
    if series["count"].as_i64().unwrap_or_default() < 2 {
        errors.push(FieldError::invalid_str(FieldPath::new("series.count"), "", "should be at least 2"));
    }
    if time_of(series, "lastObservedTime").is_none() {
        errors.push(FieldError::required(FieldPath::new("series.lastObservedTime"), ""));
    }
}

/// The checks of both forms. An event without an eventTime is one of the older form, which has few rules.
fn legacy_errors(event: &Value, controller_field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let namespace = text(&event["metadata"], "namespace");
    let involved = text(&event["involvedObject"], "namespace");
    let mismatch = || {
        let path = FieldPath::new("involvedObject").child("namespace");
        FieldError::invalid_str(path, involved, "does not match event.namespace")
    };
    if time_of(event, "eventTime").is_none() {
        // Events of cluster-scoped objects are in the namespace "default".
        let fits = if involved.is_empty() { namespace == "default" } else { involved == namespace };
        if !fits {
            errors.push(mismatch());
        }
        return errors;
    }
    if involved.is_empty() && !["default", "kube-system"].contains(&namespace) {
        errors.push(mismatch());
    }
    let controller = text(event, "reportingComponent");
    let path = || FieldPath::new(controller_field);
    if controller.is_empty() {
        errors.push(FieldError::required(path(), ""));
    }
    errors.extend(
        qualified_name(controller).iter().map(|finding| FieldError::invalid_str(path(), controller, finding)),
    );
    for (field, limit) in
        [("reportingInstance", MAX_SHORT_TEXT), ("action", MAX_SHORT_TEXT), ("reason", MAX_SHORT_TEXT)]
    {
        let value = text(event, field);
        if value.is_empty() {
            errors.push(FieldError::required(FieldPath::new(field), ""));
        }
        errors.extend(too_long(field, value, limit));
    }
    errors.extend(too_long("message", text(event, "message"), MAX_MESSAGE));
    errors
}

fn too_long(field: &str, value: &str, limit: usize) -> Option<FieldError> {
    let detail = format!("can have at most {limit} characters");
    (value.len() > limit).then(|| FieldError::invalid_str(FieldPath::new(field), "", &detail))
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    #[test]
    fn core_events_always_have_reporting_fields() {
        let mut event = json!({"reportingInstance": "i"});
        CoreEvent.default(&mut event);
        let expected = json!({"eventTime": null, "reportingComponent": "", "reportingInstance": "i"});
        assert_eq!(event, expected);
    }

    #[test]
    fn core_events_are_in_the_namespace_of_their_object() {
        let event = |namespace: &str, involved: &str| json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}});
        assert!(CoreEvent.validate(&event("a", "a")).is_empty());
        assert!(CoreEvent.validate(&event("default", "")).is_empty());
        assert_eq!(
            texts(&CoreEvent.validate(&event("a", "b"))),
            ["involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"]
        );
    }

    /// The event of a recording, in both forms.
    #[test]
    fn forms_are_converted_as_by_kubernetes() {
        let core = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e1", "namespace": "demo"},
            "involvedObject": {"kind": "ConfigMap", "name": "cm1"}, "reason": "Test", "message": "hello",
            "source": {"component": "rec"}, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1, "type": "Normal", "eventTime": null,
            "reportingComponent": "", "reportingInstance": ""});
        let events = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": "e1", "namespace": "demo"}, "eventTime": null, "reason": "Test",
            "regarding": {"kind": "ConfigMap", "name": "cm1"}, "note": "hello", "type": "Normal",
            "deprecatedSource": {"component": "rec"}, "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedLastTimestamp": "2026-01-01T00:00:00Z", "deprecatedCount": 1});
        assert_eq!(event_to_events_form(core.clone()), events);
        assert_eq!(event_to_core_form(events), core);
    }

    fn new_event() -> Value {
        json!({"metadata": {"name": "e", "namespace": "n"}, "regarding": {"kind": "Pod", "namespace": "n"},
            "eventTime": "2026-01-01T00:00:00.000001Z", "reportingController": "k8s.io/test",
            "reportingInstance": "test-1", "action": "Test", "reason": "Because", "type": "Normal", "note": "n"})
    }

    #[test]
    fn new_events_are_validated_strictly() {
        assert_eq!(texts(&EventsEvent.validate(&new_event())), Vec::<String>::new());
        for (field, value, message) in [
            ("eventTime", Value::Null, "eventTime: Required value"),
            ("type", json!("Odd"), "type: Invalid value: \"\": has invalid value: Odd"),
            ("reportingController", json!(""), "reportingController: Required value"),
            ("reportingInstance", json!(""), "reportingInstance: Required value"),
            (
                "action",
                json!("x".repeat(129)),
                "action: Invalid value: \"\": can have at most 128 characters",
            ),
            (
                "note",
                json!("x".repeat(1025)),
                "message: Invalid value: \"\": can have at most 1024 characters",
            ),
            ("deprecatedCount", json!(1), "count: Invalid value: \"\": needs to be unset"),
            ("deprecatedSource", json!({"host": "h"}), "source: Invalid value: \"\": needs to be unset"),
            (
                "deprecatedFirstTimestamp",
                json!("2026-01-01T00:00:00Z"),
                "firstTimestamp: Invalid value: \"\": needs to be unset",
            ),
            (
                "series",
                json!({"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}),
                "series.count: Invalid value: \"\": should be at least 2",
            ),
            ("series", json!({"count": 2}), "series.lastObservedTime: Required value"),
            (
                "regarding",
                json!({"kind": "Node"}),
                "involvedObject.namespace: Invalid value: \"\": does not match event.namespace",
            ),
        ] {
            let mut event = new_event();
            event[field] = value;
            let errors = texts(&EventsEvent.validate(&event));
            assert!(errors.contains(&message.to_owned()), "{field}: {errors:?}");
        }
    }

    #[test]
    fn only_the_series_of_a_new_event_may_change() {
        let mut event = new_event();
        event["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
        assert_eq!(texts(&EventsEvent.validate_update(&event, &new_event())), Vec::<String>::new());
        event["note"] = json!("other");
        let errors = texts(&EventsEvent.validate_update(&event, &new_event()));
        assert_eq!(errors, ["message: Invalid value: \"other\": field is immutable"]);
        // Microseconds are compared, not the text.
        let mut same = new_event();
        same["eventTime"] = json!("2026-01-01T00:00:00.0000011Z");
        assert_eq!(texts(&EventsEvent.validate_update(&same, &new_event())), Vec::<String>::new());
    }
}
