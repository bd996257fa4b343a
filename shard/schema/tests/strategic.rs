//! Strategic merge patches, compared with recorded answers of Kubernetes.
//!
//! `data/strategic.jsonl` has generated objects and patches of all stored built-in kinds, and of some kinds that tenants
//! serve as custom resources. Kubernetes has merged each of them several times, because the order in which it merges the
//! fields of an object is random; all its results are recorded. For built-in kinds they are those after decoding the
//! kind: what a client reads afterwards. `STRATEGIC_CASES` names a larger file of the same form.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use fairlead_schema::builtin::builtin_by_kind;
use fairlead_schema::patch::{apply_client_scheme_patch, apply_strategic_merge_patch};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    group: String,
    kind: String,
    /// Whether the kind is a custom resource here. Its results are those of the merge alone.
    #[serde(default)]
    custom: bool,
    object: Value,
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
    /// The same error, which shows values in another notation.
    SameErrorOtherValues,
    /// Both refuse the type of a value, in other words.
    WrongType,
    /// Kubernetes cannot order an absent list that its type encodes as null.
    OrderOfNull,
    /// Kubernetes refuses to merge values of a map. Which fields of custom resources are maps is not known here.
    UnknownShape,
    /// Kubernetes reads a list where the kind has bytes.
    BytesAsList,
    /// Kubernetes crashes.
    Crash,
    Different,
}

const NULL_LIST: &str = "expected a []interface {}, but received a %!s(<nil>)";

const BELOW_MAP: &str = "merging an object in json but data type is not struct, instead is: map";

fn ours(case: &Case) -> Outcome {
    let mut object = case.object.clone();
    if case.custom {
        return match apply_client_scheme_patch(&case.kind, &mut object, &case.patch) {
            Ok(()) => Outcome::Result(object),
            Err(error) => Outcome::Error(error.to_string()),
        };
    }
    let kind = builtin_by_kind(&case.group, "v1", &case.kind).unwrap();
    if let Err(error) = apply_strategic_merge_patch(kind, &mut object, &case.patch) {
        return Outcome::Error(error.to_string());
    }
    match kind.normalize(&mut object) {
        Ok(_) => Outcome::Result(object),
        Err(error) => Outcome::Decode(error.to_string()),
    }
}

fn compare(ours: &Outcome, theirs: &Outcome, is_custom: bool) -> Comparison {
    match (ours, theirs) {
        (Outcome::Result(ours), Outcome::Result(theirs)) if is_custom && is_same_number_or(ours, theirs) => {
            Comparison::SameObject
        }
        (Outcome::Result(ours), Outcome::Result(theirs)) if !is_custom && is_same(ours, theirs) => {
            Comparison::SameObject
        }
        (Outcome::Error(ours), Outcome::Error(theirs)) if ours == theirs => Comparison::SameError,
        (Outcome::Error(ours), Outcome::Error(theirs))
            if class(ours).is_some_and(|own| class(theirs) == Some(own)) =>
        {
            Comparison::SameErrorOtherValues
        }
        (Outcome::Decode(_), Outcome::Decode(_)) => Comparison::WrongType,
        (_, Outcome::Error(theirs)) if theirs == NULL_LIST => Comparison::OrderOfNull,
        (_, Outcome::Error(theirs)) if is_custom && theirs == BELOW_MAP => Comparison::UnknownShape,
        (Outcome::Decode(ours), _)
            if ours.contains("unmarshal array") && ours.ends_with("of type []uint8") =>
        {
            Comparison::BytesAsList
        }
        (_, Outcome::Panic(_)) => Comparison::Crash,
        _ => Comparison::Different,
    }
}

/// The errors of Kubernetes that show values, in the notation of Go.
fn class(error: &str) -> Option<&'static str> {
    [
        "unknown patch type: ",
        " does not contain declared merge key: ",
        "list element types are not identical: ",
        "The order in patch list:",
        "unable to find api field in struct ",
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
        _ => is_same_number_or(ours, theirs),
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

/// Whether two values are equal, where `1` equals `1.0`.
fn is_same_number_or(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => ours.as_f64() == theirs.as_f64(),
        _ => ours == theirs,
    }
}

#[test]
fn patches_have_the_results_of_kubernetes() {
    let path = std::env::var("STRATEGIC_CASES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/strategic.jsonl").to_owned());
    let mut counts: BTreeMap<Comparison, usize> = BTreeMap::new();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let ours = ours(&case);
        let comparisons = case.outcomes.iter().map(|theirs| compare(&ours, theirs, case.custom));
        let best = comparisons.min().unwrap();
        let count = counts.entry(best).or_default();
        *count += 1;
        if best == Comparison::Different && *count <= 8 {
            println!("{}\n  ours   {ours:?}\n  theirs {:?}", line, case.outcomes);
        }
        *kinds.entry(format!("{}/{}", case.group, case.kind)).or_default() += 1;
    }
    println!("{counts:?} of {kinds:?}");
    assert_eq!(counts.get(&Comparison::Different), None);
    assert!(counts[&Comparison::SameObject] >= 300 && kinds.len() >= 30, "{counts:?}");
}
