//! Compares watches by the history of each object: its first and its last states.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::normalize::Normalizer;

/// The events of each object in order. Of consecutive MODIFIED events only the last one is kept: the number of changes
/// between two states depends on timing.
pub fn histories(normalizer: &Normalizer, events: &[Value]) -> Value {
    let mut histories: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events {
        let history = histories.entry(object_name(normalizer, event)).or_default();
        let event = json!({"type": event["type"], "object": normalizer.value(object(event))});
        match history.last_mut() {
            Some(last) if last["type"] == "MODIFIED" && event["type"] == "MODIFIED" => *last = event,
            _ => history.push(event),
        }
    }
    json!(histories)
}

/// Whether `received` has reached the end of `recorded`: the same type of the last event for each object.
pub fn is_complete(recorded: &[Value], received: &[Value], theirs: &Normalizer, ours: &Normalizer) -> bool {
    let last_types = |normalizer: &Normalizer, events: &[Value]| -> BTreeMap<String, Value> {
        events.iter().map(|event| (object_name(normalizer, event), event["type"].clone())).collect()
    };
    let (expected, reached) = (last_types(theirs, recorded), last_types(ours, received));
    expected.iter().all(|(name, kind)| reached.get(name) == Some(kind))
}

fn object_name(normalizer: &Normalizer, event: &Value) -> String {
    let object = &event["object"];
    let row_name = object["rows"][0]["object"]["metadata"]["name"].as_str();
    let name = row_name.or(object["metadata"]["name"].as_str()).unwrap_or_default();
    match event["type"].as_str() {
        Some("BOOKMARK") => "<bookmarks>".to_owned(),
        _ => normalizer.text(name),
    }
}

/// The event's object. Column definitions are masked: a table has them in the first event only, and the first event
/// may be about any object.
fn object(event: &Value) -> Value {
    let mut object = event["object"].clone();
    if let Some(columns) = object.get_mut("columnDefinitions") {
        *columns = "<columns>".into();
    }
    object
}
