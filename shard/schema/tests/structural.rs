//! Compares structural schemas with Kubernetes: errors of definitions, pruned and defaulted objects, and their errors.
//!
//! Each line of `tests/data/structural.jsonl` has a generated schema, the errors of a CRD with it as Kubernetes 1.36 reports
//! them, and objects with their unknown fields, their stored form and their errors. The answers come from a program
//! around the packages `validation`, `pruning`, `defaulting`, `objectmeta` and `listtype` of apiextensions-apiserver.
//! `STRUCTURAL_CASES` names a file with more of such lines.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::BufRead as _;

use fairlead_schema::crd::{CrdSpec, apply_defaults};
use fairlead_schema::{FieldError, Schema};
use serde_json::{Value, json};

/// Parts of errors of Kubernetes that are missing on purpose, with the reasons.
const MISSING: &[(&str, &str)] = &[
    ("must be of type file: ", "a default of an unknown type: the definition is refused for the type"),
    ("must be of type null: ", "a default of an unknown type: the definition is refused for the type"),
    ("in body shouldn't contain duplicates", "a default of a list with uniqueItems, which is refused"),
];

/// Texts after which errors differ on purpose, with the reasons.
const ENDS: &[(&str, &str)] = &[(
    "must be a valid regular expression, but isn't: ",
    "the parser of the expression describes the mistake",
)];

#[test]
fn schemas_and_objects_are_treated_as_in_kubernetes() {
    let cases = include_str!("data/structural.jsonl").lines().map(str::to_owned);
    let compared = compare_all(cases);
    assert!(compared > 500, "{compared}");
}

#[test]
fn further_cases_are_treated_as_in_kubernetes() {
    let Ok(path) = std::env::var("STRUCTURAL_CASES") else { return };
    let file = std::fs::File::open(path).unwrap();
    compare_all(std::io::BufReader::new(file).lines().map(Result::unwrap));
}

fn compare_all(lines: impl Iterator<Item = String>) -> usize {
    let (mut compared, mut explained, mut differences) = (0, 0, Vec::new());
    for line in lines {
        let case: Value = serde_json::from_str(&line).unwrap();
        compared += 1;
        let mut definition = definition(&case["schema"]);
        apply_defaults(&mut definition);
        let parsed = CrdSpec::parse(&definition);
        let ours = parsed.as_ref().err().cloned().unwrap_or_default();
        match different_errors(&case["definition"], &ours) {
            Comparison::Equal => {}
            Comparison::Explained => explained += 1,
            Comparison::Different(difference) => {
                differences.push(format!("schema {}\n{difference}", case["schema"]));
                continue;
            }
        }
        let Ok(parsed) = parsed else { continue };
        for entry in case["objects"].as_array().into_iter().flatten() {
            compared += 1;
            if let Some(difference) = different_object(&parsed.versions[0].schema, entry) {
                differences
                    .push(format!("schema {}\nobject {}\n{difference}", case["schema"], entry["object"]));
            }
        }
    }
    println!("{compared} cases, {explained} explained differences, {} others", differences.len());
    let shown = differences.len().min(12);
    assert!(
        differences.is_empty(),
        "{} of {compared} differ:\n{}",
        differences.len(),
        differences[..shown].join("\n\n")
    );
    compared
}

enum Comparison {
    Equal,
    /// All differences are known ones.
    Explained,
    Different(String),
}

fn definition(schema: &Value) -> Value {
    json!({
        "metadata": {"name": "things.e.com"},
        "spec": {
            "group": "e.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn different_object(schema: &Schema, entry: &Value) -> Option<String> {
    let mut object = entry["object"].clone();
    let unknown: BTreeSet<String> = schema.prune(&mut object).into_iter().collect();
    schema.apply_defaults(&mut object);
    let expected: BTreeSet<String> = texts(&entry["unknown"]).collect();
    if unknown != expected {
        return Some(format!("unknown fields {unknown:?}, in Kubernetes {expected:?}"));
    }
    if object != entry["result"] {
        return Some(format!("becomes {object}, in Kubernetes {}", entry["result"]));
    }
    match different_errors(&entry["errors"], &schema.validate(&object)) {
        Comparison::Equal | Comparison::Explained => None,
        Comparison::Different(difference) => Some(difference),
    }
}

fn different_errors(expected: &Value, ours: &[FieldError]) -> Comparison {
    let mut expected: Vec<String> = texts(expected).collect();
    let mut ours: Vec<String> = ours.iter().map(ToString::to_string).collect();
    expected.sort();
    ours.sort();
    if expected == ours {
        return Comparison::Equal;
    }
    expected.retain(|text| !MISSING.iter().any(|(part, _)| text.contains(part)));
    for text in expected.iter_mut().chain(&mut ours) {
        if let Some(end) = ENDS.iter().find_map(|(part, _)| text.find(part).map(|at| at + part.len())) {
            text.truncate(end);
        }
    }
    if expected == ours {
        return Comparison::Explained;
    }
    let missing: Vec<&String> = expected.iter().filter(|text| !ours.contains(text)).collect();
    let superfluous: Vec<&String> = ours.iter().filter(|text| !expected.contains(text)).collect();
    Comparison::Different(format!("missing {missing:#?}\nsuperfluous {superfluous:#?}"))
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}
