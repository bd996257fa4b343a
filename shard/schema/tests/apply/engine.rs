//! Runs writes by this crate, and compares the result with the answer of Kubernetes.

use std::borrow::Cow;

use fairlead_schema::apply::{
    Applied, ApplyError, ConversionFailure, FieldSet, ManagedFields, Manager, ObjectType, ObjectVersions,
    apply, is_reset, track_create, track_update,
};
use fairlead_schema::{CompileOptions, Schema, schema_merge_type};
use serde_json::Value;

use super::answer::{Answer, equal};
use super::schemas::Schemas;
use super::sequence::{Operation, Step, converted, take_managed};

/// The compiled schemas of a sequence.
pub(crate) struct Engine {
    /// v1 and v2, before and after their change.
    schemas: [[Schema; 2]; 2],
    rename: bool,
    /// The fields that a write of the object, or of its status, cannot change.
    reset: [FieldSet; 2],
}

struct Versions<'e> {
    schemas: &'e [Schema; 2],
    rename: bool,
    own: &'e str,
    reset: &'e FieldSet,
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
        (api_version == self.own).then_some(self.reset)
    }
}

impl Engine {
    pub(crate) fn new(schemas: &Schemas) -> Self {
        let compile = |schema: &Value| Schema::compile(schema, &CompileOptions::structural()).unwrap();
        Self {
            schemas: [false, true].map(|evolved| schemas.versions(evolved).map(compile)),
            rename: schemas.rename,
            reset: [FieldSet::of_fields(&[&["status"]]), FieldSet::of_fields(&[&["metadata"], &["spec"]])],
        }
    }

    /// The object with its managedFields after a write, or the error.
    pub(crate) fn run(&self, step: &Step, live: Option<&Value>, now: &str) -> Result<Value, ApplyError> {
        let api_version = format!("g.io/{}", step.version);
        let versions = Versions {
            schemas: &self.schemas[usize::from(step.evolved)],
            rename: self.rename,
            own: &api_version,
            reset: &self.reset[usize::from(!step.subresource.is_empty())],
        };
        let manager =
            Manager { name: &step.manager, api_version: &api_version, subresource: step.subresource, now };
        let mut live = live.cloned().map(|live| converted(live, &api_version, self.rename));
        let stored = live.as_mut().and_then(take_managed).unwrap_or_default();
        let stored = ManagedFields::of_value(&stored).unwrap_or_default();
        let mut object = step.object.clone();
        let (mut object, managed) = if step.op == Operation::Apply {
            let Applied { object, managed } =
                apply(stored, live.as_ref(), &object, &manager, step.force, &versions)?;
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
                Some(live) => track_update(base, live, &object, &manager, &versions)?,
                None => track_create(base, &object, &manager, &versions)?,
            };
            (object, managed)
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
}

/// The ends of what Kubernetes says before an error.
const PREFIXES: [&str; 6] = [
    "Kind=T): ",
    " to smd typed: ",
    "failed to convert new object: ",
    "failed to convert old object: ",
    "at version g.io/v1: ",
    "at version g.io/v2: ",
];

/// The difference between our result and the answer.
pub(crate) fn difference(ours: Result<Value, ApplyError>, theirs: &Answer) -> Option<String> {
    match (ours, theirs) {
        (Ok(mut ours), Ok(theirs)) => {
            let mut theirs = theirs.clone();
            let own = take_managed(&mut ours).unwrap_or_default();
            let expected = take_managed(&mut theirs).unwrap_or_default();
            if !equal(&ours, &theirs) {
                return Some(format!("object\n  ours   {ours}\n  theirs {theirs}"));
            }
            (own != expected).then(|| format!("owners\n  ours   {own}\n  theirs {expected}"))
        }
        (Err(ApplyError::Conflicts(conflicts)), Err(theirs)) if theirs.starts_with("Apply failed") => {
            let ours = conflicts.to_string();
            (lines(&ours) != lines(theirs)).then(|| format!("conflicts\n  ours   {ours}\n  theirs {theirs}"))
        }
        (Err(ours), Err(theirs)) if !theirs.starts_with("Apply failed") => {
            // Kubernetes says before the error what it has done with which object.
            let end = PREFIXES
                .iter()
                .fold(&**theirs, |text, prefix| text.split_once(prefix).map_or(text, |(_, rest)| rest));
            let ours = ours.to_string();
            (!is_same_error(&without_indices(&ours), &without_indices(end)))
                .then(|| format!("error\n  ours   {ours}\n  theirs {theirs}"))
        }
        (ours, theirs) => Some(format!("outcome\n  ours   {ours:?}\n  theirs {theirs:?}")),
    }
}

/// An error without the indices of items, which only some of our errors have.
fn without_indices(text: &str) -> String {
    let mut parts = text.split("element ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_digit()).trim_start_matches(": "));
    }
    out
}

/// The lines of a message of conflicts; Kubernetes lists managers in any order.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| line.replace("errors:", "")).collect();
    lines.sort();
    lines
}

/// Kubernetes reads objects in any order up to the first unknown field, and it shows maps in any order.
fn is_same_error(ours: &str, theirs: &str) -> bool {
    const UNKNOWN: &str = ": field not declared in schema";
    letters(ours) == letters(theirs) || ours.contains(UNKNOWN) && theirs.contains(UNKNOWN)
}

fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}
