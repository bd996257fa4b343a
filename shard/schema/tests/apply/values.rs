//! Generates values by a schema, and changes them.

use serde_json::{Map, Value, json};

use super::random::Random;

const TEXTS: [&str; 11] = ["s", "p", "q", "", "ü", "quo\"te", "back\\slash", "a.b/c", "<&>", "10", "x y"];
const LABELS: [&str; 3] = ["x", "y", "z"];

/// A value of a schema. `invalid` is the probability in percent that a part does not have its type.
pub(crate) fn value(random: &mut Random, schema: &Value, invalid: u64) -> Value {
    if random.percent(invalid) {
        return wrong(random);
    }
    if random.percent(if schema["nullable"] == true { 25 } else { 1 }) {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if random.percent(50) {
            json!(random.below(2))
        } else {
            json!(*random.pick(&["10%", "20%"]))
        };
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date-time" => {
            json!(*random.pick(&["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"]))
        }
        Some("string") => json!(*random.pick(&TEXTS)),
        Some("integer") if random.percent(3) => json!(*random.pick(&[-1, 9_007_199_254_740_993, i64::MIN])),
        Some("integer") => json!(random.below(3)),
        Some("number") if random.percent(5) => {
            random.pick(&[json!(1e-7), json!(1e21), json!(-0.0), json!(u64::MAX), json!(1e300)]).clone()
        }
        Some("number") => random.pick(&[json!(0), json!(1), json!(1.5), json!(-0.25), json!(2.0)]).clone(),
        Some("boolean") => json!(random.percent(50)),
        Some("array") => list(random, schema, invalid),
        Some("object") => object(random, schema, invalid),
        _ => untyped(random, 2),
    }
}

fn wrong(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!("t"),
        1 => json!(7),
        2 => json!(true),
        3 => json!(["s"]),
        4 => json!([{"j": 1}]),
        _ => json!({"j": "s"}),
    }
}

fn untyped(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 4 } else { 8 }) {
        0 => json!(1),
        1 => json!(false),
        2 => Value::Null,
        3 => json!(*random.pick(&TEXTS)),
        4 | 5 => {
            let count = random.below(3);
            (0..count).map(|_| untyped(random, depth - 1)).collect()
        }
        _ => {
            let mut fields = Map::new();
            for name in LABELS {
                if random.percent(50) {
                    fields.insert(name.to_owned(), untyped(random, depth - 1));
                }
            }
            Value::Object(fields)
        }
    }
}

fn list(random: &mut Random, schema: &Value, invalid: u64) -> Value {
    let kind = schema["x-kubernetes-list-type"].as_str();
    let count = random.below(4);
    let mut items: Vec<Value> = (0..count).map(|_| value(random, &schema["items"], invalid)).collect();
    if kind == Some("map") {
        for item in &mut items {
            set_keys(random, schema, item);
        }
    }
    if matches!(kind, Some("map" | "set")) && !random.percent(5) {
        let keys = key_names(schema);
        let mut seen: Vec<Value> = Vec::new();
        items.retain(|item| {
            let key = identity(item, &keys);
            let is_new = !seen.contains(&key) && !item.is_null();
            seen.push(key);
            is_new
        });
    }
    items.into()
}

fn key_names(schema: &Value) -> Vec<&str> {
    schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn identity(item: &Value, keys: &[&str]) -> Value {
    if keys.is_empty() {
        return item.clone();
    }
    keys.iter()
        .map(|key| if *key == "p" && item[*key].is_null() { "TCP".into() } else { item[*key].clone() })
        .collect()
}

/// Gives an item its keys: mostly all of them, the one with a default only sometimes.
fn set_keys(random: &mut Random, schema: &Value, item: &mut Value) {
    let Some(item) = item.as_object_mut() else { return };
    for key in key_names(schema) {
        let declared = &schema["items"]["properties"][key];
        if key == "p" {
            item.remove(key);
            if random.percent(60) {
                item.insert(key.to_owned(), json!(*random.pick(&["TCP", "UDP"])));
            }
        } else if random.percent(98) {
            let value = match declared["type"].as_str() {
                Some("integer") => json!(random.below(3)),
                Some("boolean") => json!(random.percent(50)),
                _ => json!(*random.pick(&["k", "l", "m=\"1,2\"", ""])),
            };
            item.insert(key.to_owned(), value);
        } else {
            item.remove(key);
        }
    }
}

fn object(random: &mut Random, schema: &Value, invalid: u64) -> Value {
    let mut fields = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if random.percent(50) {
            fields.insert(name.clone(), value(random, field, invalid));
        }
    }
    if schema["additionalProperties"].is_object() {
        for name in LABELS {
            if random.percent(40) {
                fields.insert(name.to_owned(), value(random, &schema["additionalProperties"], invalid));
            }
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        for name in ["f", "g"] {
            if random.percent(40) {
                fields.insert(name.to_owned(), untyped(random, 2));
            }
        }
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        fields.insert("apiVersion".to_owned(), json!("v1"));
        fields.insert("kind".to_owned(), json!(*random.pick(&["K", "L"])));
        if random.percent(50) {
            fields.insert("metadata".to_owned(), json!({"labels": labels(random)}));
        }
    }
    if random.percent(invalid) {
        fields.insert("unknown".to_owned(), json!("x"));
    }
    Value::Object(fields)
}

fn labels(random: &mut Random) -> Value {
    let mut labels = Map::new();
    for name in LABELS {
        if random.percent(40) {
            labels.insert(name.to_owned(), json!(*random.pick(&["1", "2"])));
        }
    }
    Value::Object(labels)
}

/// Changes a value here and there. What is not changed stays equal.
pub(crate) fn change(random: &mut Random, schema: &Value, present: &mut Value, invalid: u64) {
    match present {
        Value::Object(fields)
            if schema["properties"].is_object() || schema["additionalProperties"].is_object() =>
        {
            let mut names: Vec<String> = schema["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect();
            if schema["additionalProperties"].is_object() {
                names.extend(LABELS.map(str::to_owned));
            }
            let Some(name) = names.get(random.below(names.len())).cloned() else { return };
            let declared = &schema["properties"][&name];
            let declared = if declared.is_null() { &schema["additionalProperties"] } else { declared };
            match fields.get_mut(&name) {
                Some(_) if random.percent(20) => {
                    fields.remove(&name);
                }
                Some(field) if random.percent(75) => change(random, declared, field, invalid),
                _ => {
                    let field = value(random, declared, invalid);
                    fields.insert(name, field);
                }
            }
            if random.percent(invalid) {
                fields.insert("unknown".to_owned(), json!("x"));
            }
        }
        Value::Array(items) if schema["items"].is_object() => change_list(random, schema, items, invalid),
        other => *other = value(random, schema, invalid),
    }
}

fn change_list(random: &mut Random, schema: &Value, items: &mut Vec<Value>, invalid: u64) {
    match random.below(6) {
        0 | 1 if !items.is_empty() => {
            let index = random.below(items.len());
            items.remove(index);
        }
        2 => items.reverse(),
        3 | 4 if !items.is_empty() => {
            let index = random.below(items.len());
            let mut item = items[index].clone();
            change(random, &schema["items"], &mut item, invalid);
            items[index] = item;
        }
        _ => {
            let mut item = value(random, &schema["items"], invalid);
            set_keys(random, schema, &mut item);
            let keys = key_names(schema);
            let is_known = items.iter().any(|other| identity(other, &keys) == identity(&item, &keys));
            if schema["x-kubernetes-list-type"].is_null() || !is_known || random.percent(8) {
                items.insert(random.below(items.len() + 1), item);
            }
        }
    }
}

/// Removes parts of a value, so that a manager applies a part of an object.
pub(crate) fn part(random: &mut Random, schema: &Value, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let keys = ["k", "p", "apiVersion", "kind"];
            let kept = fields.iter().filter_map(|(name, field)| {
                let declared = match &schema["properties"][name] {
                    Value::Null => &schema["additionalProperties"],
                    declared => declared,
                };
                let is_kept = keys.contains(&&**name) || random.percent(70);
                is_kept.then(|| (name.clone(), part(random, declared, field)))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => {
            let kept = items.iter().filter(|_| random.percent(75)).cloned().collect::<Vec<_>>();
            kept.iter().map(|item| part(random, &schema["items"], item)).collect()
        }
        other => other.clone(),
    }
}

/// Changes what clients set in metadata.
pub(crate) fn change_metadata(random: &mut Random, metadata: &mut Value) {
    match random.below(5) {
        0 | 1 => metadata["labels"] = labels(random),
        2 => {
            let mut annotations = labels(random);
            if random.percent(30) {
                annotations["a.io/b~c"] = json!("1");
            }
            metadata["annotations"] = annotations;
        }
        3 => {
            let finalizers = ["f.io/a", "f.io/b", "f.io/c"].into_iter().filter(|_| random.percent(50));
            metadata["finalizers"] = finalizers.collect();
        }
        _ => {
            let owners = ["u1", "u2"].into_iter().filter(|_| random.percent(60));
            let owners = owners.map(|uid| json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": uid}));
            metadata["ownerReferences"] = owners.collect();
        }
    }
}
