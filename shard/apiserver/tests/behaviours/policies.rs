//! Admission policies with their bindings and parameters.

use serde_json::{Map, Value, json};

use crate::audit::{AuditFile, Audited};
use crate::client::{CONFIG_MAPS, GADGETS, Server, TestResponse, WIDGETS};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const WIDGETS_BETA: &str = "/apis/example.com/v1beta1/namespaces/default/widgets";

fn config_map(name: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kind": "seen"}}, "data": {"text": text}})
}

/// A specification with changes. The rules cover config maps.
fn spec(changes: &Value) -> Value {
    let mut spec = json!({"matchConstraints": {"resourceRules": [rule("", "configmaps")]}});
    for (field, value) in changes.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

pub(crate) fn rule(group: &str, resource: &str) -> Value {
    json!({"operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]})
}

/// A server with objects of the kinds of policies.
pub(crate) struct Policies(pub(crate) Server);

/// The audit log of the server of policies.
struct AnnotationLog(AuditFile);

impl AnnotationLog {
    /// The annotations of the last write of a ConfigMap.
    fn annotations(&self) -> Map<String, Value> {
        let events = self.0.take();
        let complete = events.iter().rev().find(|event| event["stage"] == "ResponseComplete").unwrap();
        complete["annotations"].as_object().unwrap().clone()
    }
}

impl Policies {
    pub(crate) async fn start() -> Self {
        Self(Server::start().await)
    }

    /// A server with an audit log of creates of ConfigMaps.
    async fn audited() -> (Self, AnnotationLog) {
        let audited = Audited::blocking(
            "\n- {level: Metadata, verbs: [create], resources: [{group: '', resources: [configmaps]}]}",
        )
        .await;
        (Self(audited.server), AnnotationLog(audited.file))
    }

    /// Creates or replaces a validating policy and its binding.
    pub(crate) async fn validating(&self, name: &str, policy: &Value, binding: &Value) {
        let mut bound = json!({"policyName": name, "validationActions": ["Deny"]});
        for (field, value) in binding.as_object().into_iter().flatten() {
            bound[field] = value.clone();
        }
        self.replace("validatingadmissionpolicies", name, &spec(policy)).await;
        self.replace("validatingadmissionpolicybindings", &format!("{name}-binding"), &bound).await;
    }

    /// Creates or replaces a mutating policy and its binding.
    pub(crate) async fn mutating(&self, name: &str, policy: &Value, binding: &Value) {
        let mut policy = spec(policy);
        policy["matchConstraints"]["resourceRules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
        if policy["reinvocationPolicy"].is_null() {
            policy["reinvocationPolicy"] = "Never".into();
        }
        let mut bound = binding.clone();
        bound["policyName"] = name.into();
        self.replace("mutatingadmissionpolicies", name, &policy).await;
        self.replace("mutatingadmissionpolicybindings", &format!("{name}-binding"), &bound).await;
    }

    pub(crate) async fn replace(&self, resource: &str, name: &str, spec: &Value) {
        self.0.delete(&format!("{GROUP}/{resource}/{name}")).await;
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.0.create(&format!("{GROUP}/{resource}"), &object).await;
    }

    pub(crate) async fn post(&self, name: &str, text: &str) -> TestResponse {
        self.0.post(CONFIG_MAPS, &config_map(name, text)).await
    }
}

fn expression(source: &str) -> Value {
    json!({"validations": [{"expression": source}]})
}

#[tokio::test]
async fn a_validating_policy_refuses_creates_updates_and_deletes() {
    let policies = Policies::start().await;
    policies.0.create(CONFIG_MAPS, &config_map("old", "good")).await;
    let source = "request.operation == 'DELETE' ? oldObject.data.text != 'keep' : object.data.text != 'bad'";
    policies.validating("p", &expression(source), &json!({})).await;
    let denied = |name: &str| {
        (
            422,
            "Invalid".to_owned(),
            format!(
                "configmaps {name:?} is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: \
                 failed expression: {source}"
            ),
        )
    };
    let response = policies.post("new", "bad").await;
    assert_eq!(response.failure(), denied("new"));
    assert_eq!(
        response.json()["details"],
        json!({"name": "new", "kind": "configmaps", "causes": [{
            "message": format!("ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: failed expression: {source}"),
        }]})
    );
    let old = format!("{CONFIG_MAPS}/old");
    let patch = |text: &str| json!({"data": {"text": text}});
    assert_eq!(policies.0.patch(&old, "merge", &patch("bad")).await.failure(), denied("old"));
    assert_eq!(policies.0.patch(&old, "merge", &patch("keep")).await.code, 200);
    assert_eq!(policies.0.delete(&old).await.failure(), denied("old"));
    assert_eq!(policies.post("new", "good").await.code, 201);
    // Another logical cluster has no policies.
    policies.0.create("//clusters/d/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
    policies.0.create(&format!("//clusters/d{CONFIG_MAPS}"), &config_map("new", "bad")).await;
    // The policy does not review itself, and without its binding it reviews nothing.
    policies.0.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p-binding")).await;
    assert_eq!(policies.0.delete(&old).await.code, 200);
}

#[tokio::test]
async fn a_refusal_has_the_message_and_the_reason_of_the_validation() {
    let policies = Policies::start().await;
    for (validation, code, reason, message) in [
        (json!({"expression": "false", "message": " no \t"}), 422, "Invalid", "no"),
        (json!({"expression": "false", "message": "no", "reason": "Forbidden"}), 403, "Forbidden", "no"),
        (
            json!({"expression": "false", "reason": "RequestEntityTooLarge"}),
            413,
            "RequestEntityTooLarge",
            "failed expression: false",
        ),
        (
            json!({"expression": "false", "message": "no", "messageExpression": "'not ' + object.data.text"}),
            422,
            "Invalid",
            "not x",
        ),
        // A message that cannot be evaluated, is empty or has several lines.
        (
            json!({"expression": "false", "message": "no", "messageExpression": "string(object.nope)"}),
            422,
            "Invalid",
            "no",
        ),
        (json!({"expression": "false", "message": "no", "messageExpression": "' '"}), 422, "Invalid", "no"),
        (
            json!({"expression": "false", "message": "no", "messageExpression": "'a\\nb'"}),
            422,
            "Invalid",
            "no",
        ),
        // Errors of the validation itself.
        (
            json!({"expression": "object.nope == 1", "message": "no", "reason": "Forbidden"}),
            422,
            "Invalid",
            "expression 'object.nope == 1' resulted in error: no such key: nope",
        ),
    ] {
        policies.validating("p", &json!({"validations": [validation]}), &json!({})).await;
        let expected = format!(
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: {message}"
        );
        let failure = policies.post("a", "x").await.failure();
        assert_eq!(failure, (code, reason.to_owned(), expected), "{validation}");
    }
}

#[tokio::test]
async fn variables_and_the_request_are_visible_to_expressions() {
    let policies = Policies::start().await;
    let variables = json!([
        {"name": "text", "expression": "object.data.text"},
        {"name": "isLong", "expression": "size(variables.text) > 3"},
    ]);
    for (source, is_admitted) in [
        ("variables.isLong", false),
        ("!variables.isLong && variables.text == 'x'", true),
        ("oldObject == null && object.metadata.name == request.name", true),
        ("request.userInfo.username == 'admin' && request.namespace == 'default'", true),
        ("request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'", true),
        ("namespaceObject.metadata.name == 'default'", true),
        ("object.metadata.annotations['kcp.io/cluster'] == 'c'", true),
        ("authorizer.group('').resource('pods').check('get').allowed()", true),
        ("authorizer.requestResource.check('create').allowed()", true),
        (
            "authorizer.serviceAccount('x', 'y').group('').resource('pods').namespace('z').check('get').allowed()",
            false,
        ),
        (
            "authorizer.serviceAccount('x', 'y').group('').resource('pods').namespace('x').check('get').allowed()",
            true,
        ),
        ("authorizer.serviceAccount('x', 'y').path('/healthz').check('get').allowed()", false),
    ] {
        let validations = json!({"variables": variables, "validations": [{"expression": source}]});
        policies.validating("p", &validations, &json!({})).await;
        let response = policies.post("a", "x").await;
        assert_eq!(response.code, if is_admitted { 201 } else { 422 }, "{source}: {response:?}");
        policies.0.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p-binding")).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn a_binding_may_warn_and_annotate_instead_of_refusing() {
    let (policies, log) = Policies::audited().await;
    let policy = json!({
        "validations": [{"expression": "true"}, {"expression": "false", "message": "no"}],
        "auditAnnotations": [
            {"key": "text", "valueExpression": "'has ' + object.data.text"},
            {"key": "none", "valueExpression": "object.data.text == 'x' ? '' : 'y'"},
        ],
    });
    policies.validating("p", &policy, &json!({"validationActions": ["Warn", "Audit"]})).await;
    let response = policies.post("a", "x").await;
    assert_eq!(response.code, 201);
    assert_eq!(
        response.warnings(),
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': no\""]
    );
    let annotations = log.annotations();
    assert_eq!((&annotations["p/text"], annotations.get("p/none")), (&json!("has x"), None));
    let failures = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    assert!(failures.contains("\"expressionIndex\":1"), "{failures}");

    // An annotation without a value refuses the write, whatever the actions are.
    let policy = json!({"auditAnnotations": [{"key": "k", "valueExpression": "string(object.nope)"}]});
    policies.validating("p", &policy, &json!({"validationActions": ["Audit"]})).await;
    let message = policies.post("b", "x").await.failure().2;
    assert!(
        message.ends_with("expression 'string(object.nope)' resulted in error: no such key: nope"),
        "{message}"
    );
}

#[tokio::test]
async fn failures_are_treated_by_the_failure_policy() {
    let policies = Policies::start().await;
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Nothing"});
    for (policy, binding, expected) in [
        (expression("object.nope == 1"), json!({}), "resulted in error: no such key: nope"),
        (
            json!({"matchConditions": [{"name": "a", "expression": "object.nope"}], "validations": [{"expression": "true"}]}),
            json!({}),
            "must evaluate to bool",
        ),
        (
            json!({"matchConditions": [{"name": "a", "expression": "object.nope == 1"}], "validations": [{"expression": "true"}]}),
            json!({}),
            "expression 'object.nope == 1' resulted in error: no such key: nope",
        ),
        (
            json!({"paramKind": unknown, "validations": [{"expression": "true"}]}),
            json!({"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}),
            "denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Nothing'",
        ),
        (
            expression("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(a, lists.range(10000).map(b, b)).size() > 0"),
            json!({}),
            "operation cancelled: actual cost limit exceeded",
        ),
    ] {
        for failure_policy in ["Ignore", "Fail"] {
            let mut policy = policy.clone();
            policy["failurePolicy"] = failure_policy.into();
            if expected == "must evaluate to bool" {
                // Expressions of another type are refused when the policy is written.
                let object = json!({"metadata": {"name": "typed"}, "spec": spec(&policy)});
                let response =
                    policies.0.post(&format!("{GROUP}/validatingadmissionpolicies"), &object).await;
                assert!(response.failure().2.contains(expected), "{response:?}");
                continue;
            }
            policies.validating("p", &policy, &binding).await;
            let response = policies.post("a", "x").await;
            if failure_policy == "Ignore" {
                assert_eq!(response.code, 201, "{policy}: {response:?}");
                policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
            } else {
                let (code, reason, message) = response.failure();
                assert_eq!((code, &*reason), (422, "Invalid"), "{policy}");
                assert!(message.contains(expected), "{message}");
            }
        }
        policies.validating("p", &expression("true"), &json!({})).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn constraints_of_policy_and_binding_limit_what_is_reviewed() {
    let policies = Policies::start().await;
    let constraints = |changes: Value| {
        let mut constraints = json!({"resourceRules": [rule("", "configmaps")]});
        for (field, value) in changes.as_object().into_iter().flatten() {
            constraints[field] = value.clone();
        }
        constraints
    };
    let named = |name: &str| {
        let mut rule = rule("", "configmaps");
        rule["resourceNames"] = json!([name]);
        rule
    };
    let labels = |value: &str| json!({"matchLabels": {"kind": value}});
    let namespace = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    for (changes, is_reviewed) in [
        (json!({}), true),
        (json!({"objectSelector": labels("seen")}), true),
        (json!({"objectSelector": labels("other")}), false),
        (json!({"namespaceSelector": namespace("default")}), true),
        (json!({"namespaceSelector": namespace("other")}), false),
        (json!({"resourceRules": [rule("", "secrets")]}), false),
        (json!({"resourceRules": [named("a")]}), true),
        (json!({"resourceRules": [named("b")]}), false),
        (json!({"excludeResourceRules": [named("a")]}), false),
        (json!({"excludeResourceRules": [named("b")]}), true),
    ] {
        let code = if is_reviewed { 422 } else { 201 };
        let policy = json!({"validations": [{"expression": "false"}], "matchConstraints": constraints(changes.clone())});
        policies.validating("p", &policy, &json!({})).await;
        assert_eq!(policies.post("a", "x").await.code, code, "policy {changes}");
        policies.validating("p", &json!({"validations": [{"expression": "true"}]}), &json!({})).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;

        let binding = json!({"matchResources": constraints(changes.clone())});
        policies.validating("p", &json!({"validations": [{"expression": "false"}]}), &binding).await;
        assert_eq!(policies.post("a", "x").await.code, code, "binding {changes}");
        policies.validating("p", &json!({"validations": [{"expression": "true"}]}), &json!({})).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn match_conditions_limit_what_is_reviewed() {
    let policies = Policies::start().await;
    for (conditions, is_reviewed) in [
        (json!([{"name": "a", "expression": "object.data.text == 'x'"}]), true),
        (json!([{"name": "a", "expression": "object.data.text != 'x'"}]), false),
        (
            json!([{"name": "a", "expression": "object.nope == 1"}, {"name": "b", "expression": "false"}]),
            false,
        ),
        (
            json!([{"name": "a", "expression": "!('system:masters' in request.userInfo.?groups.orValue([]))"}]),
            true,
        ),
    ] {
        let policy = json!({"matchConditions": conditions, "validations": [{"expression": "false"}]});
        policies.validating("p", &policy, &json!({})).await;
        let code = if is_reviewed { 422 } else { 201 };
        let response = policies.post("a", "x").await;
        assert_eq!(response.code, code, "{conditions}: {response:?}");
        policies.validating("p", &expression("true"), &json!({})).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn a_rule_for_another_version_matches_unless_it_is_exact() {
    let policies = Policies::start().await;
    let widget = json!({"metadata": {"name": "a"}, "spec": {"color": "red"}});
    for (match_policy, code) in [("Equivalent", 422), ("Exact", 201)] {
        let constraints =
            json!({"resourceRules": [rule("example.com", "widgets")], "matchPolicy": match_policy});
        // The expression sees the object in the version of the rule.
        let policy = json!({
            "matchConstraints": constraints,
            "validations": [{"expression": "object.apiVersion != 'example.com/v1' && request.requestKind.version != 'v1beta1'"}],
        });
        policies.validating("p", &policy, &json!({})).await;
        assert_eq!(policies.0.post(WIDGETS_BETA, &widget).await.code, code, "{match_policy}");
    }
    assert_eq!(policies.0.post(WIDGETS, &widget).await.code, 422);
}

#[tokio::test]
async fn parameters_are_found_by_name_or_labels() {
    let policies = Policies::start().await;
    for (name, max, labels) in
        [("small", 3, json!({"use": "yes"})), ("large", 9, json!({"use": "yes"})), ("unused", 0, json!({}))]
    {
        let widget =
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"color": "red", "size": max}});
        policies.0.create(WIDGETS, &widget).await;
    }
    policies.0.create("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
    let policy = json!({
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Widget"},
        "matchConditions": [{"name": "a", "expression": "params == null || params.kind == 'Widget'"}],
        "validations": [{
            "expression": "params == null ? object.data.text == 'no params' : size(object.data.text) <= params.spec.size",
            "messageExpression": "params == null ? 'no params' : 'longer than ' + string(params.spec.size)",
        }],
    });
    let reference = |fields: Value| {
        let mut reference = json!({"parameterNotFoundAction": "Deny"});
        for (field, value) in fields.as_object().into_iter().flatten() {
            reference[field] = value.clone();
        }
        json!({"paramRef": reference})
    };
    let selector = json!({"matchLabels": {"use": "yes"}});
    let nothing = json!({"matchLabels": {"use": "no"}});
    let missing =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    for (binding, text, expected) in [
        (reference(json!({"name": "small"})), "1234", Err("longer than 3")),
        (reference(json!({"name": "large"})), "1234", Ok(())),
        (reference(json!({"name": "small", "namespace": "default"})), "1234", Err("longer than 3")),
        (reference(json!({"name": "small", "namespace": "other"})), "1", Err(missing)),
        (reference(json!({"selector": selector})), "123", Ok(())),
        (reference(json!({"selector": selector})), "1234", Err("longer than 3")),
        (reference(json!({"selector": nothing})), "1", Err(missing)),
        (reference(json!({"selector": nothing, "parameterNotFoundAction": "Allow"})), "1234", Ok(())),
        (json!({}), "1234", Err("no params")),
    ] {
        policies.validating("p", &policy, &binding).await;
        match (policies.post("a", text).await, expected) {
            (response, Ok(())) => assert_eq!(response.code, 201, "{binding}: {response:?}"),
            (response, Err(expected)) => {
                let message = response.failure().2;
                let expected = format!("with binding 'p-binding' denied request: {expected}");
                assert!(message.ends_with(&expected), "{binding}: {message}");
            }
        }
        policies.0.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p-binding")).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}

#[tokio::test]
async fn policies_with_many_parameters_share_a_budget() {
    let policies = Policies::start().await;
    for number in 0..60 {
        let widget = json!({"metadata": {"name": format!("w{number}")}, "spec": {"color": "red"}});
        policies.0.create(WIDGETS, &widget).await;
    }
    let costly = json!({"expression": "lists.range(250).all(a, lists.range(250).all(b, a + b < 100000))"});
    let policy = json!({
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Widget"}, "validations": vec![costly; 10],
    });
    let one = json!({"paramRef": {"name": "w1", "parameterNotFoundAction": "Deny"}});
    policies.validating("p", &policy, &one).await;
    assert_eq!(policies.post("one", "x").await.code, 201);
    let all = json!({"paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"}});
    policies.validating("p", &policy, &all).await;
    let message = policies.post("a", "x").await.failure().2;
    assert!(message.contains("running out of cost budget"), "{message}");
}

#[tokio::test]
async fn the_writer_of_a_policy_must_be_allowed_to_read_its_parameters() {
    let policies = Policies::start().await;
    let policy = spec(&json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "true"}],
    }));
    let object = json!({"metadata": {"name": "p"}, "spec": policy}).to_string();
    let headers = [("content-type", "application/json"), ("x-user", "only:p")];
    let path = format!("{GROUP}/validatingadmissionpolicies");
    // A create has no name in its path, so the user writes by a PUT of an existing object.
    policies.0.create(&path, &json!({"metadata": {"name": "p"}, "spec": spec(&expression("true"))})).await;
    let (code, reason, message) =
        policies.0.send("PUT", &format!("{path}/p"), &headers, object).await.failure();
    assert_eq!((code, &*reason), (422, "Invalid"));
    let expected = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: user \
        \"only:p\" must have \"get\" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)";
    assert_eq!(message, expected);

    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    let binding = json!({"policyName": "p", "validationActions": ["Deny"]});
    policies.0.create(&path, &json!({"metadata": {"name": "p"}, "spec": binding})).await;
    let mut spec = binding.clone();
    spec["paramRef"] = json!({"name": "secret", "namespace": "default", "parameterNotFoundAction": "Deny"});
    let object = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
    let message = policies.0.send("PUT", &format!("{path}/p"), &headers, object).await.failure().2;
    let expected = "spec.paramRef: Forbidden: user \"only:p\" does not have \"get\" permission on the object referenced by paramRef";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn configurations_of_a_bound_resource_come_from_its_provider() {
    let policies = Policies::start().await;
    let policy = json!({
        "matchConstraints": {"resourceRules": [rule("example.com", "gadgets")]},
        "validations": [{"expression": "object.metadata.name != 'bad'", "message": "by the provider"}],
    });
    policies.validating("local", &json!({"matchConstraints": policy["matchConstraints"], "validations": [{"expression": "false"}]}), &json!({})).await;
    let gadget = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(policies.0.post(GADGETS, &gadget("bad")).await.code, 201);
    let provider = format!("//clusters/provider{GROUP}");
    let object = json!({"metadata": {"name": "p"}, "spec": spec(&policy)});
    policies.0.create(&format!("{provider}/validatingadmissionpolicies"), &object).await;
    let binding =
        json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    policies.0.create(&format!("{provider}/validatingadmissionpolicybindings"), &binding).await;
    policies.0.delete(&format!("{GADGETS}/bad")).await;
    let message = policies.0.post(GADGETS, &gadget("bad")).await.failure().2;
    assert!(message.ends_with("denied request: by the provider"), "{message}");
    assert_eq!(policies.0.post(GADGETS, &gadget("good")).await.code, 201);
}

#[tokio::test]
async fn tables_and_discovery_have_policies() {
    let policies = Policies::start().await;
    policies.validating("p", &expression("true"), &json!({})).await;
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let table = policies.0.get_as(&path, crate::client::TABLE).await.json();
    let columns: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(columns, ["Name", "Validations", "ParamKind", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("p"), json!(1), json!("<unset>")]);
    let status = json!({"status": {"observedGeneration": 1, "typeChecking": {}}});
    let patched = policies.0.patch(&format!("{path}/p/status"), "merge", &status).await.json();
    assert_eq!(
        (&patched["status"]["observedGeneration"], &patched["metadata"]["generation"]),
        (&json!(1), &json!(1))
    );
}

/// Policies with what Kubernetes says about one object: failed validations, audit annotations, and errors of these.
#[tokio::test]
async fn evaluations_are_those_of_kubernetes() {
    let (policies, log) = Policies::audited().await;
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/policies.json")).unwrap();
    assert!(cases.len() > 60);
    for case in cases {
        if case["params"].is_object() {
            policies.0.delete(&format!("{CONFIG_MAPS}/params")).await;
            policies.0.create(CONFIG_MAPS, &case["params"]).await;
        }
        let mut binding = json!({"validationActions": ["Warn"]});
        if case["params"].is_object() {
            binding["paramRef"] = json!({"name": "params", "parameterNotFoundAction": "Deny"});
        }
        policies.validating("p", &case["spec"], &binding).await;
        let response = policies.0.post(CONFIG_MAPS, &case["object"]).await;
        let answer = &case["answer"];
        match answer["errors"][0].as_str() {
            Some(error) => assert!(response.failure().2.ends_with(error), "{case}: {response:?}"),
            None => assert_eq!(response.code, 201, "{case}: {response:?}"),
        }
        let warnings = response.headers.get_all("warning").iter();
        let warnings: Vec<&str> =
            warnings.map(|warning| std::str::from_utf8(warning.as_bytes()).unwrap()).collect();
        let warnings = warnings.join("\n");
        let denied = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': ";
        let denials = answer["denials"].as_array().unwrap();
        assert_eq!(warnings.matches(denied).count(), denials.len(), "{case}: {warnings}");
        for denial in denials {
            // Quotes are escaped in the header.
            let message = denial["message"].as_str().unwrap().replace('"', "\\\"");
            assert!(warnings.contains(&format!("{denied}{message}")), "{case}: {warnings}");
        }
        if answer["errors"][0].is_null() {
            let found: Map<String, Value> = log
                .annotations()
                .into_iter()
                .filter_map(|(key, value)| Some((key.strip_prefix("p/")?.to_owned(), value)))
                .collect();
            assert_eq!(&found, answer["annotations"].as_object().unwrap(), "{case}");
        }
        policies.0.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p-binding")).await;
        policies.0.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
}
