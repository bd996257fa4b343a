use super::*;

/// As recorded in `e-apiexport`, requests 72 and 76.
#[test]
fn an_export_with_claims_converts_both_ways() {
    let v1alpha2 = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
        "metadata": {"name": "golden", "annotations": {"kcp.io/path": "root:provider"}},
        "spec": {
            "permissionClaims": [
                {"group": "", "identityHash": "", "resource": "configmaps", "verbs": ["*"]},
                {"group": "", "identityHash": "", "resource": "secrets", "verbs": ["get", "list"]},
            ],
            "resources": [{"group": "golden.example.com", "name": "sheriffs",
                           "schema": "v1.sheriffs.golden.example.com", "storage": {"crd": {}}}],
        },
    });
    let v1alpha1 = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport",
        "metadata": {"name": "golden", "annotations": {
            "apis.v1alpha2.kcp.io/permission-claims": r#"[{"resource":"secrets","verbs":["get","list"]}]"#,
            "kcp.io/path": "root:provider",
        }},
        "spec": {
            "latestResourceSchemas": ["v1.sheriffs.golden.example.com"],
            "permissionClaims": [{"resource": "configmaps"}, {"resource": "secrets"}],
        },
    });
    assert_eq!(apis_to_v1alpha1(v1alpha2.clone()), v1alpha1);
    assert_eq!(apis_to_v1alpha2(v1alpha1).unwrap(), v1alpha2);
}

/// As recorded in `e-apiexport`, requests 196 and 204.
#[test]
fn a_binding_with_claims_converts_both_ways() {
    let v1alpha2 = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": "golden"},
        "spec": {
            "permissionClaims": [
                {"group": "", "identityHash": "", "resource": "configmaps", "selector": {"matchAll": true},
                 "state": "Accepted", "verbs": ["*"]},
                {"group": "", "identityHash": "", "resource": "secrets", "selector": {"matchAll": true},
                 "state": "Rejected", "verbs": ["*"]},
            ],
            "reference": {"export": {"name": "golden", "path": "root:provider"}},
        },
        "status": {
            "appliedPermissionClaims": [
                {"group": "", "identityHash": "", "resource": "configmaps", "selector": {"matchAll": true},
                 "verbs": ["*"]},
            ],
            "exportPermissionClaims": [
                {"group": "", "identityHash": "", "resource": "configmaps", "verbs": ["*"]},
                {"group": "", "identityHash": "", "resource": "secrets", "verbs": ["get", "list"]},
            ],
            "phase": "Bound",
        },
    });
    let v1alpha1 = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding",
        "metadata": {"name": "golden", "annotations": {
            "apis.v1alpha2.kcp.io/status-export-permission-claims":
                r#"[{"resource":"secrets","verbs":["get","list"]}]"#,
        }},
        "spec": {
            "permissionClaims": [
                {"all": true, "resource": "configmaps", "state": "Accepted"},
                {"all": true, "resource": "secrets", "state": "Rejected"},
            ],
            "reference": {"export": {"name": "golden", "path": "root:provider"}},
        },
        "status": {
            "appliedPermissionClaims": [{"all": true, "resource": "configmaps"}],
            "exportPermissionClaims": [{"resource": "configmaps"}, {"resource": "secrets"}],
            "phase": "Bound",
        },
    });
    assert_eq!(apis_to_v1alpha1(v1alpha2.clone()), v1alpha1);
    assert_eq!(apis_to_v1alpha2(v1alpha1).unwrap(), v1alpha2);
}

#[test]
fn saved_claims_of_other_types_are_ignored() {
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": "a", "annotations": {
            "apis.v1alpha2.kcp.io/acceptable-permission-claims": r#"[1,{"verbs":1,"selector":[]}]"#,
            "apis.v1alpha2.kcp.io/v1alpha1-permission-claims": r#"[[],null,{"all":1,"resourceSelector":{}}]"#,
        }},
        "spec": {"permissionClaims": [{"resource": "", "state": "Accepted"}]},
    });
    for direction in [Direction::ToV1alpha1, Direction::ToV1alpha2] {
        let mut converted = binding.clone();
        convert_claims(&mut converted, &BINDING_CLAIMS[0], direction);
        assert_eq!(converted["spec"]["permissionClaims"][0]["state"], "Accepted");
    }
}

#[test]
fn fields_of_one_version_survive_round_trips() {
    let v1alpha1 = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport",
        "metadata": {"name": "a"},
        "spec": {
            "latestResourceSchemas": ["v1.pods.core"],
            "permissionClaims": [
                {"resource": "configmaps", "all": true},
                {"group": "g", "resource": "r", "identityHash": "abc", "resourceSelector": [{"name": "x"}]},
            ],
        },
    });
    let v1alpha2 = apis_to_v1alpha2(v1alpha1.clone()).unwrap();
    assert_eq!(v1alpha2["spec"]["resources"][0]["group"], "");
    assert_eq!(apis_to_v1alpha1(v1alpha2), v1alpha1);

    let v1alpha2 = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": "a"},
        "spec": {"permissionClaims": [
            {"group": "g", "identityHash": "", "resource": "r", "state": "Accepted", "verbs": ["get"],
             "selector": {"matchLabels": {"a": "b"}}},
        ]},
    });
    assert_eq!(apis_to_v1alpha2(apis_to_v1alpha1(v1alpha2.clone())).unwrap(), v1alpha2);

    let v1alpha2 = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
        "metadata": {"name": "a"},
        "spec": {"resources": [
            {"group": "g.io", "name": "r", "schema": "v1.r.g.io",
             "storage": {"virtual": {"identityHash": "x", "reference": {"kind": "K", "name": "n"}}}},
        ]},
    });
    let v1alpha1 = apis_to_v1alpha1(v1alpha2.clone());
    assert_eq!(v1alpha1["spec"], json!({}));
    assert_eq!(apis_to_v1alpha2(v1alpha1).unwrap(), v1alpha2);
}

#[test]
fn a_state_changed_through_v1alpha1_keeps_the_verbs() {
    let v1alpha2 = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "a"},
        "spec": {"permissionClaims": [
            {"group": "", "identityHash": "", "resource": "secrets", "state": "Accepted", "verbs": ["get"],
             "selector": {"matchAll": true}},
        ]},
    });
    let mut v1alpha1 = apis_to_v1alpha1(v1alpha2);
    v1alpha1["spec"]["permissionClaims"][0]["state"] = "Rejected".into();
    let claim = &apis_to_v1alpha2(v1alpha1).unwrap()["spec"]["permissionClaims"][0];
    assert_eq!(claim["state"], "Rejected");
    assert_eq!(claim["verbs"], json!(["get"]));
}

#[test]
fn fields_of_the_other_version_survive_changes() {
    let v1alpha1 = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": {"name": "a"},
        "spec": {"permissionClaims": [{"resource": "secrets", "all": true}]},
    });
    let mut v1alpha2 = apis_to_v1alpha2(v1alpha1).unwrap();
    v1alpha2["spec"]["permissionClaims"][0]["verbs"] = json!(["get"]);
    let v1alpha1 = apis_to_v1alpha1(v1alpha2.clone());
    assert_eq!(v1alpha1["spec"]["permissionClaims"], json!([{"resource": "secrets", "all": true}]));
    let v1alpha2 = apis_to_v1alpha2(v1alpha1).unwrap();
    assert_eq!(v1alpha2["spec"]["permissionClaims"][0]["verbs"], json!(["get"]));

    let v1alpha1 = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "a"},
        "spec": {"permissionClaims": [
            {"resource": "secrets", "resourceSelector": [{"name": "x"}], "state": "Accepted"},
        ]},
    });
    let mut v1alpha2 = apis_to_v1alpha2(v1alpha1.clone()).unwrap();
    let selector = json!({"matchLabels": {"a": "b"}});
    v1alpha2["spec"]["permissionClaims"][0]["selector"] = selector.clone();
    let read = apis_to_v1alpha1(v1alpha2);
    assert_eq!(read["spec"], v1alpha1["spec"]);
    assert_eq!(apis_to_v1alpha2(read).unwrap()["spec"]["permissionClaims"][0]["selector"], selector);
}

/// The cases of kcp's tests, and those that kcp loses: default selectors beside all verbs, and schemas whose names differ.
#[test]
fn each_version_survives_a_round_trip_through_the_other() {
    let crd = |group: &str, name: &str, schema: &str| json!({"group": group, "name": name, "schema": schema, "storage": {"crd": {}}});
    let claim = |extra: Value| {
        let mut claim = json!({"group": "", "resource": "configmaps", "identityHash": ""});
        claim.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        claim
    };
    let reference = json!({"export": {"path": "foo", "name": "bar"}});
    let expressions = json!({"matchExpressions": [{"key": "test", "operator": "In", "values": ["e"]}]});
    let labels = json!({"matchLabels": {"test": "label"}});
    let virtual_storage = json!({"virtual": {
        "reference": {"apiGroup": "example.com", "kind": "Slice", "name": "n"}, "identityHash": "123abc",
    }});
    let accepted = |selector: &Value, verbs: Value| {
        claim(json!({"verbs": verbs, "selector": selector, "state": "Accepted"}))
    };
    let applied = |selector: &Value| claim(json!({"verbs": ["get", "list"], "selector": selector}));
    let v1alpha2 = [
        ("APIExport", json!({"spec": {}})),
        (
            "APIExport",
            json!({"spec": {"resources": [crd("bar", "foo", "v1.foo.bar"), crd("bar", "baz", "v1.baz.bar")]}}),
        ),
        (
            "APIExport",
            json!({"spec": {"resources": [crd("sheriffs", "wild.wild.west", "today.wild.wild.west.sheriffs")]}}),
        ),
        (
            "APIExport",
            json!({"spec": {
                "resources": [{"group": "bar", "name": "foo", "schema": "v1.foo.bar", "storage": virtual_storage}],
                "permissionClaims": [claim(json!({"verbs": ["get"]}))],
            }}),
        ),
        (
            "APIExport",
            json!({"spec": {"permissionClaims": [
                claim(json!({"verbs": ["get", "list"], "defaultSelector": labels})),
            ]}}),
        ),
        (
            "APIExport",
            json!({"spec": {"permissionClaims": [
                claim(json!({"verbs": ["*"], "defaultSelector": {"matchAll": true}})),
            ]}}),
        ),
        (
            "APIExport",
            json!({"spec": {}, "status": {"identityHash": "abc", "virtualWorkspaces": [{"url": "u"}]}}),
        ),
        ("APIBinding", json!({"spec": {"reference": reference}})),
        (
            "APIBinding",
            json!({"spec": {"reference": reference, "permissionClaims": [accepted(&json!({"matchAll": true}), json!(["get"]))]}}),
        ),
        (
            "APIBinding",
            json!({"spec": {"reference": reference, "permissionClaims": [accepted(&labels, json!(["*"]))]}}),
        ),
        (
            "APIBinding",
            json!({"spec": {"reference": reference, "permissionClaims": [accepted(&expressions, json!(["*"]))]}}),
        ),
        (
            "APIBinding",
            json!({
                "spec": {"reference": reference},
                "status": {
                    "appliedPermissionClaims": [applied(&labels)],
                    "exportPermissionClaims": [claim(json!({"verbs": ["get"], "defaultSelector": labels}))],
                },
            }),
        ),
    ];
    for (kind, parts) in v1alpha2 {
        let mut object =
            json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": kind, "metadata": {"name": "a"}});
        object.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        assert_eq!(apis_to_v1alpha2(apis_to_v1alpha1(object.clone())).unwrap(), object);
    }
    let selected =
        json!({"resource": "configmaps", "resourceSelector": [{"name": "test", "namespace": "default"}]});
    let with_state = |claim: &Value| {
        let mut claim = claim.clone();
        claim["state"] = "Accepted".into();
        claim
    };
    let all = json!({"resource": "configmaps", "all": true});
    let v1alpha1 = [
        ("APIExport", json!({"spec": {"latestResourceSchemas": ["v1.foo.org", "v1.bar.org"]}})),
        ("APIExport", json!({"spec": {"permissionClaims": [all]}})),
        ("APIExport", json!({"spec": {"permissionClaims": [selected]}})),
        ("APIBinding", json!({"spec": {"reference": reference, "permissionClaims": [with_state(&all)]}})),
        (
            "APIBinding",
            json!({"spec": {"reference": reference, "permissionClaims": [with_state(&selected)]}}),
        ),
        (
            "APIBinding",
            json!({
                "spec": {"reference": reference},
                "status": {"appliedPermissionClaims": [selected], "exportPermissionClaims": [all]},
            }),
        ),
    ];
    for (kind, parts) in v1alpha1 {
        let mut object =
            json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}});
        object.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        assert_eq!(apis_to_v1alpha1(apis_to_v1alpha2(object.clone()).unwrap()), object);
    }
}

#[test]
fn malformed_objects_are_converted_without_error() {
    for malformed in [
        json!([1]),
        json!({"kind": "APIExport", "metadata": 1, "spec": "x"}),
        json!({"kind": "APIBinding", "spec": {"permissionClaims": [1, {}]}, "status": []}),
    ] {
        let v1alpha1 = apis_to_v1alpha1(malformed.clone());
        assert_eq!(v1alpha1.is_object(), malformed.is_object());
        assert!(apis_to_v1alpha2(malformed).is_ok());
    }
}

#[test]
fn a_schema_name_without_group_cannot_be_converted() {
    let export = json!({"kind": "APIExport", "spec": {"latestResourceSchemas": ["pods"]}});
    assert_eq!(apis_to_v1alpha2(export), Err(ConversionError::SchemaName("pods".to_owned())));
}
