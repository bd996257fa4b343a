//! Our definitions and bootstrap objects beside recordings of a real kcp, where those are at hand.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::io::Read as _;
use std::path::PathBuf;

use fairlead_api::{resources, system_resources};
use serde_json::Value;

/// The recorded list, or nothing (and a word about it) where the recordings are not there.
fn recorded(place: &str, file: &str) -> Option<Vec<Value>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/objects");
    let path = directory.join(place).join(file);
    let Ok(bytes) = std::fs::read(&path) else {
        println!("skipped: no recording {place}/{file}");
        return None;
    };
    let mut text = String::new();
    if file.ends_with(".gz") {
        flate2::read::GzDecoder::new(bytes.as_slice())
            .read_to_string(&mut text)
            .unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    let list: Value = serde_json::from_str(&text).unwrap();
    Some(list["items"].as_array().unwrap().clone())
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Drops descriptions, but not a property that happens to have this name.
fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, value)| *key != "description" || !value.is_string())
            .map(|(key, value)| (key.clone(), without_descriptions(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_descriptions).collect(),
        scalar => scalar.clone(),
    }
}

fn assert_same(what: &str, ours: &Value, theirs: &Value) {
    let ours = serde_json::to_string_pretty(&without_descriptions(ours)).unwrap();
    let theirs = serde_json::to_string_pretty(&without_descriptions(theirs)).unwrap();
    if ours != theirs {
        for (line, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(our, their, "{what}, line {line}\n{ours}");
        }
        panic!("{what} differs in length:\n{ours}");
    }
}

#[test]
fn system_crds_equal_the_recorded_ones() {
    let Some(recorded) = recorded(
        "system-system-crds.root-shard",
        "customresourcedefinitions.apiextensions.k8s.io_v1.json",
    ) else {
        return;
    };
    let mut ours: Vec<Value> = system_resources()
        .map(|resource| resource.custom_resource_definition())
        .collect();
    ours.sort_by(|a, b| name(a).cmp(name(b)));
    let names = |objects: &[Value]| {
        objects
            .iter()
            .map(|object| name(object).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&ours), names(&recorded));
    for (ours, theirs) in ours.iter().zip(&recorded) {
        assert_same(name(ours), &ours["spec"], &theirs["spec"]);
    }
}

#[test]
fn schemas_of_root_equal_the_recorded_ones() {
    let Some(recorded) = recorded("root", "apiresourceschemas.apis.kcp.io_v1alpha1.json") else {
        return;
    };
    let mut ours: Vec<Value> = resources()
        .iter()
        .filter_map(|resource| resource.api_resource_schema())
        .collect();
    ours.sort_by(|a, b| name(a).cmp(name(b)));
    let names = |objects: &[Value]| {
        objects
            .iter()
            .map(|object| name(object).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&ours), names(&recorded));
    for (ours, theirs) in ours.iter().zip(&recorded) {
        assert_same(name(ours), &ours["spec"], &theirs["spec"]);
    }
}
