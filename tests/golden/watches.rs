//! Compares what watches say about each object: how it began, and how it ended.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::normal::Side;

/// The events of each object in order, runs of MODIFIED as their last one: how many changes lie between two states
/// depends on who is faster.
pub fn histories(side: &Side, events: &[Value]) -> Value {
    let mut histories: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events {
        let history = histories.entry(subject(side, event)).or_default();
        let event = json!({"type": event["type"], "object": side.value(object(event))});
        match history.last_mut() {
            Some(last) if last["type"] == "MODIFIED" && event["type"] == "MODIFIED" => *last = event,
            _ => history.push(event),
        }
    }
    json!(histories)
}

/// Whether somebody who saw `events` saw all that `recorded` shows: the same last event of each object.
pub fn has_ended_as(recorded: &[Value], events: &[Value], theirs: &Side, ours: &Side) -> bool {
    let last = |side: &Side, events: &[Value]| -> BTreeMap<String, Value> {
        events.iter().map(|event| (subject(side, event), event["type"].clone())).collect()
    };
    let (wanted, seen) = (last(theirs, recorded), last(ours, events));
    wanted.iter().all(|(name, kind)| seen.get(name) == Some(kind))
}

fn subject(side: &Side, event: &Value) -> String {
    let object = &event["object"];
    let rows = object["rows"][0]["object"]["metadata"]["name"].as_str();
    let name = rows.or(object["metadata"]["name"].as_str()).unwrap_or_default();
    match event["type"].as_str() {
        Some("BOOKMARK") => "<bookmarks>".to_owned(),
        _ => side.text(name),
    }
}

/// Columns are described in the first event only, whatever object it is about.
fn object(event: &Value) -> Value {
    let mut object = event["object"].clone();
    if let Some(columns) = object.get_mut("columnDefinitions") {
        *columns = "<columns>".into();
    }
    object
}
