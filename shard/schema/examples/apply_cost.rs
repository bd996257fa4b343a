//! Measures server-side apply of an object of 300 fields, and the tracking of an update of a small object.
//!
//! `cargo run --release -p fairlead-schema --example apply_cost`
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;

use fairlead_schema::apply::{
    ConversionFailure, FieldSet, ManagedFields, Manager, ObjectType, ObjectVersions, apply, track_create,
    track_update,
};
use fairlead_schema::{CompileOptions, Schema, schema_merge_type};
use serde_json::{Value, json};

struct OneVersion(Schema, FieldSet);

impl ObjectVersions for OneVersion {
    fn object_type(&self, _api_version: &str) -> Option<ObjectType<'_>> {
        Some(schema_merge_type(&self.0))
    }

    fn convert<'v>(
        &self,
        object: &'v Value,
        _api_version: &str,
    ) -> Result<Cow<'v, Value>, ConversionFailure> {
        Ok(Cow::Borrowed(object))
    }

    fn reset_fields(&self, _api_version: &str) -> Option<&FieldSet> {
        Some(&self.1)
    }
}

fn main() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "text": {"type": "string"}, "number": {"type": "integer"},
                "flags": {"type": "object", "additionalProperties": {"type": "string"}}}}},
        "values": {"type": "object", "additionalProperties": {"type": "string"}}}}}});
    let schema = Schema::compile(&schema, &CompileOptions::structural()).unwrap();
    let versions = OneVersion(schema, FieldSet::of_fields(&[&["status"]]));
    let manager = Manager { name: "m", api_version: "e.io/v1", subresource: "", now: "2026-01-01T00:00:00Z" };

    let large = object(60, &"x".repeat(230));
    let created = apply(ManagedFields::default(), None, &large, &manager, false, &versions).unwrap();
    let stored = created.managed.to_json();
    println!("object {} bytes, managedFields {} bytes", large.to_string().len(), stored.len());
    let mut changed = large.clone();
    changed["spec"]["items"][7]["text"] = "changed".into();
    changed["spec"]["items"].as_array_mut().unwrap().remove(9);
    for (name, configuration) in [("the same again", &large), ("a field changed, an item removed", &changed)]
    {
        report(&format!("apply, {name}"), 2_000, || {
            let managed = ManagedFields::parse(&stored).unwrap();
            let applied =
                apply(managed, Some(&created.object), configuration, &manager, false, &versions).unwrap();
            applied.managed.to_json()
        });
    }

    let small = object(1, "text");
    let managed = track_create(ManagedFields::default(), &small, &manager, &versions).unwrap();
    let stored = managed.to_json();
    let mut changed = small.clone();
    changed["spec"]["items"][0]["number"] = 8.into();
    report("create of a small object", 100_000, || {
        track_create(ManagedFields::default(), &small, &manager, &versions).unwrap().to_json()
    });
    report("update of a small object", 100_000, || {
        let managed = ManagedFields::parse(&stored).unwrap();
        track_update(managed, &small, &changed, &manager, &versions).unwrap().to_json()
    });
}

fn object(items: usize, text: &str) -> Value {
    let items: Vec<Value> = (0..items)
        .map(|index| {
            json!({"name": format!("item-{index}"), "text": text, "number": index,
                "flags": {"a": "1", "b": "2"}})
        })
        .collect();
    json!({"apiVersion": "e.io/v1", "kind": "E", "metadata": {"name": "e", "labels": {"a": "b"}},
        "spec": {"items": items, "values": {"x": "y"}}})
}

fn report<T>(name: &str, rounds: u32, mut run: impl FnMut() -> T) {
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(run());
    }
    println!("{name:<45} {:>9.2} µs", start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
}
