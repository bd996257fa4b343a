#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use fairlead_schema::crd;

fn cowboys(versions: Value) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "july.cowboys.wild.west"},
        "spec": {
            "group": "wild.west",
            "names": {"plural": "cowboys", "singular": "cowboy", "kind": "Cowboy", "listKind": "CowboyList"},
            "scope": "Cluster",
            "versions": versions,
        },
    })
}

fn version(schema: Value) -> Value {
    json!({"name": "v1", "served": true, "storage": true, "schema": schema})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn texts(object: &Value, old: Option<&Value>) -> Vec<String> {
    errors(object, old).iter().map(ToString::to_string).collect()
}

fn valid() -> Value {
    cowboys(json!([version(json!({"type": "object", "properties": {"spec": {"type": "object"}}}))]))
}

#[test]
fn errors_are_those_of_kcp() {
    let schema = |schema: Value| cowboys(json!([version(schema)]));
    let fields = |names: &[&str]| {
        let string = json!({"type": "string"});
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), string.clone())).collect();
        let schema =
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        let mut version = version(schema);
        version["selectableFields"] =
            names.iter().map(|name| json!({"jsonPath": format!(".spec.{name}")})).collect();
        cowboys(json!([version]))
    };
    let invalid = json!({
        "metadata": {"name": "may.2022.cowboys.wild.west"},
        "spec": {
            "group": "wild.west", "scope": "Cluster", "names": {"plural": "cowboys"},
            "versions": [
                {"name": "v1-rc17", "served": true, "storage": false},
                {"name": "v2", "served": true, "storage": true, "schema": {"type": "thing"}},
            ],
        },
    });
    let core = |group: &str| {
        let pods = json!({"plural": "pods", "singular": "pod", "kind": "Pod", "listKind": "PodList"});
        let object = with(with(valid(), "/metadata/name", "july.pods.core".into()), "/spec/names", pods);
        with(object, "/spec/group", group.into())
    };
    let names = |name: &str| with(valid(), "/metadata/name", name.into());
    let prefix = "must match ^[a-z]([-a-z0-9]*[a-z0-9])?$ in front of .cowboys.wild.west";
    let cases: Vec<(Value, Vec<String>)> = vec![
        (valid(), vec![]),
        (core(""), vec![]),
        (core("core"), vec!["spec.group: Invalid value: \"core\": must be empty string for the core group".to_owned()]),
        (
            invalid,
            vec![
                format!("metadata.name: Invalid value: \"may.2022.cowboys.wild.west\": {prefix}"),
                "spec.versions[0].schema: Required value".to_owned(),
                "spec.versions[1].schema.openAPIV3Schema.type: Invalid value: \"thing\": must be object at the root"
                    .to_owned(),
                "spec.versions[1].schema.openAPIV3Schema.type: Unsupported value: \"thing\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"".to_owned(),
                "spec.names.singular: Required value".to_owned(),
                "spec.names.kind: Required value".to_owned(),
                "spec.names.listKind: Required value".to_owned(),
            ],
        ),
        (
            names("bad.golden.example.com"),
            vec!["metadata.name: Invalid value: \"bad.golden.example.com\": must end in .cowboys.wild.west".to_owned()],
        ),
        (
            names(".cowboys.wild.west"),
            vec![format!("metadata.name: Invalid value: \".cowboys.wild.west\": {prefix}")],
        ),
        (
            names("7.cowboys.wild.west"),
            vec![format!("metadata.name: Invalid value: \"7.cowboys.wild.west\": {prefix}")],
        ),
        (fields(&["color"]), vec![]),
        (
            fields(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]),
            vec!["spec.versions[0].selectableFields: Too many: 9: must have at most 8 items".to_owned()],
        ),
        (
            cowboys(json!([{"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.a"}]}])),
            vec![
                "spec.versions[0].schema: Required value".to_owned(),
                "spec.versions[0].selectableFields: Invalid value: \"\": may only be set when `version.schema.openAPIV3Schema` is not included".to_owned(),
            ],
        ),
        (
            schema(json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self > 1"}]}}})),
            vec!["spec.versions[0].schema.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule".to_owned()],
        ),
        (
            schema(json!({"type": "object", "properties": {"a": {}}})),
            vec!["spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields".to_owned()],
        ),
    ];
    for (object, expected) in cases {
        let found = texts(&object, None);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for expected in &expected {
            assert!(found.iter().any(|found| found.starts_with(&**expected)), "{expected} not in {found:#?}");
        }
    }
}

#[test]
fn versions_are_unique_and_one_is_stored() {
    let schema = json!({"type": "object"});
    let one = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let quoted = |name: &str, storage: bool| {
        format!(
            r#"{{"name":"{name}","served":true,"storage":{storage},"schema":{{"type":"object"}},"subresources":{{}}}}"#
        )
    };
    let stored = "must have exactly one version marked as storage version";
    let cases = [
        (vec![("v1", true), ("v2", false)], None),
        (vec![("v1", false)], Some(stored)),
        (vec![("v1", true), ("v2", true)], Some(stored)),
        (vec![("v1", true), ("v1", false)], Some("must contain unique version names")),
    ];
    for (versions, expected) in cases {
        let object: Vec<Value> = versions.iter().map(|(name, storage)| one(name, *storage)).collect();
        let list: Vec<String> = versions.iter().map(|(name, storage)| quoted(name, *storage)).collect();
        let expected: Vec<String> = expected
            .map(|detail| format!("spec.versions: Invalid value: [{}]: {detail}", list.join(",")))
            .into_iter()
            .collect();
        assert_eq!(texts(&cowboys(object.into()), None), expected);
    }
}

/// As recorded in `e-apiexport`, request 85.
#[test]
fn a_spec_is_immutable() {
    let old = json!({
        "metadata": {"name": "v1.sheriffs.golden.example.com"},
        "spec": {
            "group": "golden.example.com",
            "nameValidation": "DNS1123Subdomain",
            "names": {"kind": "Sheriff", "listKind": "SheriffList", "plural": "sheriffs", "singular": "sheriff"},
            "scope": "Cluster",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"badge": {"type": "integer", "default": 1}}},
                    "status": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
                }},
            }],
        },
    });
    assert_eq!(texts(&old, Some(&old)), Vec::<String>::new());
    let new = with(old.clone(), "/spec/group", "x".into());
    let expected = r#"[metadata.name: Invalid value: "v1.sheriffs.golden.example.com": must end in .sheriffs.x spec.group: Invalid value: "x": should be a domain with at least one dot spec: Invalid value: {"group":"x","names":{"plural":"sheriffs","singular":"sheriff","kind":"Sheriff","listKind":"SheriffList"},"scope":"Cluster","versions":[{"name":"v1alpha1","served":true,"storage":true,"schema":{"properties":{"spec":{"properties":{"badge":{"default":1,"type":"integer"}},"type":"object"},"status":{"properties":{"ok":{"type":"boolean"}},"type":"object"}},"type":"object"},"subresources":{"status":{}}}],"nameValidation":"DNS1123Subdomain"}: is immutable]"#;
    assert_eq!(listed(&errors(&new, Some(&old))), expected);
}

#[test]
fn protected_groups_need_an_approval() {
    let in_group = |group: &str| {
        let object = with(valid(), "/spec/group", group.into());
        with(object, "/metadata/name", format!("july.cowboys.{group}").into())
    };
    let approved = |text: &str| {
        with(in_group("wild.k8s.io"), "/metadata/annotations", json!({"api-approved.kubernetes.io": text}))
    };
    let required =
        "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have";
    let invalid =
        "metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"yes\": protected groups must";
    for (object, expected) in [
        (in_group("wild.west"), None),
        (in_group("wild.k8s.io"), Some(required)),
        (in_group("wild.kubernetes.io"), Some(required)),
        (approved("yes"), Some(invalid)),
        (approved("unapproved, it is a test"), None),
        (approved("https://example.com/review/1"), None),
    ] {
        let found = texts(&object, None);
        match expected {
            Some(expected) => assert!(found[0].starts_with(expected), "{found:?}"),
            None => assert_eq!(found, Vec::<String>::new()),
        }
        // kcp does not accept what it accepted before the rule.
        assert_eq!(texts(&object, Some(&object)), found);
    }
}

#[test]
fn webhooks_have_a_url() {
    let path = "spec.conversion.webhook";
    let cases = [
        (json!({"strategy": "None"}), vec![]),
        (webhook(json!({"url": "https://example.com/convert"}), &["v1"]), vec![]),
        (
            webhook(json!({"url": "http://example.com"}), &["v1"]),
            vec![format!(
                "{path}.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"
            )],
        ),
        (
            webhook(json!({}), &["v1"]),
            vec![format!("{path}.clientConfig: Required value: exactly one of url or service is required")],
        ),
        (
            webhook(json!({"url": "https://example.com"}), &["v9"]),
            vec![format!(
                "{path}.conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1"
            )],
        ),
        (
            webhook(json!({"service": {"name": "a", "namespace": "b"}}), &["v1"]),
            vec![format!(
                "{path}.clientConfig.service: Forbidden: webhooks that refer to services are not supported, please use URL instead"
            )],
        ),
    ];
    for (conversion, expected) in cases {
        let object = with(valid(), "/spec/conversion", conversion);
        assert_eq!(texts(&object, None), expected, "{object}");
    }
}

fn webhook(config: Value, versions: &[&str]) -> Value {
    json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": versions}})
}

#[test]
fn values_of_wrong_types_are_refused() {
    for schema in [
        json!({"type": "object", "properties": 5}),
        json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": "x"}}}),
        json!({"type": "object", "required": "a"}),
    ] {
        let found = texts(&cowboys(json!([version(schema.clone())])), None);
        let expected = format!(
            "spec.versions[0].schema: Invalid value: {}: invalid JSON: ",
            Value::from(schema.to_string())
        );
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
    }
    let below_items = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "string", "minLength": {}}},
    }});
    let found = texts(&cowboys(json!([version(below_items)])), None);
    let path = "spec.versions[0].schema.openAPIV3Schema.properties[a].items.minLength: Invalid value: {}: ";
    assert!(found.len() == 1 && found[0].starts_with(path), "{found:?}");
}

/// Errors of one version are reported there, although Kubernetes reports common ones at the spec of a definition.
#[test]
fn errors_of_all_versions_are_reported_at_each() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "x"}}});
    let versions = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema},
        {"name": "v2", "served": true, "storage": false, "schema": schema},
    ]);
    let object = with(cowboys(versions), "/spec/conversion", json!({"strategy": "None"}));
    let found = texts(&object, None);
    for index in 0..2 {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema.properties[a].type: ");
        assert!(found.iter().any(|text| text.starts_with(&path)), "{found:?}");
    }
}

#[test]
fn accepted_schemas_become_valid_definitions() {
    let with_unknown =
        json!({"type": "object", "x-unknown": 5, "properties": {"a": {"type": "integer", "maximum": 5.0}}});
    for mut schema in [valid(), cowboys(json!([version(with_unknown)]))] {
        assert_eq!(texts(&schema, None), Vec::<String>::new());
        schema["metadata"]["uid"] = "5c3f4c66-0b8c-4b6b-9d5e-7d6d3e0f3c11".into();
        let definition = fairlead_api::bound_crd(&schema, "root").unwrap();
        assert!(crd::CrdSpec::parse_spec(&definition["spec"], &FieldPath::new("spec")).is_ok());
    }
}

#[test]
fn the_schemas_of_root_are_valid() {
    let mut schemas = 0;
    for object in fairlead_api::root_phase0() {
        if object["kind"] == "APIResourceSchema" {
            assert_eq!(texts(&object, None), Vec::<String>::new(), "{}", object["metadata"]["name"]);
            schemas += 1;
        }
    }
    assert!(schemas > 5, "{schemas}");
}
