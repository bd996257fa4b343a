#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod compilation;
mod limits;
mod objects;
mod validation;

use serde_json::{Value, json};

use super::*;

fn schema(json: Value) -> Schema {
    Schema::compile(&json, &CompileOptions::structural()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The schema of the recorded Widget, without its CEL rules.
fn widget() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "properties": {
                    "color": {"type": "string", "enum": ["red", "green", "blue"]},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "max": {"type": "integer", "default": 5},
                    "ports": {
                        "type": "array", "maxItems": 4,
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object", "required": ["name"],
                            "properties": {
                                "name": {"type": "string", "maxLength": 8},
                                "port": {"type": "integer", "default": 80},
                            },
                        },
                    },
                    "q": {"x-kubernetes-int-or-string": true},
                    "replicas": {"type": "integer", "default": 1, "minimum": 0},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                },
            },
            "status": {
                "type": "object",
                "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}},
            },
        },
    })
}
