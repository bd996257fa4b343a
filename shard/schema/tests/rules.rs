//! Compares validation rules with Kubernetes: errors of definitions, and errors and warnings of objects.
//!
//! Each line of `tests/data/rules.jsonl` has a schema, the errors of a CRD with it as Kubernetes 1.36 reports them, and
//! objects with their errors. The answers come from a program around `ValidateCustomResourceDefinition` and the strategy
//! of custom resources of apiextensions-apiserver.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use fairlead_schema::crd::{CrdSpec, apply_defaults};
use fairlead_schema::{CompileOptions, FieldError, FieldPath, Schema};
use serde_json::{Value, json};

#[test]
fn definitions_are_refused_as_in_kubernetes() {
    for case in cases() {
        let mut definition = definition(&case["schema"]);
        apply_defaults(&mut definition);
        let ours = CrdSpec::parse(&definition).err().unwrap_or_default();
        compare(&case["name"], &case["definition"], &ours);
    }
}

#[test]
fn objects_are_refused_as_in_kubernetes() {
    let mut compared = 0;
    for case in cases() {
        let schema = Schema::compile(&case["schema"], &CompileOptions::structural()).unwrap();
        let entries = case["objects"].as_array().unwrap();
        if entries.is_empty() {
            continue;
        }
        let schema = schema.with_rules(&case["schema"], &FieldPath::root()).unwrap();
        for (index, entry) in entries.iter().enumerate() {
            let object = whole(&entry["object"]);
            let old = entry.get("old").map(whole);
            let mut errors = match &old {
                Some(old) => schema.validate_update(&object, old),
                None => schema.validate(&object),
            };
            let findings = schema.validate_rules(&object, old.as_ref(), &errors);
            errors.extend(findings.errors);
            let name = json!(format!("{} {index}", case["name"]));
            compare(&name, &entry["errors"], &errors);
            compare(&name, entry.get("warnings").unwrap_or(&json!([])), &findings.warnings);
            compared += 1;
        }
    }
    assert!(compared > 70, "{compared}");
}

fn cases() -> impl Iterator<Item = Value> {
    include_str!("data/rules.jsonl").lines().map(|line| serde_json::from_str(line).unwrap())
}

fn definition(schema: &Value) -> Value {
    json!({
        "metadata": {"name": "things.e.com"},
        "spec": {
            "group": "e.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn whole(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!("e.com/v1");
    object["kind"] = json!("Thing");
    object["metadata"] = json!({"name": "a", "resourceVersion": "1"});
    object
}

/// Compares without order: Kubernetes reads properties and fields in random order.
fn compare(name: &Value, theirs: &Value, ours: &[FieldError]) {
    let theirs: BTreeSet<String> =
        theirs.as_array().unwrap().iter().map(|text| normalize(text.as_str().unwrap())).collect();
    let ours: BTreeSet<String> = ours.iter().map(|error| normalize(&error.to_string())).collect();
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let wrong: Vec<_> = ours.difference(&theirs).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "{name}\nmissing {missing:#?}\nwrong {wrong:#?}");
}

/// A text without the random numbers of types.
fn normalize(text: &str) -> String {
    let mut parts = text.split("selfType");
    let mut output = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        output.push_str("selfType");
        output.push_str(part.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    output
}
