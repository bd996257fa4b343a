//! Expressions of admission policies: their variables, named expressions, and the objects of mutations.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use fairlead_cel::{
    AdmissionVariables, Authorizer, AuthorizerValue, Budget, Decision, Environment, Extension, Inputs,
    ResourceAttributes, Session, Value,
};
use serde_json::{Value as Json, json};

const ALL: AdmissionVariables = AdmissionVariables { params: true, authorizer: true, patch_types: true };

fn environment() -> Environment {
    Environment::default().with_admission_variables(ALL)
}

/// Allows verbs other than `delete`, and nothing to service accounts.
#[derive(Debug)]
struct NoDeletions;

impl Authorizer for NoDeletions {
    fn authorize_resource(
        &self,
        service_account: Option<(&str, &str)>,
        attributes: &ResourceAttributes,
        verb: &str,
    ) -> Decision {
        let is_allowed = service_account.is_none() && verb != "delete" && &*attributes.resource == "pods";
        Decision { is_allowed, reason: "the rule".into(), error: None }
    }

    fn authorize_path(&self, _service_account: Option<(&str, &str)>, path: &str, _verb: &str) -> Decision {
        Decision { is_allowed: path == "/healthz", ..Decision::default() }
    }
}

struct Values {
    object: Json,
    old: Json,
    params: Json,
    namespace: Json,
    request: Json,
}

impl Values {
    fn new() -> Self {
        Self {
            object: json!({"metadata": {"name": "a", "labels": {"app/x": "1"}}, "spec": {"replicas": 3}}),
            old: Json::Null,
            params: json!({"max": 5}),
            namespace: json!({"metadata": {
                "name": "n", "labels": {"team": "t"}, "creationTimestamp": "2026-01-02T03:04:05Z",
            }, "status": {"phase": "Active"}}),
            request: json!({
                "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "name": "a",
                "userInfo": {"username": "u", "groups": ["g", "h"], "extra": {"k": ["v"]}}, "dryRun": true,
                "options": {"fieldManager": "m"},
            }),
        }
    }

    fn inputs<'a>(&'a self, environment: &'a Environment) -> Inputs<'a> {
        let authorizer: Arc<dyn Authorizer> = Arc::new(NoDeletions);
        let attributes = ResourceAttributes { resource: "pods".into(), ..ResourceAttributes::default() };
        let authorizers = [
            AuthorizerValue::new(Arc::clone(&authorizer)),
            AuthorizerValue::for_resource(authorizer, attributes),
        ];
        let [any, requested] = authorizers.map(|value| Value::Extension(Extension::Authorizer(value)));
        Inputs::new(environment)
            .with_json("object", &self.object)
            .with_json("oldObject", &self.old)
            .with_json("params", &self.params)
            .with_json("namespaceObject", &self.namespace)
            .with_json("request", &self.request)
            .with_value("authorizer", any)
            .with_value("authorizer.requestResource", requested)
    }
}

/// The result as JSON, or the error.
fn evaluate(environment: &Environment, expression: &str) -> Result<Json, String> {
    let program = environment.compile(expression).map_err(|error| error.to_string())?;
    let values = Values::new();
    let inputs = values.inputs(environment);
    let evaluation = program.evaluate(&inputs, &mut Budget::default());
    let result = evaluation.result.and_then(|value| value.to_json());
    result.map_err(|error| error.to_string())
}

#[test]
fn variables_of_admission_can_be_read() {
    let environment = environment();
    for (expression, expected) in [
        ("object.spec.replicas <= params.max", json!(true)),
        ("oldObject == null", json!(true)),
        ("has(object.spec.missing)", json!(false)),
        ("object.metadata.labels['app/x']", json!("1")),
        ("object.?spec.?strategy.orValue('none')", json!("none")),
        ("request.operation == 'CREATE' && request.kind.kind == 'Pod'", json!(true)),
        ("'h' in request.userInfo.groups", json!(true)),
        ("request.userInfo.extra['k'][0]", json!("v")),
        ("request.options.fieldManager", json!("m")),
        ("has(request.namespace)", json!(false)),
        ("request.dryRun", json!(true)),
        ("namespaceObject.metadata.labels.team", json!("t")),
        ("namespaceObject.metadata.creationTimestamp.getFullYear()", json!(2026)),
        ("namespaceObject.status.phase", json!("Active")),
        ("authorizer.group('').resource('pods').check('create').allowed()", json!(true)),
        ("authorizer.group('').resource('pods').check('delete').allowed()", json!(false)),
        ("authorizer.requestResource.check('create').reason()", json!("the rule")),
        (
            "authorizer.serviceAccount('n', 's').group('').resource('pods').check('get').allowed()",
            json!(false),
        ),
        ("authorizer.path('/healthz').check('get').allowed()", json!(true)),
    ] {
        assert_eq!(evaluate(&environment, expression), Ok(expected), "{expression}");
    }
}

#[test]
fn variables_that_a_policy_does_not_have_are_unknown() {
    let environment = Environment::default().with_admission_variables(AdmissionVariables::default());
    for (expression, expected) in [
        ("params.max > 1", "undeclared reference to 'params'"),
        ("authorizer.path('/x').check('get').allowed()", "undeclared reference to 'authorizer'"),
        ("Object{}", "undeclared reference to 'Object'"),
        ("jsonpatch.escapeKey('a') == 'a'", "undeclared reference to 'escapeKey'"),
        ("variables.a", "undeclared reference to 'variables'"),
        ("request.nope", "undefined field 'nope'"),
        ("request.userInfo.groups.nope", "type 'list(string)' does not support field selection"),
        ("namespaceObject.metadata.managedFields", "undefined field 'managedFields'"),
    ] {
        let error = environment.compile(expression).unwrap_err().to_string();
        assert!(error.contains(expected), "{expression}: {error}");
    }
}

#[test]
fn named_expressions_are_evaluated_once_and_only_if_they_are_used() {
    let environment = environment();
    let environment = environment.with_named_expression("replicas", "object.spec.replicas").unwrap();
    let environment = environment.with_named_expression("double", "variables.replicas * 2").unwrap();
    let environment = environment.with_named_expression("broken", "object.spec.missing").unwrap();
    let sum = environment.compile("variables.double + variables.double").unwrap();
    let unused = environment.compile("false && variables.broken == 1").unwrap();
    let broken = environment.compile("variables.broken == 1").unwrap();
    let values = Values::new();
    let inputs = values.inputs(&environment);
    let mut session = Session::new(&inputs);
    let mut budget = Budget::default();

    let first = session.evaluate(&sum, &mut budget);
    assert!(matches!(first.result, Ok(Value::Int(12))), "{first:?}");
    let again = session.evaluate(&sum, &mut budget);
    assert!(again.cost < first.cost, "{} {}", again.cost, first.cost);
    assert_eq!(budget.remaining(), fairlead_cel::RUNTIME_COST_BUDGET - first.cost - again.cost);

    assert!(matches!(session.evaluate(&unused, &mut budget).result, Ok(Value::Bool(false))));
    let error = session.evaluate(&broken, &mut budget).result.unwrap_err().to_string();
    assert_eq!(error, "composited variable \"broken\" fails to evaluate: no such key: missing");
}

#[test]
fn named_expressions_have_types() {
    let environment = environment();
    let environment = environment.with_named_expression("name", "request.name").unwrap();
    let environment = environment.with_named_expression("groups", "request.userInfo.groups").unwrap();
    for (expression, expected) in [
        ("variables.name.startsWith('a')", Ok(json!(true))),
        ("variables.groups.map(g, g + variables.name)", Ok(json!(["ga", "ha"]))),
        ("has(variables.name)", Ok(json!(true))),
        ("variables.name + 1", Err("found no matching overload for '_+_' applied to '(string, int)'")),
        ("variables.nope", Err("undefined field 'nope'")),
        ("variables == null", Err("variables can only be used as variables.<name>")),
    ] {
        match (evaluate(&environment, expression), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{expression}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{expression}: {found}"),
            (found, _) => panic!("{expression}: {found:?}"),
        }
    }
    assert!(environment.with_named_expression("later", "variables.later").is_err());
}

#[test]
fn a_chain_of_named_expressions_cannot_exhaust_stack_or_budget() {
    let mut chained = environment().with_named_expression("v0", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]").unwrap();
    let mut refused = None;
    for number in 1..400 {
        let source = format!("variables.v{}.map(x, x)", number - 1);
        match chained.clone().with_named_expression(&format!("v{number}"), &source) {
            Ok(longer) => chained = longer,
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        }
    }
    assert!(refused.unwrap().contains("nested too deeply"));

    let environment = environment()
        .with_named_expression("much", "lists.range(1000).map(x, lists.range(1000).map(y, x))")
        .unwrap();
    let program = environment.compile("size(variables.much) > 0").unwrap();
    let values = Values::new();
    let inputs = values.inputs(&environment);
    let mut budget = Budget::new(5_000);
    let evaluation = Session::new(&inputs).evaluate(&program, &mut budget);
    assert!(evaluation.result.is_err());
    assert_eq!(budget.remaining(), 0);
}

#[test]
fn the_work_of_matches_is_bounded_for_all_expressions_of_an_object() {
    let environment = environment();
    let mut values = Values::new();
    values.object =
        json!({"short": "ab".repeat(100), "long": "ab".repeat(30_000), "words": "ab ".repeat(60_000)});
    let inputs = values.inputs(&environment);
    for (source, is_within) in [
        ("!object.short.matches(r'^\\pL*a\\pL{12}c$')", true),
        ("object.long.matches('^[ab]+$')", true),
        ("size(object.short.findAll('a')) == 100", true),
        // Kubernetes charges by the length of the source, which is short.
        ("!object.long.matches(r'^\\pL*a\\pL{12}c$')", false),
        // Each of many matches may read the rest of the text.
        ("size(object.words.findAll('[a-z]+')) > 0", false),
    ] {
        let program = environment.compile(source).unwrap();
        let mut budget = Budget::new(10_000_000);
        let results: Vec<bool> =
            (0..3).map(|_| Session::new(&inputs).evaluate(&program, &mut budget).result.is_ok()).collect();
        assert_eq!(results[0] && results[2], is_within, "{source}: {results:?}");
    }
}

#[test]
fn mutations_make_objects_and_patches() {
    let environment = environment();
    for (expression, expected) in [
        ("Object{}", Ok(json!({}))),
        ("Object{spec: Object.spec{replicas: 3}}", Ok(json!({"spec": {"replicas": 3}}))),
        (
            "Object{metadata: Object.metadata{labels: {'a': 'b'}, finalizers: ['x'], ?name: optional.none()}}",
            Ok(json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x"]}})),
        ),
        ("Object{?a: optional.of(1)}", Ok(json!({"a": 1}))),
        ("Object{`a-b`: 1}", Ok(json!({"a-b": 1}))),
        ("Object{intList: [1, 2, 3]}.intList.sum()", Ok(json!(6))),
        ("Object{spec: Object.spec{a: 3}} == Object{spec: Object.spec{a: 1 + 2}}", Ok(json!(true))),
        ("Object{spec: 1} == Object{other: 1}", Ok(json!(false))),
        ("has(Object{a: 1}.a) && !has(Object{a: 1}.b)", Ok(json!(true))),
        ("Object{}.?existing.hasValue()", Ok(json!(false))),
        ("Object{?spec: optional.ofNonZeroValue(Object.spec{?replicas: Object{}.?replicas})}", Ok(json!({}))),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 'x'}]",
            Ok(json!([{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x"}])),
        ),
        ("JSONPatch{op: 'remove', path: '/a'}", Ok(json!({"op": "remove", "path": "/a"}))),
        ("JSONPatch{op: 'add'}.path", Ok(json!(""))),
        ("JSONPatch{op: 'add', path: '/a', value: Object{x: 1}}.value.x", Ok(json!(1))),
        ("JSONPatch{from: 1}", Err("expected type of field 'from' is 'string' but provided type is 'int'")),
        ("JSONPatch{nope: 1}", Err("undefined field 'nope'")),
        ("Invalid{}", Err("undeclared reference to 'Invalid'")),
        ("Object{?a: 1}", Err("expected type 'optional_type(int)' but found 'int'")),
        ("Object{a: type(1)}", Err("value of type type cannot be written as JSON")),
    ] {
        match (evaluate(&environment, expression), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{expression}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{expression}: {found}"),
            (found, _) => panic!("{expression}: {found:?}"),
        }
    }
}

#[test]
fn parts_of_an_object_are_named_after_their_field() {
    let environment = environment();
    for (expression, expected) in [
        ("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x'}]}}", Ok(())),
        ("Object{m: {'k': Object.m{a: 1}}}", Ok(())),
        (
            "Object{spec: Object.metadata{}}",
            Err("unexpected type name \"Object.metadata\", expected \"Object.spec\""),
        ),
        ("Object{l: [Object.spec{}]}", Err("expected \"Object.l\"")),
    ] {
        let program = environment.compile(expression).unwrap();
        let inputs = Inputs::new(&environment);
        let Ok(Value::Object(object)) = program.evaluate(&inputs, &mut Budget::default()).result else {
            panic!("{expression}");
        };
        match (object.check_names(), expected) {
            (Ok(()), Ok(())) => {}
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, _) => panic!("{expression}: {found:?}"),
        }
    }
}
