//! Converts objects by compiled rules.

use fairlead_cel::{Budget, Inputs};
use serde_json::{Map, Value};

use super::field_names::FieldNames;
use super::{Rule, VersionConversion};

/// The annotation of the fields of a version that the version of the object does not have.
const PRESERVED: &str = "preserve.conversion.apis.kcp.io/";

/// The budget of the transformations of one object. It is smaller than that of validation, because a list converts each of its
/// objects.
const COST_BUDGET: u64 = 2_000_000;

pub(super) fn convert(
    conversions: &[VersionConversion],
    object: Value,
    to_version: &str,
) -> Result<Value, String> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, from_version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if from_version == to_version {
        return Ok(object);
    }
    let is_wanted = |one: &&VersionConversion| *one.from == *from_version && *one.to == *to_version;
    let conversion = conversions.iter().find(is_wanted);
    let api_version = if group.is_empty() { to_version.to_owned() } else { format!("{group}/{to_version}") };
    let mut converted = object.clone();
    if let Some(fields) = converted.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
    }
    if let Some(conversion) = conversion {
        apply_rules(&conversion.rules, &object, &mut converted)?;
    }
    restore(conversions, to_version, &mut converted)?;
    let preserved = conversion.map_or(&[][..], |conversion| &conversion.preserved);
    preserve(preserved, from_version, &object, &mut converted);
    Ok(converted)
}

fn apply_rules(rules: &[Rule], object: &Value, converted: &mut Value) -> Result<(), String> {
    let mut budget = Budget::proportional(COST_BUDGET);
    for rule in rules {
        match value_of(rule, object, &mut budget)? {
            Some(value) => rule.destination.set(converted, value),
            // A value of the same path in the other version has another meaning.
            None => rule.destination.remove(converted),
        }
    }
    Ok(())
}

/// The value of the destination; `None` if the source is absent.
fn value_of(rule: &Rule, object: &Value, budget: &mut Budget) -> Result<Option<Value>, String> {
    let Some(source) = rule.source.find(object) else { return Ok(None) };
    let Some(transformation) = &rule.transformation else { return Ok(Some(source.clone())) };
    if source.is_null() {
        return Ok(None);
    }
    let inputs = Inputs::new(&transformation.environment).with_json("self", source);
    let evaluation = transformation.program.evaluate(&inputs, budget);
    let value = evaluation.result.and_then(|value| value.to_json());
    value.map(Some).map_err(|error| {
        let (source, destination) = (rule.source.text(), rule.destination.text());
        format!("error converting: error executing transformation of {source} to {destination}: {error}")
    })
}

/// Takes the fields that only this version has from the annotation of an earlier conversion. Clients can write the annotation, so
/// it sets only fields that an APIConversion preserves.
fn restore(conversions: &[VersionConversion], version: &str, converted: &mut Value) -> Result<(), String> {
    let Some(text) = take_annotation(converted, version) else { return Ok(()) };
    let saved: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| format!("error unmarshaling preserve annotation: {error}"))?;
    let of_version = conversions.iter().filter(|conversion| *conversion.from == *version);
    for field in of_version.flat_map(|conversion| &conversion.preserved) {
        if let Some(value) = saved.get(&field.text()) {
            field.set(converted, value.clone());
        }
    }
    Ok(())
}

/// Saves the fields that the new version does not have.
fn preserve(fields: &[FieldNames], version: &str, object: &Value, converted: &mut Value) {
    // The object has its fields, so an annotation with other ones is outdated.
    take_annotation(converted, version);
    let saved: Map<String, Value> =
        fields.iter().filter_map(|field| Some((field.text(), field.find(object)?.clone()))).collect();
    if saved.is_empty() {
        return;
    }
    let text = Value::Object(saved).to_string();
    let annotation = FieldNames::parse("metadata.annotations");
    let mut annotations = match annotation.find(converted) {
        Some(Value::Object(annotations)) => annotations.clone(),
        _ => Map::new(),
    };
    annotations.insert(format!("{PRESERVED}{version}"), text.into());
    annotation.set(converted, annotations.into());
}

/// Removes the annotation with the fields of a version.
fn take_annotation(object: &mut Value, version: &str) -> Option<String> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let taken = annotations.remove(&format!("{PRESERVED}{version}"));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    match taken? {
        Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}
