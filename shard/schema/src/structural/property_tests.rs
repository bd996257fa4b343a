#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn schema(json: Value) -> Schema {
    Schema::compile(&json, &CompileOptions::structural()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A generated structural schema with nested properties.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "default": "d", "maxLength": 4})),
        Just(json!({"type": "string", "nullable": true, "enum": ["a", "b"]})),
        Just(json!({"type": "integer", "default": 3, "minimum": 1})),
        Just(json!({"type": "integer"})),
        Just(json!({"type": "boolean", "default": false})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let properties = prop::collection::btree_map("[a-e]", inner.clone(), 0..4);
        prop_oneof![
            properties.clone().prop_map(|properties| json!({"type": "object", "properties": properties})),
            properties.clone().prop_map(|properties| json!({
                "type": "object", "properties": properties, "default": {}, "x-kubernetes-preserve-unknown-fields": true})),
            properties.prop_map(|properties| json!({
                "type": "object", "properties": properties, "x-kubernetes-embedded-resource": true})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "x-kubernetes-list-type": "atomic"})),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..6).prop_map(Value::from),
        Just(json!(1.5)),
        "[a-e]{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-f]|kind|metadata", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The value with empty metadata where it is null, as pruning leaves it in embedded resources.
fn with_metadata(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let with = fields.into_iter().map(|(name, field)| match field {
                Value::Null if name == "metadata" => (name, json!({})),
                field => (name, with_metadata(field)),
            });
            Value::Object(with.collect())
        }
        Value::Array(items) => items.into_iter().map(with_metadata).collect(),
        scalar => scalar,
    }
}

proptest! {
    #[test]
    fn pruning_defaulting_and_validation_are_stable(fields in any_schema(), given in any_value()) {
        let schema = schema(json!({"type": "object", "properties": {"a": fields, "b": fields}}));
        let mut object = given.clone();
        let unknown = schema.prune(&mut object);
        let is_same = with_metadata(given) == with_metadata(object.clone());
        prop_assert_eq!(unknown.is_empty(), is_same, "every removal is reported");
        let pruned = object.clone();
        prop_assert_eq!(schema.prune(&mut object), Vec::<String>::new());
        prop_assert_eq!(&object, &pruned);

        schema.apply_defaults(&mut object);
        let defaulted = object.clone();
        schema.apply_defaults(&mut object);
        prop_assert_eq!(&object, &defaulted);
        prop_assert_eq!(schema.prune(&mut object), Vec::<String>::new(), "defaults need no pruning");

        let errors = schema.validate(&object);
        prop_assert_eq!(&schema.validate(&object), &errors);
        // Without a change, only embedded resources can have errors: their type and metadata are always validated.
        for error in schema.validate_update(&object, &object) {
            prop_assert!(errors.contains(&error));
            let last = error.path.as_str().rsplit('.').next().unwrap_or_default();
            prop_assert!(["apiVersion", "kind", "metadata"].contains(&last) || error.path.as_str().contains("metadata"));
        }
    }

    #[test]
    fn compiling_any_value_does_not_panic(schema in any_value(), object in any_value()) {
        if let Ok(schema) = Schema::compile(&schema, &CompileOptions::structural()) {
            let mut object = object;
            schema.prune(&mut object);
            schema.apply_defaults(&mut object);
            schema.validate(&object);
        }
        check_structural(&schema, &FieldPath::root());
    }
}
