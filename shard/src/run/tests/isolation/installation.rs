//! A shard with a provider, another provider whose resource it claims, and consumers that decide differently about the claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::serve::MountedServer;
use fairlead_apiserver::{ApiServer, Response};
use fairlead_authn::UserInfo;
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots};
use fairlead_config::ShardConfig;
use fairlead_process::{Health, Metrics, Probe, Reloads, RequestBody, Shutdown, Tasks};
use fairlead_store::{Election, MemoryStore, Store};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::global::GlobalView;
use crate::host::ShardHost;
use crate::run::assembly::ShardParts;
use crate::run::{ANNOTATIONS, CODEC};

/// In `system:masters`.
pub(super) const MASTER: &str = "master";
/// The provider of the export `widgets`, with all verbs on its content.
pub(super) const PROVIDER: &str = "provider";
/// The administrator of all consumers.
pub(super) const CONSUMER: &str = "consumer";

/// Consumers, with their decisions about the claims on config maps and gadgets. `unbound` has no binding.
pub(super) const CONSUMERS: [&str; 8] =
    ["accepted", "selected", "expressed", "readonly", "rejected", "absent", "excess", "unbound"];

const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

pub(in crate::run::tests) struct Installation {
    api: Arc<ApiServer<ShardHost>>,
    services: Arc<dyn MountedServer>,
    store: Arc<dyn Store>,
    hub: Hub,
    global: Arc<GlobalView>,
    /// Logical clusters by workspace.
    clusters: BTreeMap<&'static str, String>,
    /// The identities of the exports `widgets` and `gadgets`.
    identities: [String; 2],
    _tasks: Tasks,
}

/// A client of a cache server that does not exist: one shard needs none.
fn no_cache() -> Client {
    let endpoint = Endpoint::parse("http://127.0.0.1:9").unwrap();
    let credentials = Credentials::new(TrustRoots::Nothing).unwrap();
    Client::new(endpoint, credentials, ClientOptions::default())
}

/// A response whose body was read.
pub(super) struct TestResponse {
    pub(super) code: StatusCode,
    pub(super) text: String,
}

impl TestResponse {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl Installation {
    /// All workspaces, with their exports, bindings and objects.
    pub(super) async fn start() -> Self {
        let mut installation = Self::bare(no_cache()).await;
        installation.fill().await;
        installation
    }

    /// No workspaces.
    pub(super) async fn bare(cache: Client) -> Self {
        Self::assemble(Arc::new(MemoryStore::new()), cache, None).await
    }

    /// A replica without workspaces, which leads when an election says so.
    pub(in crate::run::tests) async fn replica(store: Arc<dyn Store>, election: Arc<dyn Election>) -> Self {
        Self::assemble(store, no_cache(), Some(election)).await
    }

    async fn assemble(store: Arc<dyn Store>, cache: Client, election: Option<Arc<dyn Election>>) -> Self {
        let objects = ObjectStore::new(store.clone(), CODEC, ANNOTATIONS);
        let hub = Hub::new(store.clone(), CODEC, HubOptions::default());
        let metrics = Metrics::new("shard", "0").unwrap();
        let reloads = Reloads::new(&metrics).unwrap();
        let config = ShardConfig::default();
        let shutdown = Shutdown::new(&config.drain);
        let tasks = Tasks::new(shutdown.clone());
        let users = users().into_iter().map(|user| (Sha256::digest(&user.name).into(), user)).collect();
        let parts = ShardParts::assemble(&config, users, &objects, &hub, &metrics, &reloads).unwrap();
        let following = hub.clone();
        tasks.spawn_fallible("watch hub", async move { following.run().await });
        let bootstrapped = Health::new().flag("started", &[Probe::Ready]);
        let (api, services) =
            (parts.api.clone(), parts.virtual_workspaces().into_workspaces().mount().server);
        let (copies, global) = (parts.copies.clone(), parts.global.clone());
        tasks.spawn_fallible("hub of copies", async move { copies.hub().run().await });
        let is_elected = election.is_some();
        let supervised = tasks.clone();
        let starting = tokio::task::spawn_blocking(move || {
            let start = parts.start(config, cache, election, supervised, shutdown, bootstrapped);
            Handle::current().block_on(start).unwrap();
        });
        // A replica has started once a leader has registered the shard, and the test decides about leaders.
        if !is_elected {
            starting.await.unwrap();
        }
        let (clusters, identities) = (BTreeMap::new(), Default::default());
        Self { api, services, store, hub, global, clusters, identities, _tasks: tasks }
    }

    /// Waits until the indexes have every commit.
    pub(in crate::run::tests) async fn catch_up(&self) {
        self.hub.wait(self.store.revision()).await.unwrap();
    }

    /// The replicas of other shards.
    pub(in crate::run::tests) fn global(&self) -> &GlobalView {
        &self.global
    }

    /// Creates workspaces in root and waits until they are Ready.
    pub(in crate::run::tests) async fn workspaces(&mut self, names: &[&'static str]) {
        for name in names {
            self.create_workspace(name).await;
        }
        for name in names {
            let ready = self
                .until(&format!("{WORKSPACES}/{name}"), |found| found["status"]["phase"] == "Ready")
                .await;
            self.clusters.insert(name, ready["spec"]["cluster"].as_str().unwrap().to_owned());
        }
    }

    /// Creates a workspace in root.
    pub(in crate::run::tests) async fn create_workspace(&self, name: &str) {
        let workspace = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
            "spec": {"type": {"name": "universal", "path": "root"}},
        });
        self.create(WORKSPACES, workspace).await;
    }

    /// Sends a request and reads the response.
    pub(super) async fn send(&self, user: &str, method: &str, path: &str, body: &Value) -> TestResponse {
        let response = self.open(user, method, path, &[], body).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        TestResponse { code, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    /// Sends a request. The name of a user is its token; `anonymous` sends none. `a>b`: `a` impersonates `b`, where
    /// `account@<workspace>` is the service account `controller` of a workspace, as its token identifies it.
    pub(super) async fn open(
        &self,
        user: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Response {
        let path = self.resolved(path);
        let mut request = Request::builder().method(method).uri(&path);
        let (client, impersonated) = match user.split_once('>') {
            Some((client, impersonated)) => (client, Some(impersonated)),
            None => (user, None),
        };
        if client != "anonymous" {
            request = request.header("authorization", format!("Bearer {client}"));
        }
        match impersonated.map(|name| (name, name.strip_prefix("account@"))) {
            Some((_, Some(workspace))) => {
                let cluster = self.resolved(workspace);
                request = request
                    .header("impersonate-user", "system:serviceaccount:default:controller")
                    .header("impersonate-group", "system:authenticated")
                    .header("impersonate-extra-authentication.kcp.io%2fcluster-name", &cluster)
                    .header("impersonate-extra-authentication.kcp.io%2fscopes", format!("cluster:{cluster}"));
            }
            Some((name, None)) => request = request.header("impersonate-user", name),
            None => {}
        }
        if headers.iter().all(|(name, _)| *name != "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, self.resolved(value));
        }
        let text = if body.is_null() { String::new() } else { self.resolved(&body.to_string()) };
        let request = request.body(RequestBody::buffered(Bytes::from(text))).unwrap();
        match path.starts_with("/services") {
            true => self.services.handle(request).await,
            false => self.api.handle(request).await,
        }
    }

    /// Replaces `<workspace>` by its logical cluster, and `<widgets>` and `<gadgets>` by the identities of their exports.
    pub(super) fn resolved(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, cluster) in &self.clusters {
            text = text.replace(&format!("<{name}>"), cluster);
        }
        let [widgets, gadgets] = &self.identities;
        text.replace("<widgets>", widgets).replace("<gadgets>", gadgets)
    }

    /// The workspace of a logical cluster.
    pub(super) fn workspace_of(&self, cluster: &str) -> String {
        let found = self.clusters.iter().find(|(_, own)| *own == cluster);
        found.map_or(cluster, |(name, _)| name).to_owned()
    }

    /// Creates an object as a master.
    pub(super) async fn create(&self, path: &str, object: Value) {
        let created = self.send(MASTER, "POST", path, &object).await;
        assert_eq!(created.code, 201, "{path} {object}: {}", created.text);
    }

    /// Waits until an object has a state; checks after each commit.
    pub(super) async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut commits = self.store.follow(self.store.revision()).unwrap();
        loop {
            let found = self.send(MASTER, "GET", path, &Value::Null).await.json();
            if holds(&found) {
                return found;
            }
            let next = tokio::time::timeout(std::time::Duration::from_secs(60), commits.next()).await;
            assert!(next.is_ok(), "{path} stays {found}");
        }
    }
}

impl Installation {
    async fn fill(&mut self) {
        let names: Vec<_> = ["provider", "other"].into_iter().chain(CONSUMERS).collect();
        self.workspaces(&names).await;
        self.publish("other", "gadgets", "other.example.com", "Gadget", &json!([]), true).await;
        let claims = json!([
            {"group": "", "resource": "configmaps", "verbs": ["*"]},
            {"group": "other.example.com", "resource": "gadgets", "verbs": ["*"], "identityHash": "<gadgets>"},
        ]);
        self.publish("provider", "widgets", "example.com", "Widget", &claims, false).await;
        self.grant_in_provider().await;
        self.grant_in_other().await;
        for workspace in ["provider", "other"] {
            let publisher = json!({"kind": "User", "name": "publisher"});
            self.bind_role(workspace, "publisher", "cluster-admin", &publisher).await;
        }
        for name in CONSUMERS {
            let admin = if name == "unbound" { "stranger" } else { CONSUMER };
            self.bind_role(name, "administrators", "cluster-admin", &json!({"kind": "User", "name": admin}))
                .await;
            self.fill_consumer(name).await;
        }
    }

    /// Publishes a namespaced resource, whose export has the name of the resource.
    async fn publish(
        &mut self,
        workspace: &str,
        plural: &str,
        group: &str,
        kind: &str,
        claims: &Value,
        has_policy: bool,
    ) {
        let apis = format!("/clusters/<{workspace}>/apis/apis.kcp.io");
        let schema = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": format!("v1.{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }],
            },
        });
        self.create(&format!("{apis}/v1alpha1/apiresourceschemas"), schema).await;
        let schema = format!("v1.{plural}.{group}");
        let mut export = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": plural},
            "spec": {
                "resources": [{"group": group, "name": plural, "schema": schema, "storage": {"crd": {}}}],
                "permissionClaims": claims,
            },
        });
        if has_policy {
            export["spec"]["maximalPermissionPolicy"] = json!({"local": {}});
        }
        self.create(&format!("{apis}/v1alpha2/apiexports"), export).await;
        let path = format!("{apis}/v1alpha2/apiexports/{plural}");
        let known = self.until(&path, |found| found["status"]["identityHash"].is_string()).await;
        let index = usize::from(plural == "gadgets");
        self.identities[index] = known["status"]["identityHash"].as_str().unwrap().to_owned();
    }

    async fn grant_in_provider(&self) {
        let content = |verbs: Value| {
            json!([{
                "apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "resourceNames": ["widgets", "absent"],
                "verbs": verbs,
            }])
        };
        let access = json!([{"nonResourceURLs": ["/"], "verbs": ["access"]}]);
        for (role, rules) in [
            ("content", content(json!(["*"]))),
            ("content-reads", content(json!(["get", "list", "watch"]))),
            ("content-creates", content(json!(["create"]))),
            ("enter", access),
        ] {
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
                "rules": rules,
            });
            self.create(&roles("provider"), object).await;
        }
        let user = |name: &str| json!({"kind": "User", "name": name});
        let account = json!({"kind": "ServiceAccount", "name": "controller", "namespace": "default"});
        for (role, subject) in [
            ("content", user(PROVIDER)),
            ("enter", user(PROVIDER)),
            ("content-reads", user("reader")),
            ("enter", user("reader")),
            ("content-creates", user("creator")),
            ("enter", user("creator")),
            // Enters the workspace, without rights on the content of the export.
            ("enter", user("visitor")),
            // Has rights on the content of the export, but may not enter the workspace.
            ("content", user("excluded")),
            ("content", account),
        ] {
            let name = format!("{role}-{}", subject["name"].as_str().unwrap());
            self.bind_role("provider", &name, role, &subject).await;
        }
    }

    /// The maximal permission policy of `gadgets`: the provider of `widgets` reads them, and consumers do everything.
    async fn grant_in_other(&self) {
        let rule = |verbs: Value| json!([{"apiGroups": ["other.example.com"], "resources": ["gadgets", "gadgets/status"], "verbs": verbs}]);
        for (user, verbs) in [
            ("provider", json!(["get", "list", "watch"])),
            ("consumer", json!(["*"])),
            ("master", json!(["*"])),
        ] {
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user},
                "rules": rule(verbs),
            });
            self.create(&roles("other"), object).await;
            let subject = json!({"kind": "User", "name": format!("apis.kcp.io:binding:{user}")});
            self.bind_role("other", user, user, &subject).await;
        }
    }

    pub(super) async fn bind_role(&self, workspace: &str, name: &str, role: &str, subject: &Value) {
        let mut subject = subject.clone();
        if subject["kind"] == "User" {
            subject["apiGroup"] = "rbac.authorization.k8s.io".into();
        }
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        });
        self.create(&format!("/clusters/<{workspace}>{RBAC}/clusterrolebindings"), object).await;
    }

    async fn fill_consumer(&self, name: &str) {
        let base = format!("/clusters/<{name}>");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shared"}});
        self.create(&format!("{base}/api/v1/namespaces"), namespace).await;
        let claims = claims_of(name);
        if name != "unbound" {
            self.bind(name, "other", "gadgets", json!([])).await;
            self.bind(name, "provider", "widgets", claims.clone()).await;
        }
        for (collection, kind, api_version) in [
            ("api/v1/namespaces/shared/configmaps", "ConfigMap", "v1"),
            ("api/v1/namespaces/shared/secrets", "Secret", "v1"),
            ("apis/example.com/v1/namespaces/shared/widgets", "Widget", "example.com/v1"),
            ("apis/other.example.com/v1/namespaces/shared/gadgets", "Gadget", "other.example.com/v1"),
        ] {
            if name == "unbound" && collection.starts_with("apis") {
                continue;
            }
            for (object, labels) in [("plain", json!({})), ("red", json!({"team": "red"}))] {
                let object = json!({
                    "apiVersion": api_version, "kind": kind, "metadata": {"name": object, "labels": labels},
                });
                self.create(&format!("{base}/{collection}"), object).await;
            }
        }
    }

    /// Binds an export and waits until its claims have their effect.
    pub(super) async fn bind(&self, workspace: &str, exporter: &str, export: &str, claims: Value) {
        let path = format!("/clusters/<{workspace}>/apis/apis.kcp.io/v1alpha2/apibindings");
        let accepted = claims.as_array().unwrap().iter().filter(|claim| claim["state"] == "Accepted");
        let accepted = accepted.filter(|claim| claim["resource"] != "secrets").count();
        let binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": export},
            "spec": {
                "reference": {"export": {"path": format!("root:{exporter}"), "name": export}},
                "permissionClaims": claims,
            },
        });
        self.create(&path, binding).await;
        self.until(&format!("{path}/{export}"), |found| {
            let status = &found["status"];
            let applied = status["appliedPermissionClaims"].as_array().map_or(0, Vec::len);
            status["phase"] == "Bound" && applied == accepted
        })
        .await;
    }
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(super) fn roles(workspace: &str) -> String {
    format!("/clusters/<{workspace}>{RBAC}/clusterroles")
}

/// The users, whose tokens are their names.
fn users() -> Vec<UserInfo> {
    let user = |name: &str, groups: &[&str]| UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    };
    let names =
        [PROVIDER, "reader", "creator", "visitor", "excluded", "publisher", CONSUMER, "stranger", "updater"];
    let mut users: Vec<_> = names.into_iter().map(|name| user(name, &[])).collect();
    users.push(user(MASTER, &["system:masters"]));
    users
}

/// The decisions of a consumer about the claims of `widgets`.
fn claims_of(consumer: &str) -> Value {
    let claim = |state: &str, verbs: Value, selector: Value| {
        let maps = json!({"group": "", "resource": "configmaps", "verbs": verbs, "state": state, "selector": selector});
        let gadgets = json!({
            "group": "other.example.com", "resource": "gadgets", "identityHash": "<gadgets>", "verbs": verbs,
            "state": state, "selector": selector,
        });
        json!([maps, gadgets])
    };
    let all = json!({"matchAll": true});
    let any = json!(["*"]);
    match consumer {
        "accepted" => claim("Accepted", any, all),
        "selected" => claim("Accepted", any, json!({"matchLabels": {"team": "red"}})),
        "expressed" => {
            let requirement = json!({"key": "team", "operator": "In", "values": ["red"]});
            claim("Accepted", any, json!({"matchExpressions": [requirement]}))
        }
        "readonly" => claim("Accepted", json!(["get", "list", "watch"]), all),
        "rejected" => claim("Rejected", any, all),
        // Accepts more than the export claims.
        "excess" => {
            let mut claims = claim("Accepted", any.clone(), all.clone());
            claims.as_array_mut().unwrap().push(
                json!({"group": "", "resource": "secrets", "verbs": any, "state": "Accepted", "selector": all}),
            );
            claims
        }
        _ => json!([]),
    }
}
