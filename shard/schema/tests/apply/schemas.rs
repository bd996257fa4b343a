//! Generates schemas: two versions of a kind, and both after a change.

use serde_json::{Map, Value, json};

use super::random::Random;

/// The schemas of a kind.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub(crate) v1: Value,
    pub(crate) v2: Value,
    /// The versions after the change.
    pub(crate) e1: Value,
    pub(crate) e2: Value,
    /// Whether `spec.a` of v1 is `spec.renamed` in v2.
    pub(crate) rename: bool,
}

impl Schemas {
    pub(crate) fn generate(random: &mut Random) -> Self {
        let spec = object(random, 3, true);
        let status = object(random, 2, false);
        let v1 = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        let rename = v1["properties"]["spec"]["properties"]["a"].is_object() && random.percent(40);
        let mut e1 = v1.clone();
        for part in ["spec", "status"] {
            change(random, &mut e1["properties"][part]);
        }
        let in_v2 = |schema: &Value| if rename { renamed(schema) } else { schema.clone() };
        Self { v2: in_v2(&v1), e2: in_v2(&e1), v1, e1, rename }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"v1": self.v1, "v2": self.v2, "e1": self.e1, "e2": self.e2, "rename": self.rename})
    }

    /// The schemas of v1 and v2.
    pub(crate) fn versions(&self, evolved: bool) -> [&Value; 2] {
        if evolved { [&self.e1, &self.e2] } else { [&self.v1, &self.v2] }
    }
}

fn renamed(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema["properties"]["spec"]["properties"].as_object_mut()
        && let Some(field) = fields.remove("a")
    {
        fields.insert("renamed".to_owned(), field);
    }
    schema
}

/// Makes parts atomic, or not atomic any more, and sometimes removes or adds a field.
fn change(random: &mut Random, schema: &mut Value) {
    if schema["properties"].is_object() || schema["additionalProperties"].is_object() {
        if random.percent(25) {
            toggle(schema, "x-kubernetes-map-type", "atomic");
        }
    } else if schema["items"].is_object() && random.percent(20) {
        let is_scalar = schema["items"]["properties"].is_null() && schema["items"]["items"].is_null();
        if schema["x-kubernetes-list-type"].is_string() {
            if let Some(schema) = schema.as_object_mut() {
                schema.remove("x-kubernetes-list-type");
                schema.remove("x-kubernetes-list-map-keys");
            }
        } else if is_scalar && schema["items"]["type"].is_string() {
            schema["x-kubernetes-list-type"] = "set".into();
        } else if schema["items"]["properties"]["k"].is_object() {
            schema["x-kubernetes-list-type"] = "map".into();
            schema["x-kubernetes-list-map-keys"] = json!(["k"]);
        }
    }
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for field in fields.values_mut() {
            change(random, field);
        }
        if random.percent(4) {
            fields.remove("b");
        }
        if random.percent(8) {
            fields.insert("n".to_owned(), json!({"type": "string"}));
        }
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(below).filter(|below| below.is_object()) {
            change(random, below);
        }
    }
}

fn toggle(schema: &mut Value, name: &str, value: &str) {
    let Some(schema) = schema.as_object_mut() else { return };
    if schema.remove(name).is_none() {
        schema.insert(name.to_owned(), value.into());
    }
}

fn scalar(random: &mut Random) -> Value {
    match random.below(10) {
        0..=3 => json!({"type": "string"}),
        4 | 5 => json!({"type": "integer"}),
        6 => json!({"type": "boolean"}),
        7 => json!({"type": "number"}),
        8 => json!({"type": "string", "format": "date-time"}),
        _ => json!({"type": "string", "nullable": true}),
    }
}

fn any(random: &mut Random, depth: usize) -> Value {
    if depth == 0 {
        return scalar(random);
    }
    match random.below(16) {
        0..=3 => scalar(random),
        4 => json!({"x-kubernetes-int-or-string": true}),
        5 => json!({"x-kubernetes-preserve-unknown-fields": true}),
        6..=8 => object(random, depth - 1, false),
        9 | 10 => map(random, depth - 1),
        _ => list(random, depth - 1),
    }
}

fn object(random: &mut Random, depth: usize, is_spec: bool) -> Value {
    let mut fields = Map::new();
    for name in ["a", "b", "c", "d"] {
        if is_spec || random.percent(60) {
            fields.insert(name.to_owned(), any(random, depth));
        }
    }
    if fields.is_empty() {
        fields.insert("a".to_owned(), scalar(random));
    }
    let mut schema = json!({"type": "object", "properties": fields});
    if random.percent(15) && !is_spec {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    if random.percent(12) {
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    if random.percent(3) && !is_spec && depth > 0 {
        schema["x-kubernetes-embedded-resource"] = true.into();
    }
    schema
}

fn map(random: &mut Random, depth: usize) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": any(random, depth)});
    match random.below(5) {
        0 => schema["x-kubernetes-map-type"] = "atomic".into(),
        1 => schema["x-kubernetes-map-type"] = "granular".into(),
        _ => {}
    }
    schema
}

fn list(random: &mut Random, depth: usize) -> Value {
    match random.below(10) {
        0 | 1 => json!({"type": "array", "items": any(random, depth)}),
        2 => json!({"type": "array", "items": any(random, depth), "x-kubernetes-list-type": "atomic"}),
        3..=5 => {
            let mut items = scalar(random);
            if let Some(items) = items.as_object_mut() {
                items.remove("nullable");
            }
            json!({"type": "array", "items": items, "x-kubernetes-list-type": "set"})
        }
        _ => keyed(random, depth),
    }
}

fn keyed(random: &mut Random, depth: usize) -> Value {
    let mut items = object(random, depth, false);
    if let Some(items) = items.as_object_mut() {
        items.remove("x-kubernetes-embedded-resource");
    }
    let key = match random.below(6) {
        0 => json!({"type": "integer"}),
        1 => json!({"type": "boolean"}),
        _ => json!({"type": "string"}),
    };
    items["properties"]["k"] = key;
    let mut keys = vec!["k"];
    if random.percent(40) {
        items["properties"]["p"] = json!({"type": "string", "default": "TCP"});
        keys.push("p");
        if random.percent(50) {
            keys.reverse();
        }
    }
    json!({
        "type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
    })
}
