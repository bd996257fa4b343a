//! Bounds of the work that expressions cause beyond their cost: comparisons, texts and JSON of values that share parts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use fairlead_cel::{
    AdmissionVariables, Budget, DeclType, Environment, EvaluationError, Inputs, Value, Variable,
};
use serde_json::{Value as Json, json};

/// A list of 4^40 leaves, made of 40 lists.
fn nested(leaf: &str) -> String {
    format!("[{leaf}]{}", ".map(a, [a, a, a, a])".repeat(40))
}

fn environment() -> Environment {
    let variables = AdmissionVariables { params: true, authorizer: false, patch_types: true };
    Environment::default().with_admission_variables(variables)
}

fn evaluate(source: &str, object: &Json) -> Result<bool, EvaluationError> {
    let environment = environment();
    let program = environment.compile(source).unwrap_or_else(|_| panic!("{}", &source[source.len() - 50..]));
    let inputs = Inputs::new(&environment).with_json("object", object);
    let evaluation = program.evaluate(&inputs, &mut Budget::default());
    evaluation.result.map(|value| matches!(value, Value::Bool(true)))
}

#[test]
fn values_that_share_parts_are_not_expanded() {
    let values = nested("1");
    let maps = format!("[1]{}", ".map(a, {'a': a, 'b': a, 'c': a})".repeat(40));
    let objects = format!("[dyn(1)]{}", ".map(a, Object{a: a, b: a})".repeat(40));
    let optionals = format!("[1]{}", ".map(a, [optional.of(a), optional.of(a)])".repeat(40));
    for (value, predicate) in [
        (&values, "x == x"),
        (&values, "!(x != x)"),
        (&values, "x in [x]"),
        (&values, "dyn(x) == dyn(x)"),
        (&values, "{'a': x} == {'a': x}"),
        (&values, "sets.contains([x], [x])"),
        (&values, "sets.equivalent([x], [x])"),
        (&values, "sets.intersects([x], [x])"),
        (&values, "[x].indexOf(x) == 0"),
        (&values, "[x].lastIndexOf(x) == 0"),
        (&values, "size([x, x].distinct()) == 1"),
        (&values, "size([x].flatten(100)) == 1"),
        (&values, "optional.of(x) == optional.of(x)"),
        (&values, "Object{a: x} == Object{a: x}"),
        (&values, "size('%s'.format([x])) > 0"),
        (&values, "size('%s'.format([{'a': x}])) > 0"),
        (&maps, "x == x"),
        (&maps, "size('%s'.format([x])) > 0"),
        (&objects, "x == x"),
        (&optionals, "x == x"),
        // Empty lists and short texts cost nothing.
        (&nested("[]"), "dyn(x).indexOf(1) == 0"),
        (&nested("''"), "dyn(x).isSorted()"),
    ] {
        let source = format!("{value}.all(x, {predicate})");
        assert_eq!(evaluate(&source, &Json::Null), Err(EvaluationError::CostLimit), "{predicate}");
    }
    // The parts of it cost no more than other values.
    for predicate in ["size(x[0]) == 4", "size(x) == 4", "[x, x].size() == 2"] {
        assert_eq!(evaluate(&format!("{values}.all(x, {predicate})"), &Json::Null), Ok(true));
    }
}

#[test]
fn json_of_a_result_is_bounded_in_size_and_nesting() {
    let environment = environment();
    let text = "a".repeat(1 << 20);
    let object = json!({"text": text, "list": [1, {"a": "b"}]});
    let inputs = Inputs::new(&environment).with_json("object", &object);
    for (source, is_within) in [
        (format!("Object{{a: {}}}", nested("1")), false),
        (format!("[JSONPatch{{op: 'add', path: '/a', value: {}}}]", nested("1")), false),
        (format!("[1]{}", ".map(a, {'a': a, 'b': a})".repeat(40)), false),
        (format!("[1]{}", ".map(a, [a])".repeat(120)), false),
        (format!("[1]{}", ".map(a, [a])".repeat(50)), true),
        ("lists.range(9).map(i, object.text)".to_owned(), false),
        ("lists.range(5).map(i, object.text)".to_owned(), true),
        ("lists.range(1000).map(i, object.list)".to_owned(), true),
    ] {
        let program = environment.compile(&source).unwrap();
        let value = program.evaluate(&inputs, &mut Budget::default()).result.unwrap();
        let name = &source[..source.len().min(40)];
        assert_eq!(value.to_json().is_ok(), is_within, "{name}");
        if let Value::Object(object) = &value {
            assert_eq!(object.check_names(), Ok(()), "{name}");
        }
    }
}

#[test]
fn values_are_not_nested_so_deeply_that_the_stack_ends() {
    // Each step nests a hundred times.
    for (start, end) in [("[", "]"), ("optional.of(", ")")] {
        let step = format!(".map(a, dyn({}a{}))", start.repeat(100), end.repeat(100));
        assert_eq!(evaluate(&format!("[1]{}.size() == 1", step.repeat(4)), &Json::Null), Ok(true));
        let deep = format!("[1]{}.size() == 1", step.repeat(60));
        assert_eq!(evaluate(&deep, &Json::Null), Err(EvaluationError::CostLimit));
    }
}

#[test]
fn types_are_neither_nested_deeply_nor_expanded() {
    let environment = environment();
    let step = format!(".map(a, {}a{})", "[".repeat(100), "]".repeat(100));
    for (source, is_small) in [
        (format!("[1]{}.size() == 1", step.repeat(2)), true),
        (format!("[1]{}.size() == 1", step.repeat(60)), false),
        (format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(5)), true),
        (format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(40)), false),
        (format!("[[]]{}.size() == 1", ".map(a, {a: a})".repeat(40)), false),
        (format!("[[]]{}.size() == 1", ".map(a, true ? {a: a} : {a: a})".repeat(40)), false),
    ] {
        let compiled = environment.compile(&source).map(drop).map_err(|error| error.to_string());
        match compiled {
            Ok(()) => assert!(is_small, "{source}"),
            Err(error) => {
                assert!(
                    !is_small && error.contains("nested too deeply"),
                    "{}",
                    &error[..error.len().min(300)]
                );
            }
        }
    }
}

#[test]
fn what_operations_make_is_bounded_in_memory() {
    let object = json!({
        "text": "ä".repeat(1_000_000), "short": "a".repeat(5_000), "list": vec![0; 1_000],
        "version": format!("1.0.0-{}", "a.".repeat(300_000) + "a"),
    });
    let doubled = format!("[[1]]{}.size() == 1", ".map(a, a + a)".repeat(40));
    assert_eq!(evaluate(&doubled, &object), Err(EvaluationError::CostLimit));
    for source in [
        "lists.range(10000).map(i, dyn(object.text) + dyn(object.text)).size() > 0",
        "lists.range(10000).map(i, object.short.replace('', object.short)).size() > 0",
        "lists.range(10000).map(i, '%x'.format([object.text])).size() > 0",
        "lists.range(10000).map(i, object.list + object.list).map(l, l + l).map(l, l + l).size() > 0",
        "lists.range(10000).map(i, {object.text: i}).size() > 0",
        "lists.range(100000).exists(i, {'a': 1}[object.text] == 1)",
        "lists.range(100000).all(i, size(object.text) > 0)",
        "lists.range(100000).all(i, object.text.charAt(999999) == 'ä')",
        "[semver(object.version)].all(v, lists.range(100000).all(i, v.compareTo(v) == 0))",
    ] {
        assert_eq!(evaluate(source, &object), Err(EvaluationError::CostLimit), "{source}");
    }
}

#[test]
fn literals_are_charged_although_they_cost_nothing() {
    let elements = vec!["1"; 20_000].join(", ");
    let numbers: Vec<String> = (0..10_000).map(|number| format!("{number}.5")).collect();
    let terms = vec!["false"; 4_000].join(" || ");
    for source in [
        format!("lists.range(50000).all(i, [i, {elements}].size() > 0)"),
        format!("lists.range(50000).all(i, !(dyn(i) in [{}]))", numbers.join(", ")),
        format!("lists.range(50000).all(i, !({terms} || i < 0))"),
    ] {
        assert_eq!(evaluate(&source, &Json::Null), Err(EvaluationError::CostLimit), "{}", &source[..60]);
    }
}

#[test]
fn large_sets_and_lists_with_keys_are_compared_and_added_in_linear_time() {
    let schema = json!({"type": "object", "properties": {
        "set": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "texts": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "keyed": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }});
    let declared = Arc::new(DeclType::from_schema(&schema, "self", false).unwrap());
    let environment = Environment::default()
        .with_variable("self", Variable::Json(Arc::clone(&declared)))
        .with_variable("oldSelf", Variable::Json(declared));
    let numbers: Vec<usize> = (0..40_000).collect();
    let object = |numbers: Vec<usize>| {
        let texts: Vec<String> = numbers.iter().map(|number| format!("t{number}")).collect();
        let keyed: Vec<Json> = texts.iter().map(|text| json!({"name": text})).collect();
        json!({"set": numbers, "texts": texts, "keyed": keyed})
    };
    let (new, old) = (object(numbers.iter().rev().copied().collect()), object(numbers));
    let inputs = Inputs::new(&environment).with_json("self", &new).with_json("oldSelf", &old);
    for source in [
        "self == oldSelf",
        "self.set == oldSelf.set",
        "self.texts == oldSelf.texts",
        "self.keyed == oldSelf.keyed",
        "size(self.set + oldSelf.set) == 40000",
        "size(self.texts + oldSelf.texts) == 40000",
        "size(self.keyed + oldSelf.keyed) == 40000",
        "self.set + [1, -1] == [-1] + oldSelf.set.map(x, x)",
    ] {
        let program = environment.compile(source).unwrap();
        let evaluation = program.evaluate(&inputs, &mut Budget::default());
        assert!(matches!(evaluation.result, Ok(Value::Bool(true))), "{source}: {:?}", evaluation.result);
    }
}
