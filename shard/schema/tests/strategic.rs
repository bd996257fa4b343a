//! Strategic merge patches, compared with recorded answers of Kubernetes.
//!
//! Each line of `tests/data/strategic.jsonl.gz` has a generated `object` of a stored built-in kind, or of a `custom` kind:
//! one of Kubernetes' other kinds, which tenants serve as custom resources. It has `patches` with their `outcomes` in
//! Kubernetes 1.36. Kubernetes has merged each patch several times, because the order in which it merges the fields of an
//! object is random; all its results are recorded. For built-in kinds they are those after decoding the kind: what a
//! client reads afterwards. `STRATEGIC_CASES` names a file with more of such lines.
#![allow(clippy::unwrap_used, reason = "tests")]

mod recorded;

use std::path::Path;

use fairlead_schema::builtin::builtin_by_kind;
use fairlead_schema::patch::{apply_client_scheme_patch, apply_strategic_merge_patch};
use recorded::{Report, is_same_json};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Line {
    group: String,
    kind: String,
    /// Whether the kind is a custom resource here. Its results are those of the merge alone.
    #[serde(default)]
    custom: bool,
    object: Value,
    patches: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    patch: Value,
    outcomes: Vec<Outcome>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// The object. A null is a zero that cannot be told from an absent field.
    Result(Value),
    /// The patch cannot be merged.
    Error(String),
    /// The merged object does not have the type of the kind.
    Decode(#[allow(dead_code, reason = "shown")] String),
    /// Kubernetes has crashed.
    Panic(#[allow(dead_code, reason = "shown")] String),
}

/// How the results of a case compare.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Comparison {
    SameObject,
    SameError,
    Explained(&'static str),
    Different,
}

const OTHER_VALUES: &str = "the same error shows values as JSON, not in the notation of Go";
const WRONG_TYPE: &str = "both refuse the type of a value, in other words";
const ORDER_OF_NULL: &str = "Kubernetes cannot order an absent list that its type encodes as null";
const UNKNOWN_SHAPE: &str = "Kubernetes refuses to merge values of a map; which fields of custom resources are maps is not known here";
const UNKNOWN_FIELD: &str =
    "Kubernetes refuses to merge a field that its kind does not have; a custom resource may have it";
const BYTES_AS_LIST: &str = "Kubernetes reads a list where the kind has bytes";
const CRASH: &str = "Kubernetes crashes";
const REPEATED_ITEMS: &str =
    "Kubernetes overwrites its list while it removes repeated items: their order depends on memory";

const REASONS: &[&str] = &[
    OTHER_VALUES,
    WRONG_TYPE,
    ORDER_OF_NULL,
    UNKNOWN_SHAPE,
    UNKNOWN_FIELD,
    BYTES_AS_LIST,
    CRASH,
    REPEATED_ITEMS,
];

const NULL_LIST: &str = "expected a []interface {}, but received a %!s(<nil>)";

const BELOW_MAP: &str = "merging an object in json but data type is not struct, instead is: map";

#[test]
fn patches_have_the_results_of_kubernetes() {
    let lines = recorded::lines(&recorded::data("strategic.jsonl.gz"));
    let report = Report::of(&lines, compare_line);
    report.finish();
    assert!(report.compared.values().sum::<usize>() >= 100_000, "{:?}", report.compared);
    assert!(report.compared.len() >= 70, "{:?}", report.compared);
    report.assert_used(REASONS.iter().copied());
}

#[test]
fn further_patches_have_the_results_of_kubernetes() {
    let Ok(path) = std::env::var("STRATEGIC_CASES") else { return };
    let report = Report::of(&recorded::lines(Path::new(&path)), compare_line);
    println!("{} cases", report.compared.values().sum::<usize>());
    report.finish();
}

fn compare_line(line: &str, report: &mut Report) {
    let line: Line = serde_json::from_str(line).unwrap();
    for case in &line.patches {
        report.count(format!("{}/{}", line.group, line.kind));
        let ours = ours(&line, &case.patch);
        let comparisons = case.outcomes.iter().map(|theirs| compare(&ours, theirs, line.custom));
        let comparison = comparisons.min().unwrap();
        let is_order_of_repeated = comparison == Comparison::Different
            && has_repeated_finalizers(&line.object)
            && case.outcomes.iter().any(|theirs| is_same_but_finalizers(&ours, theirs, line.custom));
        match if is_order_of_repeated { Comparison::Explained(REPEATED_ITEMS) } else { comparison } {
            Comparison::SameObject | Comparison::SameError => {}
            Comparison::Explained(reason) => report.explain(reason),
            Comparison::Different => report.differences.push(format!(
                "{}/{} {}\npatch  {}\nours   {ours:?}\ntheirs {:?}",
                line.group, line.kind, line.object, case.patch, case.outcomes
            )),
        }
    }
}

fn ours(line: &Line, patch: &Value) -> Outcome {
    let mut object = line.object.clone();
    if line.custom {
        return match apply_client_scheme_patch(&line.kind, &mut object, patch) {
            Ok(()) => Outcome::Result(object),
            Err(error) => Outcome::Error(error.to_string()),
        };
    }
    let kind = builtin_by_kind(&line.group, "v1", &line.kind).unwrap();
    if let Err(error) = apply_strategic_merge_patch(kind, &mut object, patch) {
        return Outcome::Error(error.to_string());
    }
    match kind.normalize(&mut object) {
        Ok(_) => {
            // An empty list resets the owners of fields. It is not stored.
            if object.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty)
                && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.remove("managedFields");
            }
            Outcome::Result(object)
        }
        Err(error) => Outcome::Decode(error.to_string()),
    }
}

fn compare(ours: &Outcome, theirs: &Outcome, is_custom: bool) -> Comparison {
    match (ours, theirs) {
        (Outcome::Result(ours), Outcome::Result(theirs)) if is_custom && is_same_json(ours, theirs) => {
            Comparison::SameObject
        }
        (Outcome::Result(ours), Outcome::Result(theirs)) if !is_custom && is_same(ours, theirs) => {
            Comparison::SameObject
        }
        (Outcome::Error(ours), Outcome::Error(theirs)) if ours == theirs => Comparison::SameError,
        (Outcome::Error(ours), Outcome::Error(theirs))
            if class(ours).is_some_and(|own| class(theirs) == Some(own)) =>
        {
            Comparison::Explained(OTHER_VALUES)
        }
        (Outcome::Decode(_), Outcome::Decode(_)) => Comparison::Explained(WRONG_TYPE),
        (_, Outcome::Error(theirs)) if theirs == NULL_LIST => Comparison::Explained(ORDER_OF_NULL),
        (_, Outcome::Error(theirs)) if is_custom && theirs == BELOW_MAP => {
            Comparison::Explained(UNKNOWN_SHAPE)
        }
        (_, Outcome::Error(theirs))
            if is_custom && theirs.starts_with("unable to find api field in struct ") =>
        {
            Comparison::Explained(UNKNOWN_FIELD)
        }
        (Outcome::Decode(ours), _)
            if ours.contains("unmarshal array") && ours.ends_with("of type []uint8") =>
        {
            Comparison::Explained(BYTES_AS_LIST)
        }
        (_, Outcome::Panic(_)) => Comparison::Explained(CRASH),
        _ => Comparison::Different,
    }
}

/// Whether the object has a finalizer twice.
fn has_repeated_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|list| list.iter().enumerate().any(|(index, item)| list[..index].contains(item)))
}

/// Whether two results differ in the order of finalizers only.
fn is_same_but_finalizers(ours: &Outcome, theirs: &Outcome, is_custom: bool) -> bool {
    let sorted = |outcome: &Outcome| match outcome {
        Outcome::Result(object) => {
            let mut object = object.clone();
            let finalizers = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
            finalizers?.sort_by_key(ToString::to_string);
            Some(Outcome::Result(object))
        }
        _ => None,
    };
    let both = sorted(ours).zip(sorted(theirs));
    both.is_some_and(|(ours, theirs)| compare(&ours, &theirs, is_custom) == Comparison::SameObject)
}

/// The errors of Kubernetes that show values, in the notation of Go.
fn class(error: &str) -> Option<&'static str> {
    [
        "unknown patch type: ",
        " does not contain declared merge key: ",
        "list element types are not identical: ",
        "The order in patch list:",
        "unable to find api field in struct ",
        "cannot merge lists without merge key for ",
    ]
    .into_iter()
    .find(|class| error.contains(class))
}

/// Whether an object has the form of a decoded one.
fn is_same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (ours, Value::Null) => is_zero(ours),
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.keys().all(|name| theirs.contains_key(name))
                && theirs.iter().all(|(name, theirs)| is_same(ours.get(name).unwrap_or(&Value::Null), theirs))
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| is_same(ours, theirs))
        }
        _ => is_same_json(ours, theirs),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}
