//! OpenAPI paths of a resource and their operations.

use serde_json::{Map, Value, json};

use super::{OpenApiBody, OpenApiResource, OpenApiSchema, OpenApiSubresource, open_api_path};
use crate::builtin::REFERENCE_PREFIX;
use crate::patch::is_client_scheme_group;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// All paths of a resource with their path items.
pub(super) fn paths_of(resource: &OpenApiResource) -> Vec<(String, Value)> {
    let root = format!("/{}", open_api_path(&resource.group, &resource.version));
    let plural = &resource.plural;
    let mut paths = Vec::new();
    let (collection, scope) = match resource.namespaced {
        true => (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced"),
        false => (format!("{root}/{plural}"), ""),
    };
    let operations =
        OperationBuilder { resource, scope, suffix: String::new(), body: Body::of_resource(resource) };

    let mut item = operations.collection_item();
    operations.add(&mut item, "list", "get", "list", "list");
    operations.add(&mut item, "create", "post", "create", "post");
    operations.add(&mut item, "deletecollection", "delete", "deletecollection", "deletecollection");
    paths.push((collection.clone(), Value::Object(item)));

    if has_any(&resource.verbs, &["get", "update", "patch", "delete"]) {
        let mut item = operations.object_item();
        operations.add(&mut item, "get", "get", "read", "get");
        operations.add(&mut item, "update", "put", "replace", "put");
        operations.add(&mut item, "patch", "patch", "patch", "patch");
        operations.add(&mut item, "delete", "delete", "delete", "delete");
        paths.push((format!("{collection}/{{name}}"), Value::Object(item)));
    }
    for subresource in &resource.subresources {
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        paths.push((path, subresource_item(resource, subresource, scope)));
    }
    if resource.namespaced && has_any(&resource.verbs, &["list"]) {
        let everywhere = OperationBuilder {
            resource,
            scope: "",
            suffix: "ForAllNamespaces".to_owned(),
            body: Body::of_resource(resource),
        };
        let mut item = Map::new();
        item.insert("parameters".to_owned(), json!([query("pretty", "string", PRETTY)]));
        everywhere.add(&mut item, "list", "get", "list", "list");
        paths.push((format!("{root}/{plural}"), Value::Object(item)));
    }
    paths
}

/// The path of the group version's resource list (`APIResourceList`).
pub(super) fn resource_list(group: &str, version: &str) -> (String, Value) {
    let (camel, tag) = tag_of(group, version);
    let operation = json!({
        "description": "get available resources",
        "operationId": format!("get{camel}APIResources"),
        "tags": [tag],
        "responses": {
            "200": response(&format!("{META}.APIResourceList"), &["application/json", "application/yaml"]),
            "401": {"description": "Unauthorized"},
        },
    });
    (format!("/{}/", open_api_path(group, version)), json!({"get": operation}))
}

fn subresource_item(
    resource: &OpenApiResource,
    subresource: &OpenApiSubresource,
    scope: &'static str,
) -> Value {
    let body = match subresource.body {
        Some(OpenApiBody::Scale) => {
            Body::of_kind("io.k8s.api.autoscaling.v1.Scale", "autoscaling", "v1", "Scale")
        }
        Some(OpenApiBody::TokenRequest) => Body::of_kind(
            "io.k8s.api.authentication.v1.TokenRequest",
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
        ),
        None => Body::of_resource(resource),
    };
    let suffix = capitalized(&subresource.name);
    let operations = OperationBuilder { resource, scope, suffix, body };
    let mut item = operations.object_item();
    let add = |item: &mut Map<String, Value>, verb: &str, method, id, action| {
        if has_any(&subresource.verbs, &[verb]) {
            item.insert(method, operations.operation(verb, id, action));
        }
    };
    for (verb, method, id, action) in [
        ("get", "get", "read", "get"),
        ("update", "put", "replace", "put"),
        ("patch", "patch", "patch", "patch"),
        ("create", "post", "create", "post"),
    ] {
        add(&mut item, verb, method.to_owned(), id, action);
    }
    Value::Object(item)
}

fn has_any(verbs: &[String], wanted: &[&str]) -> bool {
    verbs.iter().any(|verb| wanted.contains(&verb.as_str()))
}

/// A request or response body: its component and its group, version and kind.
struct Body {
    definition: String,
    types: Value,
}

impl Body {
    fn of_resource(resource: &OpenApiResource) -> Self {
        Self::of_kind(&resource.definition(), &resource.group, &resource.version, &resource.kind)
    }

    fn of_kind(definition: &str, group: &str, version: &str, kind: &str) -> Self {
        let types = json!({"group": group, "version": version, "kind": kind});
        Self { definition: definition.to_owned(), types }
    }
}

/// Builds the operations of one path.
struct OperationBuilder<'a> {
    resource: &'a OpenApiResource,
    /// `Namespaced`, or empty for cluster-scoped paths.
    scope: &'static str,
    /// Suffix of operation names, after the kind: `Status`, `ForAllNamespaces`.
    suffix: String,
    body: Body,
}

impl OperationBuilder<'_> {
    fn object_item(&self) -> Map<String, Value> {
        let mut parameters = vec![in_path("name", &format!("name of the {}", self.resource.kind))];
        parameters.extend(self.common_parameters());
        Map::from_iter([("parameters".to_owned(), Value::Array(parameters))])
    }

    fn collection_item(&self) -> Map<String, Value> {
        Map::from_iter([("parameters".to_owned(), Value::Array(self.common_parameters()))])
    }

    fn common_parameters(&self) -> Vec<Value> {
        let namespace = self.resource.namespaced.then(|| in_path("namespace", "namespace of the objects"));
        namespace.into_iter().chain([query("pretty", "string", PRETTY)]).collect()
    }

    fn add(&self, item: &mut Map<String, Value>, verb: &str, method: &str, id: &str, action: &str) {
        if has_any(&self.resource.verbs, &[verb]) {
            item.insert(method.to_owned(), self.operation(verb, id, action));
        }
    }

    fn operation(&self, verb: &str, id: &str, action: &str) -> Value {
        let (camel, tag) = tag_of(&self.resource.group, &self.resource.version);
        let (scope, suffix, kind) = (self.scope, &self.suffix, &self.resource.kind);
        let operation_id = match id {
            "deletecollection" => format!("delete{camel}Collection{scope}{kind}"),
            _ => format!("{id}{camel}{scope}{kind}{suffix}"),
        };
        let mut operation = json!({
            "description": describe(verb, kind),
            "operationId": operation_id,
            "tags": [tag],
            "parameters": parameters_of(verb),
            "responses": self.responses(verb),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.body.types,
        });
        if let Some(body) = self.request_body(verb) {
            operation["requestBody"] = body;
        }
        operation
    }

    fn request_body(&self, verb: &str) -> Option<Value> {
        match verb {
            "create" | "update" => Some(json!({
                "required": true,
                "content": content(&self.body.definition, self.request_types()),
            })),
            "patch" => Some(
                json!({"required": true, "content": content(&format!("{META}.Patch"), self.patch_types())}),
            ),
            "delete" | "deletecollection" => {
                Some(json!({"content": content(&format!("{META}.DeleteOptions"), self.request_types())}))
            }
            _ => None,
        }
    }

    fn responses(&self, verb: &str) -> Value {
        let status = format!("{META}.Status");
        let list = self.resource.list_definition();
        let types = ["application/json", "application/yaml"];
        let (definition, codes): (&str, &[&str]) = match verb {
            "list" => (&list, &["200"]),
            "create" => (&self.body.definition, &["200", "201", "202"]),
            "update" | "patch" => (&self.body.definition, &["200", "201"]),
            "delete" => (&status, &["200", "202"]),
            "deletecollection" => (&status, &["200"]),
            _ => (&self.body.definition, &["200"]),
        };
        let mut responses = Map::new();
        for code in codes {
            let mut response_object = response(definition, &types);
            if verb == "list" {
                response_object["content"]["application/json;stream=watch"] = schema(definition);
            }
            responses.insert((*code).to_owned(), response_object);
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        Value::Object(responses)
    }

    fn request_types(&self) -> &'static [&'static str] {
        match self.resource.schema {
            OpenApiSchema::Builtin(_) => &["*/*"],
            OpenApiSchema::Custom(_) => &["application/json", "application/yaml"],
        }
    }

    /// Accepted patch types. From them kubectl derives that custom resources do not support strategic merge patches.
    fn patch_types(&self) -> &'static [&'static str] {
        const TYPES: &[&str] = &[
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        match self.resource.schema {
            OpenApiSchema::Builtin(_) => TYPES,
            OpenApiSchema::Custom(_) if is_client_scheme_group(&self.resource.group) => TYPES,
            OpenApiSchema::Custom(_) => &TYPES[..3],
        }
    }
}

fn describe(verb: &str, kind: &str) -> String {
    match verb {
        "list" => format!("list or watch objects of kind {kind}"),
        "create" => format!("create a {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "get" => format!("read the specified {kind}"),
        "update" => format!("replace the specified {kind}"),
        "patch" => format!("partially update the specified {kind}"),
        _ => format!("{verb} a {kind}"),
    }
}

const PRETTY: &str = "If 'true', the output is indented.";

fn parameters_of(verb: &str) -> Value {
    const DRY_RUN: (&str, &str, &str) =
        ("dryRun", "string", "When present, nothing is persisted. The only valid value is All.");
    const FIELD_MANAGER: (&str, &str, &str) = (
        "fieldManager",
        "string",
        "Name of the actor that makes the change; at most 128 printable characters.",
    );
    const FIELD_VALIDATION: (&str, &str, &str) = (
        "fieldValidation",
        "string",
        "What to do with unknown or duplicate fields: Ignore drops them, Warn (the default) drops them with a \
         warning, Strict fails the request.",
    );
    const FORCE: (&str, &str, &str) =
        ("force", "boolean", "Apply requests take over fields that belong to other managers.");
    const DELETION: &[(&str, &str, &str)] = &[
        ("gracePeriodSeconds", "integer", "Seconds before the object is deleted; zero means at once."),
        (
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            "boolean",
            "Delete even objects that cannot be read from the store.",
        ),
        ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
        ("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
    ];
    const SELECTION: &[(&str, &str, &str)] = &[
        ("continue", "string", "The token of the previous page of a list."),
        ("fieldSelector", "string", "Restricts the objects by their fields."),
        ("labelSelector", "string", "Restricts the objects by their labels."),
        ("limit", "integer", "How many objects a page may have."),
        ("resourceVersion", "string", "From which state on objects are read."),
        ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
        ("sendInitialEvents", "boolean", "A watch begins with the current state and a bookmark behind it."),
        ("timeoutSeconds", "integer", "Limits the duration of the call."),
    ];
    const WATCH: &[(&str, &str, &str)] = &[
        ("allowWatchBookmarks", "boolean", "A watch may send bookmarks."),
        ("watch", "boolean", "Watch for changes instead of listing."),
    ];
    let mut all: Vec<(&str, &str, &str)> = match verb {
        "create" | "update" => vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        "patch" => vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE],
        "delete" => [&[DRY_RUN], DELETION].concat(),
        "deletecollection" => [&[DRY_RUN], DELETION, SELECTION].concat(),
        "list" => [SELECTION, WATCH].concat(),
        _ => vec![("resourceVersion", "string", "From which state on the object is read.")],
    };
    all.sort_unstable();
    Value::Array(all.into_iter().map(|(name, kind, description)| query(name, kind, description)).collect())
}

fn in_path(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "path", "required": true, "description": description,
        "schema": {"type": "string", "uniqueItems": true},
    })
}

fn query(name: &str, kind: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "query", "description": description,
        "schema": {"type": kind, "uniqueItems": true},
    })
}

pub(super) fn response(definition: &str, types: &[&str]) -> Value {
    json!({"description": "OK", "content": content(definition, types)})
}

fn content(definition: &str, types: &[&str]) -> Value {
    Value::Object(types.iter().map(|media| ((*media).to_owned(), schema(definition))).collect())
}

fn schema(definition: &str) -> Value {
    json!({"schema": {"$ref": format!("{REFERENCE_PREFIX}{definition}")}})
}

/// The group version as part of operation names (`RbacAuthorizationV1`) and as a tag (`rbacAuthorization_v1`).
pub(super) fn tag_of(group: &str, version: &str) -> (String, String) {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    let camel: String = group.split(['.', '-']).map(capitalized).collect();
    let mut letters = camel.chars();
    let lower: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    (format!("{camel}{}", capitalized(version)), format!("{lower}_{version}"))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
