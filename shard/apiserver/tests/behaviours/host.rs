//! A small host over the store under test, in memory with a feed that is delayed at random: built-in kinds, two custom resources,
//! and users whose names state their permissions.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::object::ScopeAnnotations;
use fairlead_apiserver::registry::{
    Catalog, Conversion, NamespaceLifecycle, ObjectStore, Registry, SelectableField, ServedKey,
    ServedResource, ServedVersion, StoreRegistry, Subresource, SubresourceCreate, SubresourceCreator,
    Versions, built_in_resources, is_built_in,
};
use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::resource::{Column, Columns, CustomStrategy, Shape, Verb, Verbs};
use fairlead_apiserver::{
    Action, Admission, AdmissionHost, AdmissionRequest, ApiServer, Attributes, Authorization,
    AuthorizationFuture, AuthorizationStep, Decision, DynamicAdmission, Host, InterceptedRequest,
    RequestMetrics, RequestedResource, Response, Scope, ScopeSelector, ScopedPath, version_document,
};
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_names::{KeyCodec, Origin, ResourceName};
use fairlead_process::{Metrics, Status};
use fairlead_schema::names::NameRule;
use fairlead_schema::{CompileOptions, FieldPath, JsonPath, Schema};
use fairlead_store::{FollowError, Mutation, Store};
use http::HeaderMap;
use http::request::Parts;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::stores::new_store;

pub(crate) const ANNOTATIONS: ScopeAnnotations = &["kcp.io/cluster"];

/// Serves `/clusters/<name>/…` and `/clusters/*/…`.
pub(crate) struct TestHost {
    catalog: Arc<Catalog>,
    version: Bytes,
}

/// A server with the parts that tests inspect.
pub(crate) struct TestServerParts {
    pub(crate) metrics: Metrics,
    pub(crate) api: Arc<ApiServer<TestHost>>,
    pub(crate) hub: Hub,
    pub(crate) dynamic: Arc<DynamicAdmission>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) driver: JoinHandle<Result<(), FollowError>>,
}

/// The resources of one test, over the registry of its server.
pub(crate) type ResourcesOfTest<'t> = &'t dyn Fn(Arc<dyn Registry>) -> Vec<ServedResource>;

/// Assembles a server. Its hub is driven by a task of the runtime.
pub(crate) fn assemble(options: HubOptions, resources_of_test: ResourcesOfTest<'_>) -> TestServerParts {
    assemble_with(options, resources_of_test, |api, _| api)
}

/// Assembles a server with other settings than the default ones.
pub(crate) fn assemble_with(
    options: HubOptions,
    resources_of_test: ResourcesOfTest<'_>,
    configure: impl FnOnce(ApiServer<TestHost>, &Metrics) -> ApiServer<TestHost>,
) -> TestServerParts {
    assemble_on(new_store(), options, resources_of_test, configure)
}

/// As [`assemble_with`], over a store.
pub(crate) fn assemble_on(
    store: Arc<dyn Store>,
    options: HubOptions,
    resources_of_test: ResourcesOfTest<'_>,
    configure: impl FnOnce(ApiServer<TestHost>, &Metrics) -> ApiServer<TestHost>,
) -> TestServerParts {
    let codec = KeyCodec::new("/registry", 1, is_built_in);
    let hub = Hub::new(Arc::clone(&store), codec, options);
    let objects = ObjectStore::new(Arc::clone(&store), codec, ANNOTATIONS);
    let dynamic = DynamicAdmission::follow(objects.clone(), &hub).unwrap();
    let admission =
        Arc::new(NamespaceAdmission(NamespaceLifecycle::new(objects.clone()), Arc::clone(&dynamic)));
    let registry = StoreRegistry::new(objects, hub.clone(), admission);
    let registry: Arc<dyn Registry> = Arc::new(registry.with_subresources(Arc::new(TokenRequests)));
    let mut resources = built_in_resources(|_| Some(Arc::clone(&registry)));
    resources.push(Arc::new(widgets(Arc::clone(&registry))));
    resources.push(Arc::new(gadgets(Arc::clone(&registry))));
    resources.extend(resources_of_test(Arc::clone(&registry)).into_iter().map(Arc::new));
    resources.push(Arc::new(ruled(registry)));
    resources.sort_by(|one, other| one.name.cmp(&other.name));
    let host = TestHost { catalog: Arc::new(Catalog::new(resources)), version: version_document("test") };
    dynamic.set_host(Arc::new(PolicyHost { catalog: Arc::clone(&host.catalog) }));
    let metrics = Metrics::new("test", "0").unwrap();
    let api = ApiServer::new(host, ANNOTATIONS, "10.0.0.1:6443", RequestMetrics::new(&metrics).unwrap());
    let api = Arc::new(configure(api, &metrics));
    let driven = hub.clone();
    let driver = tokio::spawn(async move { driven.run().await });
    TestServerParts { metrics, api, hub, dynamic, store, driver }
}

impl TestHost {
    /// `only:<name>` may do everything with objects of that name, `patch-only:<name>` may patch them.
    fn decision(&self, attributes: &Attributes<'_>) -> Decision {
        let allowed = is_allowed(attributes.user, &attributes.action);
        if allowed { Decision::Allow } else { Decision::NoOpinion }
    }
}

#[async_trait]
impl Host for TestHost {
    fn locate<'p>(&self, path: RequestPath<'p>, _headers: &HeaderMap) -> Result<ScopedPath<'p>, Status> {
        let scopes = match path.segments() {
            [first, name, ..] if first == "clusters" => match &**name {
                "*" => ScopeSelector::all(),
                name => ScopeSelector::One(Scope::new(name)),
            },
            _ => return Ok(ScopedPath { scopes: None, path }),
        };
        Ok(ScopedPath { scopes: Some(scopes), path: path.skip(2) })
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        let name = parts.headers.get("x-user").and_then(|value| value.to_str().ok()).unwrap_or("admin");
        if name == "impostor" {
            return Err(Status::unauthorized());
        }
        let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
        Ok(Arc::new(Identity::new(user, AuthenticationMethod::TokenFile, None)))
    }

    fn check_impersonation(&self, _client: &UserInfo, groups: &[String]) -> Result<(), Status> {
        if groups.iter().any(|group| group == "special") {
            return Err(Status::bad_request("a special group"));
        }
        Ok(())
    }

    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response> {
        let metrics = request.path.text() == "/metrics";
        metrics.then(|| fairlead_apiserver::content(http::StatusCode::OK, "text/plain", "figures 1\n"))
    }

    fn authorization_steps(&self, attributes: &Attributes<'_>) -> Vec<AuthorizationStep> {
        vec![AuthorizationStep {
            name: "01-test",
            decision: self.decision(attributes),
            reason: "by name".into(),
        }]
    }

    fn audit_annotations(&self, scopes: &ScopeSelector) -> Vec<(String, String)> {
        vec![("kcp.io/cluster".into(), scopes.one().map_or("*", Scope::as_str).into())]
    }

    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
        AuthorizationFuture::Ready(match self.decision(attributes) {
            Decision::Allow => Authorization::allow("test", ""),
            Decision::Deny(reason) => Authorization::deny("test", reason),
            Decision::NoOpinion => Authorization::no_opinion("test", ""),
        })
    }

    fn resolve(
        &self,
        _scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        Ok(self.catalog.resources.iter().find(|resource| resource.name == *wanted.name).cloned())
    }

    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
        match scope.as_str() {
            "unsynced" => Err(Status::service_unavailable("not synced yet", 1)),
            _ => Ok(Arc::clone(&self.catalog)),
        }
    }

    fn version(&self) -> &Bytes {
        &self.version
    }
}

fn is_allowed(user: &UserInfo, action: &Action<'_>) -> bool {
    match (user.name.split_once(':'), action) {
        (Some(("only", own)), Action::Resource { name, .. }) => *name == Some(own),
        (Some(("patch-only", own)), Action::Resource { verb, name, .. }) => {
            *verb == "patch" && *name == Some(own)
        }
        (Some(("in", own)), Action::Resource { namespace, .. }) => *namespace == Some(own),
        (Some(_), Action::NonResource { .. }) => false,
        _ => user.name != "nobody",
    }
}

/// The host of webhooks and policies. Configurations of gadgets come from the scope `provider`.
struct PolicyHost {
    catalog: Arc<Catalog>,
}

impl AdmissionHost for PolicyHost {
    fn configuration_scope(&self, write: &AdmissionRequest<'_>) -> Result<Option<Scope>, Status> {
        Ok((&*write.resource.name.resource == "gadgets").then(|| Scope::new("provider")))
    }

    fn has_objects(&self, scope: &Scope) -> bool {
        scope.as_str() != "provider"
    }

    fn catalog(&self, _scope: &Scope) -> Result<Arc<Catalog>, Status> {
        Ok(Arc::clone(&self.catalog))
    }

    fn is_allowed(&self, _scope: &Scope, user: &UserInfo, action: &Action<'_>) -> bool {
        is_allowed(user, action)
    }

    fn service_account(&self, _scope: &Scope, namespace: &str, _name: &str) -> UserInfo {
        UserInfo { name: format!("in:{namespace}"), ..UserInfo::default() }
    }
}

/// Admits objects whose namespace exists; refuses Secrets named `forbidden`.
struct NamespaceAdmission(NamespaceLifecycle, Arc<DynamicAdmission>);

#[async_trait]
impl Admission for NamespaceAdmission {
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        self.1.mutate(write, object, old).await?;
        write.audit_annotations.add("test.example.com/mutated", write.name);
        if object["metadata"]["labels"]["never"] == "ends" {
            std::future::pending::<()>().await;
        }
        if object["metadata"]["labels"]["mutate"] == "me" {
            object["metadata"]["labels"]["mutated"] = "yes".into();
        }
        Ok(Vec::new())
    }

    async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        self.1.validate(write, object, old).await?;
        Ok(self.0.validate(write)?.into_iter().collect())
    }
}

/// The response to a token request for the service account `bot` is the request as admission leaves it.
struct TokenRequests;

#[async_trait]
impl SubresourceCreator for TokenRequests {
    async fn create(
        &self,
        create: &SubresourceCreate<'_>,
        mut object: Value,
    ) -> Result<Option<Value>, Status> {
        if create.target().name.as_deref() != Some("bot") {
            return Ok(None);
        }
        create.mutate(&mut object).await?;
        create.validate(&object).await?;
        Ok(Some(object))
    }
}

/// `widgets.example.com`: two versions, status, a selectable field, an immutable default.
fn widgets(registry: Arc<dyn Registry>) -> ServedResource {
    let schema = |default: i64| {
        json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "properties": {
                "color": {"type": "string", "enum": ["red", "green", "blue"]},
                "size": {"type": "integer", "default": default, "minimum": 0},
                "tags": {"type": "array", "items": {"type": "string"}},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }})
    };
    let version = |name: &str, default: i64, deprecation: Option<&str>| {
        let schema = schema(default);
        ServedVersion {
            name: name.into(),
            shape: Shape::Structural(Arc::new(
                Schema::compile(&schema, &CompileOptions::structural()).unwrap(),
            )),
            open_api: Some(Arc::new(schema)),
            columns: Arc::new(NameAndColor),
            selectable_fields: vec![SelectableField {
                name: "spec.color".into(),
                path: JsonPath::parse(".spec.color").unwrap(),
                default: "",
            }],
            deprecation_warning: deprecation.map(Into::into),
            subresources: vec![STATUS],
            strategy: Arc::new(CustomStrategy { has_status_subresource: true, scale: None }),
        }
    };
    let versions =
        vec![version("v1", 1, None), version("v1beta1", 2, Some("example.com/v1beta1 Widget is deprecated"))];
    custom("widgets", "Widget", true, versions, registry)
}

/// `gadgets.example.com`: cluster-scoped, any content, no status subresource.
fn gadgets(registry: Arc<dyn Registry>) -> ServedResource {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = ServedVersion {
        name: "v1".into(),
        shape: Shape::Structural(Arc::new(Schema::compile(&schema, &CompileOptions::structural()).unwrap())),
        open_api: Some(Arc::new(schema)),
        columns: Arc::new(NameAndColor),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        subresources: Vec::new(),
        strategy: Arc::new(CustomStrategy::default()),
    };
    custom("gadgets", "Gadget", false, vec![version], registry)
}

/// `ruleds.rules.example.com`: validation rules in version v1, among them those of the recorded Widget; none in v1beta1.
fn ruled(registry: Arc<dyn Registry>) -> ServedResource {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green", "blue"]},
            "max": {"type": "integer", "default": 5},
            "replicas": {"type": "integer", "default": 1},
            "ports": {
                "type": "array", "maxItems": 20,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string", "maxLength": 8},
                    "port": {"type": "integer"},
                }, "x-kubernetes-validations": [
                    {"rule": "!has(self.port) || self.port > 0", "message": "ports are positive"},
                    {"rule": "!has(oldSelf.port) || self.port == oldSelf.port", "reason": "FieldValueForbidden",
                     "messageExpression": "'the port of ' + self.name + ' is immutable'"},
                ]},
            },
        }, "x-kubernetes-validations": [
            {"rule": "self.replicas <= self.max", "message": "replicas must not exceed max"},
            {"rule": "self.color == oldSelf.color", "message": "color is immutable",
             "reason": "FieldValueForbidden", "fieldPath": ".color"},
        ]},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string", "x-kubernetes-validations": [
                {"rule": "oldSelf != 'Done' || self == 'Done'", "message": "Done is final"},
            ]},
        }},
    }, "x-kubernetes-validations": [
        {"rule": "self.metadata.name.size() < 10", "message": "the name is too long"},
    ]});
    let compiled = Schema::compile(&schema, &CompileOptions::structural()).unwrap();
    let with_rules = compiled.clone().with_rules(&schema, &FieldPath::root()).unwrap();
    let version = |name: &str, schema_of_version: Schema| ServedVersion {
        name: name.into(),
        shape: Shape::Structural(Arc::new(schema_of_version)),
        open_api: Some(Arc::new(schema.clone())),
        columns: Arc::new(NameAndColor),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        subresources: vec![STATUS],
        strategy: Arc::new(CustomStrategy { has_status_subresource: true, scale: None }),
    };
    let versions = vec![version("v1", with_rules), version("v1beta1", compiled)];
    ServedResource {
        name: ResourceName::new("rules.example.com", "ruleds"),
        ..custom("ruleds", "Ruled", true, versions, registry)
    }
}

pub(crate) fn custom(
    plural: &str,
    kind: &str,
    namespaced: bool,
    versions: Vec<ServedVersion>,
    registry: Arc<dyn Registry>,
) -> ServedResource {
    ServedResource {
        name: ResourceName::new("example.com", plural),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        singular: kind.to_ascii_lowercase().into(),
        short_names: Vec::new(),
        categories: vec!["all".into()],
        namespaced,
        origin: Origin::Custom,
        key: ServedKey::of(&[plural.as_bytes()]),
        versions: Arc::new(Versions {
            storage: versions.iter().find(|version| &*version.name == "v1").unwrap().clone(),
            served: versions,
        }),
        schema_hash: 7,
        conversion: Conversion::None,
        storage_version_hash: Some("hash=".into()),
        name_rule: NameRule::Dns1123Subdomain,
        verbs: Verbs::STANDARD,
        registry,
    }
}

pub(crate) const STATUS: Subresource =
    Subresource { name: "status", verbs: Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]), kind: None };

pub(crate) struct NameAndColor;

impl Columns for NameAndColor {
    fn definitions(&self) -> Vec<Column> {
        ["Name", "Color"]
            .map(|name| Column { name: name.to_owned(), kind: "string".to_owned(), ..Column::default() })
            .to_vec()
    }

    fn cells(&self, object: &Value, _now: i64) -> Vec<Value> {
        vec![object["metadata"]["name"].clone(), object["spec"]["color"].clone()]
    }
}
