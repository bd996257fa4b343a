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

/// Texts after which errors differ on purpose, with the reasons.
const ENDS: &[(&str, &str)] = &[(
    "must be a valid regular expression, but isn't: ",
    "the parser of the expression describes the mistake",
)];

const ROOT_DEFAULT: &str =
    "a default of the whole object is refused; Kubernetes refuses that it lacks a type";

const UNCOMPILED: &str = "a schema that is refused for an unknown type or a reference has no defaults to check; Kubernetes checks them";

const UNIQUE_ITEMS: &str =
    "a definition with uniqueItems is refused; Kubernetes also checks whether its defaults have equal items";

const COERCION: &str = "Kubernetes reports one wrong type of an embedded resource in a default, for metadata as an error of Go's decoder; here \
     each is reported";

const GO_STRUCT: &str =
    "the same error shows the schemas of items as JSON of the definition, not of Kubernetes' internal type";

const UNDECODABLE: &str =
    "Kubernetes cannot decode the metadata of an embedded resource; here each wrong field is an error";

#[test]
fn schemas_and_objects_are_treated_as_in_kubernetes() {
    let lines = recorded::lines(&recorded::data("structural.jsonl.gz"));
    let report = Report::of(&lines, compare);
    report.finish();
    assert!(report.compared["objects"] >= 100_000, "{:?}", report.compared);
    let reasons = ENDS.iter().map(|(_, reason)| *reason);
    report.assert_used(reasons.chain([
        ROOT_DEFAULT,
        UNCOMPILED,
        UNIQUE_ITEMS,
        COERCION,
        GO_STRUCT,
        UNDECODABLE,
    ]));
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
    if let Some(difference) = different_errors(schema, &case["definition"], &ours, report) {
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
    let difference = different_errors(&Value::Null, &entry["errors"], &ours, report);
    (object, difference)
}

fn different_errors(
    schema: &Value,
    expected: &Value,
    ours: &[FieldError],
    report: &mut Report,
) -> Option<String> {
    let mut expected: Vec<String> = texts(expected).collect();
    let mut ours: Vec<String> = ours.iter().map(ToString::to_string).collect();
    expected.sort();
    ours.sort();
    if expected == ours {
        return None;
    }
    let mut reasons = BTreeSet::new();
    explain_defaults(schema, &mut expected, &mut ours, &mut reasons);
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

/// Removes errors of definitions that differ for a reason.
fn explain_defaults(
    schema: &Value,
    expected: &mut Vec<String>,
    ours: &mut Vec<String>,
    reasons: &mut BTreeSet<&'static str>,
) {
    let mut explain = |count: usize, now: usize, reason: &'static str| {
        if now < count {
            reasons.insert(reason);
        }
    };
    let is_uncompiled = ours
        .iter()
        .any(|text| text.contains(".$ref: Forbidden: ") || text.contains(".type: Unsupported value: "));
    if is_uncompiled {
        let count = expected.len();
        expected.retain(|text| ours.contains(text) || !is_of_default(text));
        explain(count, expected.len(), UNCOMPILED);
    }
    if schema.to_string().contains("\"uniqueItems\":true") {
        let count = expected.len() + ours.len();
        let (before, own) = (expected.clone(), ours.clone());
        let is_of_combination = |text: &str| is_of_default(text) && text.contains(" (oneOf)");
        expected
            .retain(|text| !is_of_default(text) || !text.ends_with(" in body shouldn't contain duplicates"));
        expected.retain(|text| own.contains(text) || !is_of_combination(text));
        ours.retain(|text| before.contains(text) || !is_of_combination(text));
        explain(count, expected.len() + ours.len(), UNIQUE_ITEMS);
    }
    let refused: BTreeSet<String> =
        expected.iter().filter(|text| is_wrong_type(text)).map(|text| default_of(text)).collect();
    for text in expected.clone() {
        if !is_wrong_type(&text) || ours.contains(&text) && !text.ends_with(": must be a string") {
            continue;
        }
        let path = path_of(&text);
        let default = default_of(&text);
        let is_alike = |own: &String| is_wrong_type(own) && own.starts_with(&default);
        if ours.iter().any(|own| is_alike(own) && own.starts_with(path))
            && !(ours.contains(&text) && ours.iter().filter(|own| is_alike(own)).count() == 1)
        {
            ours.retain(|own| !is_alike(own));
            expected.retain(|other| *other != text);
            reasons.insert(COERCION);
        }
    }
    let unknown_fields = ": must not have unknown fields";
    for text in expected.clone() {
        if !refused.contains(path_of(&text)) || ours.contains(&text) || !text.ends_with(unknown_fields) {
            continue;
        }
        // Kubernetes shows the default with the metadata that it has decoded before the wrong type.
        let is_alike = |own: &String| path_of(own) == path_of(&text) && own.ends_with(unknown_fields);
        if let Some(index) = ours.iter().position(is_alike) {
            ours.remove(index);
            expected.retain(|other| *other != text);
            reasons.insert(COERCION);
        }
    }
    for text in expected.clone() {
        let is_alike = |own: &String| {
            path_of(own) == path_of(&text)
                && own
                    .rsplit_once("]: ")
                    .zip(text.rsplit_once("}: "))
                    .is_some_and(|(one, two)| one.1 == two.1)
        };
        if text.contains(": Invalid value: {\"Schema\":null,\"JSONSchemas\":[")
            && let Some(index) = ours.iter().position(is_alike)
        {
            ours.remove(index);
            expected.retain(|other| *other != text);
            reasons.insert(GO_STRUCT);
        }
    }
}

fn path_of(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(path, _)| path)
}

/// The path of the default that has an error.
fn default_of(text: &str) -> String {
    path_of(text).split_inclusive(".default").next().unwrap_or_default().to_owned()
}

/// Whether an error is one of a default in a definition, or of a part of one.
fn is_of_default(text: &str) -> bool {
    path_of(text).contains(".default")
}

/// Whether an error of a default is that of a wrong type in an embedded resource.
fn is_wrong_type(text: &str) -> bool {
    let is_undecodable = [": json: cannot unmarshal ", ": parsing time ", " in body must be of type "];
    is_of_default(text)
        && (text.ends_with(": must be a string")
            || path_of(text).contains(".metadata") && is_undecodable.iter().any(|part| text.contains(part)))
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}
