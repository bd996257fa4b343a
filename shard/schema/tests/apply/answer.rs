//! Answers of Kubernetes to writes, and their short form in the data.
//!
//! The short form leaves out what the write and the object before it tell: the object after an update, and the entries
//! of managedFields that have not changed.

use serde_json::{Value, json};

use super::sequence::{DAY, Operation, Step, take_managed, written};

/// The object after a write with its managedFields, or the error. An update with an error is written without managedFields.
pub(crate) type Answer = Result<Value, String>;

/// An answer of the oracle, with the time of the write instead of that of the clock.
pub(crate) fn from_oracle(answer: &Value, now: &str) -> Answer {
    let mut object = answer["result"].clone();
    if object.is_null() {
        return Err(answer["error"].as_str().unwrap_or_default().to_owned());
    }
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        if entry["time"].as_str().is_some_and(|time| !time.starts_with(DAY)) {
            entry["time"] = now.into();
        }
    }
    if object["metadata"]["managedFields"].is_null() {
        take_managed(&mut object);
    }
    Ok(object)
}

fn entries_of(live: Option<&Value>) -> Vec<Value> {
    let managed = live.and_then(|live| live["metadata"].get("managedFields"));
    managed.and_then(Value::as_array).cloned().unwrap_or_default()
}

pub(crate) fn shorten(answer: &Answer, step: &Step, live: Option<&Value>) -> Value {
    let mut object = match answer {
        Err(error) => return error.as_str().into(),
        Ok(object) => object.clone(),
    };
    let managed = take_managed(&mut object);
    let known = entries_of(live);
    let short = |entry: &Value| match known.iter().position(|other| other == entry) {
        Some(index) => index.into(),
        None => shorten_entry(entry),
    };
    let mut managed: Vec<Value> =
        managed.as_ref().and_then(Value::as_array).into_iter().flatten().map(short).collect();
    if step.op == Operation::Update && equal(&object, &written(step)) {
        return managed.into();
    }
    managed.insert(0, object);
    managed.into()
}

pub(crate) fn expand(short: &Value, step: &Step, live: Option<&Value>) -> Answer {
    if let Some(error) = short.as_str() {
        return Err(error.to_owned());
    }
    let mut parts = short.as_array().into_iter().flatten().peekable();
    let mut object = match parts.next_if(|part| part.is_object()) {
        Some(object) => object.clone(),
        None => written(step),
    };
    let known = entries_of(live);
    let managed: Vec<Value> = parts
        .map(|part| match part.as_u64() {
            Some(index) => known[usize::try_from(index).unwrap()].clone(),
            None => expand_entry(part),
        })
        .collect();
    if !managed.is_empty() {
        object["metadata"]["managedFields"] = managed.into();
    }
    Ok(object)
}

/// Manager, operation, version, second of the time, fields and subresource.
fn shorten_entry(entry: &Value) -> Value {
    let second =
        entry["time"].as_str().and_then(|time| time.strip_prefix(DAY)?.strip_suffix('Z')?.parse::<u8>().ok());
    let short = json!([
        entry["manager"],
        entry["operation"],
        entry["apiVersion"],
        second,
        entry["fieldsV1"],
        entry["subresource"],
    ]);
    assert_eq!(&expand_entry(&short), entry);
    short
}

fn expand_entry(short: &Value) -> Value {
    let mut entry = json!({"operation": short[1], "apiVersion": short[2], "fieldsType": "FieldsV1"});
    if let Some(second) = short[3].as_u64() {
        entry["time"] = format!("{DAY}{second:02}Z").into();
    }
    for (index, name) in [(0, "manager"), (4, "fieldsV1"), (5, "subresource")] {
        if !short[index].is_null() {
            entry[name] = short[index].clone();
        }
    }
    entry
}

/// Whether two objects are equal, where `1` equals `1.0`: Go writes both alike.
pub(crate) fn equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| equal(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len()
                && one.iter().zip(two).all(|((a, one), (b, two))| a == b && equal(one, two))
        }
        _ => one == two,
    }
}
