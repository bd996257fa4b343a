//! The entry points of the fuzz targets: patches, configurations, schemas and field paths of clients.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::builtin::builtin_kinds;
use crate::crd::CrdSpec;
use crate::patch::{JsonPatch, apply_client_scheme_patch, apply_merge_patch, apply_strategic_merge_patch};
use crate::structural::DefaultingResult;
use crate::{CompileOptions, Dialect, FieldPath, JsonPath, MAX_DEPTH, Schema, check_structural, depth_of};

/// The largest document.
const MAX_BODY: usize = 3 << 20;
/// The most that `copy` operations may add.
const MAX_COPIED: usize = 1 << 16;

/// Field paths: sets of fields, JSON paths of columns and selectable fields, and the `fieldPath` of a rule.
pub fn fields(text: &str) {
    static OBJECT: LazyLock<Value> = LazyLock::new(|| {
        json!({"metadata": {"name": "n", "labels": {"a/b": "c"}}, "spec": {"list": [1, -2, 2.5, "x", null, true],
            "items": [{"type": "Ready", "n": 1}, {"type": "Other", "n": 2, "deep": [[1], [{"a": "b"}]]}]}})
    });
    crate::apply::fuzzing::field_sets(text);
    if let Ok(path) = JsonPath::parse(text) {
        let found = path.find(&OBJECT);
        assert_eq!(path.find_first(&OBJECT), found.first().copied());
        let _ = path.field_names();
    }
    let schema = json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "true", "message": "m", "fieldPath": text}],
        "properties": {"spec": {"type": "object", "properties": {"a-b": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties":
                {"type": "integer"}}}}});
    let compiled = Schema::compile(&schema, &CompileOptions::structural());
    let _ = compiled.map(|compiled| compiled.with_rules(&schema, &FieldPath::root()));
}

/// An object and a patch of it, each in a line: as JSON patch, merge patch and strategic merge patch of each built-in
/// kind and of some kinds of Kubernetes' clients.
pub fn patch(text: &str) {
    let documents = documents(text);
    let [object, patch, ..] = documents.as_slice() else { return };
    if let Ok(operations) = JsonPatch::parse(patch.clone()) {
        let mut patched = object.clone();
        if operations.apply(&mut patched, MAX_COPIED).is_ok() {
            assert!(depth_of(&patched) <= MAX_DEPTH);
        }
        let _ = operations.refers_to(&["metadata", "managedFields"]);
    }
    let mut merged = object.clone();
    apply_merge_patch(&mut merged, patch.clone());
    assert!(depth_of(&merged) <= MAX_DEPTH);
    let once = merged.clone();
    apply_merge_patch(&mut merged, patch.clone());
    assert_eq!(merged, once);
    for kind in builtin_kinds().iter().filter(|kind| kind.is_stored()) {
        let mut patched = object.clone();
        if kind.normalize(&mut patched).is_err()
            || apply_strategic_merge_patch(kind, &mut patched, patch).is_err()
        {
            continue;
        }
        assert!(depth_of(&patched) <= MAX_DEPTH);
        if kind.normalize(&mut patched).is_ok() {
            let once = patched.clone();
            assert!(kind.normalize(&mut patched).is_ok_and(|unknown| unknown.is_empty()) && patched == once);
        }
    }
    for kind in ["Deployment", "PodDisruptionBudget", "Other"] {
        let mut patched = object.clone();
        if apply_client_scheme_patch(kind, &mut patched, patch).is_ok() {
            assert!(depth_of(&patched) <= MAX_DEPTH);
        }
    }
}

/// An object and two configurations, each in a line.
pub fn apply(text: &str) {
    crate::apply::fuzzing::apply_configurations(&documents(text));
}

/// A schema of a CRD, an object and an older state of the object, each in a line.
pub fn structural(text: &str) {
    let documents = documents(text);
    let [schema, object, old, ..] = documents.as_slice() else { return };
    let root = FieldPath::root();
    let errors = check_structural(schema, &root);
    let spec = json!({"group": "g.io", "scope": "Namespaced", "names": {"plural": "ks", "kind": "K"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]});
    let _ = CrdSpec::parse_spec(&spec, &root);
    let Ok(compiled) = Schema::compile(schema, &CompileOptions::structural()) else { return };
    assert_eq!(compiled.hash(), Schema::hash_of(schema, Dialect::Structural));
    let mut object = object.clone();
    compiled.prune(&mut object);
    let pruned = object.clone();
    assert_eq!(compiled.prune(&mut object), Vec::<String>::new());
    assert_eq!(object, pruned);
    if compiled.apply_defaults(&mut object) == DefaultingResult::Complete && errors.is_empty() {
        let defaulted = object.clone();
        compiled.apply_defaults(&mut object);
        assert_eq!(object, defaulted);
        assert_eq!(compiled.prune(&mut object), Vec::<String>::new(), "defaults need no pruning");
    }
    let mut found = compiled.validate(&object);
    found.extend(compiled.validate_update(&object, old));
    if errors.is_empty()
        && let Ok(compiled) = compiled.with_rules(schema, &root)
    {
        compiled.validate_rules(&object, None, &[]);
        compiled.validate_rules(&object, Some(old), &found);
    }
}

/// The lines of a text as JSON, up to the first that is none. A line is an object as deep as the server allows.
fn documents(text: &str) -> Vec<Value> {
    let decoded = text.lines().map(|line| crate::decode_json(line.as_bytes(), MAX_BODY));
    decoded.map_while(Result::ok).map(|decoded| decoded.value).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    fn corpus(name: &str) -> Vec<String> {
        let folder = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(folder).unwrap();
        let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let found: Vec<String> = entries.map(|entry| read(entry.unwrap().path())).collect();
        assert!(!found.is_empty(), "{name}");
        found
    }

    #[test]
    fn found_input_neither_panics_nor_breaks_an_invariant() {
        corpus("fields").iter().for_each(|input| super::fields(input));
        corpus("patch").iter().for_each(|input| super::patch(input));
        corpus("apply").iter().for_each(|input| super::apply(input));
        corpus("structural").iter().for_each(|input| super::structural(input));
    }
}
