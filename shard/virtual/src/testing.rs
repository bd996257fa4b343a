//! A small shard over a memory store: config maps and LogicalClusters, and users whose permissions tests state.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_api::WorkspaceTypeSpec;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::{
    Catalog, Conversion, ObjectStore, Registry, ServedKey, ServedResource, ServedVersion, StoreRegistry,
    StoredObject, Subresource, Versions, built_in_resources, is_built_in,
};
use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::resource::{CustomStrategy, PrinterColumns, Shape, Verb, Verbs};
use fairlead_apiserver::serve::MountedServer as _;
use fairlead_apiserver::{
    Action, Admission, AdmissionRequest, ApiServer, Attributes, Authorization, AuthorizationFuture, Host,
    IdentityAssumption, InterceptedRequest, RequestMetrics, RequestedResource, Response, ResponseBody, Scope,
    ScopeSelector, ScopedPath, version_document,
};
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_names::{KeyCodec, Origin, ResourceName};
use fairlead_process::{Metrics, RequestBody, Status};
use fairlead_schema::names::NameRule;
use fairlead_store::{MemoryStore, Mutation, Store};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    Binding, BoundSchemas, CachedSlice, CachedSlices, Export, ExportWorkspaces, Exports, Lifecycle,
    LifecycleWorkspaces, ReplicationWorkspaces, RootServer, SchemaWorkspaces, Shard, VirtualWorkspace,
    VirtualWorkspaces,
};

pub(crate) const MASTER: &str = "master";

/// A shard and its virtual workspaces.
pub(crate) struct TestShard {
    pub(crate) shard: Arc<TestAccess>,
    workspaces: VirtualWorkspaces,
    hub: Hub,
}

/// A response whose body was read.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) code: StatusCode,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The code, and the message of a failure.
    pub(crate) fn outcome(&self) -> (u16, String) {
        let message =
            self.json()["message"].as_str().map_or_else(|| self.text.trim().to_owned(), str::to_owned);
        (self.code.as_u16(), if self.code.is_success() { String::new() } else { message })
    }
}

impl TestShard {
    pub(crate) fn start() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let codec = KeyCodec::new("/registry", 1, is_built_in);
        let hub = Hub::new(store.clone(), codec, HubOptions::default());
        let objects = ObjectStore::new(store, codec, &["kcp.io/cluster"]);
        let writers = Arc::new(Mutex::new(Vec::new()));
        let admission = Arc::new(Unrestricted(writers.clone()));
        let registry: Arc<dyn Registry> =
            Arc::new(StoreRegistry::new(objects.clone(), hub.clone(), admission));
        let mut resources = built_in_resources(|_| Some(registry.clone()));
        resources.push(Arc::new(logical_clusters(registry.clone())));
        let bindings = custom("apis.kcp.io", "apibindings", "APIBinding", Origin::Custom, registry.clone());
        resources.push(Arc::new(bindings));
        let origin = Origin::Custom;
        let schemas =
            custom("apis.kcp.io", "apiresourceschemas", "APIResourceSchema", origin, registry.clone());
        resources.push(Arc::new(schemas));
        resources.sort_by(|one, other| one.name.cmp(&other.name));
        let bound = Arc::default();
        let host = TestHost {
            catalog: Arc::new(Catalog::new(resources)),
            bound: Arc::clone(&bound),
            version: version_document("test"),
        };
        let metrics = Metrics::new("test", "0").unwrap();
        let requests = RequestMetrics::new(&metrics).unwrap();
        let api = Arc::new(ApiServer::new(host, &["kcp.io/cluster"], "10.0.0.1:6443", requests));
        let shard = Arc::new(TestAccess {
            api: api.clone(),
            objects,
            grants: Mutex::default(),
            types: Mutex::default(),
            is_ready: Mutex::new(true),
            bound,
            exports: Mutex::default(),
            bindings: Mutex::default(),
            schemas: Mutex::default(),
            slices: Mutex::default(),
            writers,
            registry,
        });
        let access: Arc<dyn Shard> = shard.clone();
        let workspaces = [Lifecycle::Initializing, Lifecycle::Terminating];
        let workspaces = workspaces.map(|lifecycle| -> Box<dyn VirtualWorkspace> {
            Box::new(LifecycleWorkspaces::new(lifecycle, access.clone()))
        });
        let mut workspaces = Vec::from(workspaces);
        workspaces.push(Box::new(ExportWorkspaces::new(access.clone(), shard.clone())));
        workspaces.push(Box::new(SchemaWorkspaces::new(access.clone(), shard.clone())));
        workspaces.push(Box::new(ReplicationWorkspaces::new(shard.clone(), shard.clone())));
        let workspaces = VirtualWorkspaces::new(&api, access, workspaces);
        let driven = hub.clone();
        tokio::spawn(async move { driven.run().await });
        Self { shard, workspaces, hub }
    }

    /// The same shard, with virtual workspaces for members of `system:masters` only.
    pub(crate) fn for_masters_only(self) -> Self {
        Self { workspaces: self.workspaces.for_masters_only(), ..self }
    }

    /// Sends a request to the listener.
    pub(crate) async fn send(&self, user: &str, method: &str, path: &str, body: &str) -> TestResponse {
        let response = self.open(user, method, path, &[], body).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        TestResponse { code, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub(crate) async fn get(&self, user: &str, path: &str) -> TestResponse {
        self.send(user, "GET", path, "").await
    }

    pub(crate) async fn open(
        &self,
        user: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder().method(method).uri(path).header("x-user", user);
        request = request.header("content-type", content_type);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = RequestBody::buffered(Bytes::from(body.to_owned()));
        let request = request.body(body).unwrap();
        match path.starts_with("/services") {
            true => self.workspaces.handle(request).await,
            false => self.shard.api.handle(request).await,
        }
    }

    pub(crate) async fn handle(&self, request: Request<RequestBody>) -> Response {
        self.workspaces.handle(request).await
    }

    /// Creates an object as an administrator.
    pub(crate) async fn create(&self, path: &str, object: Value) {
        let created = self.send(MASTER, "POST", path, &object.to_string()).await;
        assert_eq!(created.code, 201, "{path} {created:?}");
    }

    /// Creates a LogicalCluster with this status.
    pub(crate) async fn logical_cluster(&self, cluster: &str, labels: &[(String, String)], status: &Value) {
        let path = format!("/clusters/{cluster}{LOGICAL_CLUSTERS}");
        let labels: BTreeMap<_, _> = labels.iter().cloned().collect();
        let object = json!({
            "apiVersion": "core.kcp.io/v1alpha1",
            "kind": "LogicalCluster",
            "metadata": {"name": "cluster", "labels": labels, "finalizers": ["test.example.com/keep"]},
            "spec": {"createdBy": {"username": "creator", "groups": ["team"]}},
        });
        self.create(&path, object).await;
        let patch = json!({"status": status}).to_string();
        let patched = self.send(MASTER, "PATCH", &format!("{path}/cluster/status"), &patch).await;
        assert_eq!(patched.code, 200, "{patched:?}");
    }

    /// Waits until the hub has delivered all that was written.
    pub(crate) async fn settle(&self) {
        self.hub.wait(self.shard.objects.store().revision()).await.unwrap();
    }
}

pub(crate) const LOGICAL_CLUSTERS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters";

/// The events of a watch that are there now: type, logical cluster, and whether the object is being deleted.
pub(crate) fn events(response: &mut Response) -> Vec<(String, String, bool)> {
    let mut context = Context::from_waker(Waker::noop());
    let mut text = String::new();
    // An initial state that selects nothing is pending once before the live events.
    let mut pending = 0;
    while pending < 4 {
        match std::pin::Pin::new(response.body_mut()).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => {
                text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            }
            Poll::Ready(_) => break,
            Poll::Pending => pending += 1,
        }
    }
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let metadata = &event["object"]["metadata"];
        let cluster = metadata["annotations"]["kcp.io/cluster"].as_str().unwrap_or_default().to_owned();
        let is_deleting = metadata["deletionTimestamp"].is_string();
        (event["type"].as_str().unwrap().to_owned(), cluster, is_deleting)
    };
    text.lines().map(event).collect()
}

pub(crate) fn is_watch(response: &Response) -> bool {
    matches!(response.body(), ResponseBody::Watch(_))
}

/// Users: `master` is in `system:masters`, others are in no group. `creator` may do everything in the shard, members of a lifecycle
/// group, too.
struct TestHost {
    catalog: Arc<Catalog>,
    /// Bound resources by logical cluster.
    bound: BoundResources,
    version: Bytes,
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
        let name = parts.headers.get("x-user").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if name.is_empty() {
            return Err(Status::unauthorized());
        }
        let groups = if name == MASTER { vec!["system:masters".to_owned()] } else { Vec::new() };
        let user = UserInfo { name: name.to_owned(), groups, ..UserInfo::default() };
        Ok(Arc::new(Identity::new(user, AuthenticationMethod::TokenFile, None)))
    }

    fn check_impersonation(&self, _client: &UserInfo, _groups: &[String]) -> Result<(), Status> {
        Ok(())
    }

    async fn intercept(&self, _request: InterceptedRequest<'_>) -> Option<Response> {
        None
    }

    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
        let user = attributes.user;
        let has_warrant = user.extra.contains_key("authorization.kcp.io/warrant");
        let in_group = |prefix: &str| user.groups.iter().any(|group| group.starts_with(prefix));
        let is_allowed = has_warrant
            || user.name == "creator"
            || ["system:masters", "system:kcp:initializer:", "system:kcp:terminator:"]
                .into_iter()
                .any(in_group);
        AuthorizationFuture::Ready(match is_allowed {
            true => Authorization::allow("test", ""),
            false => Authorization::no_opinion("test", ""),
        })
    }

    fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        let bound = self.bound.lock();
        let bound = scopes.one().and_then(|scope| bound.get(scope.as_str())).into_iter().flatten();
        let found = self.catalog.resources.iter().chain(bound).find(|resource| {
            let identity = match &resource.origin {
                Origin::Identity(identity) => Some(&**identity),
                Origin::BuiltIn | Origin::Custom => None,
            };
            resource.name == *wanted.name && (wanted.identity.is_none() || wanted.identity == identity)
        });
        Ok(found.cloned())
    }

    fn catalog(&self, _scope: &Scope) -> Result<Arc<Catalog>, Status> {
        Ok(self.catalog.clone())
    }

    fn version(&self) -> &Bytes {
        &self.version
    }
}

pub(crate) struct TestAccess {
    api: Arc<ApiServer<TestHost>>,
    pub(crate) objects: ObjectStore,
    /// User, logical cluster, verb and name of the permitted actions.
    pub(crate) grants: Mutex<Vec<[&'static str; 4]>>,
    /// WorkspaceTypes, by `<cluster>:<name>`.
    pub(crate) types: Mutex<BTreeMap<String, Value>>,
    pub(crate) is_ready: Mutex<bool>,
    pub(crate) bound: BoundResources,
    pub(crate) exports: Mutex<Vec<Arc<Export>>>,
    /// By logical cluster and export.
    pub(crate) bindings: Mutex<BTreeMap<(String, String), Arc<Binding>>>,
    /// Bound schemas by logical cluster.
    pub(crate) schemas: Mutex<BTreeMap<String, BTreeMap<Arc<str>, Scope>>>,
    /// Endpoint slices by logical cluster and name.
    pub(crate) slices: Mutex<Vec<([&'static str; 2], Arc<CachedSlice>)>>,
    /// The users of writes as admission saw them.
    pub(crate) writers: Arc<Mutex<Vec<UserInfo>>>,
    pub(crate) registry: Arc<dyn Registry>,
}

type BoundResources = Arc<Mutex<BTreeMap<String, Vec<Arc<ServedResource>>>>>;

#[async_trait]
impl RootServer for TestAccess {
    fn host(&self) -> &dyn Host {
        self.api.host()
    }

    fn readiness(&self) -> Result<(), String> {
        if *self.is_ready.lock() { Ok(()) } else { Err("the shard is starting".to_owned()) }
    }

    async fn serve(&self, request: Request<RequestBody>) -> Response {
        self.api.handle(request).await
    }

    async fn serve_as(&self, request: Request<RequestBody>, assumption: &dyn IdentityAssumption) -> Response {
        self.api.handle_as(request, assumption).await
    }
}

#[async_trait]
impl Shard for TestAccess {
    async fn permits(&self, user: &UserInfo, scope: &Scope, action: &Action<'_>) -> bool {
        let Action::Resource { verb, name: Some(name), resource, subresource, .. } = *action else {
            return false;
        };
        assert!(matches!(
            (resource, subresource),
            ("workspacetypes", None) | ("apiexports", Some("content"))
        ));
        let granted = |grant: &[&'static str; 4]| {
            grant[..2] == [&*user.name, scope.as_str()] && [verb, "*"].contains(&grant[2]) && grant[3] == name
        };
        self.grants.lock().iter().any(granted)
    }

    fn logical_cluster(&self, scope: &Scope) -> Result<Option<Value>, Status> {
        let name = ResourceName::new("core.kcp.io", "logicalclusters");
        let found = self.objects.get(&name, &Origin::Custom, scope, None, "cluster")?;
        found.map(|stored| self.objects.tree(&stored)).transpose()
    }

    fn workspace_type(&self, scope: &Scope, name: &str) -> Result<Option<WorkspaceTypeSpec>, Status> {
        let found = self.types.lock().get(&format!("{scope}:{name}")).cloned();
        found.map(|spec| serde_json::from_value(spec).map_err(Status::internal)).transpose()
    }

    fn resource(&self, name: &ResourceName) -> Option<Arc<ServedResource>> {
        self.api.host().catalog.resources.iter().find(|resource| resource.name == *name).cloned()
    }
}

#[async_trait]
impl Exports for TestAccess {
    fn export(&self, cluster: &Scope, name: &str) -> Result<Option<Arc<Export>>, Status> {
        let exports = self.exports.lock();
        Ok(exports.iter().find(|export| export.cluster == *cluster && *export.name == *name).cloned())
    }

    fn by_identity(&self, identity: &str) -> Result<Vec<Arc<Export>>, Status> {
        let exports = self.exports.lock();
        let has = |export: &&Arc<Export>| export.identity.as_deref() == Some(identity);
        Ok(exports.iter().filter(has).cloned().collect())
    }

    fn binding(&self, cluster: &Scope, export: &Export) -> Result<Option<Arc<Binding>>, Status> {
        let key = (cluster.as_str().to_owned(), export.name.to_string());
        Ok(self.bindings.lock().get(&key).cloned())
    }

    async fn permits_content(&self, user: &UserInfo, cluster: &Scope, action: &Action<'_>) -> bool {
        self.permits(user, cluster, action).await
    }

    async fn is_within_policy(&self, user: &UserInfo, export: &Export, action: &Action<'_>) -> bool {
        let Action::Resource { verb, .. } = *action else { return false };
        self.grants.lock().contains(&match (&*user.name, verb, &*export.name) {
            ("provider", "get", "other") => ["provider", "policy", "get", "other"],
            _ => return false,
        })
    }
}

impl BoundSchemas for TestAccess {
    fn bound(&self, consumer: &Scope) -> Result<BTreeMap<Arc<str>, Scope>, Status> {
        Ok(self.schemas.lock().get(consumer.as_str()).cloned().unwrap_or_default())
    }

    fn schema(&self, cluster: &Scope, name: &str) -> Result<Option<StoredObject>, Status> {
        let resource = ResourceName::new("apis.kcp.io", "apiresourceschemas");
        self.objects.get(&resource, &Origin::Custom, cluster, None, name)
    }
}

impl CachedSlices for TestAccess {
    fn slice(&self, cluster: &Scope, name: &str) -> Result<Option<Arc<CachedSlice>>, Status> {
        let slices = self.slices.lock();
        Ok(slices.iter().find(|(key, _)| *key == [cluster.as_str(), name]).map(|(_, slice)| slice.clone()))
    }

    fn is_bound(&self, consumer: &Scope, slice: &CachedSlice) -> bool {
        let key = (consumer.as_str().to_owned(), slice.export_name.to_string());
        self.bindings.lock().get(&key).is_some_and(|binding| binding.bound.contains(&slice.resource.name))
    }
}

/// Records the users of writes.
struct Unrestricted(Arc<Mutex<Vec<UserInfo>>>);

#[async_trait]
impl Admission for Unrestricted {
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        self.0.lock().push(write.user.clone());
        Ok(Vec::new())
    }
}

fn logical_clusters(registry: Arc<dyn Registry>) -> ServedResource {
    let resource = custom("core.kcp.io", "logicalclusters", "LogicalCluster", Origin::Custom, registry);
    ServedResource { storage_version_hash: Some("l84hS/aun10=".into()), ..resource }
}

/// A cluster-scoped custom resource with a status.
pub(crate) fn custom(
    group: &str,
    plural: &str,
    kind: &str,
    origin: Origin,
    registry: Arc<dyn Registry>,
) -> ServedResource {
    let status =
        Subresource { name: "status", verbs: Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]), kind: None };
    let version = ServedVersion {
        name: "v1alpha1".into(),
        shape: Shape::Anything,
        open_api: Some(Arc::new(json!({"type": "object"}))),
        columns: Arc::new(PrinterColumns::new(Vec::new())),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        subresources: vec![status],
        strategy: Arc::new(CustomStrategy { has_status_subresource: true, scale: None }),
    };
    ServedResource {
        name: ResourceName::new(group, plural),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        singular: kind.to_ascii_lowercase().into(),
        short_names: Vec::new(),
        categories: vec!["kcp".into()],
        namespaced: false,
        key: ServedKey::of(&[plural.as_bytes(), origin.segment().unwrap_or_default().as_bytes()]),
        origin,
        versions: Arc::new(Versions { served: vec![version.clone()], storage: version }),
        schema_hash: 1,
        conversion: Conversion::None,
        storage_version_hash: None,
        name_rule: NameRule::Dns1123Subdomain,
        verbs: Verbs::STANDARD,
        registry,
    }
}
