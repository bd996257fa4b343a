use super::super::texts;
use super::*;

fn validating(changes: &Value) -> Value {
    let mut object = json!({"metadata": {"name": "p.example.com"}, "spec": {
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
        }]},
        "validations": [{"expression": "object.spec.replicas <= 5"}],
    }});
    for (field, value) in changes.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    ValidatingAdmissionPolicy.default(&mut object);
    object
}

fn mutating(changes: &Value) -> Value {
    let mut object = validating(&json!({
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}}],
    }));
    for (field, value) in changes.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

#[test]
fn omitted_fields_get_the_defaults_of_kubernetes() {
    let object = validating(&json!({}));
    let spec = &object["spec"];
    assert_eq!(spec["failurePolicy"], "Fail");
    assert_eq!(spec["matchConstraints"]["matchPolicy"], "Equivalent");
    assert_eq!(spec["matchConstraints"]["namespaceSelector"], json!({}));
    assert_eq!(spec["matchConstraints"]["objectSelector"], json!({}));
    assert_eq!(spec["matchConstraints"]["resourceRules"][0]["scope"], "*");
    assert_eq!(object["status"], json!({}));
    assert_eq!(texts(&ValidatingAdmissionPolicy.validate(&object)), [""; 0]);
    assert_eq!(texts(&MutatingAdmissionPolicy.validate(&mutating(&json!({})))), [""; 0]);
}

#[test]
fn a_status_belongs_to_the_server() {
    let old = validating(&json!({}));
    let mut new = old.clone();
    new["status"] = json!({"observedGeneration": 7});
    ValidatingAdmissionPolicy.prepare_update(&mut new, &old);
    assert_eq!(new["status"], json!({}));
    let mut status = old.clone();
    status["spec"]["failurePolicy"] = json!("Ignore");
    status["status"] = json!({"observedGeneration": 7});
    ValidatingAdmissionPolicy.prepare_status_update(&mut status, &old);
    assert_eq!(
        (&status["spec"]["failurePolicy"], &status["status"]["observedGeneration"]),
        (&json!("Fail"), &json!(7))
    );
}

#[test]
fn faults_of_validating_policies_are_refused_in_the_words_of_kubernetes() {
    let at_least = "validations or auditAnnotations must contain at least one item";
    for (changes, expected) in [
        (json!({"matchConstraints": null}), vec!["spec.matchConstraints: Required value".to_owned()]),
        (
            json!({"matchConstraints": {}}),
            vec!["spec.matchConstraints.resourceRules: Required value".to_owned()],
        ),
        (
            json!({"failurePolicy": "Retry"}),
            vec![
                "spec.failurePolicy: Unsupported value: \"Retry\": supported values: \"Fail\", \"Ignore\"".to_owned(),
            ],
        ),
        (
            json!({"validations": []}),
            vec![
                format!("spec.validations: Required value: {at_least}"),
                format!("spec.auditAnnotations: Required value: {at_least}"),
            ],
        ),
        (
            json!({"validations": [{"expression": " "}, {"expression": "1"}]}),
            vec![
                "spec.validations[0].expression: Required value: expression is not specified".to_owned(),
                "spec.validations[1].expression: Invalid value: \"1\": must evaluate to bool but got int".to_owned(),
            ],
        ),
        (
            json!({"validations": [{"expression": "object.x in"}]}),
            vec!["spec.validations[0].expression: Invalid value: \"object.x in\": compilation failed: ERROR: <input>:1:12: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | object.x in\n | ...........^".to_owned()],
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1", "message": "a\nb", "reason": "Gone"}]}),
            vec![
                "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int".to_owned(),
                "spec.validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks".to_owned(),
                "spec.validations[0].reason: Unsupported value: \"Gone\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"".to_owned(),
            ],
        ),
        (
            json!({"validations": [{"expression": "params.x == 1"}]}),
            vec![
                "spec.validations[0].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^".to_owned(),
            ],
        ),
        (
            json!({"paramKind": {"apiVersion": "a/b/c", "kind": "no_kind"}}),
            vec![
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c".to_owned(),
                "spec.paramKind.kind: Invalid value: \"no_kind\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned(),
            ],
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "validations": [{"expression": "params.x == 1", "messageExpression": "string(params.x)"}]}),
            vec![],
        ),
        (
            json!({"variables": [{"name": "a", "expression": "1"}, {"name": "in", "expression": "variables.a + 1"},
                {"name": "c", "expression": "variables.nope"}],
                "validations": [{"expression": "variables.c == 1"}]}),
            vec![
                "spec.variables[1].name: Invalid value: \"in\": name is not a valid CEL identifier".to_owned(),
                "spec.variables[2].expression: Invalid value: \"variables.nope\": compilation failed: ERROR: <input>:1:10: undefined field 'nope'\n | variables.nope\n | .........^".to_owned(),
            ],
        ),
        (
            json!({"auditAnnotations": [{"key": "high", "valueExpression": "'x'"}, {"key": "high", "valueExpression": "2"}]}),
            vec![
                "spec.auditAnnotations[1].valueExpression: Invalid value: \"2\": must evaluate to one of [string null_type] but got int".to_owned(),
                "spec.auditAnnotations[1].key: Duplicate value: \"high\"".to_owned(),
            ],
        ),
        (
            json!({"matchConditions": [{"name": "a b", "expression": "request.name"}, {"expression": ""}]}),
            vec![
                "spec.matchConditions[0].expression: Invalid value: \"request.name\": must evaluate to bool but got string".to_owned(),
                "spec.matchConditions[0].name: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')".to_owned(),
                "spec.matchConditions[1].expression: Required value".to_owned(),
                "spec.matchConditions[1].name: Required value".to_owned(),
            ],
        ),
    ] {
        let object = validating(&changes);
        assert_eq!(texts(&ValidatingAdmissionPolicy.validate(&object)), expected, "{changes}");
    }
}

#[test]
fn faults_of_mutating_policies_are_refused_in_the_words_of_kubernetes() {
    let json_patch =
        |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    for (changes, expected) in [
        (
            json!({"mutations": []}),
            vec!["spec.mutations: Required value: mutations must contain at least one item"],
        ),
        (json!({"mutations": [{"jsonPatch": {}}]}), vec!["spec.mutations[0].patchType: Required value"]),
        (
            json!({"mutations": [{"patchType": "Merge"}]}),
            vec![
                "spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
            ],
        ),
        (
            json!({"mutations": [{"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}]}),
            vec![
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
            ],
        ),
        (
            json!({"mutations": [json_patch(" "), json_patch("Object{}")]}),
            vec![
                "spec.mutations[0].jsonPatch.expression: Required value",
                "spec.mutations[1].jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to list(JSONPatch) but got Object",
            ],
        ),
        (json!({"reinvocationPolicy": ""}), vec!["spec.reinvocationPolicy: Required value"]),
        (
            json!({"reinvocationPolicy": "Always"}),
            vec![
                "spec.reinvocationPolicy: Unsupported value: \"Always\": supported values: \"Never\", \"IfNeeded\"",
            ],
        ),
    ] {
        assert_eq!(texts(&MutatingAdmissionPolicy.validate(&mutating(&changes))), expected, "{changes}");
    }
}

#[test]
fn the_number_of_variables_is_limited() {
    let variables: Vec<Value> =
        (0..300).map(|number| json!({"name": format!("v{number}"), "expression": "1"})).collect();
    let errors = ValidatingAdmissionPolicy.validate(&validating(&json!({"variables": variables})));
    assert_eq!(errors.len(), 100);
    assert_eq!(
        errors[0].to_string(),
        "spec.variables[200].expression: Invalid value: \"1\": a policy must not have more than 200 variables"
    );
}

#[test]
fn warnings_of_a_type_check_need_a_place_and_a_text() {
    let old = validating(&json!({}));
    let mut new = old.clone();
    new["status"] = json!({"typeChecking": {"expressionWarnings": [{"fieldRef": "", "warning": ""}]}});
    assert_eq!(
        texts(&ValidatingAdmissionPolicy.validate_update(&new, &old)),
        [
            "status.typeChecking.expressionWarnings[0].warning: Required value",
            "status.typeChecking.expressionWarnings[0].fieldRef: Required value",
        ]
    );
}
