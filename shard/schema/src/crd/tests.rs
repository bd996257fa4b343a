#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

/// The recorded Widget definition without its CEL rules.
fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.golden.example.com"},
        "spec": {
            "group": "golden.example.com",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "color": {"type": "string"}, "replicas": {"type": "integer"},
                            "list": {"type": "array", "items": {"type": "string"}},
                        }},
                        "status": {"type": "object", "properties": {
                            "replicas": {"type": "integer"}, "selector": {"type": "string"}}},
                    }}},
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector"}},
                    "additionalPrinterColumns": [
                        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
                    ],
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                },
                {
                    "name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                },
            ],
        },
    })
}

fn defaulted() -> Value {
    let mut definition = widgets();
    apply_defaults(&mut definition);
    definition
}

fn texts(definition: &Value) -> Vec<String> {
    match validate_create(definition) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_definition_is_read() {
    let definition = defaulted();
    assert_eq!(definition["spec"]["names"]["singular"], "widget");
    assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));

    let spec = CrdSpec::parse(&definition).unwrap();
    assert_eq!(spec.group_resource(), "widgets.golden.example.com");
    assert_eq!(spec.scope, Scope::Namespaced);
    assert_eq!(spec.conversion, Conversion::None);
    assert_eq!(spec.storage_version().map(|version| version.name.as_str()), Some("v1"));
    let version = spec.served_version("v1").unwrap();
    assert!(version.has_status);
    assert_eq!(version.deprecation_warning, None);
    assert_eq!(version.columns.len(), 2);
    assert_eq!(version.columns[1].priority, 1);
    assert_eq!(version.selectable_fields[0].label, "spec.color");
    assert_eq!(version.selectable_fields[0].value(&json!({"spec": {"color": "red"}})), "red");
    assert_eq!(version.selectable_fields[0].value(&json!({})), "");
    let beta = spec.served_version("v1beta1").unwrap();
    assert_eq!(
        beta.deprecation_warning.as_deref(),
        Some("golden.example.com/v1beta1 Widget is deprecated; use golden.example.com/v1 Widget")
    );
    assert_eq!(beta.columns[0].name, "Age");
    assert!(spec.served_version("v2").is_none());
    assert_eq!(version.scale.as_ref().map(|scale| scale.spec_path()), Some(".spec.replicas"));
    assert_eq!(CrdNames::read(&spec.names.to_json()), spec.names);
}

#[test]
fn the_core_group_is_spelled_out_in_the_name() {
    let mut definition = defaulted();
    definition["spec"]["group"] = json!("");
    definition["metadata"]["name"] = json!("widgets.core");
    assert_eq!(CrdSpec::parse(&definition).unwrap().group_resource(), "widgets.core");
}

#[test]
fn every_error_has_the_path_of_its_field() {
    let huge = "x".repeat(300);
    let table: &[(&str, Value, &[&str])] = &[
        (
            "/spec/group",
            json!("other.example.com"),
            &[
                r#"metadata.name: Invalid value: "widgets.golden.example.com": must be spec.names.plural+"."+spec.group"#,
            ],
        ),
        (
            "/spec/scope",
            json!("Galaxy"),
            &[r#"spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced""#],
        ),
        ("/spec/scope", json!(null), &["spec.scope: Required value"]),
        (
            "/spec/names/kind",
            json!("WidgetList"),
            &[r#"spec.names.listKind: Invalid value: "WidgetList": kind and listKind may not be the same"#],
        ),
        ("/spec/names/singular", json!(""), &["spec.names.singular: Required value"]),
        (
            "/spec/names/shortNames",
            json!(["W"]),
            &[
                "spec.names.shortNames[0]: Invalid value: \"W\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            "/spec/names/kind",
            json!("Wid get"),
            &[
                "spec.names.kind: Invalid value: \"Wid get\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Magic"}),
            &[r#"spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook""#],
        ),
        (
            "/spec/preserveUnknownFields",
            json!(true),
            &[
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            ],
        ),
        (
            "/spec/versions/1/deprecationWarning",
            json!("a\u{7}"),
            &[
                r#"spec.versions[1].deprecationWarning: Invalid value: "a\a": must only contain printable UTF-8 characters; non-printable character found at index 1"#,
            ],
        ),
        (
            "/spec/versions/0/schema",
            json!(null),
            &["spec.versions[0].schema.openAPIV3Schema: Required value"],
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/list",
            json!({}),
            &[
                "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[list].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas",
            json!({"type": "integer", "minimum": "x"}),
            &[
                r#"spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[replicas].minimum: Invalid value: "x": must be a number"#,
            ],
        ),
        (
            "/spec/versions/0/subresources/scale/specReplicasPath",
            json!(".status.x"),
            &[
                r#"spec.versions[0].subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec"#,
            ],
        ),
        (
            "/spec/versions/0/subresources/scale/statusReplicasPath",
            json!(""),
            &["spec.versions[0].subresources.scale.statusReplicasPath: Required value"],
        ),
        (
            "/spec/versions/0/subresources/scale/labelSelectorPath",
            json!("status"),
            &[
                r#"spec.versions[0].subresources.scale.labelSelectorPath: Invalid value: "status": must be a simple json path starting with ."#,
            ],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0",
            json!({"name": "", "type": "", "jsonPath": ""}),
            &[
                "spec.versions[0].additionalPrinterColumns[0].name: Required value",
                "spec.versions[0].additionalPrinterColumns[0].type: Required value: must be one of boolean,date,integer,number,string",
                "spec.versions[0].additionalPrinterColumns[0].JSONPath: Required value",
            ],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0",
            json!({"name": "a", "type": "blob", "jsonPath": "spec"}),
            &[
                r#"spec.versions[0].additionalPrinterColumns[0].type: Invalid value: "blob": must be one of boolean,date,integer,number,string"#,
                r#"spec.versions[0].additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with ."#,
            ],
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".metadata.name"}]),
            &[
                r#"spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".metadata.name": must not point to fields in metadata"#,
            ],
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.list"}]),
            &[
                r#"spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".spec.list": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
            ],
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}]),
            &[r#"spec.versions[0].selectableFields[1].jsonPath: Duplicate value: ".spec.color""#],
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.nope"}]),
            &[
                r#"spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field"#,
            ],
        ),
        ("/spec/versions/1/deprecationWarning", json!(huge.as_str()), &[]),
    ];
    for (pointer, value, expected) in table {
        let mut definition = defaulted();
        match definition.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                definition.pointer_mut(parent).unwrap()[field] = value.clone();
            }
        }
        let found = texts(&definition);
        if expected.is_empty() {
            assert_eq!(found.len(), 1, "{pointer}: {found:?}");
        } else {
            assert_eq!(found, *expected, "{pointer}");
        }
    }
}

#[test]
fn each_version_without_a_schema_is_named() {
    for absent in [json!(null), json!({})] {
        let mut definition = defaulted();
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"] = absent.clone();
        }
        let expected =
            [0, 1].map(|index| format!("spec.versions[{index}].schema.openAPIV3Schema: Required value"));
        assert_eq!(texts(&definition), expected);
    }
}

#[test]
fn there_is_exactly_one_storage_version() {
    let mut definition = defaulted();
    definition["spec"]["versions"][0]["storage"] = json!(false);
    let found = texts(&definition);
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("spec.versions: Invalid value: ["));
    assert!(found[0].ends_with("]: must have exactly one version marked as storage version"));
    assert_eq!(found[1], "status.storedVersions: Invalid value: null: must have at least one stored version");

    let mut definition = defaulted();
    definition["spec"]["versions"][1]["name"] = json!("v1");
    assert!(texts(&definition)[0].ends_with("must contain unique version names"));
}

#[test]
fn conversion_webhooks_are_checked() {
    let texts_of = |conversion: Value| {
        let mut definition = defaulted();
        definition["spec"]["conversion"] = conversion;
        texts(&definition)
    };
    let webhook = |config: Value, versions: Value| json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": versions}});
    let url = || json!({"url": "https://127.0.0.1:1/convert"});
    for (conversion, expected) in [
        (webhook(url(), json!(["v2", "v1"])), &[][..]),
        (webhook(json!({"service": {"name": "s", "namespace": "n"}}), json!(["v1beta1"])), &[]),
        (
            json!({"strategy": "Webhook"}),
            &[
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
        (
            webhook(json!({}), json!(["v2"])),
            &[
                "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
                r#"spec.conversion.conversionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1"#,
            ],
        ),
        (
            webhook(json!({"url": "http://127.0.0.1/"}), json!(["v1"])),
            &[
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
            ],
        ),
        (
            json!({"strategy": "None", "webhook": {"clientConfig": url()}}),
            &[
                "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
            ],
        ),
    ] {
        assert_eq!(texts_of(conversion.clone()), expected, "{conversion}");
    }
    let mut definition = defaulted();
    definition["spec"]["conversion"] = webhook(url(), json!(["v2", "v1beta1", "v1"]));
    let spec = CrdSpec::parse(&definition).unwrap();
    let Conversion::Webhook(client) = spec.conversion else { panic!("{:?}", spec.conversion) };
    assert_eq!((client.config, client.review_version), (url(), ReviewVersion::V1beta1));
}

/// A stored definition whose objects have been stored in some versions.
fn stored(versions: Value, established: bool) -> Value {
    let mut definition = defaulted();
    let status = if established { "True" } else { "False" };
    definition["status"] =
        json!({"storedVersions": versions, "conditions": [{"type": "Established", "status": status}]});
    definition
}

#[test]
fn a_schema_with_thousands_of_mistakes_has_a_bounded_error() {
    let mut definition = defaulted();
    let mistakes: serde_json::Map<String, Value> =
        (0..3000).map(|index| (format!("p{index}"), json!({"type": "string", "pattern": "("}))).collect();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        Value::Object(mistakes);
    let errors = validate_create(&definition).unwrap_err();
    assert_eq!(errors.len(), crate::field::MAX_FINDINGS);
}

#[test]
fn updates_are_refused_as_in_kubernetes() {
    let missing = "missing from spec.versions; v1beta1 was previously a storage version, and must remain in \
                   spec.versions until a storage migration ensures no data remains persisted in v1beta1 and removes \
                   v1beta1 from status.storedVersions";
    let missing = format!(r#"status.storedVersions[1]: Invalid value: "v1beta1": {missing}"#);
    let scope = r#"spec.scope: Invalid value: "Cluster": field is immutable"#;
    let kind = r#"spec.names.kind: Invalid value: "Gizmo": field is immutable"#;
    let group = r#"spec.group: Invalid value: "other.example.com": field is immutable"#;
    let plural = r#"spec.names.plural: Invalid value: "gizmos": field is immutable"#;
    let old = stored(json!(["v1", "v1beta1"]), true);
    let new_names = |definition: &mut Value| {
        definition["spec"]["scope"] = json!("Cluster");
        definition["spec"]["names"]["kind"] = json!("Gizmo");
        definition["spec"]["group"] = json!("other.example.com");
        definition["spec"]["names"]["plural"] = json!("gizmos");
    };
    let without_beta = |definition: &mut Value| {
        definition["spec"]["versions"].as_array_mut().unwrap().truncate(1);
    };
    let all = |definition: &mut Value| {
        new_names(definition);
        without_beta(definition);
        definition["spec"]["names"]["singular"] = json!("");
    };
    type Change<'c> = &'c dyn Fn(&mut Value);
    let table: &[(&Value, Change<'_>, &[&str])] = &[
        (&old, &|_| (), &[]),
        (&old, &without_beta, &[&missing]),
        (&stored(json!(["v1"]), true), &without_beta, &[]),
        (&old, &new_names, &[scope, kind, group, plural]),
        (&stored(json!(["v1"]), false), &new_names, &[group, plural]),
        (&old, &all, &["spec.names.singular: Required value", scope, kind, group, plural, &missing]),
        (&stored(json!([]), true), &|_| (), &[]),
        (
            &old,
            &|definition: &mut Value| definition["spec"]["preserveUnknownFields"] = json!(true),
            &[
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            ],
        ),
    ];
    for (index, (old, change, expected)) in table.iter().enumerate() {
        let mut new = (*old).clone();
        change(&mut new);
        let found = validate_update(&new, old).err().unwrap_or_default();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), *expected, "case {index}");
    }
    let mut without_storage = old.clone();
    without_storage["spec"]["versions"][0]["storage"] = json!(false);
    let found = validate_update(&without_storage, &old).unwrap_err();
    assert_eq!(found.len(), 1, "the stored versions stay: {found:?}");
    let mut both = old.clone();
    both["status"]["storedVersions"] = json!(["v1"]);
    both["spec"]["versions"][1]["storage"] = json!(true);
    let found = validate_update(&both, &both).unwrap_err();
    assert_eq!(
        found.last().unwrap().to_string(),
        r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version v1beta1"#
    );
}

#[test]
fn the_storage_version_is_added_to_the_stored_ones() {
    for (before, after) in [(json!(["v1alpha1"]), ["v1alpha1", "v1"].as_slice()), (json!([]), &["v1"])] {
        let old = stored(before, true);
        assert_eq!(next_stored_versions(&old, Some(&old)), after);
    }
    assert_eq!(next_stored_versions(&defaulted(), None), ["v1"]);
    assert_eq!(next_stored_versions(&stored(json!(["v0"]), true), None), ["v1"], "a new definition");
}

#[test]
fn a_status_has_valid_names_and_any_stored_versions() {
    let mut definition = stored(json!([]), true);
    definition["status"]["acceptedNames"] = json!({"plural": "W", "kind": "Widget"});
    let found = validate_status(&definition);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path.as_str(), "status.acceptedNames.plural");
}

#[test]
fn groups_of_the_community_need_an_approval() {
    let in_group = |group: &str, object: &Value| {
        let mut object = object.clone();
        object["spec"]["group"] = json!(group);
        object
    };
    let with =
        |approval: &str| json!({"metadata": {"annotations": {"api-approved.kubernetes.io": approval}}});
    let none = json!({"metadata": {}});
    for (group, object, reported) in [
        ("example.com", none.clone(), ""),
        ("notk8s.io", none.clone(), ""),
        ("apps.k8s.io", none.clone(), "Required value: protected groups must have approval annotation"),
        ("k8s.io", none.clone(), "Required value"),
        ("x.kubernetes.io", with("yes"), r#"Invalid value: "yes": protected groups must have"#),
        ("x.kubernetes.io", with("unapproved, a trial"), ""),
        ("x.kubernetes.io", with("https://example.com/approval"), ""),
    ] {
        let found = approval::validate(&in_group(group, &object), None);
        let path = "metadata.annotations[api-approved.kubernetes.io]: ";
        match found.as_slice() {
            [] => assert_eq!(reported, "", "{group} {object}"),
            [error] => {
                assert!(
                    !reported.is_empty() && error.to_string().starts_with(&format!("{path}{reported}")),
                    "{error}"
                );
            }
            more => panic!("{more:?}"),
        }
    }
    let unapproved = in_group("apps.k8s.io", &none);
    assert_eq!(approval::validate(&unapproved, Some(&none)), [], "what was there may stay");
}

#[test]
fn scale_reads_writes_and_checks_its_paths() {
    let spec = CrdSpec::parse(&defaulted()).unwrap();
    let scale = spec.versions[0].scale.as_ref().unwrap();
    let object = json!({
        "metadata": {"name": "w", "labels": {"a": "b"}, "resourceVersion": "7"},
        "spec": {"replicas": 3, "x": 1}, "status": {"replicas": 2, "selector": "a=b"},
    });
    let shown = scale.scale_of(&object).unwrap();
    assert!(shown.has_replicas);
    assert_eq!(
        shown.object,
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w", "resourceVersion": "7"},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"},
        })
    );
    assert_eq!((scale.validate_spec(&object), scale.validate_status(&object)), (vec![], vec![]));
    let mut changed = shown.for_update();
    changed["spec"]["replicas"] = json!(7);
    changed["metadata"]["resourceVersion"] = json!("8");
    changed["status"]["replicas"] = json!(9);
    let written = scale.apply(&changed, &object).unwrap();
    assert_eq!(written["spec"], json!({"replicas": 7, "x": 1}));
    assert_eq!(
        (&written["status"], &written["metadata"]["resourceVersion"]),
        (&object["status"], &json!("8"))
    );

    let bad = json!({"spec": {"replicas": -1}, "status": {"replicas": "x", "selector": 1}});
    let found = [scale.validate_spec(&bad), scale.validate_status(&bad)].concat();
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            ".spec.replicas: Invalid value: -1: should be a non-negative integer",
            ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the type string, expected int64",
            ".status.selector: Invalid value: \"\": .status.selector accessor error: 1 is of the type int64, expected string",
        ]
    );
    assert_eq!(
        scale.scale_of(&bad),
        Err(".status.replicas accessor error: x is of the type string, expected int64".to_owned())
    );
    let without = json!({"spec": {}});
    let shown = scale.scale_of(&without).unwrap();
    assert!(!shown.has_replicas);
    let unchanged = scale.apply(&shown.for_update(), &without);
    assert_eq!(unchanged, Err("the spec replicas field \".spec.replicas\" cannot be empty".to_owned()));
    let three = json!({"spec": {"replicas": 3}});
    assert_eq!(scale.apply(&three, &json!({})), Ok(json!({"spec": {"replicas": 3}})));
    assert!(scale.apply(&three, &json!({"spec": "text"})).is_err());
}

#[test]
fn parsing_any_value_does_not_panic() {
    for definition in [
        json!(null),
        json!([]),
        json!({"spec": 1}),
        json!({"spec": {"versions": [null, 1, {"schema": {"openAPIV3Schema": []}}], "names": [], "conversion": 1}}),
    ] {
        assert!(CrdSpec::parse(&definition).is_err());
    }
}
