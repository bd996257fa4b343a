//! Costs and limits.

use super::*;

#[test]
fn the_cost_of_hostile_schemas_and_objects_is_bounded() {
    // A list can have a large default in each item.
    let default = "x".repeat(100_000);
    let greedy = schema(json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "object", "properties": {"d": {"type": "string", "default": default}}}}}}));
    let mut object = json!({"l": vec![json!({}); 1000]});
    assert_eq!(greedy.apply_defaults(&mut object), DefaultingResult::LimitReached);
    assert!(object.to_string().len() < 9 << 20);
    assert_eq!(greedy.apply_defaults(&mut json!({"l": [{}]})), DefaultingResult::Complete);

    // The number of findings is bounded.
    let strings = schema(
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}),
    );
    assert_eq!(strings.validate(&json!({"l": vec![1; 10_000]})).len(), 1000);
    let mut object = json!({"l": [], "x": 1});
    for index in 0..10_000 {
        object[format!("x{index}")] = json!(1);
    }
    assert_eq!(strings.prune(&mut object).len(), 1000);
    assert_eq!(object, json!({"l": []}));

    // The work of alternatives is bounded.
    let alternatives = vec![json!({"items": {"maxLength": 1}}); 30_000];
    let wide = schema(json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string"}, "anyOf": alternatives}}}));
    let found = texts(&wide.validate(&json!({"l": vec!["long"; 900]})));
    assert!(found.iter().any(|text| text.contains("too complex together")), "{:?}", found.first());

    // The work of a large pattern is bounded; a short text is matched.
    let matched = schema(json!({"type": "object", "properties": {
        "s": {"type": "string", "pattern": r"^\pL*a\pL{30}c$"}}}));
    for (length, expected) in [(1_000, "should match"), (1_000_000, "too complex together")] {
        let found = texts(&matched.validate(&json!({"s": "ab".repeat(length / 2)})));
        assert!(found.len() == 1 && found[0].contains(expected), "{length}: {found:?}");
    }

    // The memory of a schema is bounded.
    let huge = json!({"type": "object", "allOf": vec![json!({}); MAX_NODES_IN_TEST]});
    let errors = Schema::compile(&huge, &CompileOptions::structural()).unwrap_err();
    assert_eq!(texts(&errors), ["<nil>: Forbidden: must not have more than 100000 schemas in it"]);
}

const MAX_NODES_IN_TEST: usize = 200_000;

#[test]
fn large_enumerations_use_an_index() {
    let values: Vec<Value> =
        (0..1000).map(|index| json!(format!("v{index}"))).chain([json!(7), json!(null)]).collect();
    let schema = schema(json!({"type": "object", "properties": {
        "e": {"x-kubernetes-int-or-string": true, "nullable": true, "enum": values}}}));
    for right in [json!("v999"), json!(7), json!(7.0)] {
        assert_eq!(schema.validate(&json!({"e": right})), []);
    }
    // Kubernetes never finds `null` in an enumeration.
    for wrong in [json!("7"), json!(null)] {
        assert_eq!(schema.validate(&json!({"e": wrong})).len(), 1);
    }
}

/// A definition of 170 KB would otherwise keep 890 MB.
#[test]
fn the_patterns_of_all_rules_have_one_limit() {
    let rules: Vec<Value> = (0..200)
        .map(|number| json!({"rule": format!("self.matches('^(ab?){{1,900}}{number}$') || true")}))
        .collect();
    let with = |rules: &[Value]| {
        let schema = json!({"type": "object", "properties": {
            "x": {"type": "string", "maxLength": 10, "x-kubernetes-validations": rules}}});
        let compiled = Schema::compile(&schema, &CompileOptions::structural()).unwrap();
        compiled.with_rules(&schema, &FieldPath::root()).map(drop)
    };
    assert_eq!(with(&rules[..20]), Ok(()));
    let errors = with(&rules).unwrap_err();
    assert!((100..200).contains(&errors.len()), "{}", errors.len());
    assert!(errors[0].to_string().contains("expression too large"), "{}", errors[0]);
}
