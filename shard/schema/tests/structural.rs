//! Compares structural schemas with Kubernetes: errors of definitions, pruned and defaulted objects, and their errors.
//!
//! Each line of `tests/data/structural.jsonl.gz` has a generated `schema`, and either the errors of a CRD with it
//! (`definition`) as Kubernetes 1.36 reports them, or `objects`: each `object` without its type and metadata, its `unknown`
//! fields, its stored form (`result`, if it differs from the object) and its `errors`. With `old`, the errors are those of
//! an update of that entry's stored form. `decode` is the error of an object that Kubernetes cannot decode. The answers
//! come from a program around the packages `validation`, `pruning`, `defaulting`, `objectmeta` and `listtype` of
//! apiextensions-apiserver. `STRUCTURAL_CASES` names a file with more of such lines.

#![allow(clippy::unwrap_used, reason = "tests")]

mod recorded;

use std::collections::BTreeSet;
use std::path::Path;

use fairlead_schema::crd::{CrdSpec, apply_defaults};
use fairlead_schema::{FieldError, Schema};
use recorded::{Report, is_same_json};
use serde_json::{Value, json};

/// Parts of errors of Kubernetes that are missing on purpose, with the reasons.
const MISSING: &[(&str, &str)] = &[
    ("must be of type file: ", "a default of an unknown type: the definition is refused for the type"),
    ("must be of type null: ", "a default of an unknown type: the definition is refused for the type"),
    ("in body shouldn't contain duplicates", "a default of a list with uniqueItems, which is refused"),
];

/// Parts of errors that Kubernetes does not report, with the reasons.
const ADDITIONAL: &[(&str, &str)] = &[(
    "must be a string",
    "Kubernetes reports one wrong type of an embedded resource in a default; here all",
)];

/// Texts after which errors differ on purpose, with the reasons.
const ENDS: &[(&str, &str)] = &[(
    "must be a valid regular expression, but isn't: ",
    "the parser of the expression describes the mistake",
)];

const ROOT_DEFAULT: &str =
    "a default of the whole object is refused; Kubernetes refuses that it lacks a type";

const UNDECODABLE: &str =
    "Kubernetes cannot decode the metadata of an embedded resource; here each wrong field is an error";

#[test]
fn schemas_and_objects_are_treated_as_in_kubernetes() {
    let lines = recorded::lines(&recorded::data("structural.jsonl.gz"));
    let report = Report::of(&lines, compare);
    report.finish();
    assert!(report.compared["objects"] >= 100_000, "{:?}", report.compared);
    let reasons = MISSING.iter().chain(ADDITIONAL).chain(ENDS).map(|(_, reason)| *reason);
    report.assert_used(reasons.chain([ROOT_DEFAULT, UNDECODABLE]));
}

#[test]
fn further_cases_are_treated_as_in_kubernetes() {
    let Ok(path) = std::env::var("STRUCTURAL_CASES") else { return };
    Report::of(&recorded::lines(Path::new(&path)), compare).finish();
}

fn compare(line: &str, report: &mut Report) {
    let case: Value = serde_json::from_str(line).unwrap();
    let schema = &case["schema"];
    let mut definition = definition(schema);
    apply_defaults(&mut definition);
    let parsed = CrdSpec::parse(&definition);
    let ours = parsed.as_ref().err().cloned().unwrap_or_default();
    report.count(if ours.is_empty() { "valid definitions" } else { "invalid definitions" });
    if let Some(difference) = different_errors(&case["definition"], &ours, report) {
        report.differences.push(format!("schema {schema}\n{difference}"));
        return;
    }
    let Ok(parsed) = parsed else { return };
    let schema_of_objects = &parsed.versions[0].schema;
    let mut stored: Vec<Value> = Vec::new();
    for entry in case["objects"].as_array().into_iter().flatten() {
        report.count("objects");
        if !entry["old"].is_null() {
            report.count("updates among the objects");
        }
        let (object, difference) = compare_object(schema_of_objects, entry, &stored, report);
        if let Some(difference) = difference {
            let old = entry["old"].as_u64().map(|index| &stored[index as usize]);
            let old = old.map_or_else(String::new, |old| format!("\nold {old}"));
            report
                .differences
                .push(format!("schema {schema}\nobject {}{old}\n{difference}", entry["object"]));
        }
        stored.push(object);
    }
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

/// An object with the type and metadata that all have.
fn whole(fields: &Value) -> Value {
    let mut object = json!({"apiVersion": "e.com/v1", "kind": "Thing", "metadata": {"name": "n"}});
    for (name, value) in fields.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}

/// The stored form of an object, and how it or its errors differ from those of Kubernetes.
fn compare_object(
    schema: &Schema,
    entry: &Value,
    stored: &[Value],
    report: &mut Report,
) -> (Value, Option<String>) {
    let original = whole(&entry["object"]);
    let mut object = original.clone();
    let unknown: BTreeSet<String> = schema.prune(&mut object).into_iter().collect();
    schema.apply_defaults(&mut object);
    let ours = match entry["old"].as_u64() {
        Some(index) => schema.validate_update(&object, &stored[index as usize]),
        None => schema.validate(&object),
    };
    if let Some(error) = entry["decode"].as_str() {
        let path = error.split_once(": ").map_or("", |(path, _)| path);
        if ours.iter().any(|error| error.path.as_str().starts_with(path)) {
            report.explain(UNDECODABLE);
            return (object, None);
        }
        let difference = format!("errors {ours:?}, Kubernetes cannot decode the object: {error}");
        return (object, Some(difference));
    }
    let expected: BTreeSet<String> = texts(&entry["unknown"]).collect();
    if unknown != expected {
        let difference = format!("unknown fields {unknown:?}, in Kubernetes {expected:?}");
        return (object, Some(difference));
    }
    let expected = if entry["result"].is_null() { original } else { whole(&entry["result"]) };
    if !is_same_json(&object, &expected) {
        let difference = format!("becomes {object}, in Kubernetes {expected}");
        return (object, Some(difference));
    }
    let difference = different_errors(&entry["errors"], &ours, report);
    (object, difference)
}

fn different_errors(expected: &Value, ours: &[FieldError], report: &mut Report) -> Option<String> {
    let mut expected: Vec<String> = texts(expected).collect();
    let mut ours: Vec<String> = ours.iter().map(ToString::to_string).collect();
    expected.sort();
    ours.sort();
    if expected == ours {
        return None;
    }
    let mut reasons = BTreeSet::new();
    expected.retain(|text| {
        let known = MISSING.iter().find(|(part, _)| text.contains(part));
        reasons.extend(known.map(|(_, reason)| *reason));
        known.is_none()
    });
    ours.retain(|text| {
        let known = ADDITIONAL.iter().find(|(part, _)| text.contains(part) && !expected.contains(text));
        reasons.extend(known.map(|(_, reason)| *reason));
        known.is_none()
    });
    for text in expected.iter_mut().chain(&mut ours) {
        for (part, reason) in ENDS {
            if let Some(start) = text.find(part) {
                text.truncate(start + part.len());
                reasons.insert(*reason);
            }
        }
    }
    let root_default = "spec.validation.openAPIV3Schema.default";
    if ours.iter().any(|text| text.starts_with(root_default) && text.ends_with("must not be set at the root"))
    {
        ours.retain(|text| !text.starts_with(root_default));
        expected.retain(|text| !text.starts_with(root_default));
        reasons.insert(ROOT_DEFAULT);
    }
    if expected == ours {
        reasons.into_iter().for_each(|reason| report.explain(reason));
        return None;
    }
    let missing: Vec<&String> = expected.iter().filter(|text| !ours.contains(text)).collect();
    let superfluous: Vec<&String> = ours.iter().filter(|text| !expected.contains(text)).collect();
    Some(format!("missing {missing:#?}\nsuperfluous {superfluous:#?}"))
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}
