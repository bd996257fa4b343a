#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_pb::api::admissionregistration::v1 as admission;
use k8s_pb::api::authentication::v1 as authentication;
use k8s_pb::api::authorization::v1 as authorization;
use k8s_pb::api::coordination::v1 as coordination;
use k8s_pb::api::core::v1 as core;
use k8s_pb::api::rbac::v1 as rbac;
use k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Value, json};

use super::tables::KINDS;
use super::*;

fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct TypeMeta {
        #[prost(string, tag = "1")]
        api_version: String,
        #[prost(string, tag = "2")]
        kind: String,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Unknown {
        #[prost(message, tag = "1")]
        type_meta: Option<TypeMeta>,
        #[prost(bytes = "vec", tag = "2")]
        raw: Vec<u8>,
    }
    let type_meta = Some(TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() });
    let mut body = PROTOBUF_MAGIC.to_vec();
    body.extend(Unknown { type_meta, raw: raw.to_vec() }.encode_to_vec());
    body
}

fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    decode_protobuf(body, "", "")
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn named(name: &str) -> Option<meta::ObjectMeta> {
    Some(meta::ObjectMeta { name: text(name), ..Default::default() })
}

/// Bodies that client-go 0.36 sent to a real server: all plain fields are on the wire as zeros.
#[test]
fn bodies_of_client_go_decode() {
    for (body, expected) in [
        (
            "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhoKEgoCcGISABoAIgAqADIAOABCABIAGgIKABoAIgA=",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pb"}, "spec": {}, "status": {}}),
        ),
        (
            "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEjEKGwoDcGIxEgAaACIAKgAyADgAQgBaBgoBYRIBYhIGCgFrEgF2GgoKA2JpbhIDAAH/GgAiAA==",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pb1", "labels": {"a": "b"}},
                "data": {"k": "v"}, "binaryData": {"bin": "AAH/"}}),
        ),
        (
            "azhzAAoMCgJ2MRIGU2VjcmV0Eh0KEQoBcxIAGgAiACoAMgA4AEIAGgAiBgoBYRIBYhoAIgA=",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        ),
        (
            "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEigKEQoBchIAGgAiACoAMgA4AEIAEhMKA2dldBIAGgpjb25maWdtYXBzGgAiAA==",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]}),
        ),
        (
            "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIoChEKAWwSABoAIgAqADIAOABCABITCgJtZRAPIgsIgOLPqgYQgJTvOhoAIgA=",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
                "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
                    "renewTime": "2023-11-14T22:13:20.123456Z"}}),
        ),
        (
            "azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIMIgpCYWNrZ3JvdW5kGgAiAA==",
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}),
        ),
        (
            "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEqsCCooCCgNwYjESABoCcGIiACokOGE5ODdiYWMtMzEyOS00MmQ1LTg2NzYtMmFjNjQwYzRiZDY4MgQxMTAzOABCCAiWv4bYBhAAWgYKAWESAWJiIgoOa2NwLmlvL2NsdXN0ZXISEDE5Z2M0Nnh3bHp4dWl4c2mKAZUBCgJmbRIGVXBkYXRlGgJ2MSIICJa/htgGEAAyCEZpZWxkc1YxOm0Ka3siZjpiaW5hcnlEYXRhIjp7Ii4iOnt9LCJmOmJpbiI6e319LCJmOmRhdGEiOnsiLiI6e30sImY6ayI6e319LCJmOm1ldGFkYXRhIjp7ImY6bGFiZWxzIjp7Ii4iOnt9LCJmOmEiOnt9fX19QgASBgoBaxIBdhIICgJrMhICdjIaCgoDYmluEgMAAf8aACIA",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "pb1", "namespace": "pb", "uid": "8a987bac-3129-42d5-8676-2ac640c4bd68",
                    "resourceVersion": "1103", "creationTimestamp": "2026-11-21T13:41:42Z",
                    "labels": {"a": "b"}, "annotations": {"kcp.io/cluster": "19gc46xwlzxuixsi"},
                    "managedFields": [{"manager": "fm", "operation": "Update", "apiVersion": "v1",
                        "time": "2026-11-21T13:41:42Z", "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:binaryData": {".": {}, "f:bin": {}}, "f:data": {".": {}, "f:k": {}},
                            "f:metadata": {"f:labels": {".": {}, "f:a": {}}}}}]},
                "data": {"k": "v", "k2": "v2"}, "binaryData": {"bin": "AAH/"}}),
        ),
    ] {
        assert_eq!(decode(&STANDARD.decode(body).unwrap()), Ok(expected));
    }
}

/// Zeros of pointer fields are values; zeros of plain fields mean "absent".
#[test]
fn only_pointer_fields_keep_their_zeros() {
    let config_map = core::ConfigMap {
        metadata: Some(meta::ObjectMeta {
            name: text("n"),
            generate_name: text(""),
            generation: Some(0),
            deletion_grace_period_seconds: Some(0),
            owner_references: vec![meta::OwnerReference {
                api_version: text("v1"),
                kind: text("Secret"),
                name: text("o"),
                uid: text("u"),
                controller: Some(false),
                block_owner_deletion: None,
            }],
            finalizers: texts(&["a/b"]),
            ..Default::default()
        }),
        immutable: Some(false),
        ..Default::default()
    };
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": false,
        "metadata": {"name": "n", "deletionGracePeriodSeconds": 0, "finalizers": ["a/b"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Secret", "name": "o", "uid": "u", "controller": false}]}});
    assert_eq!(decode(&wrap("v1", "ConfigMap", &config_map.encode_to_vec())), Ok(expected));
}

#[test]
fn policies_and_their_embedded_rules_decode() {
    let rule = admission::NamedRuleWithOperations {
        resource_names: texts(&["n"]),
        rule_with_operations: Some(admission::RuleWithOperations {
            operations: texts(&["CREATE"]),
            rule: Some(admission::Rule {
                api_groups: texts(&[""]),
                api_versions: texts(&["v1"]),
                resources: texts(&["pods"]),
                scope: text("*"),
            }),
        }),
    };
    let policy = admission::ValidatingAdmissionPolicy {
        metadata: Some(meta::ObjectMeta { name: text("p"), ..Default::default() }),
        spec: Some(admission::ValidatingAdmissionPolicySpec {
            match_constraints: Some(admission::MatchResources {
                resource_rules: vec![rule],
                match_policy: text("Exact"),
                ..Default::default()
            }),
            validations: vec![admission::Validation {
                expression: text("true"),
                message: text(""),
                message_expression: text(""),
                reason: None,
            }],
            failure_policy: text("Ignore"),
            ..Default::default()
        }),
        status: None,
    };
    let group = "admissionregistration.k8s.io/v1";
    let expected = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"matchPolicy": "Exact", "resourceRules": [{
            "resourceNames": ["n"], "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"], "scope": "*",
        }]},
        "validations": [{"expression": "true"}],
        "failurePolicy": "Ignore",
    }});
    assert_eq!(decode(&wrap(group, "ValidatingAdmissionPolicy", &policy.encode_to_vec())), Ok(expected));
}

#[test]
fn core_kinds_decode() {
    let account = core::ServiceAccount {
        metadata: named("sa"),
        secrets: vec![core::ObjectReference { name: text("tok"), ..Default::default() }],
        image_pull_secrets: vec![core::LocalObjectReference { name: text("pull") }],
        automount_service_account_token: Some(false),
    };
    assert_eq!(
        decode(&wrap("v1", "ServiceAccount", &account.encode_to_vec())),
        Ok(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"},
            "secrets": [{"name": "tok"}], "imagePullSecrets": [{"name": "pull"}],
            "automountServiceAccountToken": false}))
    );

    let quota = core::ResourceQuota {
        metadata: named("q"),
        spec: Some(core::ResourceQuotaSpec {
            hard: BTreeMap::from([("configmaps".to_owned(), Quantity { string: text("5") })]),
            ..Default::default()
        }),
        status: None,
    };
    assert_eq!(
        decode(&wrap("v1", "ResourceQuota", &quota.encode_to_vec())),
        Ok(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {"hard": {"configmaps": "5"}}}))
    );

    let event = core::Event {
        metadata: named("e"),
        involved_object: Some(core::ObjectReference { kind: text("Pod"), ..Default::default() }),
        first_timestamp: Some(meta::Time { seconds: Some(1_700_000_000), nanos: Some(0) }),
        last_timestamp: Some(meta::Time::default()),
        event_time: Some(meta::MicroTime { seconds: Some(1_700_000_000), nanos: Some(1_999) }),
        count: Some(-3),
        reporting_component: text(""),
        reporting_instance: text(""),
        ..Default::default()
    };
    assert_eq!(
        decode(&wrap("v1", "Event", &event.encode_to_vec())),
        Ok(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "firstTimestamp": "2023-11-14T22:13:20Z",
            "eventTime": "2023-11-14T22:13:20.000001Z", "count": -3,
            "reportingComponent": "", "reportingInstance": ""}))
    );
}

#[test]
fn rbac_and_lease_decode() {
    let role = rbac::ClusterRole {
        metadata: named("c"),
        rules: vec![rbac::PolicyRule {
            verbs: texts(&["get"]),
            non_resource_ur_ls: texts(&["/healthz"]),
            ..Default::default()
        }],
        aggregation_rule: Some(rbac::AggregationRule {
            cluster_role_selectors: vec![meta::LabelSelector {
                match_labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
                match_expressions: vec![meta::LabelSelectorRequirement {
                    key: text("k"),
                    operator: text("In"),
                    values: texts(&["v"]),
                }],
            }],
        }),
    };
    assert_eq!(
        decode(&wrap("rbac.authorization.k8s.io/v1", "ClusterRole", &role.encode_to_vec())),
        Ok(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "c"},
            "rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}})
        )
    );

    let binding = rbac::RoleBinding {
        metadata: named("b"),
        subjects: vec![rbac::Subject {
            kind: text("User"),
            api_group: text("rbac.authorization.k8s.io"),
            name: text("u"),
            namespace: text(""),
        }],
        role_ref: Some(rbac::RoleRef { api_group: text("g"), kind: text("Role"), name: text("r") }),
    };
    assert_eq!(
        decode(&wrap("rbac.authorization.k8s.io/v1", "RoleBinding", &binding.encode_to_vec())),
        Ok(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}],
            "roleRef": {"apiGroup": "g", "kind": "Role", "name": "r"}})
        )
    );

    let lease = coordination::Lease {
        metadata: named("l"),
        spec: Some(coordination::LeaseSpec {
            holder_identity: text(""),
            lease_transitions: Some(0),
            ..Default::default()
        }),
    };
    assert_eq!(
        decode(&wrap("coordination.k8s.io/v1", "Lease", &lease.encode_to_vec())),
        Ok(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": "", "leaseTransitions": 0}}))
    );
}

#[test]
fn reviews_decode() {
    let access = authorization::SubjectAccessReview {
        metadata: None,
        spec: Some(authorization::SubjectAccessReviewSpec {
            resource_attributes: Some(authorization::ResourceAttributes {
                verb: text("get"),
                resource: text("pods"),
                field_selector: Some(authorization::FieldSelectorAttributes {
                    raw_selector: text("a=b"),
                    requirements: Vec::new(),
                }),
                ..Default::default()
            }),
            user: text("u"),
            groups: texts(&["g"]),
            extra: BTreeMap::from([(
                "scopes".to_owned(),
                authorization::ExtraValue { items: texts(&["x", "y"]) },
            )]),
            uid: text("1"),
            ..Default::default()
        }),
        status: None,
    };
    assert_eq!(
        decode(&wrap("authorization.k8s.io/v1", "SubjectAccessReview", &access.encode_to_vec())),
        Ok(json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods",
                    "fieldSelector": {"rawSelector": "a=b"}},
                "user": "u", "groups": ["g"], "extra": {"scopes": ["x", "y"]}, "uid": "1"}}))
    );

    let token = authentication::TokenRequest {
        metadata: None,
        spec: Some(authentication::TokenRequestSpec {
            audiences: texts(&["a"]),
            expiration_seconds: Some(3600),
            bound_object_ref: Some(authentication::BoundObjectReference {
                kind: text("Secret"),
                api_version: text("v1"),
                name: text("s"),
                u_id: text("uid-1"),
            }),
        }),
        status: Some(authentication::TokenRequestStatus {
            token: text(""),
            expiration_timestamp: Some(meta::Time::default()),
        }),
    };
    assert_eq!(
        decode(&wrap("authentication.k8s.io/v1", "TokenRequest", &token.encode_to_vec())),
        Ok(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["a"], "expirationSeconds": 3600,
                "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "uid-1"}},
            "status": {"token": ""}}))
    );
}

#[test]
fn custom_resource_definitions_decode_with_their_special_forms() {
    fn schema(kind: &str) -> apiextensions::JsonSchemaProps {
        apiextensions::JsonSchemaProps { r#type: text(kind), ..Default::default() }
    }
    let json_text = |raw: &str| apiextensions::Json { raw: Some(raw.as_bytes().to_vec()) };
    let root = apiextensions::JsonSchemaProps {
        r#type: text("object"),
        properties: BTreeMap::from([
            (
                "list".to_owned(),
                apiextensions::JsonSchemaProps {
                    r#type: text("array"),
                    items: Some(Box::new(apiextensions::JsonSchemaPropsOrArray {
                        schema: Some(Box::new(schema("string"))),
                        j_son_schemas: Vec::new(),
                    })),
                    x_kubernetes_list_type: text("set"),
                    ..Default::default()
                },
            ),
            (
                "open".to_owned(),
                apiextensions::JsonSchemaProps {
                    additional_properties: Some(Box::new(apiextensions::JsonSchemaPropsOrBool {
                        allows: Some(true),
                        schema: None,
                    })),
                    ..Default::default()
                },
            ),
            (
                "map".to_owned(),
                apiextensions::JsonSchemaProps {
                    additional_properties: Some(Box::new(apiextensions::JsonSchemaPropsOrBool {
                        allows: Some(true),
                        schema: Some(Box::new(schema("integer"))),
                    })),
                    ..Default::default()
                },
            ),
            (
                "number".to_owned(),
                apiextensions::JsonSchemaProps {
                    minimum: Some(0.0),
                    maximum: Some(1.5),
                    default: Some(json_text(r#"{"a":[1,null]}"#)),
                    r#enum: vec![json_text("1"), json_text("\"two\"")],
                    nullable: Some(false),
                    x_kubernetes_preserve_unknown_fields: Some(true),
                    x_kubernetes_validations: vec![apiextensions::ValidationRule {
                        rule: text("self > 0"),
                        message: text(""),
                        ..Default::default()
                    }],
                    ..Default::default()
                },
            ),
        ]),
        ..Default::default()
    };
    let definition = apiextensions::CustomResourceDefinition {
        metadata: named("cowboys.wildwest.dev"),
        spec: Some(apiextensions::CustomResourceDefinitionSpec {
            group: text("wildwest.dev"),
            scope: text("Namespaced"),
            versions: vec![apiextensions::CustomResourceDefinitionVersion {
                name: text("v1"),
                served: Some(true),
                storage: Some(false),
                schema: Some(apiextensions::CustomResourceValidation { open_apiv3_schema: Some(root) }),
                subresources: Some(apiextensions::CustomResourceSubresources {
                    status: Some(Default::default()),
                    scale: None,
                }),
                ..Default::default()
            }],
            ..Default::default()
        }),
        status: None,
    };
    assert_eq!(
        decode(&wrap("apiextensions.k8s.io/v1", "CustomResourceDefinition", &definition.encode_to_vec())),
        Ok(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "cowboys.wildwest.dev"},
            "spec": {"group": "wildwest.dev", "scope": "Namespaced", "versions": [{
                "name": "v1", "served": true, "storage": false, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "open": {"additionalProperties": true},
                    "map": {"additionalProperties": {"type": "integer"}},
                    "number": {"minimum": 0, "maximum": 1.5, "default": {"a": [1, null]}, "enum": [1, "two"],
                        "x-kubernetes-preserve-unknown-fields": true,
                        "x-kubernetes-validations": [{"rule": "self > 0"}]}}}}}]}}))
    );
}

#[test]
fn the_endpoint_supplies_a_missing_type() {
    let body = wrap("", "", &core::ConfigMap { metadata: named("c"), ..Default::default() }.encode_to_vec());
    assert_eq!(
        decode_protobuf(&body, "v1", "ConfigMap"),
        Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}))
    );
}

#[test]
fn delete_options_belong_to_every_group() {
    let options = meta::DeleteOptions {
        grace_period_seconds: Some(0),
        preconditions: Some(meta::Preconditions { uid: text("u"), resource_version: None }),
        dry_run: texts(&["All"]),
        ..Default::default()
    };
    for api_version in ["v1", "meta.k8s.io/v1", "rbac.authorization.k8s.io/v1"] {
        assert_eq!(
            decode(&wrap(api_version, "DeleteOptions", &options.encode_to_vec())),
            Ok(json!({"apiVersion": api_version, "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u"}, "dryRun": ["All"]}))
        );
    }
}

#[test]
fn undecodable_bodies_are_refused_with_a_reason() {
    let unknown =
        ProtobufError::UnknownKind { api_version: "wildwest.dev/v1".to_owned(), kind: "Cowboy".to_owned() };
    assert_eq!(decode(&wrap("wildwest.dev/v1", "Cowboy", b"")), Err(unknown));
    assert_eq!(decode(b"garbage"), Err(ProtobufError::MissingMagic));
    assert_eq!(decode(b""), Err(ProtobufError::MissingMagic));
    assert!(matches!(decode(b"k8s\0\xff\xff"), Err(ProtobufError::Malformed(_))));
    assert!(matches!(decode(&wrap("v1", "Secret", b"\x0a\x7f")), Err(ProtobufError::Malformed(_))));
    let latin1 = wrap("v1", "ConfigMap", b"\x12\x07\x0a\x01k\x12\x02\xe9x");
    assert_eq!(decode(&latin1), Err(ProtobufError::Malformed("a string is not UTF-8")));
    let long = vec![0; MAX_PROTOBUF_BODY + 1];
    assert!(matches!(decode(&long), Err(ProtobufError::TooLarge(_))));
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let mut schema = apiextensions::JsonSchemaProps::default();
    for _ in 0..200 {
        schema = apiextensions::JsonSchemaProps { not: Some(Box::new(schema)), ..Default::default() };
    }
    let version = apiextensions::CustomResourceDefinitionVersion {
        schema: Some(apiextensions::CustomResourceValidation { open_apiv3_schema: Some(schema) }),
        ..Default::default()
    };
    let spec = apiextensions::CustomResourceDefinitionSpec { versions: vec![version], ..Default::default() };
    let deep = apiextensions::CustomResourceDefinition { spec: Some(spec), ..Default::default() };
    let deep = wrap("apiextensions.k8s.io/v1", "CustomResourceDefinition", &deep.encode_to_vec());
    assert_eq!(decode(&deep), Err(ProtobufError::TooLarge("120 levels")));

    let many = rbac::Role { rules: vec![rbac::PolicyRule::default(); 500_000], ..Default::default() };
    let many = wrap("rbac.authorization.k8s.io/v1", "Role", &many.encode_to_vec());
    assert_eq!(decode(&many), Err(ProtobufError::TooLarge("400000 values")));
}

/// A table with a missing or misnamed field loses data silently, so all tables are compared with the OpenAPI
/// definitions.
#[test]
fn tables_have_exactly_the_fields_of_their_definitions() {
    let mut compared = 0;
    for (definition, table) in tables::by_definition() {
        // Embedded in other messages; the published definitions have its fields there.
        if *definition == "io.k8s.api.admissionregistration.v1.Rule" {
            continue;
        }
        let text = crate::builtin::definition_json(definition).expect(definition);
        let schema: Value = serde_json::from_str(text.get()).unwrap();
        let properties = schema["properties"].as_object();
        let mut wanted: Vec<&str> = properties
            .into_iter()
            .flat_map(|properties| properties.keys().map(String::as_str))
            // The envelope has the type. `shardInfo` is newer than the published protobuf tables.
            .filter(|name| {
                !(is_object(&schema) && ["apiVersion", "kind"].contains(name)) && *name != "shardInfo"
            })
            .collect();
        let mut found = field_names(table);
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted, "{definition}");
        let mut numbers: Vec<u32> = table.fields.iter().map(|field| field.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), table.fields.len(), "{definition} uses a number twice");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} tables were compared");
}

/// The fields of a message with those of embedded ones.
fn field_names(message: &super::table::Message) -> Vec<&'static str> {
    let names = message.fields.iter().flat_map(|field| match field.kind {
        super::table::Kind::Inline(embedded) => field_names(embedded),
        _ => vec![field.name],
    });
    names.collect()
}

/// Whether a definition is a whole object, as opposed to a part of an object such as an owner reference.
fn is_object(schema: &Value) -> bool {
    schema.get("x-kubernetes-group-version-kind").is_some()
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(raw in proptest::collection::vec(any::<u8>(), 0..400), pick in 0..KINDS.len()) {
        let (api_version, kind, _) = KINDS[pick];
        let _ = decode(&wrap(api_version, kind, &raw));
        let mut body = PROTOBUF_MAGIC.to_vec();
        body.extend(&raw);
        let _ = decode_protobuf(&body, api_version, kind);
    }

    /// A damaged body is an error or decodes to another value, but never causes a panic.
    #[test]
    fn damaged_bodies_do_not_panic(position in 0usize..120, byte in any::<u8>(), cut in 0usize..120) {
        let map = core::ConfigMap {
            metadata: named("some-name"),
            immutable: Some(true),
            data: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
            binary_data: BTreeMap::from([("bin".to_owned(), vec![0, 1, 255])]),
        };
        let mut body = wrap("v1", "ConfigMap", &map.encode_to_vec());
        let length = body.len();
        body[position % length] = byte;
        let _ = decode(&body);
        let _ = decode(&body[..cut % length]);
    }
}
