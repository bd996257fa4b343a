#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::builtin::builtin_kinds;

fn builtin_resources() -> Vec<OpenApiResource> {
    builtin_kinds().iter().map(OpenApiResource::from).collect()
}

fn cowboys() -> OpenApiResource {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    OpenApiResource {
        group: "wildwest.dev".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: "Cowboy".to_owned(),
        list_kind: "CowboyList".to_owned(),
        plural: "cowboys".to_owned(),
        namespaced: true,
        verbs: texts(&["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
        subresources: vec![
            OpenApiSubresource {
                name: "status".to_owned(),
                verbs: texts(&["get", "patch", "update"]),
                body: None,
            },
            OpenApiSubresource {
                name: "scale".to_owned(),
                verbs: texts(&["get", "patch", "update"]),
                body: Some(OpenApiBody::Scale),
            },
        ],
        schema: OpenApiSchema::Custom(Arc::new(json!({
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"intent": {"type": "string"}}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true},
            },
        }))),
    }
}

fn document(group: &str, version: &str, resources: &[OpenApiResource]) -> Value {
    serde_json::from_slice(&open_api_document(group, version, resources).json).unwrap()
}

fn methods<'a>(document: &'a Value, path: &str) -> Vec<&'a str> {
    document["paths"][path].as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn builtin_paths_follow_their_verbs() {
    let core = document("", "v1", &builtin_resources());
    for (path, expected) in [
        ("/api/v1/", vec!["get"]),
        ("/api/v1/configmaps", vec!["get", "parameters"]),
        ("/api/v1/namespaces", vec!["get", "parameters", "post"]),
        ("/api/v1/namespaces/{name}/finalize", vec!["parameters", "put"]),
        ("/api/v1/namespaces/{name}/status", vec!["get", "parameters", "patch", "put"]),
        ("/api/v1/namespaces/{namespace}/configmaps", vec!["delete", "get", "parameters", "post"]),
        (
            "/api/v1/namespaces/{namespace}/configmaps/{name}",
            vec!["delete", "get", "parameters", "patch", "put"],
        ),
        ("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", vec!["parameters", "post"]),
    ] {
        assert_eq!(methods(&core, path), expected, "{path}");
    }
    let reviews = document("authorization.k8s.io", "v1", &builtin_resources());
    let path = "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews";
    assert_eq!(methods(&reviews, path), ["parameters", "post"]);
    assert_eq!(reviews["paths"].as_object().unwrap().len(), 5);
}

/// kubectl reads these fields to choose between validation by the server and its own, and between patch types.
#[test]
fn operations_have_the_fields_that_kubectl_reads() {
    let core = document("", "v1", &builtin_resources());
    let custom = document("wildwest.dev", "v1alpha1", &[cowboys()]);
    let map = &core["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    let cowboy =
        &custom["paths"]["/apis/wildwest.dev/v1alpha1/namespaces/{namespace}/cowboys/{name}"]["patch"];
    for (operation, strategic) in [(map, true), (cowboy, false)] {
        let parameters = operation["parameters"].as_array().unwrap();
        for wanted in ["dryRun", "fieldManager", "fieldValidation", "force"] {
            assert!(parameters.iter().any(|parameter| parameter["name"] == wanted), "{wanted}");
        }
        assert_eq!(operation["x-kubernetes-action"], "patch");
        let content = operation["requestBody"]["content"].as_object().unwrap();
        assert_eq!(content.contains_key("application/strategic-merge-patch+json"), strategic);
    }
    assert_eq!(map["operationId"], "patchCoreV1NamespacedConfigMap");
    assert_eq!(
        map["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(cowboy["operationId"], "patchWildwestDevV1alpha1NamespacedCowboy");
    assert_eq!(cowboy["tags"], json!(["wildwestDev_v1alpha1"]));
}

#[test]
fn operation_names_are_those_of_kubernetes() {
    let resources = builtin_resources();
    let core = document("", "v1", &resources);
    let rbac = document("rbac.authorization.k8s.io", "v1", &resources);
    for (document, path, method, id) in [
        (&core, "/api/v1/", "get", "getCoreV1APIResources"),
        (&core, "/api/v1/configmaps", "get", "listCoreV1ConfigMapForAllNamespaces"),
        (&core, "/api/v1/namespaces/{name}/status", "put", "replaceCoreV1NamespaceStatus"),
        (
            &core,
            "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            "post",
            "createCoreV1NamespacedServiceAccountToken",
        ),
        (
            &rbac,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "delete",
            "deleteRbacAuthorizationV1CollectionClusterRole",
        ),
        (
            &rbac,
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}",
            "get",
            "readRbacAuthorizationV1NamespacedRole",
        ),
    ] {
        assert_eq!(document["paths"][path][method]["operationId"], id);
    }
}

#[test]
fn documents_hold_every_component_they_refer_to_and_no_other() {
    let mut resources = builtin_resources();
    resources.push(cowboys());
    let versions: BTreeSet<_> = resources.iter().map(|r| (r.group.clone(), r.version.clone())).collect();
    for (group, version) in versions {
        let text = String::from_utf8(open_api_document(&group, &version, &resources).json.to_vec()).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let referenced: BTreeSet<String> = references(&text).collect();
        let present: BTreeSet<String> = schemas.keys().cloned().collect();
        assert_eq!(referenced, present, "{group}/{version}");
    }
}

#[test]
fn custom_components_are_complete_objects() {
    let custom = document("wildwest.dev", "v1alpha1", &[cowboys()]);
    let schemas = &custom["components"]["schemas"];
    let cowboy = &schemas["dev.wildwest.v1alpha1.Cowboy"];
    let meta = json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]);
    assert_eq!(cowboy["properties"]["metadata"]["allOf"], meta);
    assert_eq!(cowboy["properties"]["template"]["properties"]["metadata"]["allOf"], meta);
    assert_eq!(cowboy["properties"]["spec"]["properties"]["intent"]["type"], "string");
    assert!(cowboy["properties"]["kind"]["description"].is_string());
    assert_eq!(
        cowboy["x-kubernetes-group-version-kind"],
        json!([{"group": "wildwest.dev", "version": "v1alpha1", "kind": "Cowboy"}])
    );
    let list = &schemas["dev.wildwest.v1alpha1.CowboyList"];
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "CowboyList");
    assert!(schemas.get("io.k8s.api.autoscaling.v1.Scale").is_some());
}

#[test]
fn hashes_depend_on_content_and_not_on_order() {
    let mut resources = builtin_resources();
    let first = open_api_document("", "v1", &resources);
    resources.reverse();
    assert_eq!(open_api_document("", "v1", &resources), first);
    resources.retain(|resource| resource.plural != "secrets");
    assert_ne!(open_api_document("", "v1", &resources).hash, first.hash);
    assert_eq!(first.hash.len(), 128);
}

#[test]
fn the_index_has_document_urls_with_hashes() {
    let document = open_api_document("wildwest.dev", "v1alpha1", &[cowboys()]);
    let path = open_api_path("wildwest.dev", "v1alpha1");
    let index: Value = serde_json::from_slice(&open_api_index([(path.as_str(), &document)])).unwrap();
    let url = format!("/openapi/v3/apis/wildwest.dev/v1alpha1?hash={}", document.hash);
    assert_eq!(index, json!({"paths": {"apis/wildwest.dev/v1alpha1": {"serverRelativeURL": url}}}));
    assert_eq!(open_api_path("", "v1"), "api/v1");
}
