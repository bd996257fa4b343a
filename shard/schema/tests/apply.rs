//! Server-side apply and the tracking of fields, compared with recorded answers of Kubernetes.
//!
//! `data/apply.jsonl` has generated schemas with sequences of writes by several managers, and the object and its
//! managedFields after each. `APPLY_CASES` names a larger file of the same form.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::borrow::Cow;

use fairlead_schema::apply::{
    Applied, ApplyError, ConversionFailure, FieldSet, ManagedFields, Manager, ObjectType, ObjectVersions,
    apply, is_reset, track_create, track_update,
};
use fairlead_schema::{CompileOptions, Schema, schema_merge_type};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    v1: Value,
    v2: Value,
    e1: Value,
    e2: Value,
    /// Whether `spec.a` of v1 is `spec.renamed` in v2.
    rename: bool,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    op: String,
    manager: String,
    version: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    force: bool,
    /// Whether the schemas have changed.
    #[serde(default)]
    evolved: bool,
    object: Value,
    result: Option<Value>,
    #[serde(default)]
    error: String,
}

struct Versions<'c> {
    schemas: &'c [Schema; 2],
    rename: bool,
    own: String,
    reset: FieldSet,
}

impl ObjectVersions for Versions<'_> {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        let index = ["g.io/v1", "g.io/v2"].iter().position(|version| *version == api_version)?;
        Some(schema_merge_type(&self.schemas[index]))
    }

    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Result<Cow<'v, Value>, ConversionFailure> {
        if object["apiVersion"] == api_version {
            return Ok(Cow::Borrowed(object));
        }
        Ok(Cow::Owned(converted(object.clone(), api_version, self.rename)))
    }

    fn reset_fields(&self, api_version: &str) -> Option<&FieldSet> {
        (api_version == self.own).then_some(&self.reset)
    }
}

fn converted(mut object: Value, api_version: &str, rename: bool) -> Value {
    if object["apiVersion"] == api_version {
        return object;
    }
    let (from, to) = if api_version == "g.io/v2" { ("a", "renamed") } else { ("renamed", "a") };
    if rename
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.into(), value);
    }
    object["apiVersion"] = api_version.into();
    object
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object["metadata"].as_object_mut()?.remove("managedFields").filter(|managed| !managed.is_null())
}

/// The entries of managedFields, without their times and in an order that does not depend on them.
fn entries(managed: &Value) -> Vec<String> {
    let mut entries: Vec<String> = managed
        .as_array()
        .into_iter()
        .flatten()
        .cloned()
        .map(|mut entry| {
            let has_time = entry.as_object_mut().unwrap().remove("time").is_some_and(|time| !time.is_null());
            entry["has_time"] = has_time.into();
            entry.to_string()
        })
        .collect();
    entries.sort();
    entries
}

/// The object and its managers after the step, or the error.
fn run(step: &Step, versions: &Versions<'_>, live: Option<&Value>) -> Result<Value, ApplyError> {
    let api_version = format!("g.io/{}", step.version);
    let manager = Manager {
        name: &step.manager,
        api_version: &api_version,
        subresource: &step.subresource,
        now: "2026-01-01T00:00:00Z",
    };
    let mut live = live.cloned().map(|live| converted(live, &api_version, versions.rename));
    let stored = live.as_mut().and_then(take_managed).unwrap_or_default();
    let stored = ManagedFields::of_value(&stored).unwrap_or_default();
    let mut object = step.object.clone();
    let (mut object, managed) = if step.op == "apply" {
        let applied = apply(stored, live.as_ref(), &object, &manager, step.force, versions)?;
        let Applied { object, managed } = applied;
        (object, managed)
    } else {
        let requested = take_managed(&mut object).filter(|_| step.subresource.is_empty());
        let given = requested.as_ref().and_then(|requested| ManagedFields::of_value(requested).ok());
        let base = match given {
            _ if requested.as_ref().is_some_and(is_reset) => ManagedFields::default(),
            Some(given) if !given.is_empty() => given,
            _ => stored,
        };
        let managed = match &live {
            Some(live) => track_update(base, live, &object, &manager, versions),
            None => track_create(base, &object, &manager, versions),
        };
        (object, managed.unwrap_or_default())
    };
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = "uid".into();
    }
    let managed = managed.to_json();
    if !managed.is_empty() {
        object["metadata"]["managedFields"] = serde_json::from_slice(&managed).unwrap();
    }
    Ok(object)
}

/// The lines of a message of conflicts; Kubernetes lists managers in any order.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| line.replace("errors:", "")).collect();
    lines.sort();
    lines
}

fn check(step: &Step, outcome: Result<Value, ApplyError>) -> Result<(), String> {
    match (outcome, &step.result) {
        (Ok(mut ours), Some(theirs)) => {
            let mut theirs = theirs.clone();
            let own = take_managed(&mut ours).unwrap_or_default();
            let expected = take_managed(&mut theirs).unwrap_or_default();
            if !equal(&ours, &theirs) {
                return Err(format!("object\n  ours   {ours}\n  theirs {theirs}"));
            }
            if entries(&own) != entries(&expected) {
                return Err(format!(
                    "owners\n  ours   {:#?}\n  theirs {:#?}",
                    entries(&own),
                    entries(&expected)
                ));
            }
            Ok(())
        }
        (Err(ApplyError::Conflicts(conflicts)), None) if step.error.starts_with("Apply failed") => {
            if lines(&conflicts.to_string()) == lines(&step.error) {
                Ok(())
            } else {
                Err(conflicts.to_string())
            }
        }
        (Err(ours), None) if !step.error.starts_with("Apply failed") => {
            // Kubernetes says before the error which object it has read.
            let theirs = [" to smd typed: ", "Kind=T): "]
                .into_iter()
                .find_map(|prefix| step.error.split_once(prefix))
                .map_or(&*step.error, |(_, text)| text);
            let ours = ours.to_string();
            if is_same_error(&ours, theirs) { Ok(()) } else { Err(format!("ours {ours}")) }
        }
        (ours, _) => Err(format!("ours {ours:?}")),
    }
}

/// Of several unknown fields of an object, Kubernetes names any one, and it shows maps in any order.
fn is_same_error(ours: &str, theirs: &str) -> bool {
    const UNKNOWN: &str = ": field not declared in schema";
    letters(ours) == letters(theirs) || ours.ends_with(UNKNOWN) && theirs.ends_with(UNKNOWN)
}

fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

/// Whether two objects are equal, where `1` equals `1.0`: Go writes both alike.
fn equal(one: &Value, two: &Value) -> bool {
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

#[test]
fn writes_have_the_results_of_kubernetes() {
    let path = std::env::var("APPLY_CASES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/apply.jsonl").to_owned());
    let text = std::fs::read_to_string(path).unwrap();
    let (mut steps, mut failures) = (0, 0);
    for (number, line) in text.lines().enumerate() {
        let case: Case = serde_json::from_str(line).unwrap();
        let compile = |schema: &Value| Schema::compile(schema, &CompileOptions::structural()).unwrap();
        let schemas = [compile(&case.v1), compile(&case.v2)];
        let evolved = [compile(&case.e1), compile(&case.e2)];
        let mut live: Option<Value> = None;
        for (index, step) in case.steps.iter().enumerate() {
            let reset: &[&[&str]] =
                if step.subresource.is_empty() { &[&["status"]] } else { &[&["metadata"], &["spec"]] };
            let versions = Versions {
                schemas: if step.evolved { &evolved } else { &schemas },
                rename: case.rename,
                own: format!("g.io/{}", step.version),
                reset: FieldSet::of_fields(reset),
            };
            let outcome = run(step, &versions, live.as_ref());
            steps += 1;
            if let Err(difference) = check(step, outcome) {
                failures += 1;
                if failures <= 5 {
                    println!(
                        "case {number} step {index} {} {} {} force={} evolved={}\n  object {}\n  live {}\n  schema {}\n  {difference}\n  error {}",
                        step.op,
                        step.manager,
                        step.version,
                        step.force,
                        step.evolved,
                        step.object,
                        live.clone().unwrap_or(json!(null)),
                        case.v1,
                        step.error,
                    );
                }
            }
            if step.result.is_some() {
                live.clone_from(&step.result);
            }
        }
    }
    println!("{steps} steps, {failures} differences");
    assert_eq!(failures, 0, "of {steps} steps");
    assert!(steps >= 300, "{steps}");
}
